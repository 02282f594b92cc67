// SPDX-License-Identifier: Apache-2.0
//
// Which parameters of a group `repeat` made of one that is written "experts.{}.w" there.

#pragma once

#include <tide/layout/fixed_string.hpp>  // FixedString
#include <tide/layout/group.hpp>         // GroupView
#include <tide/layout/layout_view.hpp>   // LayoutView

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tide::detail {

inline constexpr index_t no_repetition = -1;

// How many numbers there are, those that are left out included.
[[nodiscard]] consteval std::size_t count_repetitions(const GroupView& group, std::string_view written) {
  index_t count = 0;
  for (const Parameter& parameter : group.parameters) {
    if (parameter.name.is_repetition_of(written)) count = std::max(count, parameter.name.number + 1);
  }
  return static_cast<std::size_t>(count);
}

// The position of each number in the group.
template <const auto& Group, FixedString Text>
inline constexpr auto repetition_positions = [] {
  std::array<index_t, count_repetitions(Group.view(), Text.view())> positions{};
  positions.fill(no_repetition);
  for (index_t i = 0; i < Group.view().size(); ++i) {
    const Name& name = Group.view()[ParameterIndex{i}].name;
    if (name.is_repetition_of(Text.view())) positions[static_cast<std::size_t>(name.number)] = i;
  }
  return positions;
}();

// Where each number starts in a dense buffer, in bytes.
template <const auto& Group, class Pack, class Storage, FixedString Text, Buffer Which>
inline constexpr auto repetition_starts = [] {
  std::array<index_t, repetition_positions<Group, Text>.size()> starts{};
  const LayoutView any_mesh{Group.view(), {}, Pack::rule, Storage::alignment};
  any_mesh.for_each_piece(Rank{0}, [&](const Piece& piece) {
    const Name& name = Group.view()[piece.parameter].name;
    if (!name.is_repetition_of(Text.view())) return;
    starts[static_cast<std::size_t>(name.number)] = piece.start[static_cast<std::size_t>(Which)];
  });
  return starts;
}();

// The position of the parameter of that name, or of the first that is written so. A plain number: see TensorOf.
template <const auto& Group, FixedString Text>
[[nodiscard]] consteval std::int32_t first_named() noexcept {
  constexpr auto found = Group.view().find_first(Text.view());
  static_assert(found.has_value(), "tide::ShardLayout: the group has no parameter of this name.");
  return found.value_or(ParameterIndex{0}).value;
}

}  // namespace tide::detail
