// SPDX-License-Identifier: Apache-2.0
//
// The memories of all ranks while plans are replayed: what every byte is, and which accesses to it are not ordered.

#pragma once

#include <tide/plan/detail/cells.hpp>         // Cells
#include <tide/plan/detail/node_reads.hpp>    // NodeReads, MemoryRegion
#include <tide/plan/detail/piece_table.hpp>   // PieceTable
#include <tide/plan/detail/replay_order.hpp>  // ReplayOrder, AccessConflict

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace tide::detail {

// What a write met that it should not have met.
struct WriteFault {
  bool padding = false;        // bytes that belong to no parameter
  bool own_source = false;     // bytes that the same op reads
  NodeIndex before = no_node;  // an earlier write of the same run
  index_t begin = 0;           // the first bytes with a fault
  index_t end = 0;

  [[nodiscard]] constexpr bool any() const noexcept { return begin < end; }
};

class ReplayMemory {
 public:
  ReplayMemory(const Collective& collective, const PieceTable& pieces, const OpGraph& graph, ReplayOrder& order)
      : graph_(&graph), order_(&order), reads_(collective, pieces, graph) {
    std::size_t stride = 0;
    for (std::size_t s = 0; s < space_count; ++s) {
      first_[s] = stride;
      const bool there = pieces.any_bytes(static_cast<Space>(s));
      instances_[s] = there ? static_cast<std::size_t>(collective.space_instances(static_cast<Space>(s))) : 0;
      stride += s == static_cast<std::size_t>(Space::signals) ? 0 : instances_[s];
    }
    stride_ = stride;
    cells_.resize(stride * static_cast<std::size_t>(collective.ranks()), Cells(readers_));
    for (index_t r = 0; r < collective.ranks(); ++r) {
      for (std::size_t s = 0; s < static_cast<std::size_t>(Space::signals); ++s) {
        const index_t bytes = pieces.bytes(Rank{r}, static_cast<Space>(s));
        Cell first;
        const bool zeros = static_cast<Space>(s) == Space::network_inbox && collective.network.starts_as_zeros();
        if (zeros) first.content.kind = ByteContent::Kind::zeros;
        for (std::size_t i = 0; i < instances_[s] && bytes > 0; ++i) {
          cells({Rank{r}, static_cast<Space>(s), static_cast<index_t>(i)}).assign(std::array{first}, bytes);
        }
      }
    }
  }

  ReplayMemory(const ReplayMemory&) = delete;  // cells point to the readers
  ReplayMemory& operator=(const ReplayMemory&) = delete;

  // Says which node the accesses that follow are of.
  void begin(NodeIndex now, QueueIndex queue, index_t run) {
    now_ = now;
    last_ = now;
    queue_ = queue;
    run_ = run;
  }

  // Reads, in f, for all nodes of the lane from the one that is replayed to `last`: faults are not told, but make it
  // false, as f does; then each node has to read for itself.
  template <class F>
  [[nodiscard]] bool read_until(NodeIndex last, F f) {
    last_ = last;
    ordered_ = true;
    const bool good = f();
    last_ = now_;
    return good && ordered_;
  }

  [[nodiscard]] Cells& cells(const MemoryRegion& region) noexcept {
    return cells_[static_cast<std::size_t>(region.rank.value) * stride_ +
                  first_[static_cast<std::size_t>(region.space)] + static_cast<std::size_t>(region.instance)];
  }

  // How many rows have been read and written; those that lie alike are one.
  [[nodiscard]] index_t rows() const noexcept { return rows_; }

  // Says that an access to a byte will follow soon.
  void expect(const MemoryRegion& region, index_t byte) noexcept { cells(region).expect(byte); }

  // What a byte is: a look that is no access.
  [[nodiscard]] ByteContent at(const MemoryRegion& region, index_t byte) noexcept { return cells(region).at(byte); }

  // Calls f(part) for what rows are: a look that is no access.
  template <class F>
  void look(const MemoryRegion& region, const OpRows& rows, F f) {
    cells(region).visit(rows, [&](const Cell&, const Part& part) { f(part); });
  }

  // Reads rows: calls judge(part) for what they are; it says whether that is what should be there.
  template <class Judge>
  void read(const MemoryRegion& region, const OpRows& rows, Judge judge) {
    cells(region).visit(rows, [&](Cell& cell, const Part& part) {
      const OpRows met = met_by(rows, part);
      read(region, cell, met.offset, met.offset + met.width, judge(part));
    });
  }

  // Reads [begin, end), in no order: calls judge(content, begin, end) for what is there.
  template <class Judge>
  void read_all(const MemoryRegion& region, index_t begin, index_t end, Judge judge) {
    cells(region).visit_cells(begin, end, [&](Cell& cell, const OpRows& rows) {
      const index_t row_end = rows.offset + rows.width;
      read(region, cell, rows.offset, row_end, judge(cell.content, rows.offset, row_end));
    });
  }

  // Writes to all rows what `by` says of one.  @param same  whether the op puts each byte where it has read it
  WriteFault write(const MemoryRegion& region, const OpRows& rows, std::span<const Column> by, bool same = false) {
    WriteFault fault;
    const bool once = region.space == Space::slot || region.space == Space::output;
    Cells& memory = cells(region);
    memory.visit(rows, [&](Cell& cell, const Part& part) {
      const OpRows met = met_by(rows, part);
      const bool padding = cell.content.kind == ByteContent::Kind::padding && !is_passed_through(region.space);
      const std::optional<ByteRun> own = overwrite(region, cell, met, !same);
      const bool again = once && !same && cell.content.kind != ByteContent::Kind::nothing && cell.writer != no_node &&
                         graph_->run_of(cell.writer) == run_;
      if (fault.any() || !(padding || own || again)) return;
      fault = {padding, own.has_value(), again ? cell.writer : no_node, met.offset, met.offset + met.width};
      if (own && !padding) std::tie(fault.begin, fault.end) = std::tie(own->begin, own->end);
    });
    memory.replace(rows, by);
    return fault;
  }

  // Writes a whole region anew; what is padding in `by` is not touched.
  void rewrite(const MemoryRegion& region, std::span<const Cell> by) {
    Cells& memory = cells(region);
    memory.visit_cells(0, memory.end(), [&](Cell& cell, const OpRows& rows) {
      if (cell.content.kind != ByteContent::Kind::padding) overwrite(region, cell, rows, false);
    });
    memory.assign(by, memory.end());
  }

 private:
  struct ByteRun {
    index_t begin = 0;
    index_t end = 0;
  };
  struct How {
    bool earlier_writes = false;
    bool later_writes = false;
    bool stale = false;
  };

  // The bytes of a part; rows without gaps are one.
  [[nodiscard]] static OpRows met_by(const OpRows& rows, const Part& part) noexcept {
    const OpRows met{rows.begin(part.first) + part.from, part.bytes, rows.pitch, part.rows};
    return met.dense() ? OpRows{met.offset, met.rows * met.width} : met;
  }

  void conflict(const MemoryRegion& region, index_t begin, index_t end, NodeIndex earlier, How how) {
    if (earlier == now_ || order_->known(earlier)) return;
    const Place place{region.space, static_cast<std::uint8_t>(region.instance), 0};
    order_->keep({earlier, now_, {region.rank, place, begin, end}, how.earlier_writes, how.later_writes, how.stale});
  }

  void read(const MemoryRegion& region, Cell& cell, index_t begin, index_t end, bool right) {
    const bool several = last_ != now_;
    if (several) {
      ordered_ = ordered_ && (cell.writer == no_node || order_->known(cell.writer));
    } else if (cell.writer != no_node) {
      conflict(region, begin, end, cell.writer, {.earlier_writes = true, .stale = !right});
    }
    readers_.add(cell.readers, now_, last_, queue_, !right && !several);
    ++rows_;
  }

  // Compares a write with the last write and the reads since; returns bytes that the same op writes or, where that is
  // asked, reads.
  std::optional<ByteRun> overwrite(const MemoryRegion& region, const Cell& cell, const OpRows& rows, bool own_reads) {
    ++rows_;
    std::optional<ByteRun> own;
    if (cell.writer == now_) own = {rows.offset, rows.offset + rows.width};
    if (cell.writer != no_node) {
      conflict(region, rows.offset, rows.offset + rows.width, cell.writer,
               {.earlier_writes = true, .later_writes = true});
    }
    readers_.for_each(cell.readers, [&](const ReaderLists::Readers& readers) {
      if (readers.last == now_) {
        for (index_t row = 0; own_reads && !own && row < rows.rows; ++row) {
          reads_.for_each_overlap(now_, region, rows.begin(row), rows.begin(row) + rows.width,
                                  [&](index_t begin, index_t end) {
                                    own = own ? own : ByteRun{begin, end};
                                  });
        }
      } else if (!order_->known(readers.last)) {
        for (index_t row = 0; row < rows.rows; ++row) {
          compare(region, {rows.begin(row), rows.begin(row) + rows.width}, readers);
        }
      }
    });
    return own;
  }

  // Compares a write of some bytes with those that have read them, of each byte with the last on its lane: where a
  // write is behind one node of a lane, it is behind those before. Those that have read what they should not have are
  // all told.
  void compare(const MemoryRegion& region, ByteRun bytes, const ReaderLists::Readers& readers) {
    std::vector<ByteRun> open{bytes};
    std::vector<std::pair<ByteRun, NodeIndex>> found;
    for (NodeIndex v = readers.last; !open.empty() && !order_->known(v); --v) {
      if (graph_->touches(v)) {
        std::vector<ByteRun> rest = take_read(region, v, open, found);
        if (!readers.stale) open = std::move(rest);
      }
      if (v == readers.first) break;
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
    for (const auto& [run, node] : found) {
      conflict(region, run.begin, run.end, node, {.later_writes = true, .stale = readers.stale});
    }
  }

  // Appends what a node reads of some bytes to `found`; returns the others.
  std::vector<ByteRun> take_read(const MemoryRegion& region, NodeIndex v, const std::vector<ByteRun>& bytes,
                                 std::vector<std::pair<ByteRun, NodeIndex>>& found) const {
    std::vector<ByteRun> rest;
    for (const ByteRun& run : bytes) {
      index_t next = run.begin;
      reads_.for_each_overlap(v, region, run.begin, run.end, [&](index_t begin, index_t end) {
        if (begin > next) rest.push_back({next, begin});
        if (end > next) found.push_back({{std::max(begin, next), end}, v});
        next = std::max(next, end);
      });
      if (next < run.end) rest.push_back({next, run.end});
    }
    return rest;
  }

  const OpGraph* graph_;
  ReplayOrder* order_;
  NodeReads reads_;
  std::array<std::size_t, space_count> first_{};
  std::array<std::size_t, space_count> instances_{};
  std::size_t stride_ = 0;
  ReaderLists readers_;
  std::vector<Cells> cells_;
  NodeIndex now_ = no_node;
  NodeIndex last_ = no_node;
  bool ordered_ = true;
  QueueIndex queue_ = 0;
  index_t run_ = 0;
  index_t rows_ = 0;
};

}  // namespace tide::detail
