// SPDX-License-Identifier: Apache-2.0
//
// Law 5: the queues can be emptied, as lanes and with each rank's lanes merged into one. What comes out is an order of
// all nodes in which each stands behind everything that it waits for.

#pragma once

#include <tide/plan/detail/op_graph.hpp>       // OpGraph
#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace tide::detail {

// Nodes [begin, end) of a queue, executed one after the other.
struct Stretch {
  QueueIndex queue = 0;
  NodeIndex begin = 0;
  NodeIndex end = 0;
};

// Which of the queues that can go on does.
enum class Turn : std::uint8_t {
  last,   // the one that came last: what it touches is still in a cache, and others often wait for it
  first,  // the one that has waited longest, as queues that run at the same time would
};

// Runs queues of nodes, each from `starts[q]` to `starts[q + 1]`, until none can go on. `extra(v)` is what v waits for
// beside the node before it.
class Drain {
 public:
  template <class Extra>
  Drain(const std::vector<NodeIndex>& starts, Extra extra, Turn turn = Turn::last)
      : starts_(starts), done_(starts.begin(), starts.end() - 1) {
    const auto queues = static_cast<QueueIndex>(done_.size());
    std::vector<QueueIndex> blocked_on(starts.back(), none);  // the first queue that waits for a node
    std::vector<QueueIndex> next(queues, none);               // the next queue that waits for the same one
    std::vector<char> executed(starts.back(), 0);
    std::deque<QueueIndex> ready(queues);
    for (QueueIndex q = 0; q < queues; ++q) ready[q] = turn == Turn::first ? q : queues - 1 - q;
    while (!ready.empty()) {
      const QueueIndex q = turn == Turn::first ? ready.front() : ready.back();
      turn == Turn::first ? ready.pop_front() : ready.pop_back();
      const NodeIndex begin = done_[q];
      NodeIndex v = begin;
      for (; v < starts[q + 1]; ++v) {
        const NodeIndex from = extra(v);
        if (from != no_node && executed[from] == 0) {
          next[q] = blocked_on[from];
          blocked_on[from] = q;
          break;
        }
        executed[v] = 1;
        for (QueueIndex waiting = blocked_on[v]; waiting != none; waiting = next[waiting]) ready.push_back(waiting);
      }
      done_[q] = v;
      if (v != begin) order_.push_back({q, begin, v});
      total_ += v - begin;
    }
  }

  [[nodiscard]] bool finished() const noexcept { return total_ == starts_.back(); }
  [[nodiscard]] const std::vector<Stretch>& order() const noexcept { return order_; }

  // Nodes that wait for each other in a circle, each for one behind the next.  @pre !finished()
  template <class Extra>
  [[nodiscard]] std::vector<NodeIndex> circle(Extra extra) const {
    QueueIndex q = 0;
    while (done_[q] == starts_[q + 1]) ++q;
    std::vector<std::size_t> seen(done_.size(), SIZE_MAX);
    std::vector<NodeIndex> path;
    while (seen[q] == SIZE_MAX) {
      seen[q] = path.size();
      path.push_back(done_[q]);
      q = queue_of(extra(done_[q]));
    }
    return {path.begin() + static_cast<std::ptrdiff_t>(seen[q]), path.end()};
  }

 private:
  static constexpr QueueIndex none = UINT32_MAX;

  [[nodiscard]] QueueIndex queue_of(NodeIndex v) const noexcept {
    return static_cast<QueueIndex>(std::upper_bound(starts_.begin(), starts_.end(), v) - starts_.begin()) - 1;
  }

  std::vector<NodeIndex> starts_;
  std::vector<NodeIndex> done_;  // of each queue, the first node that has not been executed
  std::vector<Stretch> order_;
  std::size_t total_ = 0;
};

class ProgressProof {
 public:
  ProgressProof(const OpGraph& graph, VerifyReport& report) : graph_(&graph), report_(&report) {}

  // An order of all nodes; empty where there is none.
  [[nodiscard]] std::vector<Stretch> order(Turn turn = Turn::last) {
    std::vector<NodeIndex> starts;
    for (const OpGraph::Queue& queue : graph_->queues()) starts.push_back(queue.start);
    starts.push_back(graph_->size());
    const auto extra = [this](NodeIndex v) { return graph_->extra(v); };
    const Drain drain(starts, extra, turn);
    if (drain.finished()) return drain.order();
    std::vector<Side> circle;
    for (const NodeIndex v : drain.circle(extra)) circle.push_back(side(v));
    say(circle, "");
    return {};
  }

  // The same where each rank has one queue: in a run its ops in the order of their issue.
  void check_merged() {
    const std::span<const Plan> plans = graph_->plans();
    std::vector<NodeIndex> starts{0};
    for (const Plan& plan : plans) {
      starts.push_back(starts.back() + static_cast<NodeIndex>(unrolled_runs) * static_cast<NodeIndex>(plan.ops.size()));
    }
    std::vector<NodeIndex> extras(starts.back(), no_node);
    for (std::size_t p = 0; p < plans.size(); ++p) {
      const auto length = static_cast<NodeIndex>(plans[p].ops.size());
      for (NodeIndex i = 0; i < static_cast<NodeIndex>(unrolled_runs) * length; ++i) {
        const NodeIndex from = graph_->extra(graph_->node(p, i % length, i / length));
        if (from == no_node) continue;
        const OpGraph::Node signal = graph_->decode(from);  // what is issued comes by itself
        const auto rank = static_cast<std::size_t>(signal.rank.value);
        extras[starts[p] + i] = starts[rank] +
                                static_cast<NodeIndex>(signal.run) * static_cast<NodeIndex>(plans[rank].ops.size()) +
                                static_cast<NodeIndex>(signal.seq);
      }
    }
    const auto extra = [&](NodeIndex v) { return extras[v]; };
    const Drain drain(starts, extra);
    if (drain.finished()) return;
    std::vector<Side> circle;
    for (const NodeIndex v : drain.circle(extra)) {
      std::size_t p = 0;
      while (v >= starts[p + 1]) ++p;
      const auto length = static_cast<NodeIndex>(plans[p].ops.size());
      circle.push_back(report_->side(p, (v - starts[p]) % length, (v - starts[p]) / length));
    }
    say(circle, " with the lanes of each rank merged into one");
  }

 private:
  [[nodiscard]] Side side(NodeIndex v) const {
    const OpGraph::Node node = graph_->decode(v);
    const bool is_op = node.role == OpGraph::Role::op || node.role == OpGraph::Role::wire;
    return is_op ? report_->side(static_cast<std::size_t>(node.rank.value), node.seq, node.run)
                 : VerifyReport::caller(node.rank, node.run);
  }

  void say(const std::vector<Side>& circle, const std::string& how) {
    constexpr std::size_t most = 8;
    std::string text;
    for (std::size_t i = 0; i < circle.size() && i < most; ++i) {
      text += (i == 0 ? "" : ", behind ") + report_->doing(circle[i]);
      if (circle[i].op.kind == OpKind::wait && circle[i].is_op()) {
        text += ", which waits for " + report_->word(circle[i].rank.value, circle[i].op.word());
      }
    }
    if (circle.size() > most) text += ", and " + std::to_string(circle.size() - most) + " more";
    text += circle.size() == 1 ? ", which comes behind it" + how
                               : ": each waits for the next, the last for the first" + how;
    report_->add(Law::progress, text, circle[0], circle[1 % circle.size()]);
  }

  const OpGraph* graph_;
  VerifyReport* report_;
};

}  // namespace tide::detail
