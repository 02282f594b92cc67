// SPDX-License-Identifier: Apache-2.0
//
// Law 4 and 7: which pairs of accesses are ordered. Nodes are replayed in an order in which each stands behind all that
// it waits for. Most pairs are ordered by one signal from the lane of the one to the lane of the other, or by a few by
// way of lanes that have ordered such pairs before: that is known as the replay comes along. The others are kept and
// answered together, by walking the graph once for every 16 lanes that the earlier ones are on.

#pragma once

#include <tide/plan/detail/flat_table.hpp>      // FlatTable
#include <tide/plan/detail/op_graph.hpp>        // OpGraph
#include <tide/plan/detail/order_routes.hpp>    // OrderRoutes
#include <tide/plan/detail/progress_proof.hpp>  // Stretch

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tide::detail {

// Two nodes that a path must lead between, in the order of the replay: two accesses to common bytes, one of them
// writing; a put, and a later one that must not be issued before it has arrived; or a call and an exit of its run.
struct AccessConflict {
  enum class Kind : std::uint8_t { access, in_flight, early_exit };

  NodeIndex earlier = no_node;
  NodeIndex later = no_node;
  ByteRange bytes{};
  bool earlier_writes = false;
  bool later_writes = false;
  bool stale = false;  // the one that reads found there what it should not have
  Kind kind = Kind::access;
};

class ReplayOrder {
 public:
  explicit ReplayOrder(const OpGraph& graph) : graph_(&graph) {}

  // Must be called for each node of the replay, before its accesses.
  void reach(NodeIndex v, QueueIndex queue) {
    now_ = v;
    const NodeIndex from = graph_->extra(v);
    if (from != no_node || queue != queue_) ++version_;
    queue_ = queue;
    if (from == no_node) return;
    follow(from);
    if (graph_->queues()[queue_].role == OpGraph::Role::op) return;
    // The caller knows what the lane of an exit knew there; a run's exits may be on different lanes.
    const QueueIndex lane = graph_->queue_of(from);
    NodeIndex& first = imported_.at(key(queue_, lane), graph_->queues()[lane].start);
    for (NodeIndex u = first; u <= from; ++u) {
      if (graph_->extra(u) != no_node) follow(graph_->extra(u));
    }
    first = std::max(first, from + 1);
  }

  // Whether a node that has been replayed is known to come before the one that is being replayed.
  [[nodiscard]] bool known(NodeIndex earlier) {
    const QueueIndex from = graph_->queue_of(earlier);
    if (from == queue_) return true;
    Proved& proved = proved_[from % proved_.size()];
    if (proved.queue == from && proved.version == version_ && earlier <= proved.last) return true;
    const NodeIndex seen = graph_->seen_at(earlier);
    const QueueIndex queue = seen == earlier ? from : graph_->queue_of(seen);
    NodeIndex last = seen;
    if (queue == queue_ ? seen > now_ : !routes_.leads(queue_, now_, queue, last)) return false;
    proved = {from, version_, seen == earlier ? last : earlier};
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
    number_snapshots();
    std::vector<NodeIndex> position(graph_->size());  // of each node in the order
    NodeIndex next = 0;
    for (const Stretch& stretch : order) {
      for (NodeIndex v = stretch.begin; v < stretch.end; ++v) position[v] = next++;
    }
    const auto source = [&](const AccessConflict& c) { return graph_->queue_of(c.earlier); };
    std::sort(kept_.begin(), kept_.end(), [&](const AccessConflict& a, const AccessConflict& b) {
      return source(a) != source(b) ? source(a) < source(b) : position[a.later] < position[b.later];
    });
    for (std::size_t first = 0; first < kept_.size();) {
      std::vector<QueueIndex> sources;
      std::size_t last = first;
      for (; last < kept_.size(); ++last) {
        if (!sources.empty() && sources.back() == source(kept_[last])) continue;
        if (sources.size() == width) break;
        sources.push_back(source(kept_[last]));
      }
      const auto begin = kept_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(last);
      std::sort(begin, end, [&](const AccessConflict& a, const AccessConflict& b) {
        return position[a.later] < position[b.later];
      });
      walk(order, sources, {begin, end}, found);
      first = last;
    }
    return found;
  }

 private:
  // The last node of a lane that is known to come before the one that is being replayed.
  struct Proved {
    QueueIndex queue = 0;
    std::uint64_t version = 0;
    NodeIndex last = 0;
  };

  static constexpr std::size_t width = 16;
  // Of each source lane, one past the last node that comes before; 0 where none does.
  using Clock = std::array<NodeIndex, width>;

  [[nodiscard]] static std::uint64_t key(std::uint32_t a, std::uint32_t b) noexcept {
    return (static_cast<std::uint64_t>(a) << 32) | b;
  }

  void follow(NodeIndex from) { routes_.add(queue_, now_, graph_->queue_of(from), from); }

  // Numbers the nodes that others wait for: only their clocks have to be kept.
  void number_snapshots() {
    snapshot_.assign(graph_->size(), no_node);
    snapshots_ = 0;
    for (NodeIndex v = 0; v < graph_->size(); ++v) {
      const NodeIndex from = graph_->extra(v);
      if (from != no_node && snapshot_[from] == no_node) snapshot_[from] = snapshots_++;
    }
  }

  // Answers pairs whose earlier access is on one of the lanes `sources`; they come in the order of the later ones.
  void walk(const std::vector<Stretch>& order, const std::vector<QueueIndex>& sources,
            std::span<const AccessConflict> questions, std::vector<AccessConflict>& found) {
    std::vector<Clock> clocks(graph_->queues().size(), Clock{});
    std::vector<Clock> snapshots(snapshots_);
    std::vector<std::uint8_t> column(graph_->queues().size(), width);
    for (std::size_t i = 0; i < sources.size(); ++i) column[sources[i]] = static_cast<std::uint8_t>(i);
    std::size_t question = 0;
    for (const Stretch& stretch : order) {
      Clock& clock = clocks[stretch.queue];
      const std::size_t own = column[stretch.queue];
      for (NodeIndex v = stretch.begin; v < stretch.end; ++v) {
        if (const NodeIndex from = graph_->extra(v); from != no_node) {
          const Clock& other = snapshots[snapshot_[from]];
          for (std::size_t i = 0; i < width; ++i) clock[i] = std::max(clock[i], other[i]);
        }
        for (; question < questions.size() && questions[question].later == v; ++question) {
          const NodeIndex earlier = questions[question].earlier;
          if (clock[column[graph_->queue_of(earlier)]] <= earlier) found.push_back(questions[question]);
        }
        if (own < width) clock[own] = v + 1;
        if (snapshot_[v] != no_node) snapshots[snapshot_[v]] = clock;
      }
    }
  }

  const OpGraph* graph_;
  NodeIndex now_ = no_node;
  QueueIndex queue_ = 0;
  std::uint64_t version_ = 0;         // of what is known: it changes where a node waits for another
  std::array<Proved, 256> proved_{};  // of late: ops between two waits meet the same lanes again and again
  FlatTable<NodeIndex> imported_;     // (the caller's queue, lane of an exit): up to where it knows what that lane knew
  OrderRoutes routes_;
  FlatTable<std::uint32_t> places_;  // (earlier, later): where in kept_
  std::vector<AccessConflict> kept_;
  std::vector<NodeIndex> snapshot_;
  NodeIndex snapshots_ = 0;
};

}  // namespace tide::detail
