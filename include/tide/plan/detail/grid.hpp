// SPDX-License-Identifier: Apache-2.0
//
// Rows of a memory that were written together, equal and at equal distances, as one thing: what is known of a column is
// known of all rows of it.
//
//   row 0   |0 .. 48|48 ..... 128|     begins at 0     pitch 128
//   row 1   |0 .. 48|48 ..... 128|     begins at 128
//   row 2   |0 .. 48|48 ..... 128|     begins at 256
//
// What bytes are steps from row to row by a number of their column.

#pragma once

#include <tide/plan/detail/byte_content.hpp>  // ByteContent
#include <tide/plan/detail/op_rows.hpp>       // OpRows
#include <tide/plan/detail/reader_lists.hpp>  // ReaderLists

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tide::detail {

// Bytes of which the same is known.
struct Cell {
  index_t begin = 0;
  NodeIndex writer = no_node;
  ReaderLists::List readers = ReaderLists::none;
  ByteContent content{};

  [[nodiscard]] bool is_grid() const noexcept { return content.kind == ByteContent::Kind::grid; }
};

// The same of several rows: `cell` is that of the first one, and begins inside the row.
struct Column {
  Cell cell{};
  index_t step = 0;  // of `content.offset`

  // What its bytes are in a row, from a byte of the row on.
  [[nodiscard]] ByteContent at(index_t row, index_t byte) const noexcept {
    return cell.content.from(row * step + byte - cell.begin);
  }
};

// What an access meets: in `rows` of its rows, from `first` on, the `bytes` bytes from `from` on are `content`, which
// steps by `step` where they are several.
struct Part {
  index_t first = 0;
  index_t rows = 1;
  index_t from = 0;
  index_t bytes = 0;
  ByteContent content{};
  index_t step = 0;

  [[nodiscard]] ByteContent row(index_t i) const noexcept { return content.from(i * step); }
};

// Calls f(parts) for those that are the columns of the same rows.
template <class F>
void for_each_rows_alike(std::span<const Part> parts, F f) {
  for (std::size_t first = 0; first < parts.size();) {
    std::size_t last = first + 1;
    while (last < parts.size() && parts[last].first == parts[first].first) ++last;
    f(parts.subspan(first, last - first));
    first = last;
  }
}

struct Grid {
  index_t pitch = 0;
  index_t rows = 0;
  std::vector<Column> columns{};

  [[nodiscard]] index_t end_of(std::size_t i) const noexcept {
    return i + 1 < columns.size() ? columns[i + 1].cell.begin : pitch;
  }

  // The column that a byte of a row is in.
  [[nodiscard]] std::size_t column(index_t byte) const noexcept {
    std::size_t first = 0;
    for (std::size_t last = columns.size(); last - first > 1;) {
      const std::size_t middle = first + (last - first) / 2;
      (columns[middle].cell.begin <= byte ? first : last) = middle;
    }
    return first;
  }

  // How many rows of an access, from one whose first byte is at `inside` on, lie in the same columns.
  [[nodiscard]] index_t alike(index_t inside, const OpRows& access, index_t row) const noexcept {
    const index_t left = access.rows - row;
    if (left == 1 || access.pitch % pitch != 0 || inside % pitch + access.width > pitch) return 1;
    if (access.pitch == 0) return left;
    return std::min(left, (rows - 1 - inside / pitch) / (access.pitch / pitch) + 1);
  }

  // Calls f(cell, part) for all that `part` meets from byte `inside` of the grid on.
  template <class F>
  void visit(index_t inside, Part part, index_t pitch_of_access, F& f) {
    while (part.bytes > 0) {
      const index_t row = inside / pitch;
      index_t byte = inside % pitch;
      for (std::size_t i = column(byte); i < columns.size() && part.bytes > 0; ++i) {
        Part met = part;
        met.bytes = std::min(part.bytes, end_of(i) - byte);
        met.content = columns[i].at(row, byte);
        // A single row has no step; what its column says may be of no row at all.
        met.step = part.rows > 1 ? columns[i].step * (pitch_of_access / pitch) : 0;
        f(columns[i].cell, met);
        byte += met.bytes;
        inside += met.bytes;
        part.from += met.bytes;
        part.bytes -= met.bytes;
      }
    }
  }

  // Makes a column begin at a byte of a row; returns which.
  std::size_t split(index_t byte, ReaderLists& readers) {
    if (byte == pitch) return columns.size();
    const std::size_t i = column(byte);
    if (columns[i].cell.begin == byte) return i;
    Column rest = columns[i];
    rest.cell.begin = byte;
    rest.cell.content = columns[i].at(0, byte);
    rest.cell.readers = readers.copy(rest.cell.readers);
    columns.insert(columns.begin() + static_cast<std::ptrdiff_t>(i + 1), rest);
    return i + 1;
  }

  // Replaces bytes [begin, end) of all rows; `by` begins at 0.
  void replace(index_t begin, index_t end, std::span<const Column> by, ReaderLists& readers) {
    const auto first = static_cast<std::ptrdiff_t>(split(begin, readers));
    const auto last = static_cast<std::ptrdiff_t>(split(end, readers));
    for (std::ptrdiff_t i = first; i < last; ++i) readers.drop(columns[static_cast<std::size_t>(i)].cell.readers);
    const std::ptrdiff_t common = std::min(last - first, std::ssize(by));
    std::copy_n(by.begin(), common, columns.begin() + first);
    columns.erase(columns.begin() + first + common, columns.begin() + last);
    columns.insert(columns.begin() + first + common, by.begin() + common, by.end());
    for (std::ptrdiff_t i = first; i < first + std::ssize(by); ++i) {
      columns[static_cast<std::size_t>(i)].cell.begin += begin;
    }
  }

  // Some of the rows, as a grid of its own.
  [[nodiscard]] Grid part(index_t first, index_t count, ReaderLists& readers) const {
    Grid part{pitch, count, columns};
    for (Column& column : part.columns) {
      column.cell.content = column.at(first, column.cell.begin);
      column.cell.readers = readers.copy(column.cell.readers);
    }
    return part;
  }
};

}  // namespace tide::detail
