// SPDX-License-Identifier: Apache-2.0
//
// Just enough JSON to write names and times.

#pragma once

#include <cmath>
#include <string>
#include <string_view>

namespace tide::detail {

// A JSON string literal. Bytes beyond ASCII pass as they are.
[[nodiscard]] inline std::string json_text(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += digits[byte / 16U];
      out += digits[byte % 16U];
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Microseconds with three decimals, whatever the stream's locale. What is not finite, which JSON cannot say, becomes 0.
[[nodiscard]] inline std::string json_microseconds(double microseconds) {
  const double nanoseconds = std::round(microseconds * 1000.0);
  if (!(std::abs(nanoseconds) < 9e18)) return "0";
  const auto whole = static_cast<long long>(nanoseconds);
  const unsigned long long size =
      whole < 0 ? 0ULL - static_cast<unsigned long long>(whole) : static_cast<unsigned long long>(whole);
  const std::string fraction = std::to_string(size % 1000);
  return (whole < 0 ? "-" : "") + std::to_string(size / 1000) + "." + std::string(3 - fraction.size(), '0') + fraction;
}

}  // namespace tide::detail
