// SPDX-License-Identifier: Apache-2.0
//
// text: one sentence out of parts. Sentences are built on cold paths only, so one function makes them all and callers
// compile to a list.
//
// Test: tests/core/text.test.cpp

#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tide::detail {

// A piece of text or a number.
class TextPart {
 public:
  constexpr TextPart(const char* words) : words_(words) {}         // NOLINT: implicit
  constexpr TextPart(std::string_view words) : words_(words) {}    // NOLINT: implicit
  constexpr TextPart(const std::string& words) : words_(words) {}  // NOLINT: implicit
  template <std::integral I>
  constexpr TextPart(I number) : number_(static_cast<std::int64_t>(number)), is_number_(true) {}  // NOLINT: implicit

  void append_to(std::string& out) const {
    if (is_number_) {
      out += std::to_string(number_);
    } else {
      out += words_;
    }
  }

 private:
  std::string_view words_;
  std::int64_t number_ = 0;
  bool is_number_ = false;
};

// The parts, one after the other.
[[nodiscard]] inline std::string text(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) part.append_to(out);
  return out;
}

}  // namespace tide::detail
