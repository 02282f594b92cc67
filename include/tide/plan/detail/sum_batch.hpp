// SPDX-License-Identifier: Apache-2.0
//
// Sums of one lane that follow each other with no wait between them, and whose inputs are rows of one grid, as the sums
// of a node for the owners on its rail are: they write to places in another order (reduce/detail/sum_rows.hpp), but
// what they read can be read and judged as one. Where that fails, or they might read what they write, each is on its
// own.

#pragma once

#include <tide/plan/detail/op_rows.hpp>       // OpRows
#include <tide/plan/detail/replay_state.hpp>  // ReplayState
#include <tide/plan/detail/sum_inputs.hpp>    // SumOp

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tide::detail {

class SumBatch {
 public:
  explicit SumBatch(ReplayState& state) : state_(&state) {}

  // Whether what a sum reads has been read and is right. At the first of several that belong together it is read now:
  // read(source, pieces) says whether all of it is the sum that the op says.
  template <class Read>
  [[nodiscard]] bool holds(NodeIndex v, const SumOp& sum, Read read) {
    if (v >= begin_ && v < end_) return good_;
    begin_ = v;
    collect(v, sum);
    good_ = false;
    if (end_ - begin_ < fewest_ops || !even()) return false;
    const auto rows = std::ssize(rows_);
    good_ = state_->memory.read_until(end_ - 1, [&] {
      return read(OpRows{rows_[0].first, sum.op.width, rows_[1].first - rows_[0].first, rows},
                  OpRows{rows_[0].second, sum.op.width, rows_[1].second - rows_[0].second, rows});
    });
    return good_;
  }

 private:
  static constexpr NodeIndex fewest_ops = 4;
  static constexpr std::uint32_t most_rows_of_op = 8;

  // Finds the ops from a node on that belong together, and their rows.
  void collect(NodeIndex v, const SumOp& sum) {
    const OpGraph& graph = state_->ops;
    const NodeIndex queue_end = OpGraph::end(graph.queues()[graph.queue_of(v)]);
    const Op& first = sum.op;
    rows_.clear();
    end_ = v + 1;
    const bool apart = first.target.space != first.source.space && first.target.space != first.extra.space;
    if (!apart || first.rows > most_rows_of_op) return;
    append(first);
    for (; end_ < queue_end && graph.extra(end_) == no_node && graph.touches(end_); ++end_) {
      const OpGraph::Node node = graph.decode(end_);
      if (node.role != OpGraph::Role::op || node.run != state_->node.run) return;
      const Op& next = graph.op(node);
      if (next.kind != first.kind || next.kernel != first.kernel || next.peer != first.peer ||
          next.width != first.width || next.source != first.source || next.target != first.target ||
          next.extra != first.extra || next.rows > most_rows_of_op) {
        return;
      }
      append(next);
    }
  }

  void append(const Op& op) {
    const OpRows source = source_rows(op);
    const OpRows piece = piece_rows(op, state_->collective);
    for (index_t row = 0; row < source.rows; ++row) rows_.push_back({source.begin(row), piece.begin(row)});
  }

  // Whether the rows, in the order of the sources, are at equal distances.
  [[nodiscard]] bool even() {
    std::sort(rows_.begin(), rows_.end());
    const index_t source = rows_[1].first - rows_[0].first;
    const index_t piece = rows_[1].second - rows_[0].second;
    for (std::size_t i = 1; i < rows_.size(); ++i) {
      if (rows_[i].first - rows_[i - 1].first != source || rows_[i].second - rows_[i - 1].second != piece) return false;
    }
    return source > 0 && piece >= 0;
  }

  ReplayState* state_;
  NodeIndex begin_ = 0;  // of the nodes that belong together
  NodeIndex end_ = 0;
  bool good_ = false;
  std::vector<std::pair<index_t, index_t>> rows_;  // of them: where the own input and the first piece lie
};

}  // namespace tide::detail
