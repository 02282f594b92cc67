// SPDX-License-Identifier: Apache-2.0
//
// A made-up model of what is awkward to shard: primes, single rows and elements, more ranks than rows, extents just
// below, at and above powers of two. For trying tools and meshes, not for training.
//
// Test: tests/models/awkward.test.cpp

#pragma once

#include <tide/models/model.hpp>  // Unit

#include <array>

namespace tide::models::awkward {
inline constexpr auto odd = group(  // clang-format off
    param<bf16>("w_prime", {7, 13}),
    param<bf16>("b_one", {1}),
    param<bf16>("w_col", {3, 1}),
    param<bf16>("w_row", {1, 5}),
    param<bf16>("b_prime", {17}),
    param<bf16>("w_3d", {5, 3, 7}),
    param<bf16>("cls", {1, 1, 9}),
    param<bf16>("w_4d", {2, 3, 5, 7}));
inline constexpr auto hollow = group(
    param<bf16>("d0_9", {9, 3}),
    param<bf16>("d0_10", {10, 5}),
    param<bf16>("d0_17", {17, 1}),
    param<bf16>("d0_33", {33, 1}),
    param<bf16>("d0_65", {65, 3}),
    param<bf16>("d0_129", {129, 1}),
    param<bf16>("d0_197", {197, 3}),
    param<bf16>("d0_1500", {1500, 1}));
inline constexpr auto edge = group(
    param<bf16>("d0_63", {63, 1}),
    param<bf16>("d0_64", {64, 1}),
    param<bf16>("d0_127", {127, 1}),
    param<bf16>("d0_128", {128, 1}));
inline constexpr auto single = group(param<bf16>("only", {1}));
inline constexpr auto even = group(param<bf16>("w", {64, 8}), param<bf16>("b", {64}));  // clang-format on
inline constexpr std::array units = {Unit{"odd", 1, "", odd.view()}, Unit{"hollow", 1, "", hollow.view()},
                                     Unit{"edge", 1, "", edge.view()}, Unit{"single", 1, "", single.view()},
                                     Unit{"even.0", 3, "even.0.", even.view()}};
inline constexpr Model model{"awkward", units};
}  // namespace tide::models::awkward
