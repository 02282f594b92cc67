// SPDX-License-Identifier: Apache-2.0
//
// Name: a parameter's name, also of one that `repeat` made, without storing each repetition's text.
//
//   {"experts.{}.", 7, "gate_proj.weight"}   reads   experts.7.gate_proj.weight
//
// Test: tests/layout/name.test.cpp

#pragma once

#include <tide/core/math.hpp>  // index_t

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tide {

/// Text with one optional number in it. The views must outlive the name (string literals do).
struct Name {
  std::string_view pattern = {};  ///< what stands before `text`; "{}" in it reads as the number
  index_t number = 0;
  std::string_view text = {};

  /// Calls `f(std::string_view)` for each piece of the text, in order.
  template <class F>
  constexpr void for_each_part(F f) const {
    const std::size_t hole = pattern.find("{}");
    f(pattern.substr(0, hole));
    if (hole != std::string_view::npos) {
      char digits[20] = {};
      std::size_t first = sizeof(digits);
      index_t rest = number;
      do {
        digits[--first] = static_cast<char>('0' + rest % 10);
        rest /= 10;
      } while (rest > 0);
      f(std::string_view(digits + first, sizeof(digits) - first));
      f(pattern.substr(hole + 2));
    }
    f(text);
  }

  /// Whether the name reads as `other`.
  [[nodiscard]] constexpr bool reads(std::string_view other) const noexcept {
    bool same = true;
    for_each_part([&](std::string_view part) {
      same = same && other.substr(0, part.size()) == part;
      if (same) other.remove_prefix(part.size());
    });
    return same && other.empty();
  }

  /// Whether `repeat` made the name, with any number, of what is written so there: "experts.{}.gate_proj.weight".
  [[nodiscard]] constexpr bool is_repetition_of(std::string_view other) const noexcept {
    return pattern.find("{}") != std::string_view::npos && other.size() == pattern.size() + text.size() &&
           other.substr(0, pattern.size()) == pattern && other.substr(pattern.size()) == text;
  }

  /// Whether two names read the same.
  [[nodiscard]] constexpr bool reads(const Name& other) const {
    if (pattern == other.pattern && number == other.number) return text == other.text;
    std::vector<char> characters;
    other.for_each_part([&](std::string_view part) { characters.insert(characters.end(), part.begin(), part.end()); });
    return reads(std::string_view(characters.data(), characters.size()));
  }

  /// FNV-1a of the characters: equal names have equal hashes.
  [[nodiscard]] constexpr std::uint64_t hash() const noexcept {
    std::uint64_t value = 14695981039346656037ULL;
    for_each_part([&](std::string_view part) {
      for (const char c : part) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    });
    return value;
  }

  /// The text, in one piece.
  [[nodiscard]] std::string str() const {
    std::string out;
    for_each_part([&](std::string_view part) { out += part; });
    return out;
  }
};

}  // namespace tide
