// SPDX-License-Identifier: Apache-2.0
//
// What is known of every byte of one memory: what it holds, who wrote it last, who has read it since. Neighbouring
// bytes of one kind are one cell; cells split where an access begins or ends inside them and vanish when they are
// overwritten.
//
//   cells    |0 ....... 64|64 ... 96|96 .... 512|
//   access            [48 ...... 90)              ->   |0 . 48|48 . 64|64 . 90|90 . 96|96 ...|

#pragma once

#include <tide/element/element.hpp>       // Element
#include <tide/plan/detail/op_graph.hpp>  // NodeIndex

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tide::detail {

// What bytes are. `offset` is where the first of them belongs: gathered and gradient bytes in the whole parameters,
// master bytes at four times their element's number, partial sums at their element's number times its size.
struct ByteContent {
  enum class Kind : std::uint8_t { nothing, padding, gathered, master, gradient, sum, partial, zeros };

  index_t offset = 0;
  std::int32_t rank = -1;  // whose gradient; of a partial sum: the nodes that it is over, see below
  Kind kind = Kind::nothing;
  std::uint8_t run = 0;            // of the caller's write that they come from; zeros come from before all runs
  Element element = Element::f32;  // of a partial sum: what it is stored as

  // The same bytes from `bytes` on.
  [[nodiscard]] constexpr ByteContent from(index_t bytes) const noexcept {
    return {offset + bytes, rank, kind, run, element};
  }

  // The sum over nodes [first, last) of what is at `offset`.
  [[nodiscard]] static constexpr ByteContent partial(index_t offset, index_t first, index_t last, std::uint8_t run,
                                                     Element element) noexcept {
    const auto nodes = (static_cast<std::uint32_t>(first) << 16U) | static_cast<std::uint32_t>(last);
    return {offset, static_cast<std::int32_t>(nodes), Kind::partial, run, element};
  }
  [[nodiscard]] constexpr index_t first_node() const noexcept { return static_cast<std::uint32_t>(rank) >> 16U; }
  [[nodiscard]] constexpr index_t last_node() const noexcept { return static_cast<std::uint32_t>(rank) & 0xFFFFU; }
  [[nodiscard]] friend constexpr bool operator==(const ByteContent&, const ByteContent&) = default;
};

struct Cell {
  index_t begin = 0;
  NodeIndex writer = no_node;
  std::uint32_t readers = UINT32_MAX;  // the head of a list
  ByteContent content{};
};

class Cells {
 public:
  Cells() = default;

  // @pre cells in order, the first at 0, all of them below `end`
  void assign(std::span<const Cell> cells, index_t end) {
    leaves_.clear();
    end_ = end;
    for (std::size_t first = 0; first < cells.size(); first += leaf_cells / 2) {
      const auto part = cells.subspan(first, std::min(leaf_cells / 2, cells.size() - first));
      leaves_.push_back({part[0].begin, {part.begin(), part.end()}});
    }
  }

  [[nodiscard]] index_t end() const noexcept { return end_; }

  // A cell, as a place in the lists below.
  struct Position {
    std::size_t leaf = 0;
    std::size_t cell = 0;
  };

  // Splits cells so that [begin, end) consists of whole ones, calls f(cell, its end) for each, and returns the first.
  template <class F>
  Position visit(index_t begin, index_t end, F f) {
    const Position first = split(begin);
    Position at = first;
    for (bool done = false; !done; at = {at.leaf + 1, 0}) {
      std::vector<Cell>& cells = leaves_[at.leaf].cells;
      for (; !done && at.cell < cells.size(); ++at.cell) {
        const index_t cell_end = end_of(at);
        if (cell_end > end) cells.insert(cells.begin() + position(at.cell + 1), part(cells[at.cell], end));
        f(cells[at.cell], std::min(cell_end, end));
        done = cell_end >= end;
      }
      if (done && split_leaf(at.leaf)) return find(begin);  // only the last cell can have been split
    }
    return first;
  }

  // What a byte is; splits nothing.  @pre 0 <= byte < end()
  [[nodiscard]] ByteContent at(index_t byte) noexcept {
    const Position at = find(byte);
    const Cell& cell = leaves_[at.leaf].cells[at.cell];
    return cell.content.from(byte - cell.begin);
  }

  // Asks for the memory that `visit` of a byte will look at first: large memories are in no cache.
  void expect(index_t byte) const noexcept {
    if (byte >= end_) return;
    const std::size_t leaf = nearest(leaves_, std::min(leaf_, leaves_.size() - 1), byte);
    __builtin_prefetch(&leaves_[leaf].cells[guess(leaf, byte)]);
  }

  // Replaces the cells from `first` up to byte `end` by others.  @pre they end there; `by` fills the same bytes
  void replace(Position first, index_t end, std::span<const Cell> by) {
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

  // The cell that a byte is in.  @pre 0 <= byte < end()
  //
  // Rows of an op come one after the other: the leaf is near the one of the last time. Cells of a leaf are often of one
  // size: so the first guess is where the byte would be then.
  [[nodiscard]] Position find(index_t byte) noexcept {
    leaf_ = nearest(leaves_, std::min(leaf_, leaves_.size() - 1), byte);
    return {leaf_, nearest(leaves_[leaf_].cells, guess(leaf_, byte), byte)};
  }

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

  [[nodiscard]] index_t end_of(Position at) const noexcept {
    const std::vector<Cell>& cells = leaves_[at.leaf].cells;
    if (at.cell + 1 < cells.size()) return cells[at.cell + 1].begin;
    return at.leaf + 1 < leaves_.size() ? leaves_[at.leaf + 1].begin : end_;
  }

  // The part of a cell from a byte on.
  [[nodiscard]] static Cell part(const Cell& cell, index_t byte) noexcept {
    return {byte, cell.writer, cell.readers, cell.content.from(byte - cell.begin)};
  }

  // Makes a cell begin at a byte.
  Position split(index_t byte) {
    Position at = find(byte);
    std::vector<Cell>& cells = leaves_[at.leaf].cells;
    if (cells[at.cell].begin == byte) return at;
    ++at.cell;
    cells.insert(cells.begin() + position(at.cell), part(cells[at.cell - 1], byte));
    return split_leaf(at.leaf) ? find(byte) : at;
  }

  // Splits a leaf that has become too long; returns whether it had.
  bool split_leaf(std::size_t leaf) {
    const bool split = leaves_[leaf].cells.size() > leaf_cells;
    for (; leaves_[leaf].cells.size() > leaf_cells; ++leaf) {
      std::vector<Cell>& cells = leaves_[leaf].cells;
      Leaf rest{cells[leaf_cells / 2].begin, {}};
      rest.cells.reserve(leaf_cells + 2);  // what has grown so far goes on growing
      rest.cells.assign(cells.begin() + position(leaf_cells / 2), cells.end());
      cells.resize(leaf_cells / 2);
      leaves_.insert(leaves_.begin() + position(leaf + 1), std::move(rest));
    }
    return split;
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
  std::size_t leaf_ = 0;  // where something was found last
  index_t end_ = 0;
};

}  // namespace tide::detail
