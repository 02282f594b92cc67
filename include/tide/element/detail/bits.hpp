// SPDX-License-Identifier: Apache-2.0
//
// bits_as: the one place where an object's bits are read as another type.
//
// Law: bits_as<T>(bits_as<U>(t)) has the bits of t.       (tests/element/convert.test.cpp)

#pragma once

#include <tide/core/config.hpp>  // TIDE_HOST_DEVICE

namespace tide::detail {

/// The value of type `To` that has the bits of `from`.
///
/// The builtin and not std::bit_cast: nvcc calls std's constexpr functions from device code only with a flag of its
/// own.
template <class To, class From>
[[nodiscard]] TIDE_HOST_DEVICE constexpr To bits_as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace tide::detail
