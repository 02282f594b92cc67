// SPDX-License-Identifier: Apache-2.0
//
// Integer arithmetic that every layout function shares: one definition of each rounding, 64 bits everywhere.
//
// Laws, for n >= 0 and d > 0:                        (tests/core/math.test.cpp)
//   ceil_div    ceil_div(n, d) is the smallest q with q * d >= n
//   align_up    the smallest multiple of d that is >= n
//   power_below the largest power of two < n           (n >= 2)

#pragma once

#include <tide/core/config.hpp>

#include <cstdint>

namespace tide {

/// A count or an offset: rows, elements or (where the name says so) bytes. Signed, so that differences are safe.
using index_t = std::int64_t;

/// @pre n >= 0, d > 0
[[nodiscard]] TIDE_HOST_DEVICE constexpr index_t ceil_div(index_t n, index_t d) noexcept {
  return n / d + (n % d != 0 ? 1 : 0);
}

/// @pre n >= 0, d > 0
[[nodiscard]] TIDE_HOST_DEVICE constexpr index_t align_up(index_t n, index_t d) noexcept { return ceil_div(n, d) * d; }

/// Where the summation tree cuts a range of n leaves: the largest power of two below n.  @pre n >= 2
[[nodiscard]] TIDE_HOST_DEVICE constexpr index_t power_below(index_t n) noexcept {
  index_t p = 1;
  while (p < n - p) p *= 2;
  return p;
}

/// The product, or -1 where it does not fit into an index_t.  @pre a >= 0, b >= 0
[[nodiscard]] constexpr index_t checked_product(index_t a, index_t b) noexcept {
  if (a < 0 || b < 0) return -1;
  if (a == 0 || b == 0) return 0;
  return a > INT64_MAX / b ? -1 : a * b;
}

}  // namespace tide
