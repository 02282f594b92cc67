// SPDX-License-Identifier: Apache-2.0
//
// Laws 2, 3, 4 and 7: the runs are replayed on memories that know of each byte what it is. What a byte is depends on
// the order only where there is a race; so contents are judged where there is none.

#pragma once

#include <tide/plan/detail/in_flight.hpp>      // InFlight
#include <tide/plan/detail/replay_caller.hpp>  // CallerReplay
#include <tide/plan/detail/replay_ops.hpp>     // OpReplay

#include <algorithm>
#include <vector>

namespace tide::detail {

class Replay {
 public:
  Replay(const Collective& collective, const PieceTable& pieces, const OpGraph& graph, VerifyReport& report)
      : graph_(&graph),
        in_flight_(collective, graph),
        state_(collective, pieces, graph, report),
        caller_(state_),
        ops_(state_) {}
  Replay(const Replay&) = delete;  // the parts point to the state
  Replay& operator=(const Replay&) = delete;

  // Replays all nodes in an order that lanes and signals allow; false where that takes more than `most` rows in a run.
  [[nodiscard]] bool run(const std::vector<Stretch>& order, index_t most) {
    caller_.prepare();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Stretch& stretch = order[i];
      const Stretch next = i + 1 < order.size() ? order[i + 1] : Stretch{};
      for (NodeIndex v = next.begin; v < std::min(next.end, next.begin + ahead); ++v) graph_->expect(v);
      for (NodeIndex v = stretch.begin; v < stretch.end; ++v) {
        if (v + ahead < stretch.end) graph_->expect(v + ahead);
        state_.order.reach(v, stretch.queue);
        if (graph_->touches(v)) execute(v, stretch.queue);
      }
      if (state_.memory.rows() > unrolled_runs * most) return false;
    }
    state_.faults.finish(state_.order.races(order));
    return true;
  }

 private:
  static constexpr NodeIndex ahead = 4;

  void execute(NodeIndex v, QueueIndex queue) {
    const OpGraph::Node node = graph_->decode(v);
    const bool gather = state_.collective.operation == Operation::gather;
    state_.begin(v, queue, node);
    if (node.role == OpGraph::Role::free || node.role == OpGraph::Role::ready) require_call(v, node);
    switch (node.role) {
      case OpGraph::Role::call:
        break;
      case OpGraph::Role::fill:
        return gather ? caller_.fill_shards() : caller_.fill_gradients();
      case OpGraph::Role::take:
        return caller_.take_slot();
      case OpGraph::Role::free:
        if (!gather) break;
        caller_.read_slot();
        caller_.give_slot_away();
        caller_.give_network_inbox_away();
        break;
      case OpGraph::Role::ready:
        if (node.run + 1 == unrolled_runs) caller_.read_output();
        break;
      case OpGraph::Role::op:
        if (graph_->op(node).kind == OpKind::put) in_flight_.issue(v, state_.order);
        return ops_.execute(graph_->op(node));
      case OpGraph::Role::wire:
        return ops_.deliver(graph_->op(node));
    }
  }

  // Asks for the path from the call of a run to an exit of it.
  void require_call(NodeIndex exit, const OpGraph::Node& node) {
    const NodeIndex call = graph_->call(node.rank, node.run);
    if (state_.order.known(call)) return;
    AccessConflict pair;
    pair.earlier = call;
    pair.later = exit;
    pair.kind = AccessConflict::Kind::early_exit;
    state_.order.keep(pair);
  }

  const OpGraph* graph_;
  InFlight in_flight_;
  ReplayState state_;
  CallerReplay caller_;
  OpReplay ops_;
};

}  // namespace tide::detail
