// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/core/math.hpp>

#include <cstdint>
#include <initializer_list>

namespace {

using tide::align_up;
using tide::ceil_div;
using tide::checked_product;
using tide::index_t;
using tide::power_below;

constexpr index_t most = INT64_MAX;

consteval bool ceil_div_is_the_smallest_quotient() {
  for (index_t n = 0; n <= 70; ++n) {
    for (index_t d = 1; d <= 17; ++d) {
      const index_t q = ceil_div(n, d);
      if (q * d < n || (q > 0 && (q - 1) * d >= n)) return false;
    }
  }
  return true;
}
static_assert(ceil_div_is_the_smallest_quotient());
static_assert(ceil_div(most, 1) == most && ceil_div(most, most) == 1 && ceil_div(most - 1, most) == 1);
static_assert(ceil_div(most, 2) == most / 2 + 1);  // n + d - 1 would not fit

consteval bool align_up_is_the_next_multiple() {
  for (index_t n = 0; n <= 70; ++n) {
    for (index_t d = 1; d <= 17; ++d) {
      const index_t aligned = align_up(n, d);
      if (aligned % d != 0 || aligned < n || aligned >= n + d) return false;
    }
  }
  return true;
}
static_assert(align_up_is_the_next_multiple());
static_assert(align_up((index_t{1} << 40) + 1, 256) == (index_t{1} << 40) + 256);

consteval bool power_below_is_the_largest_power() {
  for (index_t n = 2; n <= 300; ++n) {
    const index_t p = power_below(n);
    if ((p & (p - 1)) != 0 || p >= n || 2 * p < n) return false;
  }
  return true;
}
static_assert(power_below_is_the_largest_power());
static_assert(power_below(2) == 1 && power_below(3) == 2 && power_below(4) == 2 && power_below(5) == 4);
static_assert(power_below(most) == index_t{1} << 62);

static_assert(checked_product(0, most) == 0 && checked_product(most, 0) == 0 && checked_product(1, most) == most);
static_assert(checked_product(index_t{1} << 31, index_t{1} << 31) == index_t{1} << 62);
static_assert(checked_product(index_t{1} << 32, index_t{1} << 31) == -1);
static_assert(checked_product(most, 2) == -1 && checked_product(-1, 2) == -1 && checked_product(2, -1) == -1);

TEST_CASE("math: quotients beyond 32 bits are exact at run time, too") {
  for (index_t rows = (index_t{1} << 33) - 3; rows <= (index_t{1} << 33) + 3; ++rows) {
    for (const index_t ranks : {1, 3, 8, 72}) {
      CAPTURE(rows);
      CAPTURE(ranks);
      CHECK(ceil_div(rows, ranks) == (rows + ranks - 1) / ranks);
    }
  }
}

}  // namespace
