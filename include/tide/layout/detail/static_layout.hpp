// SPDX-License-Identifier: Apache-2.0
//
// What ShardLayout asserts, one literal per rule: nvcc, GCC and Clang all print a static_assert of a class template
// first, and the first line printed is the cause.

#pragma once

#include <tide/layout/fixed_string.hpp>  // FixedString
#include <tide/layout/layout_rules.hpp>  // check, culprit, LayoutRule
#include <tide/layout/layout_view.hpp>
#include <tide/layout/tensor_view.hpp>  // TensorView

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tide::detail {

// Reads what only a constant has: sizes are known of variables, too.
[[nodiscard]] constexpr bool is_readable(const GroupView& group) noexcept {
  return group.size() == 0 || group.parameters[0].shape.rank >= 0;
}

template <const auto& Group>
concept ConstantGroup = requires {
  typename std::bool_constant<is_readable(Group.view())>;
};

template <class M>
inline constexpr bool is_mesh = false;
template <index_t Nodes, index_t RanksPerNode>
inline constexpr bool is_mesh<Mesh<Nodes, RanksPerNode>> = true;

template <class Storage>
inline constexpr bool is_storage = false;
template <class Alignment>
inline constexpr bool is_storage<DenseStorage<Alignment>> = true;

// The rules of the parameters that are types.
template <const auto& Group, class M, class Pack, class Storage>
struct PolicyRules {
  static_assert(ConstantGroup<Group>, "tide::ShardLayout: Group must be a constexpr variable made by tide::group.");
  static_assert(is_mesh<M>, "tide::ShardLayout: M must be a tide::Mesh.");
  static_assert(Packing<Pack>, "tide::ShardLayout: Pack must be a Packing; use TightPacking or Fsdp2Packing.");
  static_assert(is_storage<Storage>, "tide::ShardLayout: Storage must be a tide::DenseStorage.");
  static constexpr bool aligned = [] {
    if constexpr (Packing<Pack>) return is_alignment(PackingRule(Pack::rule).start_alignment);
    return true;
  }();
  static_assert(aligned, "tide::ShardLayout: the start_alignment of Pack must be a power of two, at most 1 GiB.");
};

// The sentences, each a literal. `Parameter` is the name of what breaks the rule: compilers print it beside the
// sentence.
template <LayoutRule Broken, FixedString Parameter>
struct GroupSentences {
  static_assert(Broken != LayoutRule::no_parameters, "tide::ShardLayout: a group needs at least one parameter.");
  static_assert(Broken != LayoutRule::too_many_parameters,
                "tide::ShardLayout: a group has at most 65535 parameters; split it.");
  static_assert(Broken != LayoutRule::scalar,
                "tide::ShardLayout: a parameter needs at least one dimension; give a scalar the shape {1}.");
  static_assert(Broken != LayoutRule::too_many_dimensions,
                "tide::ShardLayout: a parameter has at most 8 dimensions; merge neighbouring ones.");
  static_assert(Broken != LayoutRule::negative_extent, "tide::ShardLayout: extents must not be negative.");
  static_assert(Broken != LayoutRule::unknown_element,
                "tide::ShardLayout: elements must be enumerators of tide::Element.");
  static_assert(Broken != LayoutRule::too_large, "tide::ShardLayout: a group must have fewer than 2^44 elements.");
  static_assert(Broken != LayoutRule::pattern_without_number,
                "tide::ShardLayout: the pattern of tide::repeat must hold {}; the number goes there.");
  static_assert(Broken != LayoutRule::duplicate_name,
                "tide::ShardLayout: names in a group must differ; declare a tied weight with tide::alias.");
  static_assert(Broken != LayoutRule::unknown_alias,
                "tide::ShardLayout: the target of an alias must be a parameter of the group.");
  static_assert(Broken != LayoutRule::sharded_dimension,
                "tide::ShardLayout: the sharded dimension must be one of the parameter's dimensions.");
  static_assert(
      Broken != LayoutRule::uneven_dimension,
      "tide::ShardLayout: a sharded dimension other than 0 must be a multiple of the ranks; cut dimension 0.");
  static_assert(Broken != LayoutRule::ragged_ranks,
                "tide::ShardLayout: ragged rows need one count per rank of the mesh.");
  static_assert(Broken != LayoutRule::ragged_rows,
                "tide::ShardLayout: ragged rows must not be negative and must add up to dimension 0.");
  static_assert(Broken != LayoutRule::broken_rule,
                "tide::ShardLayout: a shard rule must cut all rows into consecutive ranges; begin at 0, end at rows.");
};

template <const auto& Group, const LayoutFault& Fault>
[[nodiscard]] consteval auto culprit_text() {
  if constexpr (Fault.rule == LayoutRule::none) {
    return FixedString("");
  } else {
    constexpr std::size_t size = [] {
      std::size_t characters = 0;
      culprit(Fault, Group.view()).for_each_part([&](std::string_view part) { characters += part.size(); });
      return characters;
    }();
    char text[size + 1] = {};
    char* end = text;
    culprit(Fault, Group.view()).for_each_part([&](std::string_view part) {
      end = std::copy(part.begin(), part.end(), end);
    });
    return FixedString<size + 1>(text);
  }
}

template <const auto& Group>
inline constexpr LayoutFault group_fault = [] {
  if constexpr (ConstantGroup<Group>) return check(Group.view());
  return LayoutFault{};
}();

template <const auto& Group>
struct GroupRules : GroupSentences<group_fault<Group>.rule, culprit_text<Group, group_fault<Group>>()> {};

// The rules that need the number of ranks, where the compiler knows it.
template <const auto& Group, class M>
inline constexpr LayoutFault mesh_fault = [] {
  if constexpr (group_fault<Group>.rule == LayoutRule::none && ConstantGroup<Group> && is_mesh<M>) {
    if constexpr (M::is_static) return check_cut(Group.view(), M().ranks());
  }
  return LayoutFault{};
}();

template <const auto& Group, class M>
struct MeshRules : GroupSentences<mesh_fault<Group, M>.rule, culprit_text<Group, mesh_fault<Group, M>>()> {};

struct GatheredElement {
  static constexpr Element of(const Parameter& parameter) { return parameter.gathered; }
};
struct GradientElement {
  static constexpr Element of(const Parameter& parameter) { return parameter.gradient; }
};

template <const auto& Group, std::int32_t I, class Which, class Dimensions>
struct TensorOfDimensions;
template <const auto& Group, std::int32_t I, class Which, int... D>
struct TensorOfDimensions<Group, I, Which, std::integer_sequence<int, D...>> {
  using type = TensorView<type_of_t<Which::of(Group.parameters[static_cast<std::size_t>(I)])>,
                          Group.parameters[static_cast<std::size_t>(I)].shape[D]...>;
};

// The position is a plain number here: GCC 12 crashes on a class type in this place.
template <const auto& Group, std::int32_t I, class Which>
struct TensorOf {
  static constexpr int rank = Group.parameters[static_cast<std::size_t>(I)].shape.rank;
  using type = typename TensorOfDimensions<Group, I, Which, std::make_integer_sequence<int, rank>>::type;
};

}  // namespace tide::detail
