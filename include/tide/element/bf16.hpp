// SPDX-License-Identifier: Apache-2.0
//
// bf16: the upper half of a float, as storage: a float's range with 8 bits of precision.
//
//   s eeeeeeee mmmmmmm        bits, value = (-1)^s * 1.m * 2^(e - 127)
//
// Laws, for every float x, and every bf16 b:                       (tests/element/bf16.test.cpp)
//   nearest      bf16(x) is the representable value nearest to x; of two, the one with even bits
//   once         bf16(y) of a double y rounds once, not through float
//   overflow     from 0x1.FFp127 on, half a step above the largest number, bf16(x) is infinite
//   NaN          stays NaN, becomes quiet, keeps its sign and the leading 6 bits of its payload
//   exact        float(b) is b's value, subnormals and -0 included; a NaN's payload is kept
//   round trip   bf16(float(b)) == b, but for a signalling NaN, which comes back quiet
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
/// Choose `f16` for more precision in a smaller range.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;

  /// The value nearest to `value`, ties to even.
  explicit TIDE_HOST_DEVICE constexpr bf16(f32 value) noexcept : bits(detail::narrow<bf16>(value)) {}

  /// The value nearest to `value`, ties to even; rounded once, where going through float could round twice.
  explicit TIDE_HOST_DEVICE constexpr bf16(f64 value) noexcept : bits(detail::narrow<bf16>(value)) {}

  /// The same value as a float, exactly.
  [[nodiscard]] explicit TIDE_HOST_DEVICE constexpr operator f32() const noexcept {
    return detail::widen<f32, bf16>(bits);
  }

  /// The bf16 with exactly these bits.
  [[nodiscard]] static TIDE_HOST_DEVICE constexpr bf16 from_bits(std::uint16_t bits) noexcept {
    bf16 result{};
    result.bits = bits;
    return result;
  }

  /// Compares bits, not values: 0 and -0 differ, a NaN equals itself.
  [[nodiscard]] friend TIDE_HOST_DEVICE constexpr bool operator==(bf16 a, bf16 b) noexcept { return a.bits == b.bits; }
};

static_assert(ElementType<bf16> && sizeof(bf16) == 2 && alignof(bf16) == 2);
static_assert(std::is_trivial_v<bf16> && std::is_standard_layout_v<bf16>);

}  // namespace tide
