// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/core/index.hpp>

#include <type_traits>

namespace {

using tide::LaneIndex;
using tide::ParameterIndex;
using tide::Rank;
using tide::SlotIndex;

// Indices of different kinds do not mix, and neither do an index and a number.
static_assert(!std::is_convertible_v<int, Rank> && !std::is_convertible_v<Rank, int>);
static_assert(!std::is_convertible_v<Rank, ParameterIndex> && !std::is_constructible_v<ParameterIndex, Rank>);
static_assert(!std::is_constructible_v<LaneIndex, SlotIndex> && !std::is_constructible_v<SlotIndex, LaneIndex>);

template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
};
static_assert(Comparable<Rank, Rank> && !Comparable<Rank, ParameterIndex> && !Comparable<Rank, int>);

// Order is that of the numbers.
static_assert(Rank{} == Rank{0} && Rank{3} == Rank{3} && Rank{3} != Rank{4});
static_assert(Rank{3} < Rank{4} && Rank{4} >= Rank{4} && ParameterIndex{-1} < ParameterIndex{0});

// Small and plain: they travel inside ops.
static_assert(sizeof(Rank) == 4 && std::is_trivially_copyable_v<Rank>);

}  // namespace
