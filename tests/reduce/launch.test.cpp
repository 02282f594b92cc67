// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/reduce/launch.hpp>

#include "conformance/launch.hpp"

namespace launch_test {

using namespace tide;

/// A user's: as many CTAs as the machine of the day bears.
struct Everything {
  static constexpr index_t ctas = 132;
};

static_assert(Launch<Burst> && Launch<Trickle<>> && Launch<Trickle<Ctas<4>>> && Launch<Everything>);
static_assert(!Launch<int> && !Launch<Ctas<4>>);
static_assert(Burst::ctas == 32);
static_assert(Trickle<>::ctas == 16 && Trickle<Ctas<4>>::ctas == 4);

TEST_CASE("Launch: the suite holds for the models that ship, and for one's own") {
  tide_test::check_launch<Burst>();
  tide_test::check_launch<Trickle<>>();
  tide_test::check_launch<Trickle<Ctas<1>>>();
  tide_test::check_launch<Everything>();
}

}  // namespace launch_test
