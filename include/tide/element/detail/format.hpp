// SPDX-License-Identifier: Apache-2.0
//
// Format: how the bits of each element type spell a number; `narrow` and `widen` are written against it.
//
//   magnitude = all bits but the sign = | exponent | mantissa |
//
//   0 ... largest_finite    numbers, in ascending order (subnormals first)
//   largest_finite + 1      the result of overflow: infinity, or NaN where the format has no infinity
//   above                   NaN, if there is room
//
// Test: tests/element/convert.test.cpp

#pragma once

#include <tide/element/element.hpp>  // the declarations of the storage types, f32, f64

#include <cstdint>

namespace tide::detail {

/// A format laid out as IEEE 754 does it: the highest exponent holds infinity and NaN, a NaN's top mantissa bit says
/// quiet.
template <class UInt, int ExponentBits, int MantissaBits>
struct IeeeFormat {
  using Bits = UInt;
  static constexpr int exponent_bits = ExponentBits;
  static constexpr int mantissa_bits = MantissaBits;
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr Bits sign_mask = static_cast<Bits>(Bits{1} << (ExponentBits + MantissaBits));
  static constexpr Bits magnitude_mask = static_cast<Bits>(sign_mask - 1);
  static constexpr Bits mantissa_mask = static_cast<Bits>((Bits{1} << MantissaBits) - 1);
  static constexpr Bits overflow = static_cast<Bits>(magnitude_mask - mantissa_mask);
  static constexpr Bits largest_finite = static_cast<Bits>(overflow - 1);
  static constexpr Bits quiet_nan = static_cast<Bits>(overflow | (Bits{1} << (MantissaBits - 1)));
};

/// OCP's E4M3FN: the highest exponent holds numbers as well, only its last mantissa is NaN.
struct E4m3fnFormat : IeeeFormat<std::uint8_t, 4, 3> {
  static constexpr Bits largest_finite = 0x7E;
  static constexpr Bits overflow = 0x7F;
  static constexpr Bits quiet_nan = 0x7F;
};

template <class T>
struct FormatOf;
template <>
struct FormatOf<bf16> : IeeeFormat<std::uint16_t, 8, 7> {};
template <>
struct FormatOf<f16> : IeeeFormat<std::uint16_t, 5, 10> {};
template <>
struct FormatOf<f32> : IeeeFormat<std::uint32_t, 8, 23> {};
template <>
struct FormatOf<f64> : IeeeFormat<std::uint64_t, 11, 52> {};
template <>
struct FormatOf<f8_e4m3> : E4m3fnFormat {};
template <>
struct FormatOf<f8_e5m2> : IeeeFormat<std::uint8_t, 5, 2> {};

/// The unsigned integer that holds the bits of `T`.
template <class T>
using BitsOf = typename FormatOf<T>::Bits;

}  // namespace tide::detail
