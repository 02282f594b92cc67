// SPDX-License-Identifier: Apache-2.0
//
// widen: a small format spelled in a larger one, exactly.
//
//   bf16  s eeeeeeee mmmmmmm
//   f32   s eeeeeeee mmmmmmm0000000000000000
//
// Laws: see bf16.hpp.       (tests/element/bf16.test.cpp, f16.test.cpp, f8.test.cpp, convert.test.cpp)

#pragma once

#include <tide/element/detail/bits.hpp>    // bits_as
#include <tide/element/detail/format.hpp>  // FormatOf

#include <cstdint>

namespace tide::detail {

/// 2 to the power of `exponent`, a normal number of type `T`.
template <class T>
[[nodiscard]] TIDE_HOST_DEVICE constexpr T power_of_two(int exponent) noexcept {
  using Format = FormatOf<T>;
  return bits_as<T>(static_cast<BitsOf<T>>(static_cast<BitsOf<T>>(exponent + Format::bias) << Format::mantissa_bits));
}

/// The value with those `bits` of format `From`, in the larger type `To`; a NaN keeps sign and payload.
template <class To, class From>
[[nodiscard]] TIDE_HOST_DEVICE constexpr To widen(BitsOf<From> bits) noexcept {
  using Wide = FormatOf<To>;
  using Narrow = FormatOf<From>;
  using Bits = typename Wide::Bits;
  static_assert(Wide::mantissa_bits > Narrow::mantissa_bits && Wide::exponent_bits >= Narrow::exponent_bits);
  constexpr int added = Wide::mantissa_bits - Narrow::mantissa_bits;
  constexpr int rebias = Wide::bias - Narrow::bias;
  constexpr int sign_shift = static_cast<int>(8 * (sizeof(To) - sizeof(From)));

  const Bits sign = static_cast<Bits>(Bits{static_cast<BitsOf<From>>(bits & Narrow::sign_mask)} << sign_shift);
  const Bits magnitude = static_cast<Bits>(bits & Narrow::magnitude_mask);
  const Bits shifted = static_cast<Bits>(magnitude << added);
  if constexpr (rebias == 0) {
    return bits_as<To>(static_cast<Bits>(shifted | sign));
  } else {
    const Bits normal = shifted + (Bits{rebias} << Wide::mantissa_bits);
    const Bits top = shifted | Wide::overflow;  // infinity and NaN: the highest exponent stays the highest

    // A subnormal is a small integer times a power of two; both factors and the product are normal in To, so this is
    // exact in any rounding mode and is not flushed.
    constexpr To step = power_of_two<To>(1 - Narrow::bias - Narrow::mantissa_bits);
    const Bits subnormal = bits_as<Bits>(static_cast<To>(static_cast<std::int32_t>(magnitude)) * step);

    const Bits number = magnitude > Narrow::mantissa_mask ? normal : subnormal;
    return bits_as<To>(static_cast<Bits>((magnitude > Narrow::largest_finite ? top : number) | sign));
  }
}

}  // namespace tide::detail
