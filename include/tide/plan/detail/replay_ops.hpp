// SPDX-License-Identifier: Apache-2.0
//
// What ops that move do to the memories, replayed: law 2 for each row.

#pragma once

#include <tide/core/text.hpp>                 // printable
#include <tide/plan/detail/contents.hpp>      // cast_content
#include <tide/plan/detail/op_rows.hpp>       // OpRows
#include <tide/plan/detail/replay_state.hpp>  // ReplayState
#include <tide/plan/detail/replay_sums.hpp>   // SumReplay

#include <span>
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
    state_->write({Rank{op.peer}, op.target.space, op.target.instance}, {op.target_offset, op.width}, sent->second,
                  ParameterIndex{op.target.parameter});
    on_wire_.erase(sent);
  }

 private:
  static constexpr std::size_t ahead = 8;  // parts whose memory is asked for before it is needed

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
    row_.clear();
    index_t next = 0;
    read({node.rank, op.source.space, op.source.instance}, {op.source_offset, op.width},
         [&](const Part& part) { next = state_->append(row_, next, part.bytes, wire, part.content); });
    on_wire_.emplace(wire, row_);
  }

  // Copy, multicast and cast: reads all rows and writes them to `ranks` ranks from `first` on, as many at once as are
  // alike.
  void move(const Op& op, Rank first, index_t ranks) {
    OpRows source = source_rows(op);
    OpRows target = target_rows(op, state_->collective);
    if (source.dense() && target.dense()) {
      source.width *= source.rows;
      target.width *= source.rows;
      source.rows = 1;
    }
    const MemoryRegion from{state_->node.rank, op.source.space, op.source.instance};
    parts_.clear();
    read(from, source, [&](const Part& part) { parts_.push_back(part); });
    for_each_rows_alike(parts_, [&](std::span<const Part> columns) {
      const OpRows rows = target.some(columns[0].first, columns[0].rows);
      const auto next_part = static_cast<std::size_t>(columns.data() - parts_.data()) + ahead;
      for (index_t i = 0; next_part < parts_.size() && i < ranks; ++i) {
        const MemoryRegion to{Rank{first.value + i}, op.target.space, op.target.instance};
        state_->memory.expect(to, target.begin(parts_[next_part].first));
      }
      if (op.kind == OpKind::cast) return cast(op, rows, columns);
      row_.clear();
      index_t next = 0;
      for (const Part& part : columns) {
        next = state_->append(row_, next, part.bytes, state_->now, part.content, rows.rows > 1 ? part.step : 0);
      }
      for (index_t i = 0; i < ranks; ++i) {
        const MemoryRegion to{Rank{first.value + i}, op.target.space, op.target.instance};
        write(op, to, rows,
              to == from && source.offset == target.offset && (source.rows == 1 || source.pitch == target.pitch));
      }
    });
  }

  // Elements of masters, row by row: what they become depends on their parameter.
  void cast(const Op& op, const OpRows& rows, std::span<const Part> columns) {
    for (index_t row = 0; row < rows.rows; ++row) {
      row_.clear();
      index_t next = 0;
      for (const Part& part : columns) {
        cast_content(state_->pieces, kernel_of(op, state_->collective), part.row(row), part.bytes,
                     [&](const ByteContent& content, index_t bytes) {
                       next = state_->append(row_, next, bytes, state_->now, content);
                     });
      }
      write(op, {state_->node.rank, op.target.space, op.target.instance}, rows.some(row, 1), false);
    }
  }

  void write(const Op& op, const MemoryRegion& to, const OpRows& rows, bool same) {
    state_->write(to, rows, row_, ParameterIndex{op.target.parameter}, same);
    if (to.space == Space::slot) check_row(to, rows);
  }

  // Reads what is to be moved; calls f(part) for what it is. What was passed here in another run is stale.
  template <class F>
  void read(const MemoryRegion& from, const OpRows& rows, F f) {
    const bool passed = is_passed_through(from.space);
    state_->memory.read(from, rows, [&](const Part& part) {
      f(part);
      return !passed || (part.content.kind != ByteContent::Kind::nothing && part.content.run == state_->run());
    });
  }

  // Whether rows bring each byte of the slot what belongs there.
  void check_row(const MemoryRegion& to, const OpRows& rows) {
    for (std::size_t i = 0; i < row_.size(); ++i) {
      const ByteContent& content = row_[i].cell.content;
      const index_t begin = rows.offset + row_[i].cell.begin;
      const bool gathered = content.kind == ByteContent::Kind::gathered;
      const bool first = gathered && content.offset == begin;
      const bool right = first && (rows.rows == 1 || row_[i].step == rows.pitch);
      if (right && content.run == state_->node.run) continue;
      const index_t wrong = first && !right ? 1 : 0;  // the first row where it is
      const index_t bytes = (i + 1 < row_.size() ? row_[i + 1].cell.begin : rows.width) - row_[i].cell.begin;
      const index_t at = begin + wrong * rows.pitch;
      state_->blame(Law::delivery, to, at, at + bytes, [&](const Side& side) {
        const std::string text = " writes " + state_->faults.what(side) + " with ";
        if (right) return text + "bytes of an earlier run";
        if (!gathered) return text + "something else than its elements";
        const index_t belongs = content.offset + wrong * row_[i].step;
        return text + "what belongs at [" + std::to_string(belongs) + ", " + std::to_string(belongs + bytes) + ")";
      });
    }
  }

  ReplayState* state_;
  SumReplay sums_;
  std::vector<Part> parts_;                                     // what the op reads
  std::vector<Column> row_;                                     // what the row that is being moved holds
  std::unordered_map<NodeIndex, std::vector<Column>> on_wire_;  // what puts have read that have not come
};

}  // namespace tide::detail
