// SPDX-License-Identifier: Apache-2.0
//
// The kernels that a pipeline instantiates: those of the elements that its layout names, and no others. A layout read
// at run time may name any, so it gets them all.

#pragma once

#include <tide/fabric/fabric.hpp>        // KernelCode
#include <tide/layout/shard_layout.hpp>  // ShardLayout

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

namespace tide::detail {

// Bit e is set when the group names element e in the given role.
template <class Layout, class Role>
inline constexpr unsigned elements_used = [] {
  if constexpr (std::is_same_v<Layout, DynamicLayout>) {
    return ~0U;
  } else {
    unsigned used = 0;
    for (const Parameter& parameter : Layout::group.parameters)
      used |= 1U << static_cast<unsigned>(Role::of(parameter));
    return used;
  }
}();

template <class F, Kernel::Kind Kind, Finish End, unsigned Used, std::size_t... E>
[[nodiscard]] KernelCode code_of(Element element, std::index_sequence<E...>) {
  KernelCode code = nullptr;
  const auto consider = [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
    if constexpr ((Used >> static_cast<unsigned>(all_elements[I]) & 1U) != 0) {
      if (element == all_elements[I]) code = F::template kernel<Kind, all_elements[I], End>();
    }
  };
  (consider(std::integral_constant<std::size_t, E>{}), ...);
  return code;
}

// The code of a gather's kernel table, entry by entry.
template <class F, class Layout>
[[nodiscard]] std::vector<KernelCode> cast_code(const Collective& collective) {
  std::vector<KernelCode> code;
  for (const Kernel& kernel : collective.kernels) {
    code.push_back(code_of<F, Kernel::Kind::cast, Finish::store, elements_used<Layout, GatheredElement>>(
        kernel.output, std::make_index_sequence<all_elements.size()>{}));
  }
  return code;
}

[[nodiscard]] constexpr unsigned element_bit(Element element) noexcept { return 1U << static_cast<unsigned>(element); }

// The code of a reduce's. Over nodes there are sums of `OverNodes`, f32 and what the wire has, whatever the gradients
// are; partial sums, which are stored; what rounds them to the wire, which is a cast; and sums in the switch.
template <class F, class Layout, Finish End, unsigned OverNodes, bool InSwitch>
[[nodiscard]] std::vector<KernelCode> sum_code(const Collective& collective) {
  constexpr unsigned used = elements_used<Layout, GradientElement> | OverNodes;
  constexpr auto all = std::make_index_sequence<all_elements.size()>{};
  std::vector<KernelCode> code;
  for (const Kernel& kernel : collective.kernels) {
    if constexpr (InSwitch) {
      if (kernel.kind == Kernel::Kind::switch_sum) {
        code.push_back(F::template kernel<Kernel::Kind::switch_sum, Element::f32, End>());
        continue;
      }
    }
    if constexpr (OverNodes != 0) {
      if (kernel.output != Element::f32) {
        code.push_back(code_of<F, Kernel::Kind::cast, Finish::store, OverNodes>(kernel.output, all));
        continue;
      }
    }
    if constexpr (OverNodes != 0 && End != Finish::store) {
      if (kernel.finish == Finish::partial) {
        code.push_back(code_of<F, Kernel::Kind::sum, Finish::store, used>(kernel.input, all));
        continue;
      }
    }
    code.push_back(code_of<F, Kernel::Kind::sum, End, used>(kernel.input, all));
  }
  return code;
}

}  // namespace tide::detail
