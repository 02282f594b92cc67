// SPDX-License-Identifier: Apache-2.0
//
// By way of which other lanes one lane comes to know what another has done. Plans repeat themselves: the lanes that led
// from one to the other once do so again, so a way is looked for seldom and remembered.
//
//   sum 1 of rank 0, chunk 9   net of rank 0   wire of rank 2   net of rank 2   sum 1 of rank 2, chunk 7
//
// A way that is not found may still be there.

#pragma once

#include <tide/plan/detail/flat_table.hpp>  // FlatTable
#include <tide/plan/detail/op_graph.hpp>    // NodeIndex, QueueIndex, no_node

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tide::detail {

class OrderRoutes {
 public:
  // Node `at` of lane `queue` waits for node `from` of lane `other`.
  void add(QueueIndex queue, NodeIndex at, QueueIndex other, NodeIndex from) {
    const auto fresh = static_cast<std::uint32_t>(histories_.size());
    Link& link = links_.at(key(queue, other), {from, fresh});
    if (link.history == fresh) {
      histories_.emplace_back();
      if (neighbours_.size() <= queue) neighbours_.resize(queue + 1);
      neighbours_[queue].push_back(other);
    } else if (link.last >= from) {
      return;
    }
    link.last = from;
    histories_[link.history].push_back({at, from});
  }

  // Whether a way leads from node `at` of a lane, the last that it has reached, back to node `wanted`, or one behind
  // it, of lane `other`. Then `wanted` becomes the one behind it.
  [[nodiscard]] bool leads(QueueIndex queue, NodeIndex at, QueueIndex other, NodeIndex& wanted) {
    if (const Link* link = links_.find(key(queue, other)); link != nullptr && link->last >= wanted) {
      wanted = link->last;
      return true;
    }
    Known& known = routes_of(queue, other);
    for (std::size_t i = 0; i < known.routes.size(); ++i) {
      const NodeIndex last = end_of(known.routes[i], queue, at, other);
      if (last == no_node || last < wanted) continue;
      wanted = last;
      std::swap(known.routes[i], known.routes[i / 2]);
      return true;
    }
    if (known.failures >= most_failures) return false;
    std::vector<QueueIndex> route = search(queue, at, other, wanted);
    if (route.empty()) {
      ++known.failures;
      return false;
    }
    route.pop_back();
    if (known.routes.size() < most_routes) known.routes.push_back(std::move(route));
    return true;
  }

 private:
  static constexpr std::size_t most_routes = 8;
  static constexpr int most_failures = 16;
  static constexpr std::size_t most_lanes = 192;  // that a search looks at

  struct Seen {
    NodeIndex at;
    NodeIndex of;
  };
  // Of a lane that has waited for another.
  struct Link {
    NodeIndex last;         // the last node of the other that it follows
    std::uint32_t history;  // where in histories_
  };
  struct Known {
    std::vector<std::vector<QueueIndex>> routes{};
    int failures = 0;
  };
  struct Step {
    QueueIndex queue;
    NodeIndex at;
    std::size_t before;
  };

  [[nodiscard]] static std::uint64_t key(std::uint32_t a, std::uint32_t b) noexcept {
    return (static_cast<std::uint64_t>(a) << 32) | b;
  }

  [[nodiscard]] Known& routes_of(QueueIndex queue, QueueIndex other) {
    const auto fresh = static_cast<std::uint32_t>(known_.size());
    const std::uint32_t i = known_of_.at(key(queue, other), fresh);
    if (i == fresh) known_.emplace_back();
    return known_[i];
  }

  // The last node of `other` that node `at` of `queue`, or one before it, waits for.
  [[nodiscard]] NodeIndex seen(QueueIndex queue, QueueIndex other, NodeIndex at) const {
    const Link* link = links_.find(key(queue, other));
    if (link == nullptr) return no_node;
    const std::vector<Seen>& history = histories_[link->history];
    std::size_t last = history.size();  // behind it all are later than `at`: lanes are asked of what was lately
    std::size_t first = last - 1;
    for (std::size_t step = 1; history[first].at > at; step *= 2) {
      if (first == 0) return no_node;
      last = first;
      first -= std::min(step, first);
    }
    const auto begin = history.begin();
    const auto found =
        std::upper_bound(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last), at,
                         [](NodeIndex v, const Seen& s) { return v < s.at; });
    return (found - 1)->of;
  }

  // The last node of `other` that a way leads back to.
  [[nodiscard]] NodeIndex end_of(const std::vector<QueueIndex>& route, QueueIndex queue, NodeIndex at,
                                 QueueIndex other) const {
    for (const QueueIndex next : route) {
      at = seen(queue, next, at);
      if (at == no_node) return at;
      queue = next;
    }
    return seen(queue, other, at);
  }

  // The lanes on a way, the last one included; none where no short one is found.
  [[nodiscard]] std::vector<QueueIndex> search(QueueIndex queue, NodeIndex at, QueueIndex other, NodeIndex wanted) {
    std::vector<Step> steps{{queue, at, 0}};
    for (std::size_t i = 0; i < steps.size() && steps.size() < most_lanes; ++i) {
      const Step step = steps[i];
      if (step.queue >= neighbours_.size()) continue;
      for (const QueueIndex next : neighbours_[step.queue]) {
        const NodeIndex of = seen(step.queue, next, step.at);
        if (of == no_node) continue;
        if (next == other && of >= wanted) {
          std::vector<QueueIndex> route{other};
          for (std::size_t back = i; back != 0; back = steps[back].before)
            route.insert(route.begin(), steps[back].queue);
          return route;
        }
        const bool better =
            std::none_of(steps.begin(), steps.end(), [&](const Step& s) { return s.queue == next && s.at >= of; });
        if (better) steps.push_back({next, of, i});
      }
    }
    return {};
  }

  FlatTable<Link> links_;  // (lane, other lane)
  std::vector<std::vector<Seen>> histories_;
  std::vector<std::vector<QueueIndex>> neighbours_;  // of each lane: lanes that it waits for
  FlatTable<std::uint32_t> known_of_;                // (lane, other lane): where in known_
  std::vector<Known> known_;
};

}  // namespace tide::detail
