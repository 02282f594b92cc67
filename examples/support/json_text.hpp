// SPDX-License-Identifier: Apache-2.0
//
// JsonText: JSON put together as text, keys in the order in which they are given.
//
//   object({{"rank", 3}, {"rows", list({0, 64})}})   reads   {"rank": 3, "rows": [0, 64]}

#pragma once

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tide_example {

class JsonText {
 public:
  JsonText(std::integral auto number) : text_(std::to_string(number)) {}     // NOLINT(google-explicit-constructor)
  JsonText(bool truth) : text_(truth ? "true" : "false") {}                  // NOLINT(google-explicit-constructor)
  JsonText(const char* words) : JsonText(std::string_view(words)) {}         // NOLINT(google-explicit-constructor)
  JsonText(const std::string& words) : JsonText(std::string_view(words)) {}  // NOLINT(google-explicit-constructor)

  /// The shortest text that reads as the same number; null where JSON has none.
  JsonText(double number) : text_("null") {  // NOLINT(google-explicit-constructor)
    char digits[32];
    const auto written = std::to_chars(digits, digits + sizeof digits, number);
    if (std::isfinite(number)) text_.assign(digits, written.ptr);
  }

  /// A text in quotes. What is not UTF-8, as the name of a file may be, reads U+FFFD there.
  JsonText(std::string_view words)  // NOLINT(google-explicit-constructor)
      : text_(nlohmann::json(words).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {}

  /// JSON that is text already.
  [[nodiscard]] static JsonText raw(std::string text) {
    JsonText json(false);
    json.text_ = std::move(text);
    return json;
  }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

using JsonField = std::pair<std::string_view, JsonText>;

/// "a": 1, "b": 2, without the braces: for objects that go on.
[[nodiscard]] inline std::string fields(const std::vector<JsonField>& all) {
  std::string text;
  for (const auto& [key, value] : all) {
    text += (text.empty() ? "" : ", ") + JsonText(key).text() + ": " + value.text();
  }
  return text;
}

[[nodiscard]] inline JsonText object(const std::vector<JsonField>& all) {
  return JsonText::raw("{" + fields(all) + "}");
}

[[nodiscard]] inline JsonText list(const std::vector<JsonText>& entries) {
  std::string text;
  for (const JsonText& entry : entries) text += (text.empty() ? "" : ", ") + entry.text();
  return JsonText::raw("[" + text + "]");
}

}  // namespace tide_example
