// SPDX-License-Identifier: Apache-2.0
//
// Table: rows of text for a terminal, columns as wide as their widest entry; the first one flush left, numbers flush
// right.

#pragma once

#include <tide/core/text.hpp>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tide_example {

/// "1,234,567"
[[nodiscard]] inline std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

/// Any name, safe to show: control characters, which a terminal would obey, are written as \\xHH.
using tide::detail::printable;

class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}

  void add(std::vector<std::string> row) {
    for (std::string& cell : row) cell = printable(cell);
    rows_.push_back(std::move(row));
  }

  friend std::ostream& operator<<(std::ostream& out, const Table& table) {
    std::vector<std::size_t> widths;
    for (const auto& row : table.rows_) {
      widths.resize(std::max(widths.size(), row.size()), 0);
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    for (const auto& row : table.rows_) {
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string space(widths[c] - row[c].size(), ' ');
        out << (c == 0 ? "" : "  ") << (c == 0 ? row[c] : space) << (c == 0 ? space : row[c]);
      }
      out << '\n';
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tide_example
