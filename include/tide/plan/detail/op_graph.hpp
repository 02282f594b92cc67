// SPDX-License-Identifier: Apache-2.0
//
// The ops of consecutive runs as one graph: queues of nodes, and for each node at most one that it waits for beside the
// one before it.
//
//   user      fill free    fill free      what the caller does: writes the inputs; may write them again (and reads the
//               |   ^        |   ^        slot of a gather, and gives its network inbox away); between them, where an
//                                         inbox is a slot, it takes the slot
//   lane 0    call ops...  call ops...    a run's call follows its fill
//   lane k         ops...       ops...    no edge between lanes but signal -> wait
//   reader       ready        ready       reads the output of a reduce; nothing waits for it
//   wire         w w ...      w w ...     what a lane sends to a rank of another node, as it comes: a put's bytes, then
//                                         its word. Behind the op that issues it, and in order; a wait for the word is
//                                         behind the wire's node, not behind the op
//
//   `free` and `ready` follow the op before their exit.

#pragma once

#include <tide/plan/collective.hpp>  // Collective
#include <tide/plan/plan.hpp>        // Plan

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tide::detail {

using NodeIndex = std::uint32_t;
using QueueIndex = std::uint32_t;

inline constexpr NodeIndex no_node = UINT32_MAX;

// How many consecutive runs are looked at. Memory that takes turns over more runs would need more.
inline constexpr index_t unrolled_runs = 2;

class OpGraph {
 public:
  enum class Role : std::uint8_t { op, call, fill, take, free, ready, wire };

  struct Queue {
    Role role = Role::op;  ///< `op`: a lane; `fill`: the user; `ready`: the reader; `wire`
    Rank rank{};
    std::int32_t lane = 0;
    NodeIndex start = 0;
    NodeIndex length = 0;      ///< nodes of one run
    std::size_t first_op = 0;  ///< of a lane: where its ops begin in `seqs_`; of a wire: in `wired_`
  };

  struct Node {
    Role role = Role::op;
    Rank rank{};
    index_t run = 0;
    std::size_t seq = 0;  ///< of an op or a wire: the position of the op in the plan
  };

  // @pre lanes of ops and exits exist
  OpGraph(const Collective& collective, std::span<const Plan> plans) : plans_(plans) {
    first_op_.push_back(0);
    for (const Plan& plan : plans) first_op_.push_back(first_op_.back() + plan.ops.size());
    node_of_.resize(first_op_.back());
    seqs_.resize(first_op_.back());
    if (collective.layout.mesh.nodes > 1) wire_of_.assign(node_of_.size(), no_node);
    for (std::size_t p = 0; p < plans.size(); ++p) add_rank(collective, plans[p], p);
    extra_.assign(nodes_, no_node);
    queue_near_.resize(nodes_ / near + 1);
    for (QueueIndex q = 0; q < queues_.size(); ++q) {
      for (NodeIndex i = (queues_[q].start + near - 1) / near; i * near < end(queues_[q]); ++i) queue_near_[i] = q;
    }
    for (std::size_t p = 0; p < plans.size(); ++p) add_user_edges(collective, plans[p], p);
    mark_moves();
    add_wire_edges();
  }

  [[nodiscard]] NodeIndex size() const noexcept { return nodes_; }
  [[nodiscard]] std::span<const Queue> queues() const noexcept { return queues_; }
  [[nodiscard]] std::span<const Plan> plans() const noexcept { return plans_; }
  [[nodiscard]] QueueIndex queue_of(NodeIndex v) const noexcept {
    QueueIndex q = queue_near_[v / near];
    while (v >= end(queues_[q])) ++q;
    return q;
  }
  [[nodiscard]] static NodeIndex end(const Queue& queue) noexcept {
    return queue.start + static_cast<NodeIndex>(unrolled_runs) * queue.length;
  }

  // The node beside the one before it that v waits for; `no_node` where there is none.
  [[nodiscard]] NodeIndex extra(NodeIndex v) const noexcept { return extra_[v]; }
  void set_extra(NodeIndex v, NodeIndex from) noexcept { extra_[v] = from; }

  // Whether a node can touch memory: all but signals, waits and calls.
  [[nodiscard]] bool touches(NodeIndex v) const noexcept { return touches_[v] != 0; }

  // The node of an op in a run.
  [[nodiscard]] NodeIndex node(std::size_t plan, std::size_t seq, index_t run) const noexcept {
    const NodeIndex first = node_of_[first_op_[plan] + seq];
    return first + static_cast<NodeIndex>(run) * queues_[queue_of(first)].length;
  }

  // The node on its wire of an op that goes to another node, in a run; `no_node` for any other op.
  [[nodiscard]] NodeIndex wire(std::size_t plan, std::size_t seq, index_t run) const noexcept {
    if (wire_of_.empty()) return no_node;
    const NodeIndex first = wire_of_[first_op_[plan] + seq];
    return first == no_node ? first : first + static_cast<NodeIndex>(run) * queues_[queue_of(first)].length;
  }

  // The node from which on the word of a signal or put is raised.
  [[nodiscard]] NodeIndex raise(std::size_t plan, std::size_t seq, index_t run) const noexcept {
    const NodeIndex on_wire = wire(plan, seq, run);
    return on_wire == no_node ? node(plan, seq, run) : on_wire;
  }

  // The call of a run.
  [[nodiscard]] NodeIndex call(Rank rank, index_t run) const noexcept {
    const Queue& caller = queues_[first_queue_[static_cast<std::size_t>(rank.value)]];
    return caller.start + static_cast<NodeIndex>(run) * caller.length;
  }

  [[nodiscard]] index_t run_of(NodeIndex v) const noexcept { return place_of(v, queues_[queue_of(v)]).run; }

  // The same node in the first run.
  [[nodiscard]] NodeIndex in_first_run(NodeIndex v) const noexcept {
    const Queue& queue = queues_[queue_of(v)];
    return queue.start + place_of(v, queue).in;
  }

  // Where what the user has done is seen first: the call that follows a node of its queue. The node itself otherwise,
  // and where no call follows.
  [[nodiscard]] NodeIndex seen_at(NodeIndex v) const noexcept {
    const QueueIndex q = queue_of(v);
    const Queue& queue = queues_[q];
    if (queue.role != Role::fill) return v;
    const NodeIndex run = (v - queue.start + 1) / queue.length;
    const Queue& calls = queues_[first_queue_[static_cast<std::size_t>(queue.rank.value)]];
    return run < static_cast<NodeIndex>(unrolled_runs) ? calls.start + run * calls.length : v;
  }

  // What a node is.
  [[nodiscard]] Node decode(NodeIndex v) const noexcept {
    const Queue& queue = queues_[queue_of(v)];
    const auto [in, run] = place_of(v, queue);
    Node node{queue.role, queue.rank, run, 0};
    if (queue.role == Role::fill) {
      node.role = in == 0 ? Role::fill : in + 1 < queue.length ? Role::take : Role::free;
    } else if (queue.role == Role::op) {
      const NodeIndex calls = queue.lane == 0 ? 1 : 0;
      if (in < calls) {
        node.role = Role::call;
      } else {
        node.seq = seqs_[queue.first_op + in - calls];
      }
    } else if (queue.role == Role::wire) {
      node.seq = wired_[queue.first_op + in];
    }
    return node;
  }

  // Asks for the op of a node that will be decoded soon: each is in a place of its own.
  void expect(NodeIndex v) const noexcept {
    if (touches_[v] == 0) return;
    const Node node = decode(v);
    if (node.role == Role::op) __builtin_prefetch(&op(node));
  }

  [[nodiscard]] const Op& op(const Node& node) const noexcept {
    return plans_[static_cast<std::size_t>(node.rank.value)].ops[node.seq];
  }

 private:
  static constexpr NodeIndex near = 64;

  // A node of a queue: which of a run's, and of which run. There are few runs, and divisions are slow.
  struct InQueue {
    NodeIndex in = 0;
    index_t run = 0;
  };
  [[nodiscard]] static InQueue place_of(NodeIndex v, const Queue& queue) noexcept {
    InQueue place{v - queue.start, 0};
    for (; place.in >= queue.length; place.in -= queue.length) ++place.run;
    return place;
  }

  void add_rank(const Collective& collective, const Plan& plan, std::size_t p) {
    const Rank rank{static_cast<index_t>(p)};
    first_queue_.push_back(static_cast<QueueIndex>(queues_.size()));
    std::vector<std::size_t> sizes(plan.lanes.size(), 0);
    for (const Op& op : plan.ops) ++sizes[op.lane];
    std::size_t first = first_op_[p];
    for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
      const auto length = static_cast<NodeIndex>(sizes[lane] + (lane == 0 ? 1 : 0));
      push({Role::op, rank, static_cast<std::int32_t>(lane), nodes_, length, first});
      sizes[lane] = first;
      first += length - (lane == 0 ? 1 : 0);
    }
    for (std::size_t seq = 0; seq < plan.ops.size(); ++seq) {
      const Queue& queue = queues_[first_queue_[p] + plan.ops[seq].lane];
      const std::size_t at = sizes[plan.ops[seq].lane]++;
      seqs_[at] = static_cast<std::uint32_t>(seq);
      node_of_[first_op_[p] + seq] =
          queue.start + static_cast<NodeIndex>(at - queue.first_op) + (queue.lane == 0 ? 1 : 0);
    }
    push({Role::fill, rank, -1, nodes_, takes_slot(collective) ? 3U : 2U, 0});
    if (collective.operation == Operation::reduce) push({Role::ready, rank, -1, nodes_, 1, 0});
    if (!wire_of_.empty()) add_wires(collective.layout.mesh, plan, p);
  }

  // A queue for each lane and each rank of another node that it sends to.
  void add_wires(const MeshShape& mesh, const Plan& plan, std::size_t p) {
    std::vector<std::uint32_t> sent;
    for (std::size_t seq = 0; seq < plan.ops.size(); ++seq) {
      const Op& op = plan.ops[seq];
      if (op.raises() && mesh.node(Rank{op.peer}) != mesh.node(plan.rank)) {
        sent.push_back(static_cast<std::uint32_t>(seq));
      }
    }
    const auto wire = [&](std::uint32_t seq) { return std::pair(plan.ops[seq].lane, plan.ops[seq].peer); };
    std::stable_sort(sent.begin(), sent.end(), [&](auto a, auto b) { return wire(a) < wire(b); });
    for (std::size_t first = 0; first < sent.size();) {
      std::size_t last = first;
      for (; last < sent.size() && wire(sent[last]) == wire(sent[first]); ++last) {
        wire_of_[first_op_[p] + sent[last]] = nodes_ + static_cast<NodeIndex>(last - first);
      }
      push({Role::wire, plan.rank, -1, nodes_, static_cast<NodeIndex>(last - first), wired_.size()});
      wired_.insert(wired_.end(), sent.begin() + static_cast<std::ptrdiff_t>(first),
                    sent.begin() + static_cast<std::ptrdiff_t>(last));
      first = last;
    }
  }

  // What is sent comes behind the op that sends it; a signal touches no memory.
  void add_wire_edges() {
    for (std::size_t p = 0; p < plans_.size() && !wire_of_.empty(); ++p) {
      for (std::size_t seq = 0; seq < plans_[p].ops.size(); ++seq) {
        for (index_t run = 0; run < unrolled_runs; ++run) {
          const NodeIndex v = wire(p, seq, run);
          if (v == no_node) break;
          extra_[v] = node(p, seq, run);
          touches_[v] = plans_[p].ops[seq].kind == OpKind::put ? 1 : 0;
        }
      }
    }
  }

  // Whether a run begins with a slot that others have used, and the caller has written to, since the last one.
  [[nodiscard]] static bool takes_slot(const Collective& collective) noexcept {
    return collective.operation == Operation::reduce && collective.inbox.place == InboxPlace::slot;
  }

  void push(const Queue& queue) {
    queues_.push_back(queue);
    nodes_ = end(queue);
  }

  void add_user_edges(const Collective& collective, const Plan& plan, std::size_t p) {
    const bool reduce = collective.operation == Operation::reduce;
    const Queue& calls = queues_[first_queue_[p]];
    const Queue& user = queues_[first_queue_[p] + plan.lanes.size()];
    for (index_t run = 0; run < unrolled_runs; ++run) {
      const auto r = static_cast<NodeIndex>(run);
      const NodeIndex last = user.start + (r + 1) * user.length - 1;  // `free`
      extra_[calls.start + r * calls.length] = last - 1;
      for (const Exit& exit : plan.exits) {
        const bool ready = exit.kind == ExitKind::shards_ready;
        if (ready && !reduce) continue;
        const Queue& lane = queues_[first_queue_[p] + static_cast<QueueIndex>(exit.lane.value)];
        extra_[ready ? end(user) + r : last] = node_before(lane, exit, r);
        if (ready && takes_slot(collective) && run > 0) extra_[last - 1] = node_before(lane, exit, r - 1);
      }
    }
  }

  void mark_moves() {
    touches_.assign(nodes_, 1);
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      const Queue& calls = queues_[first_queue_[p]];
      for (index_t run = 0; run < unrolled_runs; ++run) {
        touches_[calls.start + static_cast<NodeIndex>(run) * calls.length] = 0;
        for (std::size_t seq = 0; seq < plans_[p].ops.size(); ++seq) {
          if (!plans_[p].ops[seq].moves()) touches_[node(p, seq, run)] = 0;
        }
      }
    }
  }

  // The node that an exit of a run comes after; `no_node` where that is none.
  [[nodiscard]] static NodeIndex node_before(const Queue& queue, const Exit& exit, NodeIndex run) noexcept {
    const NodeIndex after =
        queue.start + run * queue.length + static_cast<NodeIndex>(exit.position) + (queue.lane == 0 ? 1 : 0);
    return after == queue.start ? no_node : after - 1;
  }

  std::span<const Plan> plans_;
  std::vector<Queue> queues_;
  std::vector<QueueIndex> first_queue_;  // of each rank
  std::vector<std::size_t> first_op_;    // of each rank
  std::vector<NodeIndex> node_of_;       // of each op, in the first run
  std::vector<NodeIndex> wire_of_;       // of each op, in the first run; empty on one node
  std::vector<std::uint32_t> seqs_;      // positions in the plan, lane by lane
  std::vector<std::uint32_t> wired_;     // the same, wire by wire
  std::vector<QueueIndex> queue_near_;   // of each node whose number is a multiple of `near`
  std::vector<NodeIndex> extra_;         // of each node
  std::vector<std::uint8_t> touches_;    // of each node
  NodeIndex nodes_ = 0;
};

}  // namespace tide::detail
