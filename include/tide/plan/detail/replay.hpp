// SPDX-License-Identifier: Apache-2.0
//
// Laws 2, 3, 4 and 7: the runs are replayed on memories that know of each byte what it is. What a byte is depends on
// the order only where there is a race; so contents are judged where there is none.

#pragma once

#include <tide/plan/detail/contents.hpp>       // filled_shards
#include <tide/plan/detail/op_rows.hpp>        // OpRows
#include <tide/plan/detail/replay_faults.hpp>  // ReplayFaults
#include <tide/plan/detail/replay_memory.hpp>  // ReplayMemory

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tide::detail {

class Replay {
 public:
  using Role = OpGraph::Role;

  Replay(const Collective& collective, const PieceTable& pieces, const OpGraph& graph, VerifyReport& report)
      : collective_(&collective),
        pieces_(&pieces),
        graph_(&graph),
        faults_(pieces, graph, report),
        order_(graph),
        memory_(collective, pieces, graph, order_) {
    if (collective.operation != Operation::gather) return;
    for (index_t r = 0; r < collective.ranks(); ++r) {
      const MemoryRegion slot{Rank{r}, Space::slot, 0};
      if (memory_.cells(slot).end() > 0)
        memory_.rewrite(slot, filled_parameters(pieces, Rank{r}, Space::slot, no_node, 0));
    }
  }

  void run(const std::vector<Stretch>& order) {
    for (const Stretch& stretch : order) {
      for (NodeIndex v = stretch.begin; v < stretch.end; ++v) execute(v);
    }
    faults_.finish(order_.races(order));
  }

 private:
  void execute(NodeIndex v) {
    order_.reach(v);
    now_ = v;
    node_ = graph_->decode(v);
    memory_.begin(v, node_.run);
    const bool gather = collective_->operation == Operation::gather;
    switch (node_.role) {
      case Role::call:
        break;
      case Role::fill:
        gather ? fill_shards() : fill_gradients();
        break;
      case Role::free:
        if (gather) read_slot();
        break;
      case Role::ready:
        if (node_.run + 1 == unrolled_runs) read_output();
        break;
      case Role::op:
        execute(graph_->op(node_));
        break;
    }
  }

  void execute(const Op& op) {
    switch (op.kind) {
      case OpKind::copy:
        move(op, Rank{op.peer}, 1);
        break;
      case OpKind::multicast: {
        const MeshShape mesh = collective_->layout.mesh;
        move(op, mesh.rank(mesh.node(node_.rank), 0), mesh.ranks_per_node);
        break;
      }
      case OpKind::cast:
        move(op, node_.rank, 1);
        break;
      case OpKind::reduce:
        reduce(op);
        break;
      case OpKind::put:
      case OpKind::signal:
      case OpKind::wait:
        break;
    }
  }

  // ---- what the caller does
  // ------------------------------------------------------------------------------------------

  void fill_shards() {
    const Rank rank = node_.rank;
    for (const Space space : {Space::master, Space::shards}) {
      if (pieces_->bytes(rank, space) > 0) {
        memory_.rewrite({rank, space, 0}, filled_shards(*pieces_, rank, space, now_, node_.run));
      }
    }
    if (collective_->own != OwnBlock::in_place) return;
    for (const Piece& piece : pieces_->pieces(rank)) {
      for (index_t row = 0; row < piece.outer && piece.width > 0; ++row) {
        const index_t begin = piece.offset(Buffer::slot) + row * piece.pitch_bytes(Buffer::slot);
        const ByteContent content{begin, -1, ByteContent::Kind::gathered, static_cast<std::uint8_t>(node_.run)};
        const Cell cell{begin, now_, UINT32_MAX, content};
        write({rank, Space::slot, 0}, begin, begin + piece.width * piece.size(Buffer::slot), {&cell, 1},
              piece.parameter);
      }
    }
  }

  void fill_gradients() {
    const Rank rank = node_.rank;
    if (pieces_->bytes(rank, Space::gradients) > 0) {
      memory_.rewrite({rank, Space::gradients, 0},
                      filled_parameters(*pieces_, rank, Space::gradients, now_, node_.run));
    }
    if (node_.run == 0 && pieces_->bytes(rank, Space::output) > 0) {
      memory_.rewrite({rank, Space::output, 0}, filled_output(*pieces_, rank, now_));
    }
  }

  void read_slot() {
    const MemoryRegion slot{node_.rank, Space::slot, 0};
    for (index_t p = 0; p < pieces_->parameters(); ++p) {
      const PieceTable::Range range = pieces_->dense(Buffer::slot, p);
      if (range.begin < range.end)
        read_result(slot, range.begin, range.end, ByteContent::Kind::gathered, Law::delivery);
    }
  }

  void read_output() {
    for (const Piece& piece : pieces_->pieces(node_.rank)) {
      const index_t begin = piece.offset(Buffer::output);
      if (piece.elements() == 0) continue;
      read_result({node_.rank, Space::output, 0}, begin, begin + piece.bytes(Buffer::output), ByteContent::Kind::sum,
                  Law::sum);
    }
  }

  // The caller reads what this run should have made.
  void read_result(const MemoryRegion& region, index_t begin, index_t end, ByteContent::Kind kind, Law law) {
    memory_.read(region, begin, end, [&](const ByteContent& content, index_t cell_begin, index_t cell_end) {
      const bool good = content.kind == kind && content.run == node_.run;
      if (!good) {
        blame(law, region, cell_begin, cell_end, [&](const Side& side) {
          return " reads " + faults_.what(side) + ", which no op has written in this run";
        });
      }
      return good;
    });
  }

  // ---- what ops do
  // ---------------------------------------------------------------------------------------------------

  // Copy, multicast and cast: reads row by row and writes to `ranks` ranks from `first` on.
  void move(const Op& op, Rank first, index_t ranks) {
    OpRows source = source_rows(op);
    OpRows target = target_rows(op, *collective_);
    if (source.dense() && target.dense()) {
      source.width *= source.rows;
      target.width *= source.rows;
      source.rows = 1;
    }
    const MemoryRegion from{node_.rank, op.source.space, op.source.instance};
    for (index_t row = 0; row < source.rows; ++row) {
      const index_t at = target.begin(row);
      row_.clear();
      index_t next = at;
      memory_.read(from, source.begin(row), source.begin(row) + source.width,
                   [&](const ByteContent& content, index_t begin, index_t end) {
                     if (op.kind == OpKind::cast) {
                       cast_content(
                           *pieces_, kernel_of(op, *collective_), content, end - begin,
                           [&](const ByteContent& result, index_t bytes) { next = append_row(next, bytes, result); });
                     } else {
                       next = append_row(next, end - begin, content);
                     }
                     return true;
                   });
      for (index_t i = 0; i < ranks; ++i) {
        const MemoryRegion to{Rank{first.value + i}, op.target.space, op.target.instance};
        const bool same = op.kind != OpKind::cast && to.rank == from.rank && to.space == from.space &&
                          to.instance == from.instance && source.offset == target.offset &&
                          source.pitch == target.pitch;
        write(to, at, at + target.width, row_, ParameterIndex{op.target.parameter}, same);
        if (to.space == Space::slot) check_row(to, at + target.width);
      }
    }
  }

  index_t append_row(index_t begin, index_t bytes, const ByteContent& content) {
    if (row_.empty() || row_.back().content.from(begin - row_.back().begin) != content) {
      row_.push_back({begin, now_, UINT32_MAX, content});
    }
    return begin + bytes;
  }

  // Whether a row brings each byte of the slot what belongs there.
  void check_row(const MemoryRegion& to, index_t end) {
    for (std::size_t i = 0; i < row_.size(); ++i) {
      const Cell& cell = row_[i];
      const index_t cell_end = i + 1 < row_.size() ? row_[i + 1].begin : end;
      const bool right = cell.content.kind == ByteContent::Kind::gathered && cell.content.offset == cell.begin;
      if (right && cell.content.run == node_.run) continue;
      blame(Law::delivery, to, cell.begin, cell_end, [&](const Side& side) {
        const std::string text = " writes " + faults_.what(side) + " with ";
        if (right) return text + "bytes of an earlier run";
        if (cell.content.kind != ByteContent::Kind::gathered) return text + "something else than its elements";
        return text + "what belongs at [" + std::to_string(cell.content.offset) + ", " +
               std::to_string(cell.content.offset + cell_end - cell.begin) + ")";
      });
    }
  }

  void reduce(const Op& op) {
    const Kernel& kernel = kernel_of(op, *collective_);
    const OpRows source = source_rows(op);
    const OpRows target = target_rows(op, *collective_);
    const OpRows piece = piece_rows(op, *collective_);
    const auto input = static_cast<index_t>(size_bytes(kernel.input));
    const MemoryRegion output{node_.rank, Space::output, 0};
    const index_t own = collective_->layout.mesh.local(node_.rank);
    if (op.peer != own) {
      blame(Law::sum, output, target.offset, target.end(), [&](const Side& side) {
        return " writes " + faults_.what(side) + " with its own gradient in position " + std::to_string(op.peer) +
               " of the tree, not " + std::to_string(own);
      });
    }
    for (index_t row = 0; row < target.rows; ++row) {
      const index_t at = target.begin(row);
      // In elements from the start of the row, so that dense output rows may be runs of several parameters.
      pieces_->for_each_run(node_.rank, Buffer::output, at, at + target.width,
                            [&](const Piece& run, index_t begin, index_t count, index_t element) {
                              const index_t skip = (begin - at) / 4 * input;
                              add_run(op, kernel, run, element, count * input, source.begin(row) + skip,
                                      piece.begin(row) + skip);
                            });
      const ByteContent content{at, -1, ByteContent::Kind::sum, static_cast<std::uint8_t>(node_.run)};
      const Cell cell{at, now_, UINT32_MAX, content};
      write(output, at, at + target.width, {&cell, 1}, ParameterIndex{op.target.parameter});
    }
  }

  // Reads what a sum adds for a run of output elements: the own gradient and one piece of each peer, in rank order.
  void add_run(const Op& op, const Kernel& kernel, const Piece& run, index_t element, index_t bytes, index_t source,
               index_t piece) {
    const index_t size = run.size(Buffer::gradients);
    const index_t belongs = run.start[static_cast<std::size_t>(Buffer::gradients)] + element * size;
    const MeshShape mesh = collective_->layout.mesh;
    const MemoryRegion from{node_.rank, op.source.space, op.source.instance};
    if (kernel.input != pieces_->layout().group[run.parameter].gradient) {
      blame(Law::sum, from, source, source + bytes,
            [&](const Side& side) { return " adds " + faults_.what(side) + " by a kernel for another element"; });
    }
    read_input(from, source, bytes, node_.rank, belongs, run.parameter);
    for (index_t i = 0; i < collective_->inbox.pieces; ++i) {
      const index_t local = i < mesh.local(node_.rank) ? i : i + 1;
      read_input({node_.rank, Space::inbox, op.extra.instance}, piece + i * collective_->inbox.piece_bytes(), bytes,
                 mesh.rank(mesh.node(node_.rank), local), belongs, run.parameter);
    }
  }

  void read_input(const MemoryRegion& from, index_t begin, index_t bytes, Rank rank, index_t belongs,
                  ParameterIndex parameter) {
    memory_.read(from, begin, begin + bytes, [&](const ByteContent& content, index_t cell_begin, index_t cell_end) {
      const ByteContent wanted{belongs + cell_begin - begin, rank.value, ByteContent::Kind::gradient,
                               static_cast<std::uint8_t>(node_.run)};
      if (content == wanted) return true;
      const auto text = [&](const Side& side) {
        return " adds " + faults_.what(side) + ", where the gradient of rank " + std::to_string(rank.value) +
               ", bytes [" + std::to_string(wanted.offset) + ", " +
               std::to_string(wanted.offset + cell_end - cell_begin) + "), should be; there is " +
               name_of(content, cell_end - cell_begin);
      };
      blame(Law::sum, from, cell_begin, cell_end, text, parameter);
      return false;
    });
  }

  [[nodiscard]] std::string name_of(const ByteContent& content, index_t bytes) const {
    if (content.kind != ByteContent::Kind::gradient) return "nothing of this kind";
    return "that of rank " + std::to_string(content.rank) + ", bytes [" + std::to_string(content.offset) + ", " +
           std::to_string(content.offset + bytes) + ")" + (content.run == node_.run ? "" : ", of another run");
  }

  void write(const MemoryRegion& region, index_t begin, index_t end, std::span<const Cell> by, ParameterIndex parameter,
             bool same = false) {
    const WriteFault fault = memory_.write(region, begin, end, by, same);
    if (!fault.any()) return;
    const Side side = faults_.side(now_, region, fault.begin, fault.end, parameter);
    const std::string text = faults_.who(side) + " writes " + faults_.what(side);
    const Law law = collective_->operation == Operation::gather ? Law::delivery : Law::sum;
    if (fault.padding) {
      faults_.add(law, now_, text + ", which is padding", side);
    } else if (fault.own_source) {
      faults_.add(Law::order, now_, text + ", which it reads as well", side);
    } else {
      const Side before = faults_.side(fault.before, region, fault.begin, fault.end, parameter);
      faults_.add(law, now_, text + ", which " + faults_.who(before) + " writes in the same run, too", side, before);
    }
  }

  // Keeps a fault of contents; `text(side)` is its sentence.
  template <class Text>
  void blame(Law law, const MemoryRegion& region, index_t begin, index_t end, Text text,
             ParameterIndex parameter = {}) {
    if (!faults_.wants_content(law, now_)) return;
    const Side side = faults_.side(now_, region, begin, end, parameter);
    faults_.add_content(law, faults_.who(side) + text(side), side);
  }

  const Collective* collective_;
  const PieceTable* pieces_;
  const OpGraph* graph_;
  ReplayFaults faults_;
  ReplayOrder order_;
  ReplayMemory memory_;
  NodeIndex now_ = no_node;
  OpGraph::Node node_{};
  std::vector<Cell> row_;  // what the row that is being moved holds, at its target
};

}  // namespace tide::detail
