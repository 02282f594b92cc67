// SPDX-License-Identifier: Apache-2.0
//
// Law 4 and 7: which pairs of accesses are ordered. Nodes are replayed in an order in which each stands behind all that
// it waits for. Most pairs are ordered by one signal from the lane of the one to the lane of the other: that is known
// as the replay comes along. The others are kept and answered together, by walking the graph once for every 16 lanes
// that the earlier ones are on.

#pragma once

#include <tide/plan/detail/flat_table.hpp>      // FlatTable
#include <tide/plan/detail/op_graph.hpp>        // OpGraph
#include <tide/plan/detail/progress_proof.hpp>  // Stretch

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace tide::detail {

// Two accesses to common bytes, one of them writing, in the order of the replay.
struct AccessConflict {
  NodeIndex earlier = no_node;
  NodeIndex later = no_node;
  ByteRange bytes{};
  bool earlier_writes = false;
  bool later_writes = false;
  bool stale = false;      // the one that reads found there what it should not have
  bool in_flight = false;  // no access: the earlier put should have come before the later is issued
};

class ReplayOrder {
 public:
  explicit ReplayOrder(const OpGraph& graph) : graph_(&graph) {}

  // Must be called for each node of the replay, before its accesses.
  void reach(NodeIndex v, QueueIndex queue) {
    now_ = v;
    queue_ = queue;
    const NodeIndex from = graph_->extra(v);
    if (from == no_node) return;
    follow(from);
    if (graph_->queues()[queue_].role == OpGraph::Role::op) return;
    // The caller knows what the lane of an exit knew there.
    NodeIndex& first = imported_.at(queue_, graph_->queues()[graph_->queue_of(from)].start);
    for (NodeIndex u = first; u <= from; ++u) {
      if (graph_->extra(u) != no_node) follow(graph_->extra(u));
    }
    first = std::max(first, from + 1);
  }

  // Whether a node that has been replayed is known to come before the one that is being replayed.
  [[nodiscard]] bool known(NodeIndex earlier) {
    if (earlier == proved_ && now_ == proved_before_) return true;
    if (graph_->queue_of(earlier) != queue_) {
      const NodeIndex seen = graph_->seen_at(earlier);
      const QueueIndex queue = graph_->queue_of(seen);
      if (queue != queue_) {
        const NodeIndex* last = known_.find(key(queue_, queue));
        if (last == nullptr || *last < seen) return false;
      } else if (seen > now_) {
        return false;
      }
    }
    proved_ = earlier;
    proved_before_ = now_;
    return true;
  }

  // Keeps a pair that is not known to be ordered.
  void keep(const AccessConflict& conflict) {
    const std::size_t fresh = kept_.size();
    std::uint32_t& place = places_.at(key(conflict.earlier, conflict.later), static_cast<std::uint32_t>(fresh));
    if (place == fresh) {
      kept_.push_back(conflict);
    } else if (ByteRange& bytes = kept_[place].bytes; bytes.rank == conflict.bytes.rank &&
                                                      bytes.place == conflict.bytes.place &&
                                                      bytes.end == conflict.bytes.begin) {
      bytes.end = conflict.bytes.end;
    }
  }

  // The pairs that nothing orders.
  [[nodiscard]] std::vector<AccessConflict> races(const std::vector<Stretch>& order) {
    std::vector<AccessConflict> found;
    if (kept_.empty()) return found;
    std::sort(kept_.begin(), kept_.end(),
              [](const AccessConflict& a, const AccessConflict& b) { return a.later < b.later; });
    std::vector<QueueIndex> sources;
    for (const AccessConflict& conflict : kept_) sources.push_back(graph_->queue_of(conflict.earlier));
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    number_snapshots();
    for (std::size_t first = 0; first < sources.size(); first += width) {
      walk(order,
           {sources.begin() + static_cast<std::ptrdiff_t>(first),
            sources.begin() + static_cast<std::ptrdiff_t>(std::min(first + width, sources.size()))},
           found);
    }
    return found;
  }

 private:
  static constexpr std::size_t width = 16;
  // Of each source lane, one past the last node that comes before; 0 where none does.
  using Clock = std::array<NodeIndex, width>;

  [[nodiscard]] static std::uint64_t key(std::uint32_t a, std::uint32_t b) noexcept {
    return (static_cast<std::uint64_t>(a) << 32) | b;
  }

  void follow(NodeIndex from) {
    NodeIndex& last = known_.at(key(queue_, graph_->queue_of(from)), from);
    last = std::max(last, from);
  }

  // Numbers the nodes that others wait for: only their clocks have to be kept.
  void number_snapshots() {
    snapshot_.assign(graph_->size(), no_node);
    snapshots_ = 0;
    for (NodeIndex v = 0; v < graph_->size(); ++v) {
      const NodeIndex from = graph_->extra(v);
      if (from != no_node && snapshot_[from] == no_node) snapshot_[from] = snapshots_++;
    }
  }

  // Answers the pairs whose earlier access is on one of the lanes `sources`.
  void walk(const std::vector<Stretch>& order, const std::vector<QueueIndex>& sources,
            std::vector<AccessConflict>& found) {
    std::vector<Clock> clocks(graph_->queues().size(), Clock{});
    std::vector<Clock> snapshots(snapshots_);
    std::vector<std::uint8_t> column(graph_->queues().size(), width);
    for (std::size_t i = 0; i < sources.size(); ++i) column[sources[i]] = static_cast<std::uint8_t>(i);
    for (const Stretch& stretch : order) {
      Clock& clock = clocks[stretch.queue];
      const std::size_t own = column[stretch.queue];
      auto question = std::lower_bound(kept_.begin(), kept_.end(), stretch.begin,
                                       [](const AccessConflict& c, NodeIndex v) { return c.later < v; });
      for (NodeIndex v = stretch.begin; v < stretch.end; ++v) {
        if (const NodeIndex from = graph_->extra(v); from != no_node) {
          const Clock& other = snapshots[snapshot_[from]];
          for (std::size_t i = 0; i < width; ++i) clock[i] = std::max(clock[i], other[i]);
        }
        for (; question != kept_.end() && question->later == v; ++question) {
          const std::size_t source = column[graph_->queue_of(question->earlier)];
          if (source < width && clock[source] <= question->earlier) found.push_back(*question);
        }
        if (own < width) clock[own] = v + 1;
        if (snapshot_[v] != no_node) snapshots[snapshot_[v]] = clock;
      }
    }
  }

  const OpGraph* graph_;
  NodeIndex now_ = no_node;
  QueueIndex queue_ = 0;
  NodeIndex proved_ = no_node;  // the last pair that was known
  NodeIndex proved_before_ = no_node;
  FlatTable<NodeIndex> known_;       // (lane, other lane): the last node of the other that a wait of this one follows
  FlatTable<NodeIndex> imported_;    // (the caller's queue): up to where it knows what the lane of its exit knew
  FlatTable<std::uint32_t> places_;  // (earlier, later): where in kept_
  std::vector<AccessConflict> kept_;
  std::vector<NodeIndex> snapshot_;
  NodeIndex snapshots_ = 0;
};

}  // namespace tide::detail
