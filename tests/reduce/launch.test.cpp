// SPDX-License-Identifier: Apache-2.0
// labels: static
#include <tide/reduce/launch.hpp>

using namespace tide;

static_assert(Launch<Burst> && Launch<Trickle<>> && Launch<Trickle<Ctas<4>>>);
static_assert(!Launch<int> && !Launch<Ctas<4>>);
static_assert(Burst::ctas == 32);
static_assert(Trickle<>::ctas == 16 && Trickle<Ctas<4>>::ctas == 4);
