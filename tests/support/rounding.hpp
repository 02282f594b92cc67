// SPDX-License-Identifier: Apache-2.0
//
// The rounding oracle: all numbers of a small format in a sorted table, and the nearest of them found by comparing.
//
// It shares nothing with the library: it spells a number as the textbook does and computes in double, where every value
// and every midpoint of the formats up to 16 bits is exact.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace tide_test {

/// The float that has these bits.
constexpr float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// A format of up to 16 bits, described as its standard describes it.
struct NumberFormat {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t largest;  ///< bits of the largest number; the next bits are the result of overflow
  std::uint32_t sign;     ///< the sign bit
};

inline constexpr NumberFormat bf16_format = {8, 7, 0x7F7F, 0x8000};
inline constexpr NumberFormat f16_format = {5, 10, 0x7BFF, 0x8000};
inline constexpr NumberFormat f8_e4m3_format = {4, 3, 0x7E, 0x80};
inline constexpr NumberFormat f8_e5m2_format = {5, 2, 0x7B, 0x80};

/// Every number of a format that is not negative; the index is its bits. The last entry is the number that would come
/// after the largest: what rounds to it has overflowed.
class RoundingTable {
 public:
  explicit RoundingTable(NumberFormat format) : format_(format) {
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const std::uint32_t mantissas = std::uint32_t{1} << format.mantissa_bits;
    for (std::uint32_t bits = 0; bits <= format.largest + 1; ++bits) {
      const int exponent = static_cast<int>(bits / mantissas);
      const double mantissa = static_cast<double>(bits % mantissas) / mantissas;
      const bool subnormal = exponent == 0;
      values_.push_back(subnormal ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, exponent - bias));
    }
  }

  /// The number with those bits, whose sign may be set.  @pre no NaN
  [[nodiscard]] double value(std::uint32_t bits) const {
    const std::uint32_t magnitude = bits & (format_.sign - 1);
    const double unsigned_value =
        magnitude > format_.largest ? std::numeric_limits<double>::infinity() : values_[magnitude];
    return (bits & format_.sign) != 0 ? -unsigned_value : unsigned_value;
  }

  /// Half way between the number with those bits and the next one.
  [[nodiscard]] double midpoint_after(std::uint32_t magnitude) const {
    return (values_[magnitude] + values_[magnitude + 1]) / 2;
  }

  /// The bits of the number nearest to `x`; of two that are equally near, the even ones.  @pre no NaN
  [[nodiscard]] std::uint32_t nearest(double x) const {
    const std::uint32_t sign = std::signbit(x) ? format_.sign : 0;
    const double size = std::fabs(x);
    if (size >= values_.back()) return sign | (format_.largest + 1);

    const auto first_above = std::upper_bound(values_.begin(), values_.end(), size);
    const auto above = static_cast<std::uint32_t>(first_above - values_.begin());
    const std::uint32_t below = above - 1;
    const double middle = midpoint_after(below);
    if (size < middle) return sign | below;
    if (size > middle) return sign | above;
    return sign | (below % 2 == 0 ? below : above);
  }

  /// Whether those bits are a NaN.
  [[nodiscard]] bool is_nan(std::uint32_t bits) const {
    const std::uint32_t magnitude = bits & (format_.sign - 1);
    const bool e4m3 = format_.exponent_bits == 4;  // its overflow is the NaN
    return magnitude > format_.largest + (e4m3 ? 0 : 1);
  }

  [[nodiscard]] const NumberFormat& format() const { return format_; }

 private:
  NumberFormat format_;
  std::vector<double> values_;
};

/// The doubles where rounding could go wrong, of both signs: each number, each midpoint and their neighbours among the
/// doubles and among the floats; zero, the largest and the smallest doubles, infinity.
inline std::vector<double> critical_points(const RoundingTable& table) {
  std::vector<double> sizes = {0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max(),
                               std::numeric_limits<double>::infinity()};
  for (std::uint32_t bits = 0; bits <= table.format().largest; ++bits) {
    for (const double point : {table.value(bits), table.midpoint_after(bits)}) {
      sizes.push_back(point);
      sizes.push_back(std::nextafter(point, 0.0));
      sizes.push_back(std::nextafter(point, std::numeric_limits<double>::infinity()));
      sizes.push_back(static_cast<double>(std::nextafter(static_cast<float>(point), 0.0F)));
      sizes.push_back(
          static_cast<double>(std::nextafter(static_cast<float>(point), std::numeric_limits<float>::infinity())));
    }
  }
  std::vector<double> points;
  for (const double size : sizes) {
    points.push_back(size);
    points.push_back(-size);
  }
  return points;
}

/// Random doubles of both signs, with exponents spread evenly from far below the format's range to far above it.
inline std::vector<double> random_points(const RoundingTable& table, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const int range = 1 << (table.format().exponent_bits - 1);
  std::vector<double> points;
  for (std::size_t i = 0; i < count; ++i) {
    const double mantissa = std::ldexp(static_cast<double>(random() >> 11), -52);  // in [0, 2)
    const int exponent = static_cast<int>(random() % static_cast<std::uint64_t>(2 * range + 40)) - range - 30;
    const double sign = random() % 2 == 0 ? 1.0 : -1.0;
    points.push_back(sign * std::ldexp(mantissa, exponent));
  }
  return points;
}

}  // namespace tide_test
