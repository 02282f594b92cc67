// SPDX-License-Identifier: Apache-2.0
//
// The kernels that a pipeline instantiates: those of the elements that its layout names, and no others. A layout read
// at run time may name any, so it gets them all.

#pragma once

#include <tide/fabric/fabric.hpp>          // KernelCode
#include <tide/layout/dynamic_layout.hpp>  // DynamicLayout
#include <tide/layout/shard_layout.hpp>    // ShardLayout

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

// The code of a collective's kernel table, entry by entry.
template <class F, class Layout, Kernel::Kind Kind, Finish End = Finish::store>
[[nodiscard]] std::vector<KernelCode> kernel_code(const Collective& collective) {
  using Role = std::conditional_t<Kind == Kernel::Kind::cast, GatheredElement, GradientElement>;
  std::vector<KernelCode> code;
  for (const Kernel& kernel : collective.kernels) {
    code.push_back(code_of<F, Kind, End, elements_used<Layout, Role>>(
        Kind == Kernel::Kind::cast ? kernel.output : kernel.input, std::make_index_sequence<all_elements.size()>{}));
  }
  return code;
}

}  // namespace tide::detail
