// SPDX-License-Identifier: Apache-2.0
//
// f16: IEEE 754 binary16, as storage: 11 bits of precision, numbers up to 65504.
//
//   s eeeee mmmmmmmmmm        bits, value = (-1)^s * 1.m * 2^(e - 15)
//
// Laws, for every float x, and every f16 h:                        (tests/element/f16.test.cpp)
//   nearest      f16(x) is the representable value nearest to x; of two, the one with even bits
//   once         f16(y) of a double y rounds once, not through float
//   overflow     from 65520 on, half a step above the largest number, f16(x) is infinite
//   underflow    gradual, in steps of 2^-24; up to 2^-25 f16(x) is zero with x's sign
//   NaN          stays NaN, becomes quiet, keeps its sign and the leading 9 bits of its payload
//   exact        float(h) is h's value, subnormals and -0 included; a NaN's payload is kept
//   round trip   f16(float(h)) == h, but for a signalling NaN, which comes back quiet
//
// All of them hold in every rounding mode, and bit for bit the same on host and device.

#pragma once

#include <tide/element/detail/narrow.hpp>  // narrow
#include <tide/element/detail/widen.hpp>   // widen
#include <tide/element/element.hpp>        // ElementType, f32, f64

#include <cstdint>
#include <type_traits>

namespace tide {

/// Two bytes of storage; convert to float to compute.
///
/// Choose `bf16` for the range of a float and less precision.
struct f16 {
  std::uint16_t bits;

  f16() = default;

  /// The value nearest to `value`, ties to even.
  explicit TIDE_HOST_DEVICE constexpr f16(f32 value) noexcept : bits(detail::narrow<f16>(value)) {}

  /// The value nearest to `value`, ties to even; rounded once, where going through float could round twice.
  explicit TIDE_HOST_DEVICE constexpr f16(f64 value) noexcept : bits(detail::narrow<f16>(value)) {}

  /// The same value as a float, exactly.
  [[nodiscard]] explicit TIDE_HOST_DEVICE constexpr operator f32() const noexcept {
    return detail::widen<f32, f16>(bits);
  }

  /// The f16 with exactly these bits.
  [[nodiscard]] static TIDE_HOST_DEVICE constexpr f16 from_bits(std::uint16_t bits) noexcept {
    f16 result{};
    result.bits = bits;
    return result;
  }

  /// Compares bits, not values: 0 and -0 differ, a NaN equals itself.
  [[nodiscard]] friend TIDE_HOST_DEVICE constexpr bool operator==(f16 a, f16 b) noexcept { return a.bits == b.bits; }
};

static_assert(ElementType<f16> && sizeof(f16) == 2 && alignof(f16) == 2);
static_assert(std::is_trivial_v<f16> && std::is_standard_layout_v<f16>);

}  // namespace tide
