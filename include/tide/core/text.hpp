// SPDX-License-Identifier: Apache-2.0
//
// text: one sentence out of parts. Sentences are built on cold paths only, so one function makes them all and callers
// compile to a list.
//
// Test: tests/core/text.test.cpp

#pragma once

#include <concepts>
#include <cstddef>
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

// A name as it can be shown: control characters, which a terminal would obey, as \xHH. Bytes beyond ASCII pass as they
// are, but for the control characters among them (U+0080 to U+009F).
[[nodiscard]] inline std::string printable(std::string_view name) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const auto at = [&](std::size_t k) { return k < name.size() ? static_cast<unsigned char>(name[k]) : 0U; };
    const auto is_control = [&](std::size_t first) {
      return at(first) == 0xC2 && at(first + 1) >= 0x80 && at(first + 1) < 0xA0;
    };
    // Both bytes of such a character, so that what is left is UTF-8 where it was.
    const bool beyond = is_control(i) || (i > 0 && is_control(i - 1));
    if (byte >= 0x20 && byte != 0x7F && !beyond) {
      out += name[i];
      continue;
    }
    out += "\\x";
    out += digits[byte / 16U];
    out += digits[byte % 16U];
  }
  return out;
}

// The parts, one after the other.
[[nodiscard]] inline std::string text(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) part.append_to(out);
  return out;
}

}  // namespace tide::detail
