// SPDX-License-Identifier: Apache-2.0
//
// convert: from any element type to any other, rounded at most once.
//
//   bf16, f16, f8_e4m3, f8_e5m2  -- widen -->  float  -- narrow -->  bf16, f16, f8_e4m3, f8_e5m2
//                                                |
//   double  <-- widen --------------------------'     double  -- narrow -->  each of them, in one step
//
// Laws, for all element types To, From and every From x:       (tests/element/convert.test.cpp)
//   nearest      the To nearest to x's value, ties to even; overflow and NaN as in To's header
//   exact        where To holds every number of From: convert<From>(convert<To>(x)) == x, for each number x
//   identity     convert<From>(x) has x's bits, a signalling NaN's too
//   same bits    on host and device, in every rounding mode, in constant expressions

#pragma once

#include <tide/element/bf16.hpp>           // bf16
#include <tide/element/detail/narrow.hpp>  // narrow
#include <tide/element/detail/widen.hpp>   // widen
#include <tide/element/element.hpp>        // ElementType
#include <tide/element/f16.hpp>            // f16
#include <tide/element/f8.hpp>             // f8_e4m3, f8_e5m2

#include <type_traits>

namespace tide {

/// `from` as a `To`: exact where possible, otherwise the nearest value, rounded once.
///
/// @tparam To, From  element types. Not constrained: nvcc would answer a wrong type without our sentence.
template <class To, class From>
[[nodiscard]] TIDE_HOST_DEVICE constexpr To convert(From from) noexcept {
  static_assert(ElementType<To>, "tide::convert: To must be bf16, f16, float, double, f8_e4m3 or f8_e5m2.");
  static_assert(ElementType<From>,
                "tide::convert: From must be bf16, f16, float, double, f8_e4m3 or f8_e5m2; cast other numbers to "
                "float or double first.");
  if constexpr (ElementType<To> && ElementType<From>) {
    if constexpr (std::is_same_v<To, From>) {
      return from;
    } else if constexpr (std::is_same_v<To, f32>) {
      if constexpr (std::is_same_v<From, f64>) {
        return detail::bits_as<f32>(detail::narrow<f32>(from));
      } else {
        return static_cast<f32>(from);
      }
    } else if constexpr (std::is_same_v<To, f64>) {
      return detail::widen<f64, f32>(detail::bits_as<detail::BitsOf<f32>>(convert<f32>(from)));
    } else if constexpr (std::is_same_v<From, f64>) {
      return To(from);
    } else {
      return To(convert<f32>(from));
    }
  }
}

}  // namespace tide
