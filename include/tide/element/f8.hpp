// SPDX-License-Identifier: Apache-2.0
//
// f8_e4m3 and f8_e5m2: the two 8-bit formats of the Open Compute Project, as storage.
//
//   f8_e4m3   s eeee mmm      value = (-1)^s * 1.m * 2^(e - 7)      largest 448, NaN 0x7F and 0xFF, no infinity
//   f8_e5m2   s eeeee mm      value = (-1)^s * 1.m * 2^(e - 15)     largest 57344, infinity and NaN as in IEEE 754
//
// Laws, for both types T, every float x and every T b:             (tests/element/f8.test.cpp)
//   nearest      T(x) is the representable value nearest to x; of two, the one with even bits
//   once         T(y) of a double y rounds once, not through float
//   overflow     nothing saturates. f8_e4m3(x) is NaN above 464 and for infinities, as PyTorch's
//                to(torch.float8_e4m3fn) has it; f8_e5m2(x) is infinite from 61440 on. Clamp before, or scale.
//   underflow    gradual, in steps of 2^-9 and 2^-16; up to half a step T(x) is zero with x's sign
//   NaN          stays NaN with its sign; f8_e5m2 becomes quiet and keeps the leading bit of the payload
//   exact        float(b) is b's value, subnormals and -0 included; NaN becomes NaN
//   round trip   T(float(b)) == b, but for f8_e5m2's signalling NaNs 0x7D and 0xFD, which come back quiet
//
// All of them hold in every rounding mode, and bit for bit the same on host and device.

#pragma once

#include <tide/element/detail/narrow.hpp>  // narrow
#include <tide/element/detail/widen.hpp>   // widen
#include <tide/element/element.hpp>        // ElementType, f32, f64

#include <cstdint>
#include <type_traits>

namespace tide {

/// One byte of storage; convert to float to compute.
///
/// Choose `f8_e5m2` where range matters more than precision, or where overflow must stay an infinity.
struct f8_e4m3 {
  std::uint8_t bits;

  f8_e4m3() = default;

  /// The value nearest to `value`, ties to even.
  explicit TIDE_HOST_DEVICE constexpr f8_e4m3(f32 value) noexcept : bits(detail::narrow<f8_e4m3>(value)) {}

  /// The value nearest to `value`, ties to even; rounded once, where going through float could round twice.
  explicit TIDE_HOST_DEVICE constexpr f8_e4m3(f64 value) noexcept : bits(detail::narrow<f8_e4m3>(value)) {}

  /// The same value as a float, exactly.
  [[nodiscard]] explicit TIDE_HOST_DEVICE constexpr operator f32() const noexcept {
    return detail::widen<f32, f8_e4m3>(bits);
  }

  /// The f8_e4m3 with exactly these bits.
  [[nodiscard]] static TIDE_HOST_DEVICE constexpr f8_e4m3 from_bits(std::uint8_t bits) noexcept {
    f8_e4m3 result{};
    result.bits = bits;
    return result;
  }

  /// Compares bits, not values: 0 and -0 differ, a NaN equals itself.
  [[nodiscard]] friend TIDE_HOST_DEVICE constexpr bool operator==(f8_e4m3 a, f8_e4m3 b) noexcept {
    return a.bits == b.bits;
  }
};

/// One byte of storage; convert to float to compute.
///
/// Choose `f8_e4m3` for one more bit of precision in a much smaller range.
struct f8_e5m2 {
  std::uint8_t bits;

  f8_e5m2() = default;

  /// The value nearest to `value`, ties to even.
  explicit TIDE_HOST_DEVICE constexpr f8_e5m2(f32 value) noexcept : bits(detail::narrow<f8_e5m2>(value)) {}

  /// The value nearest to `value`, ties to even; rounded once, where going through float could round twice.
  explicit TIDE_HOST_DEVICE constexpr f8_e5m2(f64 value) noexcept : bits(detail::narrow<f8_e5m2>(value)) {}

  /// The same value as a float, exactly.
  [[nodiscard]] explicit TIDE_HOST_DEVICE constexpr operator f32() const noexcept {
    return detail::widen<f32, f8_e5m2>(bits);
  }

  /// The f8_e5m2 with exactly these bits.
  [[nodiscard]] static TIDE_HOST_DEVICE constexpr f8_e5m2 from_bits(std::uint8_t bits) noexcept {
    f8_e5m2 result{};
    result.bits = bits;
    return result;
  }

  /// Compares bits, not values: 0 and -0 differ, a NaN equals itself.
  [[nodiscard]] friend TIDE_HOST_DEVICE constexpr bool operator==(f8_e5m2 a, f8_e5m2 b) noexcept {
    return a.bits == b.bits;
  }
};

static_assert(ElementType<f8_e4m3> && sizeof(f8_e4m3) == 1);
static_assert(std::is_trivial_v<f8_e4m3> && std::is_standard_layout_v<f8_e4m3>);
static_assert(ElementType<f8_e5m2> && sizeof(f8_e5m2) == 1);
static_assert(std::is_trivial_v<f8_e5m2> && std::is_standard_layout_v<f8_e5m2>);

}  // namespace tide
