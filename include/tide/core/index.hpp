// SPDX-License-Identifier: Apache-2.0
//
// Indices of different kinds are different types: a rank is not a parameter, a lane is not a slot.
//
// Test: tests/core/index.test.cpp

#pragma once

#include <tide/core/math.hpp>  // index_t

#include <compare>
#include <cstdint>

namespace tide {

namespace detail {

// Not constexpr: a constant expression that comes here does not compile.
inline void position_exceeds_32_bits() noexcept {}

}  // namespace detail

/// A position among things of one kind, named by `Kind`. Converts to nothing; `value` is the number.
template <class Kind>
struct Index {
  std::int32_t value = 0;

  constexpr Index() = default;
  /// @pre position fits into 32 bits
  constexpr explicit Index(index_t position) noexcept : value(static_cast<std::int32_t>(position)) {
    if (value != position) detail::position_exceeds_32_bits();
  }

  [[nodiscard]] friend constexpr auto operator<=>(Index, Index) = default;
};

/// A rank of the communicator that a collective runs over, 0 .. ranks - 1.
using Rank = Index<struct RankKind>;

/// A parameter of a group, in group order.
using ParameterIndex = Index<struct ParameterKind>;

/// A lane of a plan: an in-order queue of ops. Lane 0 is the caller's.
using LaneIndex = Index<struct LaneKindTag>;

/// A slot of a `SlotPool`.
using SlotIndex = Index<struct SlotKind>;

}  // namespace tide
