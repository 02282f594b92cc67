// SPDX-License-Identifier: Apache-2.0
//
// The rules that a group must keep before it can be laid out, and their sentences: the same at compile time
// (`ShardLayout`) and at run time (`DynamicLayout`, files).
//
// Test: tests/layout/layout_rules.test.cpp

#pragma once

#include <tide/core/text.hpp>                  // printable
#include <tide/layout/detail/check_group.hpp>  // check_group, check_cut
#include <tide/layout/group.hpp>               // GroupView
#include <tide/layout/layout_view.hpp>         // LayoutView
#include <tide/layout/mesh.hpp>                // MeshShape

#include <string>

namespace tide {

/// The first rule that a group breaks, whatever the mesh; `LayoutRule::none` when it breaks none.
[[nodiscard]] constexpr LayoutFault check(const GroupView& group) { return detail::check_group(group); }

/// The first rule that a group breaks on a mesh of that many ranks.
[[nodiscard]] constexpr LayoutFault check(const GroupView& group, index_t ranks) {
  const LayoutFault fault = detail::check_group(group);
  return fault.rule != LayoutRule::none ? fault : detail::check_cut(group, ranks);
}

/// The sentence of a rule, as compile errors and run-time errors say it.
[[nodiscard]] constexpr std::string_view sentence(LayoutRule rule) noexcept {
  switch (rule) {
    case LayoutRule::none:
      break;
    case LayoutRule::no_parameters:
      return "tide::ShardLayout: a group needs at least one parameter.";
    case LayoutRule::too_many_parameters:
      return "tide::ShardLayout: a group has at most 65535 parameters; split it.";
    case LayoutRule::scalar:
      return "tide::ShardLayout: a parameter needs at least one dimension; give a scalar the shape {1}.";
    case LayoutRule::too_many_dimensions:
      return "tide::ShardLayout: a parameter has at most 8 dimensions; merge neighbouring ones.";
    case LayoutRule::negative_extent:
      return "tide::ShardLayout: extents must not be negative.";
    case LayoutRule::unknown_element:
      return "tide::ShardLayout: elements must be enumerators of tide::Element.";
    case LayoutRule::too_large:
      return "tide::ShardLayout: a group must have fewer than 2^44 elements.";
    case LayoutRule::pattern_without_number:
      return "tide::ShardLayout: the pattern of tide::repeat must hold {}; the number goes there.";
    case LayoutRule::duplicate_name:
      return "tide::ShardLayout: names in a group must differ; declare a tied weight with tide::alias.";
    case LayoutRule::unknown_alias:
      return "tide::ShardLayout: the target of an alias must be a parameter of the group.";
    case LayoutRule::sharded_dimension:
      return "tide::ShardLayout: the sharded dimension must be one of the parameter's dimensions.";
    case LayoutRule::uneven_dimension:
      return "tide::ShardLayout: a sharded dimension other than 0 must be a multiple of the ranks; cut dimension 0.";
    case LayoutRule::ragged_ranks:
      return "tide::ShardLayout: ragged rows need one count per rank of the mesh.";
    case LayoutRule::ragged_rows:
      return "tide::ShardLayout: ragged rows must not be negative and must add up to dimension 0.";
    case LayoutRule::broken_rule:
      return "tide::ShardLayout: a shard rule must cut all rows into consecutive ranges; begin at 0, end at rows.";
  }
  return "";
}

/// The name of the parameter or alias that a fault is about; empty where none is to blame.
[[nodiscard]] constexpr Name culprit(const LayoutFault& fault, const GroupView& group) noexcept {
  if (fault.parameter.value >= 0 && fault.parameter.value < group.size()) return group[fault.parameter].name;
  if (fault.alias >= 0) return {{}, 0, group.aliases[static_cast<std::size_t>(fault.alias)].name};
  return {};
}

/// The sentence of a fault, with the parameter that it is about.
[[nodiscard]] inline std::string describe(const LayoutFault& fault, const GroupView& group) {
  const std::string name = detail::printable(culprit(fault, group).str());
  std::string text{sentence(fault.rule)};
  if (!name.empty()) text += (fault.alias >= 0 ? " Alias '" : " Parameter '") + name + "'.";
  return text;
}

/// Raises the first rule that a group breaks on a mesh.
/// @throws Error (Errc::layout) with the sentence of the rule and the name of the parameter
constexpr void require(const GroupView& group, index_t ranks) {
  const LayoutFault fault = check(group, ranks);
  if (fault.rule != LayoutRule::none) raise(Errc::layout, describe(fault, group));
}

namespace detail {

// @throws Error (Errc::argument) when a group has no parameter at that position
inline void require_parameter(const LayoutView& layout, ParameterIndex parameter) {
  if (parameter.value >= 0 && parameter.value < layout.group.size()) return;
  raise(Errc::argument,
        detail::text({"tide::ParameterIndex: a position must be one of the group's; there is no parameter ",
                      parameter.value, " of ", layout.group.size(), "."}));
}

}  // namespace detail

}  // namespace tide
