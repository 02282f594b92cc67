// SPDX-License-Identifier: Apache-2.0
//
// Values of test data: bits that are a function of a seed and a place alone, in any element.

#pragma once

#include <tide/element/convert.hpp>
#include <tide/element/element.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tide_test {

using tide::Element;
using tide::index_t;

/// 64 bits that look random, of four numbers.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0, std::uint64_t d = 0) {
  std::uint64_t x =
      a * 0x9E3779B97F4A7C15U ^ b * 0xBF58476D1CE4E5B9U ^ c * 0x94D049BB133111EBU ^ d * 0xD6E8FEB86659FD93U;
  for (int round = 0; round < 2; ++round) {
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93U;
    x ^= x >> 29;
  }
  return x;
}

/// Calls `f.template operator()<T>()` for the C++ type of an element.
template <class F>
auto with_type(Element element, F f) {
  switch (element) {
    case Element::bf16:
      return f.template operator()<tide::bf16>();
    case Element::f16:
      return f.template operator()<tide::f16>();
    case Element::f64:
      return f.template operator()<double>();
    case Element::f8_e4m3:
      return f.template operator()<tide::f8_e4m3>();
    case Element::f8_e5m2:
      return f.template operator()<tide::f8_e5m2>();
    case Element::f32:
      break;
  }
  return f.template operator()<float>();
}

/// Writes `value` as an element.
inline void store(std::byte* at, Element element, float value) {
  with_type(element, [&]<class T>() {
    const T stored = tide::convert<T>(value);
    std::memcpy(at, &stored, sizeof(T));
  });
}

/// Reads an element as a float.
inline float load(const std::byte* at, Element element) {
  return with_type(element, [&]<class T>() {
    T stored;
    std::memcpy(&stored, at, sizeof(T));
    return tide::convert<float>(stored);
  });
}

/// A float of either sign with a random mantissa and an exponent from `lowest` to `highest`, both included.
inline float spread(std::uint64_t bits, int lowest, int highest) {
  const float mantissa = 1.0F + static_cast<float>(bits & 0x7FFFFF) * 0x1p-23F;
  const int exponent = lowest + static_cast<int>((bits >> 24) % static_cast<std::uint64_t>(highest - lowest + 1));
  return std::ldexp((bits >> 63) != 0 ? -mantissa : mantissa, exponent);
}

/// A gradient: exponents over 2^+-20, or as far as the element reaches. On values of like size every order of adding
/// gives the same sum, and a wrong order goes unseen.
inline float gradient_value(Element element, std::uint64_t bits) {
  switch (element) {
    case Element::f16:
      return spread(bits, -14, 12);
    case Element::f8_e4m3:
      return spread(bits, -6, 7);
    case Element::f8_e5m2:
      return spread(bits, -14, 14);
    case Element::bf16:
    case Element::f32:
    case Element::f64:
      break;
  }
  return spread(bits, -20, 20);
}

/// A gradient that is a small whole number, in any element: any order of adding a few thousand gives the same sum, and
/// one that is left out or added twice is seen.
inline float whole_value(std::uint64_t bits) { return static_cast<float>(static_cast<int>(bits % 9) - 4); }

/// A master weight: any float, of all classes.
inline float master_value(std::uint64_t bits) {
  if (bits % 16 == 0) return std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32));  // NaN, denormal, infinity
  return spread(bits >> 8, -24, 18);
}

}  // namespace tide_test
