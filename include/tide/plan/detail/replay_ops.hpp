// SPDX-License-Identifier: Apache-2.0
//
// What ops that move do to the memories, replayed: law 2 for each row.

#pragma once

#include <tide/core/text.hpp>                 // printable
#include <tide/plan/detail/contents.hpp>      // cast_content
#include <tide/plan/detail/op_rows.hpp>       // OpRows
#include <tide/plan/detail/replay_state.hpp>  // ReplayState
#include <tide/plan/detail/replay_sums.hpp>   // SumReplay

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

namespace tide::detail {

class OpReplay {
 public:
  explicit OpReplay(ReplayState& state) : state_(&state), sums_(state) {}

  void execute(const Op& op) {
    if (op.moves()) check_name(op);
    const MeshShape mesh = state_->collective.layout.mesh;
    switch (op.kind) {
      case OpKind::copy:
        return move(op, Rank{op.peer}, 1);
      case OpKind::multicast:
        return move(op, mesh.rank(mesh.node(state_->node.rank), 0), mesh.ranks_per_node);
      case OpKind::cast:
        return move(op, state_->node.rank, 1);
      case OpKind::reduce:
        return sums_.reduce(op);
      case OpKind::put:
        return issue(op);
      case OpKind::signal:
      case OpKind::wait:
        break;
    }
  }

  // What a put has read comes to its peer.
  void deliver(const Op& op) {
    const auto sent = on_wire_.find(state_->now);
    state_->write({Rank{op.peer}, op.target.space, op.target.instance}, op.target_offset, op.target_offset + op.width,
                  sent->second, ParameterIndex{op.target.parameter});
    on_wire_.erase(sent);
  }

 private:
  static constexpr index_t ahead = 8;  // rows whose memory is asked for before it is needed

  // Whether an op names the parameter that its first byte is of: what is said of the op rests on it.
  void check_name(const Op& op) {
    const MemoryRegion from{state_->node.rank, op.source.space, op.source.instance};
    const ByteContent content = state_->memory.at(from, op.source_offset);
    for (const Place place : {op.source, op.target}) {
      const ParameterIndex named{place.parameter};
      if (is_of(state_->pieces, content, named.value)) continue;
      const auto text = [&](const Side& side) {
        return " moves " + state_->faults.what(side) + ", which are not of '" +
               printable(state_->pieces.layout().group[named].name.str()) + "', the parameter that it names";
      };
      return state_->blame(Law::agreement, from, op.source_offset, op.source_offset + op.width, text, named);
    }
  }

  // A put is issued: it reads its source.
  void issue(const Op& op) {
    const OpGraph::Node& node = state_->node;
    const NodeIndex wire = state_->ops.wire(static_cast<std::size_t>(node.rank.value), node.seq, node.run);
    const MemoryRegion from{node.rank, op.source.space, op.source.instance};
    row_.clear();
    index_t next = op.target_offset;
    read(from, op.source_offset, op.source_offset + op.width,
         [&](const ByteContent& content, index_t bytes) { next = state_->append(row_, next, bytes, wire, content); });
    on_wire_.emplace(wire, row_);
  }

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
    const auto expect = [&](index_t row) {
      state_->memory.expect(from, source.begin(row));
      for (index_t i = 0; i < ranks; ++i) {
        state_->memory.expect({Rank{first.value + i}, op.target.space, op.target.instance}, target.begin(row));
      }
    };
    for (index_t row = 1; row < std::min(ahead, source.rows); ++row) expect(row);
    for (index_t row = 0; row < source.rows; ++row) {
      const index_t at = target.begin(row);
      row_.clear();
      if (row + ahead < source.rows) expect(row + ahead);
      index_t next = at;
      const auto append = [&](const ByteContent& content, index_t bytes) {
        next = state_->append(row_, next, bytes, state_->now, content);
      };
      read(from, source.begin(row), source.begin(row) + source.width, [&](const ByteContent& content, index_t bytes) {
        if (op.kind != OpKind::cast) return append(content, bytes);
        cast_content(state_->pieces, kernel_of(op, state_->collective), content, bytes, append);
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

  // Reads what is to be moved; calls f(content, bytes) for each cell. What was passed here in another run is stale.
  template <class F>
  void read(const MemoryRegion& from, index_t begin, index_t end, F f) {
    const bool passed = is_passed_through(from.space);
    state_->memory.read(from, begin, end, [&](const ByteContent& content, index_t cell_begin, index_t cell_end) {
      f(content, cell_end - cell_begin);
      return !passed || (content.kind != ByteContent::Kind::nothing && content.run == state_->run());
    });
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

  ReplayState* state_;
  SumReplay sums_;
  std::vector<Cell> row_;                                     // what the row that is being moved holds, at its target
  std::unordered_map<NodeIndex, std::vector<Cell>> on_wire_;  // what puts have read that have not come
};

}  // namespace tide::detail
