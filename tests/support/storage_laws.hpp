// SPDX-License-Identifier: Apache-2.0
//
// The laws of the storage types bf16, f16, f8_e4m3 and f8_e5m2, each as one function that checks it for every value.

#pragma once

#include <doctest/doctest.h>

#include <support/rounding.hpp>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace tide_test {

/// Nearest and overflow: `T(x)` is what the table finds, for floats and for doubles. NaN is not asked here.
template <class T>
void check_nearest(const RoundingTable& table, const std::vector<double>& points) {
  for (const double x : points) {
    const std::uint32_t from_double = T(x).bits;
    const std::uint32_t from_double_expected = table.nearest(x);
    const float f = static_cast<float>(x);
    const std::uint32_t from_float = T(f).bits;
    const std::uint32_t from_float_expected = table.nearest(static_cast<double>(f));
    if (from_double == from_double_expected && from_float == from_float_expected) continue;
    CAPTURE(x);
    CHECK(from_double == from_double_expected);
    CAPTURE(f);
    CHECK(from_float == from_float_expected);
  }
}

/// Every midpoint of neighbours goes to the even one, what is just below to the lower, just above to the upper.
template <class T>
void check_ties(const RoundingTable& table) {
  constexpr float infinity_float = std::numeric_limits<float>::infinity();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (std::uint32_t lower = 0; lower <= table.format().largest; ++lower) {
    const std::uint32_t upper = lower + 1;
    const std::uint32_t even = lower % 2 == 0 ? lower : upper;
    const double middle = table.midpoint_after(lower);
    const auto middle_float = static_cast<float>(middle);
    REQUIRE(static_cast<double>(middle_float) == middle);

    const std::uint32_t sign = table.format().sign;
    const bool right = T(middle_float).bits == even && T(std::nextafter(middle_float, 0.0F)).bits == lower &&
                       T(std::nextafter(middle_float, infinity_float)).bits == upper && T(middle).bits == even &&
                       T(std::nextafter(middle, 0.0)).bits == lower &&
                       T(std::nextafter(middle, infinity)).bits == upper && T(-middle_float).bits == (even | sign) &&
                       T(-middle).bits == (even | sign) && T(-std::nextafter(middle, 0.0)).bits == (lower | sign) &&
                       T(-std::nextafter(middle, infinity)).bits == (upper | sign);
    CAPTURE(lower);
    CHECK_MESSAGE(right, "a value at or beside this midpoint was rounded to the wrong neighbour");
  }
}

/// Exact and round trip, for every pattern of bits: floats have the table's value; numbers come back, NaN comes back
/// quiet.
template <class T>
void check_every_value(const RoundingTable& table, std::uint32_t quiet_bit) {
  const std::uint32_t patterns = 2 * table.format().sign;
  for (std::uint32_t bits = 0; bits < patterns; ++bits) {
    const T stored = T::from_bits(static_cast<decltype(T::bits)>(bits));
    const auto wide = static_cast<float>(stored);
    const std::uint32_t back = T(wide).bits;
    const bool negative = (bits & table.format().sign) != 0;
    CAPTURE(bits);
    CHECK_MESSAGE(std::signbit(wide) == negative, "the float has another sign");
    if (table.is_nan(bits)) {
      CHECK_MESSAGE(std::isnan(wide), "the float is no NaN");
      CHECK_MESSAGE(back == (bits | quiet_bit), "a NaN came back with another sign or payload, or not quiet");
    } else {
      CHECK_MESSAGE(static_cast<double>(wide) == table.value(bits), "the float has another value");
      CHECK_MESSAGE(back == bits, "the number did not come back");
      CHECK_MESSAGE(T(table.value(bits)).bits == bits, "the double with its value became another number");
    }
  }
}

/// NaN: whatever the payload, the result is a quiet NaN of the same sign with the payload's leading bits.
template <class T>
void check_nan(const RoundingTable& table, std::uint32_t quiet_bit, std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> payloads = {0x000001, 0x7F8C22, 0x7FFFFF, 0x400000, 0x3FFFFF, 0x7FFF00, 0x7F0000};
  for (int bit = 0; bit < 23; ++bit) payloads.push_back(std::uint32_t{1} << bit);
  for (int i = 0; i < 10'000; ++i) payloads.push_back(static_cast<std::uint32_t>(random() % 0x7FFFFF + 1));

  const std::uint32_t mantissas = std::uint32_t{1} << table.format().mantissa_bits;
  for (const std::uint32_t payload : payloads) {
    for (const bool negative : {false, true}) {
      const std::uint32_t sign = negative ? table.format().sign : 0;
      const std::uint32_t leading = payload >> (23 - table.format().mantissa_bits);
      const std::uint32_t top = table.format().sign - mantissas;  // the highest exponent
      const std::uint32_t expected = sign | top | leading | quiet_bit;
      const auto f = std::bit_cast<float>((negative ? 0xFF800000U : 0x7F800000U) | payload);
      const auto d = std::bit_cast<double>((negative ? 0xFFF0'0000'0000'0000U : 0x7FF0'0000'0000'0000U) |
                                           (static_cast<std::uint64_t>(payload) << 29) | (random() >> 35));
      const std::uint32_t from_float = T(f).bits;
      const std::uint32_t from_double = T(d).bits;
      if (from_float == expected && from_double == expected) continue;
      CAPTURE(payload);
      CHECK(from_float == expected);
      CHECK(from_double == expected);
    }
  }
}

/// The same bits in every rounding mode of the processor.
template <class T>
void check_rounding_modes(const RoundingTable& table) {
  const std::vector<double> points = random_points(table, 20'000, 7);
  std::vector<std::uint32_t> expected;
  for (const double x : points) expected.push_back(table.nearest(x));
  for (const int mode : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST}) {
    REQUIRE(std::fesetround(mode) == 0);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const T stored(points[i]);
      const T again(static_cast<float>(stored));
      if (stored.bits != expected[i]) ++wrong;
      if (!table.is_nan(expected[i]) && again.bits != expected[i]) ++wrong;
    }
    REQUIRE(std::fesetround(FE_TONEAREST) == 0);
    CAPTURE(mode);
    CHECK(wrong == 0);
  }
}

/// Plain storage: copied as bytes, kept in uninitialised memory, used as a template argument.
template <class T>
concept PlainStorage =
    std::is_trivial_v<T> && std::is_standard_layout_v<T> && std::is_nothrow_constructible_v<T, float> &&
    !std::is_convertible_v<float, T> &&
    !std::is_convertible_v<T, float> && std::is_constructible_v<float, T> && sizeof(T) == sizeof(T::bits);

}  // namespace tide_test
