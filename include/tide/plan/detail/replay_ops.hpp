// SPDX-License-Identifier: Apache-2.0
//
// What ops do to the memories, replayed: laws 2 and 3 for each row.

#pragma once

#include <tide/plan/detail/contents.hpp>      // cast_content
#include <tide/plan/detail/op_rows.hpp>       // OpRows
#include <tide/plan/detail/replay_state.hpp>  // ReplayState

#include <string>
#include <vector>

namespace tide::detail {

class OpReplay {
 public:
  explicit OpReplay(ReplayState& state) : state_(&state) {}

  void execute(const Op& op) {
    const MeshShape mesh = state_->collective.layout.mesh;
    switch (op.kind) {
      case OpKind::copy:
        return move(op, Rank{op.peer}, 1);
      case OpKind::multicast:
        return move(op, mesh.rank(mesh.node(state_->node.rank), 0), mesh.ranks_per_node);
      case OpKind::cast:
        return move(op, state_->node.rank, 1);
      case OpKind::reduce:
        return reduce(op);
      case OpKind::put:
      case OpKind::signal:
      case OpKind::wait:
        break;
    }
  }

 private:
  // Copy, multicast and cast: reads row by row and writes to `ranks` ranks from `first` on.
  void move(const Op& op, Rank first, index_t ranks) {
    OpRows source = source_rows(op);
    OpRows target = target_rows(op, state_->collective);
    if (source.dense() && target.dense()) {
      source.width *= source.rows;
      target.width *= source.rows;
      source.rows = 1;
    }
    const MemoryRegion from{state_->node.rank, op.source.space, op.source.instance};
    for (index_t row = 0; row < source.rows; ++row) {
      const index_t at = target.begin(row);
      row_.clear();
      index_t next = at;
      state_->memory.read(
          from, source.begin(row), source.begin(row) + source.width,
          [&](const ByteContent& content, index_t begin, index_t end) {
            if (op.kind == OpKind::cast) {
              cast_content(state_->pieces, kernel_of(op, state_->collective), content, end - begin,
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
                          (source.rows == 1 || source.pitch == target.pitch);
        state_->write(to, at, at + target.width, row_, ParameterIndex{op.target.parameter}, same);
        if (to.space == Space::slot) check_row(to, at + target.width);
      }
    }
  }

  index_t append_row(index_t begin, index_t bytes, const ByteContent& content) {
    if (row_.empty() || row_.back().content.from(begin - row_.back().begin) != content) {
      row_.push_back({begin, state_->now, UINT32_MAX, content});
    }
    return begin + bytes;
  }

  // Whether a row brings each byte of the slot what belongs there.
  void check_row(const MemoryRegion& to, index_t end) {
    for (std::size_t i = 0; i < row_.size(); ++i) {
      const Cell& cell = row_[i];
      const index_t cell_end = i + 1 < row_.size() ? row_[i + 1].begin : end;
      const bool right = cell.content.kind == ByteContent::Kind::gathered && cell.content.offset == cell.begin;
      if (right && cell.content.run == state_->node.run) continue;
      state_->blame(Law::delivery, to, cell.begin, cell_end, [&](const Side& side) {
        const std::string text = " writes " + state_->faults.what(side) + " with ";
        if (right) return text + "bytes of an earlier run";
        if (cell.content.kind != ByteContent::Kind::gathered) return text + "something else than its elements";
        return text + "what belongs at [" + std::to_string(cell.content.offset) + ", " +
               std::to_string(cell.content.offset + cell_end - cell.begin) + ")";
      });
    }
  }

  void reduce(const Op& op) {
    const Kernel& kernel = kernel_of(op, state_->collective);
    const OpRows source = source_rows(op);
    const OpRows target = target_rows(op, state_->collective);
    const OpRows piece = piece_rows(op, state_->collective);
    const auto input = static_cast<index_t>(size_bytes(kernel.input));
    const MemoryRegion output{state_->node.rank, Space::output, 0};
    const index_t own = state_->collective.layout.mesh.local(state_->node.rank);
    if (op.peer != own) {
      state_->blame(Law::sum, output, target.offset, target.end(), [&](const Side& side) {
        return " writes " + state_->faults.what(side) + " with its own gradient in position " +
               std::to_string(op.peer) + " of the tree, not " + std::to_string(own);
      });
    }
    for (index_t row = 0; row < target.rows; ++row) {
      const index_t at = target.begin(row);
      // In elements from the start of the row, so that dense output rows may be runs of several parameters.
      state_->pieces.for_each_run(state_->node.rank, Buffer::output, at, at + target.width,
                                  [&](const Piece& run, index_t begin, index_t count, index_t element) {
                                    const index_t skip = (begin - at) / 4 * input;
                                    add_run(op, kernel, run, element, count * input, source.begin(row) + skip,
                                            piece.begin(row) + skip);
                                  });
      const ByteContent content{at, -1, ByteContent::Kind::sum, state_->run()};
      const Cell cell{at, state_->now, UINT32_MAX, content};
      state_->write(output, at, at + target.width, {&cell, 1}, ParameterIndex{op.target.parameter});
    }
  }

  // Reads what a sum adds for a run of output elements: the own gradient and one piece of each peer, in rank order.
  void add_run(const Op& op, const Kernel& kernel, const Piece& run, index_t element, index_t bytes, index_t source,
               index_t piece) {
    const index_t size = run.size(Buffer::gradients);
    const index_t belongs = run.start[static_cast<std::size_t>(Buffer::gradients)] + element * size;
    const MeshShape mesh = state_->collective.layout.mesh;
    const MemoryRegion from{state_->node.rank, op.source.space, op.source.instance};
    if (kernel.input != state_->pieces.layout().group[run.parameter].gradient) {
      state_->blame(Law::sum, from, source, source + bytes, [&](const Side& side) {
        return " adds " + state_->faults.what(side) + " by a kernel for another element";
      });
    }
    read_input(from, source, bytes, state_->node.rank, belongs, run.parameter);
    for (index_t i = 0; i < state_->collective.inbox.pieces; ++i) {
      const index_t local = i < mesh.local(state_->node.rank) ? i : i + 1;
      read_input({state_->node.rank, Space::inbox, op.extra.instance},
                 piece + i * state_->collective.inbox.piece_bytes(), bytes,
                 mesh.rank(mesh.node(state_->node.rank), local), belongs, run.parameter);
    }
  }

  void read_input(const MemoryRegion& from, index_t begin, index_t bytes, Rank rank, index_t belongs,
                  ParameterIndex parameter) {
    state_->memory.read(from, begin, begin + bytes,
                        [&](const ByteContent& content, index_t cell_begin, index_t cell_end) {
                          const ByteContent wanted{belongs + cell_begin - begin, rank.value,
                                                   ByteContent::Kind::gradient, state_->run()};
                          if (content == wanted) return true;
                          const auto text = [&](const Side& side) {
                            return " adds " + state_->faults.what(side) + ", where the gradient of rank " +
                                   std::to_string(rank.value) + ", bytes [" + std::to_string(wanted.offset) + ", " +
                                   std::to_string(wanted.offset + cell_end - cell_begin) + "), should be; there is " +
                                   name_of(content, cell_end - cell_begin);
                          };
                          state_->blame(Law::sum, from, cell_begin, cell_end, text, parameter);
                          return false;
                        });
  }

  [[nodiscard]] std::string name_of(const ByteContent& content, index_t bytes) const {
    if (content.kind != ByteContent::Kind::gradient) return "nothing of this kind";
    return "that of rank " + std::to_string(content.rank) + ", bytes [" + std::to_string(content.offset) + ", " +
           std::to_string(content.offset + bytes) + ")" + (content.run == state_->node.run ? "" : ", of another run");
  }

  ReplayState* state_;
  std::vector<Cell> row_;  // what the row that is being moved holds, at its target
};

}  // namespace tide::detail
