// SPDX-License-Identifier: Apache-2.0
//
// Cells in order, in leaves of about as many as are as fast to search as to move.

#pragma once

#include <tide/plan/detail/grid.hpp>  // Cell

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tide::detail {

class Leaves {
 public:
  // A cell, as a place in the lists below. Valid until cells are inserted or replaced.
  struct Position {
    std::size_t leaf = 0;
    std::size_t cell = 0;
  };

  // @pre cells in order, the first at 0, all of them below `end`
  void assign(std::span<const Cell> cells, index_t end) {
    leaves_.clear();
    last_ = {};
    end_ = end;
    for (std::size_t first = 0; first < cells.size(); first += leaf_cells / 2) {
      const auto part = cells.subspan(first, std::min(leaf_cells / 2, cells.size() - first));
      leaves_.push_back({part[0].begin, {part.begin(), part.end()}});
    }
  }

  [[nodiscard]] index_t end() const noexcept { return end_; }
  [[nodiscard]] Cell& operator[](Position at) noexcept { return leaves_[at.leaf].cells[at.cell]; }

  [[nodiscard]] index_t end_of(Position at) const noexcept {
    const std::vector<Cell>& cells = leaves_[at.leaf].cells;
    if (at.cell + 1 < cells.size()) return cells[at.cell + 1].begin;
    return at.leaf + 1 < leaves_.size() ? leaves_[at.leaf + 1].begin : end_;
  }

  // The next cell.  @pre there is one
  [[nodiscard]] Position behind(Position at) const noexcept {
    return at.cell + 1 < leaves_[at.leaf].cells.size() ? Position{at.leaf, at.cell + 1} : Position{at.leaf + 1, 0};
  }

  // The cell that a byte is in.  @pre 0 <= byte < end()
  //
  // Accesses come one behind the other: it is often the cell of the last time, or the one behind it. Cells of a leaf
  // are often of one size: so the next guess is where the byte would be then.
  [[nodiscard]] Position find(index_t byte) noexcept {
    if (last_.leaf < leaves_.size() && last_.cell < leaves_[last_.leaf].cells.size()) {
      for (int i = 0; i < 2 && (*this)[last_].begin <= byte; ++i) {
        const index_t end = end_of(last_);
        if (byte < end) return last_;
        if (end == end_) break;
        last_ = behind(last_);
      }
    }
    const std::size_t leaf = nearest(leaves_, std::min(last_.leaf, leaves_.size() - 1), byte);
    return last_ = {leaf, nearest(leaves_[leaf].cells, guess(leaf, byte), byte)};
  }

  // Asks for the memory that `find` of a byte will look at first: large memories are in no cache.
  void expect(index_t byte) const noexcept {
    if (byte >= end_) return;
    const std::size_t leaf = nearest(leaves_, std::min(last_.leaf, leaves_.size() - 1), byte);
    __builtin_prefetch(&leaves_[leaf].cells[guess(leaf, byte)]);
  }

  // Inserts a cell behind another.
  void insert(Position behind, const Cell& cell) {
    std::vector<Cell>& cells = leaves_[behind.leaf].cells;
    cells.insert(cells.begin() + position(behind.cell + 1), cell);
    split_leaf(behind.leaf);
  }

  // Replaces the cells of [begin, end) by others.  @pre one begins at `begin`, and one at `end` or the memory ends
  // there
  void replace(index_t begin, index_t end, std::span<const Cell> by) {
    const Position first = find(begin);
    std::vector<Cell>& cells = leaves_[first.leaf].cells;
    std::size_t last = first.cell;
    while (last < cells.size() && cells[last].begin < end) ++last;
    if (last == cells.size()) erase_before(first.leaf + 1, end);
    const std::size_t common = std::min(last - first.cell, by.size());
    std::copy_n(by.begin(), common, cells.begin() + position(first.cell));
    if (common < by.size()) {
      cells.insert(cells.begin() + position(first.cell + common), by.begin() + position(common), by.end());
      split_leaf(first.leaf);
    } else {
      cells.erase(cells.begin() + position(first.cell + common), cells.begin() + position(last));
    }
  }

 private:
  // A leaf is split at twice the size that is made; 64 cells are about as fast to search as to move.
  static constexpr std::size_t leaf_cells = 128;

  struct Leaf {
    index_t begin;
    std::vector<Cell> cells;
  };

  [[nodiscard]] static std::ptrdiff_t position(std::size_t i) noexcept { return static_cast<std::ptrdiff_t>(i); }

  // Where in a leaf a byte would be if all its cells were of one size.
  [[nodiscard]] std::size_t guess(std::size_t leaf, index_t byte) const noexcept {
    const index_t begin = leaves_[leaf].begin;
    const index_t end = leaf + 1 < leaves_.size() ? leaves_[leaf + 1].begin : end_;
    const std::size_t cells = leaves_[leaf].cells.size();
    const double part = static_cast<double>(byte - begin) / static_cast<double>(end - begin);
    return std::min(static_cast<std::size_t>(part * static_cast<double>(cells)), cells - 1);
  }

  // The last item that begins at or before a byte, looked for in growing steps from a guess.  @pre the first one does
  template <class Item>
  [[nodiscard]] static std::size_t nearest(const std::vector<Item>& items, std::size_t guess, index_t byte) noexcept {
    std::size_t first = guess;     // begins at or before the byte
    std::size_t last = guess + 1;  // begins behind it, or there is none
    for (std::size_t step = 1; items[first].begin > byte; step *= 2) {
      last = first;
      first -= std::min(step, first);
    }
    for (std::size_t step = 1; last < items.size() && items[last].begin <= byte; step *= 2) {
      first = last;
      last = std::min(last + step, items.size());
    }
    while (last - first > 1) {
      const std::size_t middle = first + (last - first) / 2;
      (items[middle].begin <= byte ? first : last) = middle;
    }
    return first;
  }

  // Splits a leaf that has become too long.
  void split_leaf(std::size_t leaf) {
    for (; leaves_[leaf].cells.size() > leaf_cells; ++leaf) {
      std::vector<Cell>& cells = leaves_[leaf].cells;
      Leaf rest{cells[leaf_cells / 2].begin, {}};
      rest.cells.reserve(leaf_cells + 2);  // what has grown so far goes on growing
      rest.cells.assign(cells.begin() + position(leaf_cells / 2), cells.end());
      cells.resize(leaf_cells / 2);
      leaves_.insert(leaves_.begin() + position(leaf + 1), std::move(rest));
    }
  }

  // Erases the cells below `end` from a leaf on.
  void erase_before(std::size_t leaf, index_t end) {
    std::size_t last = leaf;
    while (last < leaves_.size() && (last + 1 < leaves_.size() ? leaves_[last + 1].begin : end_) <= end) ++last;
    if (last < leaves_.size() && leaves_[last].begin < end) {
      std::vector<Cell>& cells = leaves_[last].cells;
      std::size_t gone = 0;
      while (cells[gone].begin < end) ++gone;
      cells.erase(cells.begin(), cells.begin() + position(gone));
      leaves_[last].begin = end;
    }
    leaves_.erase(leaves_.begin() + position(leaf), leaves_.begin() + position(last));
  }

  std::vector<Leaf> leaves_;
  Position last_{};  // what was found last, if that is still there
  index_t end_ = 0;
};

}  // namespace tide::detail
