// SPDX-License-Identifier: Apache-2.0
//
// Law 6 for puts: how many may be on their way to one peer. A put may have come as late as the sender cannot know
// better; so when put n + k is issued, a path must lead to it from put n on its wire.

#pragma once

#include <tide/plan/detail/flat_table.hpp>    // FlatTable
#include <tide/plan/detail/replay_order.hpp>  // ReplayOrder

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tide::detail {

class InFlight {
 public:
  InFlight(const Collective& collective, const OpGraph& graph) {
    if (collective.layout.mesh.nodes == 1) return;
    const auto most = static_cast<std::size_t>(collective.network.puts_in_flight);
    for (std::size_t p = 0; p < graph.plans().size(); ++p) {
      const std::vector<Op>& ops = graph.plans()[p].ops;
      std::vector<std::uint32_t> puts;  // those to one peer after the other, each in the order of issue
      for (std::size_t s = 0; s < ops.size(); ++s) {
        if (ops[s].kind == OpKind::put) puts.push_back(static_cast<std::uint32_t>(s));
      }
      std::stable_sort(puts.begin(), puts.end(), [&](auto a, auto b) { return ops[a].peer < ops[b].peer; });
      for (std::size_t first = 0; first < puts.size();) {
        std::size_t count = 1;
        while (first + count < puts.size() && ops[puts[first + count]].peer == ops[puts[first]].peer) ++count;
        const std::size_t all = count * static_cast<std::size_t>(unrolled_runs);
        for (std::size_t later = most; later < all; ++later) {
          const std::size_t earlier = later - most;
          const NodeIndex put = graph.node(p, puts[first + later % count], static_cast<index_t>(later / count));
          static_cast<void>(
              before_.at(put, graph.wire(p, puts[first + earlier % count], static_cast<index_t>(earlier / count))));
        }
        first += count;
      }
    }
  }

  // Asks for the path to a put that the replay has come to; `ReplayFaults` says which are missing.
  void issue(NodeIndex put, ReplayOrder& order) const {
    const NodeIndex* before = before_.find(put);
    if (before == nullptr || order.known(*before)) return;
    AccessConflict pair;
    pair.earlier = *before;
    pair.later = put;
    pair.kind = AccessConflict::Kind::in_flight;
    order.keep(pair);
  }

 private:
  FlatTable<NodeIndex> before_;  // of a put: the one, on its wire, that must have come
};

}  // namespace tide::detail
