// SPDX-License-Identifier: Apache-2.0
//
// What is known of every byte of one memory: what it holds, who wrote it last, who has read it since. Neighbouring
// bytes of one kind are one cell. Cells split where a write begins or ends inside them and vanish when they are
// overwritten; rows that are written together become one grid, as long as all that is written there lies in its
// columns.
//
//   cells    |0 ....... 64|64 ... 96|96 .... 512|
//   write            [48 ...... 90)             ->   |0 . 48|48 ... 90|90 . 96|96 ...|

#pragma once

#include <tide/plan/detail/grid.hpp>          // Cell, Grid, Part
#include <tide/plan/detail/leaves.hpp>        // Leaves
#include <tide/plan/detail/op_rows.hpp>       // OpRows
#include <tide/plan/detail/reader_lists.hpp>  // ReaderLists

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tide::detail {

class Cells {
 public:
  explicit Cells(ReaderLists& readers) : readers_(&readers) {}

  // @pre cells in order, the first at 0, all of them below `end`; read by nobody
  void assign(std::span<const Cell> cells, index_t end) {
    if (leaves_.end() > 0) drop(0, leaves_.end());
    leaves_.assign(cells, end);
  }

  [[nodiscard]] index_t end() const noexcept { return leaves_.end(); }

  // What a byte is.  @pre 0 <= byte < end()
  [[nodiscard]] ByteContent at(index_t byte) noexcept {
    ByteContent content;
    visit({byte, 1, 0, 1}, [&](const Cell&, const Part& part) { content = part.content; });
    return content;
  }

  // Says that a byte will be visited soon.
  void expect(index_t byte) const noexcept { leaves_.expect(byte); }

  // Calls f(cell, part) for all that an access meets, row by row; rows that meet the same cells alike are one part, or
  // one of each column.  @pre inside the memory; f changes writers and readers at most
  template <class F>
  void visit(const OpRows& rows, F f) {
    for (index_t row = 0; row < rows.rows;) {
      if (row + ahead < rows.rows) leaves_.expect(rows.begin(row + ahead));
      row += visit_from(rows, row, f);
    }
  }

  // Calls f(cell, rows) for each cell, and each column of a grid once, with bytes in [begin, end).
  template <class F>
  void visit_cells(index_t begin, index_t end, F f) {
    for (Position at = leaves_.find(begin);; at = leaves_.behind(at)) {
      Cell& cell = leaves_[at];
      if (Grid* grid = grid_of(cell)) {
        for (std::size_t i = 0; i < grid->columns.size(); ++i) {
          Cell& column = grid->columns[i].cell;
          f(column, OpRows{cell.begin + column.begin, grid->end_of(i) - column.begin, grid->pitch, grid->rows});
        }
      } else {
        const index_t first = std::max(begin, cell.begin);
        f(cell, OpRows{first, std::min(end, leaves_.end_of(at)) - first});
      }
      if (leaves_.end_of(at) >= end) return;
    }
  }

  // Writes what `by` says of a row, its columns in order and the first at 0, to all rows.
  void replace(const OpRows& rows, std::span<const Column> by) {
    if (rows.rows >= fewest_rows && rows.pitch == rows.width) return replace_dense(rows, by);
    if (Grid* grid = rows.rows >= fewest_rows ? frame(rows) : nullptr) {
      const index_t begin = (rows.offset - leaves_[leaves_.find(rows.offset)].begin);
      return grid->replace(begin, begin + rows.width, by, *readers_);
    }
    for (index_t row = 0; row < rows.rows; ++row) {
      made_.clear();
      for (const Column& column : by) {
        made_.push_back(column.cell);
        made_.back().begin += rows.begin(row);
        made_.back().content = column.at(row, column.cell.begin);
      }
      replace(rows.begin(row), rows.begin(row) + rows.width, made_);
    }
  }

 private:
  using Position = Leaves::Position;

  static constexpr index_t ahead = 8;  // rows whose memory is asked for before it is needed

  // Fewer rows are cells: two or three take no more room than a grid of them.
  static constexpr index_t fewest_rows = 4;

  [[nodiscard]] Grid* grid_of(const Cell& cell) noexcept {
    return cell.is_grid() ? &grids_[static_cast<std::size_t>(cell.content.offset)] : nullptr;
  }

  // Visits a row, and those behind it that meet the same; returns how many.
  template <class F>
  index_t visit_from(const OpRows& rows, index_t row, F& f) {
    const index_t begin = rows.begin(row);
    const index_t end = begin + rows.width;
    for (Position at = leaves_.find(begin);; at = leaves_.behind(at)) {
      Cell& cell = leaves_[at];
      const index_t cell_end = leaves_.end_of(at);
      const index_t from = std::max(cell.begin, begin);
      Part part{row, 1, from - begin, std::min(cell_end, end) - from, {}, rows.pitch};
      const bool whole = part.bytes == rows.width;
      if (Grid* grid = grid_of(cell)) {
        if (whole) part.rows = grid->alike(from - cell.begin, rows, row);
        grid->visit(from - cell.begin, part, rows.pitch, f);
      } else {
        if (whole) part.rows = alike(cell_end - end, rows, row);
        part.content = cell.content.from(from - cell.begin);
        f(cell, part);
      }
      if (cell_end >= end) return part.rows;
    }
  }

  // How many rows, from one on that ends `left` bytes before its cell does, are inside that cell.
  [[nodiscard]] static index_t alike(index_t left, const OpRows& rows, index_t row) noexcept {
    return rows.pitch == 0 ? rows.rows - row : std::min(rows.rows - row, left / rows.pitch + 1);
  }

  // Rows without gaps: whatever was there goes.
  void replace_dense(const OpRows& rows, std::span<const Column> by) {
    Cell cell = by[0].cell;
    cell.begin = rows.offset;
    if (by.size() > 1 || by[0].step != rows.width) {
      cell.content.kind = ByteContent::Kind::grid;
      cell.content.offset = keep({rows.pitch, rows.rows, {by.begin(), by.end()}});
    }
    replace(rows.offset, rows.offset + rows.rows * rows.width, {&cell, 1});
  }

  // The grid of just the rows of an access, cut out or made where they lie in one cell; null where they do not.
  [[nodiscard]] Grid* frame(const OpRows& rows) {
    const Position at = leaves_.find(rows.offset);
    const Cell cell = leaves_[at];
    const index_t end = leaves_.end_of(at);
    if (const Grid* grid = grid_of(cell)) {
      const index_t first = (rows.offset - cell.begin) / grid->pitch;
      const index_t byte = (rows.offset - cell.begin) % grid->pitch;
      if (grid->pitch != rows.pitch || byte + rows.width > rows.pitch || first + rows.rows > grid->rows) return nullptr;
      split(cell.begin + first * rows.pitch);
      split(cell.begin + (first + rows.rows) * rows.pitch);
    } else {
      const index_t begin = std::min(rows.offset, end - rows.rows * rows.pitch);
      if (begin < cell.begin || rows.offset + rows.width > begin + rows.pitch) return nullptr;
      split(begin);
      split(begin + rows.rows * rows.pitch);
      Cell& whole = leaves_[leaves_.find(begin)];
      const Column column{{0, whole.writer, whole.readers, whole.content}, rows.pitch};
      whole.readers = ReaderLists::none;
      whole.content.kind = ByteContent::Kind::grid;
      whole.content.offset = keep({rows.pitch, rows.rows, {column}});
    }
    return grid_of(leaves_[leaves_.find(rows.offset)]);
  }

  // Makes a cell begin at a byte.
  void split(index_t byte) {
    if (byte >= leaves_.end()) return;
    const Position at = leaves_.find(byte);
    const Cell& cell = leaves_[at];
    if (cell.begin == byte) return;
    if (cell.is_grid()) return split_grid(byte);
    leaves_.insert(at, {byte, cell.writer, readers_->copy(cell.readers), cell.content.from(byte - cell.begin)});
  }

  // The same in a grid: rows before and behind it are grids of their own, the row that it is inside of becomes cells.
  void split_grid(index_t byte) {
    const Cell cell = leaves_[leaves_.find(byte)];
    const Grid grid = *grid_of(cell);
    const index_t row = (byte - cell.begin) / grid.pitch;
    const index_t behind = cell.begin + row * grid.pitch == byte ? row : row + 1;
    std::vector<Cell> parts;
    append_rows(parts, cell.begin, grid, 0, row);
    append_rows(parts, cell.begin, grid, row, behind);
    append_rows(parts, cell.begin, grid, behind, grid.rows);
    replace(cell.begin, cell.begin + grid.rows * grid.pitch, parts);
    split(byte);
  }

  // Some rows of a grid as cells: a single row is its columns.
  void append_rows(std::vector<Cell>& cells, index_t begin, const Grid& grid, index_t first, index_t last) {
    if (first == last) return;
    Grid part = grid.part(first, last - first, *readers_);
    begin += first * grid.pitch;
    if (part.rows > 1) {
      Cell cell{begin, no_node, ReaderLists::none, {}};
      cell.content.kind = ByteContent::Kind::grid;
      cell.content.offset = keep(std::move(part));
      cells.push_back(cell);
      return;
    }
    for (Column& column : part.columns) {
      column.cell.begin += begin;
      cells.push_back(column.cell);
    }
  }

  // Replaces all of [begin, end).
  void replace(index_t begin, index_t end, std::span<const Cell> by) {
    const Position at = leaves_.find(begin);
    if (by.size() > 1 || leaves_[at].begin != begin || leaves_.end_of(at) != end) {
      split(begin);
      split(end);
      drop(begin, end);
      return leaves_.replace(begin, end, by);
    }
    drop(leaves_[at]);
    leaves_[at] = by[0];
  }

  // Lets go of what cells have beside themselves.
  void drop(index_t begin, index_t end) {
    for (Position at = leaves_.find(begin);; at = leaves_.behind(at)) {
      drop(leaves_[at]);
      if (leaves_.end_of(at) >= end) return;
    }
  }
  void drop(Cell& cell) {
    readers_->drop(cell.readers);
    if (Grid* grid = grid_of(cell)) {
      for (Column& column : grid->columns) readers_->drop(column.cell.readers);
      grid->columns.clear();
      unused_grids_.push_back(cell.content.offset);
    }
  }

  // Keeps a grid; returns its number.
  [[nodiscard]] index_t keep(Grid grid) {
    if (unused_grids_.empty()) {
      grids_.push_back(std::move(grid));
      return std::ssize(grids_) - 1;
    }
    const index_t number = unused_grids_.back();
    unused_grids_.pop_back();
    grids_[static_cast<std::size_t>(number)] = std::move(grid);
    return number;
  }

  Leaves leaves_;
  ReaderLists* readers_;
  std::vector<Grid> grids_;
  std::vector<index_t> unused_grids_;
  std::vector<Cell> made_;
};

}  // namespace tide::detail
