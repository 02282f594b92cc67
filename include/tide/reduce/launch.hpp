// SPDX-License-Identifier: Apache-2.0
//
// Launch: a policy that says with how many CTAs a GPU sums. It changes when a sum is done, never its bits; a CPU fabric
// ignores it. What a gather does inside its own GPU takes at most 32 CTAs for a copy and 256 for a cast, whatever the
// policy (docs/decisions/0005-the-sum-kernel.md, "Casts and copies").
//
// Models: Burst, Trickle.
// Test: tests/reduce/launch.test.cpp

#pragma once

#include <tide/core/tags.hpp>  // Ctas

#include <concepts>

namespace tide {

/// `L::ctas`: CTAs of a launch, one per SM; at least one.
template <class L>
concept Launch = requires {
  { L::ctas } -> std::convertible_to<index_t>;
  requires(L::ctas > 0);
};

/// About a quarter of the SMs for a short time: the default.
struct Burst {
  static constexpr index_t ctas = 32;
};

/// Fewer SMs for longer. Choose it beside many-wave GEMMs that would rather lose a few SMs than wait.
template <class Count = Ctas<16>>
struct Trickle {
  static_assert(detail::is_tag<Ctas, Count>, "tide::Trickle: Count must be Ctas<N>.");
  static constexpr index_t ctas = Count::value;
};

static_assert(Launch<Burst> && Launch<Trickle<>>);

}  // namespace tide
