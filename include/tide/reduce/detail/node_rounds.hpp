// SPDX-License-Identifier: Apache-2.0
//
// What a node sends to others and gets from them, round by round and chunk by chunk. A message whose owners have
// nothing in a chunk is left out of it, by its sender and by its receiver.

#pragma once

#include <tide/reduce/detail/marked_plan.hpp>  // MarkedPlan
#include <tide/reduce/detail/net_credits.hpp>  // NetCredits
#include <tide/reduce/detail/rail.hpp>         // RailChunk
#include <tide/reduce/node_tree.hpp>           // NodeMessage, OwnerOrder

#include <algorithm>
#include <vector>

namespace tide::detail {

// What goes to, or comes from, one other node: only in one round. `chunks` are those in which anything does.
struct NodeTraffic {
  index_t node = 0;
  bool sends = false;
  index_t puts = 0;     // in a run
  index_t next = 0;     // of them, in the order of issue
  index_t waited = -1;  // the chunk whose place is known to be free
  std::vector<index_t> chunks{};
  NetCredits credits{};

  [[nodiscard]] constexpr bool has(index_t c) const { return std::binary_search(chunks.begin(), chunks.end(), c); }
  [[nodiscard]] constexpr index_t index_of(index_t c) const {
    return std::lower_bound(chunks.begin(), chunks.end(), c) - chunks.begin();
  }
};

struct NodeRound {
  index_t number = 0;
  LaneIndex lane{};
  std::vector<NodeMessage> messages{};
  std::vector<NodeTraffic> traffic{};
  std::vector<MarkedPlan::Mark> known{};  // of each chunk: what its puts have waited for
  std::vector<MarkedPlan::Mark> sent{};   // of each chunk: its puts are over
  std::vector<MarkedPlan::Mark> added{};  // of each chunk: what has landed has been added

  [[nodiscard]] constexpr NodeTraffic* find(index_t node, bool sends) {
    for (NodeTraffic& one : traffic) {
      if (one.node == node && one.sends == sends) return &one;
    }
    return nullptr;
  }
  // Whether anything lands in a chunk.
  [[nodiscard]] constexpr bool gets(index_t c) const {
    return std::any_of(traffic.begin(), traffic.end(), [c](const NodeTraffic& t) { return !t.sends && t.has(c); });
  }
};

// The messages of one node, and what of them there is in a chunk.
class NodeMessages {
 public:
  // The owners of a message that have anything in a chunk, with those between them.
  struct Span {
    index_t first = 0;
    index_t last = 0;
    [[nodiscard]] constexpr bool any() const noexcept { return first < last; }
  };

  constexpr NodeMessages(index_t nodes, index_t node, Exchange exchange)
      : nodes_(nodes), node_(node), direct_(exchange == Exchange::direct), order_(nodes) {
    if (direct_) {  // GCC 12 takes a vector that a ?: makes in a constant expression for one that is gone
      all_ = direct_messages(nodes, node);
    } else {
      all_ = doubling_messages(nodes, node);
    }
    for (NodeMessage& m : all_) {
      if (m.from == node && !direct_) m.landing = landing_of(m);
    }
  }

  [[nodiscard]] constexpr const std::vector<NodeMessage>& all() const noexcept { return all_; }
  [[nodiscard]] constexpr index_t rounds() const noexcept {
    return direct_ ? nodes_ - 1 : NodeRange{0, nodes_}.round();
  }
  [[nodiscard]] constexpr index_t owner_at(index_t position) const {
    return direct_ ? position : order_.owner(position);
  }
  [[nodiscard]] constexpr bool is_of(const NodeTraffic& traffic, const NodeMessage& m) const noexcept {
    return traffic.sends ? m.from == node_ && m.to == traffic.node : m.to == node_ && m.from == traffic.node;
  }

  // The other child of the subtree that a sum is a child of, on the side of this node.
  [[nodiscard]] constexpr NodeRange sibling(NodeRange range) const {
    NodeRange found{node_, node_ + 1};
    for_each_subtree_of({0, nodes_}, node_, [&](NodeRange parent) {
      const NodeRange left{parent.first, parent.middle()};
      const NodeRange right{parent.middle(), parent.last};
      if (left == range) found = right;
      if (right == range) found = left;
    });
    return found;
  }

  [[nodiscard]] constexpr const OwnerPart& part(const NodeMessage& m, index_t i, const RailChunk& chunk) const {
    return chunk.owners[static_cast<std::size_t>(owner_at(m.position + i))];
  }
  [[nodiscard]] constexpr Span span(const NodeMessage& m, const RailChunk& chunk) const {
    Span span{0, m.owners};
    while (span.any() && part(m, span.first, chunk).elements == 0) ++span.first;
    while (span.any() && part(m, span.last - 1, chunk).elements == 0) --span.last;
    return span;
  }
  // How many puts of a round's messages a chunk makes between this node and another.
  [[nodiscard]] constexpr index_t puts_in(const NodeRound& round, const NodeTraffic& traffic,
                                          const RailChunk& chunk) const {
    index_t puts = 0;
    for (const NodeMessage& m : round.messages) puts += is_of(traffic, m) && span(m, chunk).any() ? 1 : 0;
    return puts;
  }

  // Fills the traffic of a round from its messages.
  constexpr void count(NodeRound& round, const std::vector<RailChunk>& chunks, index_t places, RoundSteps steps) const {
    for (const NodeMessage& m : round.messages) {
      const bool sends = m.from == node_;
      const index_t other = sends ? m.to : m.from;
      if (round.find(other, sends) == nullptr) round.traffic.push_back({other, sends, 0, 0, -1, {}, {}});
    }
    for (NodeTraffic& traffic : round.traffic) {
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        const index_t puts = puts_in(round, traffic, chunks[c]);
        traffic.puts += puts;
        if (puts > 0) traffic.chunks.push_back(static_cast<index_t>(c));
      }
    }
    for (NodeTraffic& traffic : round.traffic) {
      const NodeTraffic* back = round.find(traffic.node, !traffic.sends);
      std::vector<index_t> gets;
      if (back != nullptr) gets = back->chunks;
      traffic.credits = NetCredits(traffic.chunks, gets, places, steps);
    }
  }

 private:
  // Where a message that this node sends lands: the receiver counts.
  [[nodiscard]] constexpr index_t landing_of(const NodeMessage& m) const {
    for (const NodeMessage& there : doubling_messages(nodes_, m.to)) {
      if (there.from == m.from && there.to == m.to && there.position == m.position) return there.landing;
    }
    return 0;
  }

  index_t nodes_;
  index_t node_;
  bool direct_;
  OwnerOrder order_;
  std::vector<NodeMessage> all_;
};

}  // namespace tide::detail
