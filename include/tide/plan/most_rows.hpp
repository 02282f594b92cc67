// SPDX-License-Identifier: Apache-2.0
//
// How much `verify` takes upon itself, so that a program can refuse what is larger before it writes plans.
//
// Test: tests/plan/verify.test.cpp

#pragma once

#include <tide/core/index.hpp>  // index_t

namespace tide {

/// How many rows `verify` follows in one run of all plans, counted at each op that reads or writes them (a sum of n
/// inputs n + 1 times); those that lie alike are one row as long as nothing cuts them. What has more is refused as a
/// violation of bounds: so a file with absurd numbers takes neither all time nor all memory.
inline constexpr index_t most_rows = index_t{1} << 28;

}  // namespace tide
