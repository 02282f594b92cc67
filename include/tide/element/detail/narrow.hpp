// SPDX-License-Identifier: Apache-2.0
//
// narrow: a float or double rounded once to a smaller format, in integers only.
//
//   f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
//                           ^^^^^^^^^^^^^^^^  dropped: above half rounds up, half rounds to an even result
//   bf16  s eeeeeeee mmmmmmm
//
// Integers only, so that the result does not depend on the rounding mode, on flushing of subnormals, on -ffast-math or
// on which processor computes it. Every choice is a select between computed values, so that loops vectorise.
//
// Laws: see bf16.hpp.       (tests/element/bf16.test.cpp, f16.test.cpp, f8.test.cpp, convert.test.cpp)

#pragma once

#include <tide/element/detail/bits.hpp>    // bits_as
#include <tide/element/detail/format.hpp>  // FormatOf

namespace tide::detail {

/// `value >> shift`, rounded to nearest, ties to even.  @pre shift > 0
template <class UInt>
[[nodiscard]] TIDE_HOST_DEVICE constexpr UInt shift_right_rounded(UInt value, int shift) noexcept {
  const UInt half = UInt{1} << (shift - 1);
  const UInt odd = (value >> shift) & UInt{1};
  return (value + (half - 1) + odd) >> shift;
}

/// The magnitude in `To` of a number or infinity, rounded; what is too large for `To` becomes its overflow.
template <class To, class From>
[[nodiscard]] TIDE_HOST_DEVICE constexpr BitsOf<From> narrow_magnitude(BitsOf<From> magnitude) noexcept {
  using Wide = FormatOf<From>;
  using Narrow = FormatOf<To>;
  using Bits = typename Wide::Bits;
  constexpr int dropped = Wide::mantissa_bits - Narrow::mantissa_bits;
  constexpr int rebias = Wide::bias - Narrow::bias;
  if constexpr (rebias == 0) {
    return shift_right_rounded(magnitude, dropped);  // the same exponents: the carry out of the largest is infinity
  } else {
    // Normal in To: move the exponent. A carry out of the mantissa moves it once more, which is right. Wraps where the
    // number is no normal one, and is not chosen then.
    const Bits normal =
        shift_right_rounded(static_cast<Bits>(magnitude - (Bits{rebias} << Wide::mantissa_bits)), dropped);

    // Subnormal in To: count To's smallest step. From this shift on, less than half a step is left.
    constexpr int all = Wide::mantissa_bits + 2;
    const int exponent = static_cast<int>(magnitude >> Wide::mantissa_bits);
    const int wanted = rebias + dropped + 1 - exponent;
    const int shift = wanted < 1 ? 1 : wanted > all ? all : wanted;
    const Bits significand = (magnitude & Wide::mantissa_mask) | (Bits{1} << Wide::mantissa_bits);
    const Bits subnormal = shift_right_rounded(significand, shift);

    const Bits number = exponent > rebias ? normal : subnormal;
    return number > Narrow::largest_finite ? Bits{Narrow::overflow} : number;
  }
}

/// The bits of `from` in the smaller format `To`: nearest, ties to even; NaN quiet, with its sign and leading payload.
template <class To, class From>
[[nodiscard]] TIDE_HOST_DEVICE constexpr BitsOf<To> narrow(From from) noexcept {
  using Wide = FormatOf<From>;
  using Narrow = FormatOf<To>;
  using Bits = typename Wide::Bits;
  static_assert(Wide::mantissa_bits > Narrow::mantissa_bits && Wide::exponent_bits >= Narrow::exponent_bits);
  constexpr int dropped = Wide::mantissa_bits - Narrow::mantissa_bits;
  constexpr int sign_shift = static_cast<int>(8 * (sizeof(From) - sizeof(To)));

  const Bits bits = bits_as<Bits>(from);
  const Bits magnitude = bits & Wide::magnitude_mask;
  const Bits number = narrow_magnitude<To, From>(magnitude);
  const Bits nan = Narrow::quiet_nan | ((magnitude >> dropped) & Narrow::mantissa_mask);
  const Bits result = magnitude > Wide::overflow ? nan : number;
  return static_cast<BitsOf<To>>(result | ((bits & Wide::sign_mask) >> sign_shift));
}

}  // namespace tide::detail
