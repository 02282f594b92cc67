// SPDX-License-Identifier: Apache-2.0
//
// The memories of all ranks while plans are replayed: what every byte is, and which accesses to it are not ordered.

#pragma once

#include <tide/plan/detail/cells.hpp>         // Cells
#include <tide/plan/detail/piece_table.hpp>   // PieceTable
#include <tide/plan/detail/replay_order.hpp>  // ReplayOrder, AccessConflict

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tide::detail {

// Bytes of one instance of a space of a rank.
struct MemoryRegion {
  Rank rank{};
  Space space = Space::slot;
  index_t instance = 0;
};

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
      : graph_(&graph), order_(&order) {
    std::size_t stride = 0;
    for (std::size_t s = 0; s < space_count; ++s) {
      first_[s] = stride;
      const bool there = pieces.any_bytes(static_cast<Space>(s));
      instances_[s] = there ? static_cast<std::size_t>(collective.space_instances(static_cast<Space>(s))) : 0;
      stride += s == static_cast<std::size_t>(Space::signals) ? 0 : instances_[s];
    }
    stride_ = stride;
    cells_.resize(stride * static_cast<std::size_t>(collective.ranks()));
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

  // Says which node the accesses that follow are of.
  void begin(NodeIndex now, index_t run) {
    now_ = now;
    run_ = run;
  }

  [[nodiscard]] Cells& cells(const MemoryRegion& region) noexcept {
    return cells_[static_cast<std::size_t>(region.rank.value) * stride_ +
                  first_[static_cast<std::size_t>(region.space)] + static_cast<std::size_t>(region.instance)];
  }

  // Says that an access to a byte will follow soon.
  void expect(const MemoryRegion& region, index_t byte) noexcept { cells(region).expect(byte); }

  // What a byte is: a look that is no access.
  [[nodiscard]] ByteContent at(const MemoryRegion& region, index_t byte) noexcept { return cells(region).at(byte); }

  // Calls f(content, begin, end) for each cell of [begin, end): a look that is no access.
  template <class F>
  void look(const MemoryRegion& region, index_t begin, index_t end, F f) {
    cells(region).visit(begin, end, [&](const Cell& cell, index_t cell_end) { f(cell.content, cell.begin, cell_end); });
  }

  // Reads [begin, end): calls judge(content, begin, end) for each cell; it says whether that is what should be there.
  template <class Judge>
  void read(const MemoryRegion& region, index_t begin, index_t end, Judge judge) {
    cells(region).visit(begin, end, [&](Cell& cell, index_t cell_end) {
      const bool stale = !judge(cell.content, cell.begin, cell_end);
      if (cell.writer != no_node) {
        conflict(region, cell.begin, cell_end, cell.writer, {.earlier_writes = true, .stale = stale});
      }
      add_reader(cell, stale);
    });
  }

  // Writes [begin, end) with what `by` says.  @param same  whether the op puts each byte where it has read it
  WriteFault write(const MemoryRegion& region, index_t begin, index_t end, std::span<const Cell> by,
                   bool same = false) {
    WriteFault fault;
    const bool once = region.space == Space::slot || region.space == Space::output;
    Cells& memory = cells(region);
    const Cells::Position first = memory.visit(begin, end, [&](Cell& cell, index_t cell_end) {
      const bool padding = cell.content.kind == ByteContent::Kind::padding && !is_passed_through(region.space);
      const bool own = overwrite(region, cell, cell_end) && !same;
      const bool again = once && !same && cell.content.kind != ByteContent::Kind::nothing && cell.writer != no_node &&
                         graph_->run_of(cell.writer) == run_;
      if (fault.any() || !(padding || own || again)) return;
      fault = {padding, own, again ? cell.writer : no_node, cell.begin, cell_end};
    });
    memory.replace(first, end, by);
    return fault;
  }

  // Writes a whole region anew; what is padding in `by` is not touched.
  void rewrite(const MemoryRegion& region, std::span<const Cell> by) {
    Cells& memory = cells(region);
    const index_t end = memory.end();
    memory.visit(0, end, [&](Cell& cell, index_t cell_end) {
      if (cell.content.kind != ByteContent::Kind::padding) overwrite(region, cell, cell_end);
    });
    memory.assign(by, end);
  }

 private:
  struct Link {
    NodeIndex node = no_node;  // and in the highest bit, whether it read what it should not have
    std::uint32_t next = UINT32_MAX;
  };
  struct How {
    bool earlier_writes = false;
    bool later_writes = false;
    bool stale = false;
  };
  static constexpr NodeIndex stale_bit = NodeIndex{1} << 31;

  void conflict(const MemoryRegion& region, index_t begin, index_t end, NodeIndex earlier, How how) {
    if (earlier == now_ || order_->known(earlier)) return;
    const Place place{region.space, static_cast<std::uint8_t>(region.instance), 0};
    order_->keep({earlier, now_, {region.rank, place, begin, end}, how.earlier_writes, how.later_writes, how.stale});
  }

  // Compares a write with the last write and the reads since; returns whether the same op is among the readers.
  bool overwrite(const MemoryRegion& region, const Cell& cell, index_t end) {
    bool own = cell.writer == now_;
    if (cell.writer != no_node) {
      conflict(region, cell.begin, end, cell.writer, {.earlier_writes = true, .later_writes = true});
    }
    for (std::uint32_t i = cell.readers; i != UINT32_MAX; i = links_[i].next) {
      const NodeIndex reader = links_[i].node & ~stale_bit;
      own = own || reader == now_;
      conflict(region, cell.begin, end, reader, {.later_writes = true, .stale = (links_[i].node & stale_bit) != 0});
    }
    return own;
  }

  // Lists are shared by cells that were one, so links never change. A later reader on a lane stands for earlier ones.
  void add_reader(Cell& cell, bool stale) {
    std::uint32_t next = cell.readers;
    if (next != UINT32_MAX && (links_[next].node & stale_bit) == 0 &&
        graph_->queue_of(links_[next].node) == graph_->queue_of(now_)) {
      next = links_[next].next;
    }
    cell.readers = static_cast<std::uint32_t>(links_.size());
    links_.push_back({now_ | (stale ? stale_bit : 0), next});
  }

  const OpGraph* graph_;
  ReplayOrder* order_;
  std::array<std::size_t, space_count> first_{};
  std::array<std::size_t, space_count> instances_{};
  std::size_t stride_ = 0;
  std::vector<Cells> cells_;
  std::vector<Link> links_;
  NodeIndex now_ = no_node;
  index_t run_ = 0;
};

}  // namespace tide::detail
