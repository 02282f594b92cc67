// SPDX-License-Identifier: Apache-2.0
//
// FixedString: a name as a template argument, `view.get<"embed.weight">()`.
//
// Test: tests/layout/fixed_string.test.cpp

#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tide {

/// A string literal that can be a template argument.
template <std::size_t N>
struct FixedString {
  char text[N]{};

  constexpr FixedString(const char (&literal)[N]) noexcept { std::copy_n(literal, N, text); }  // NOLINT: implicit

  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text, N - 1}; }
};

}  // namespace tide
