// SPDX-License-Identifier: Apache-2.0
//
// What the replay knows of order is so: a pair that `ReplayOrder` calls ordered is ordered by a path of lanes, events
// and signals, which this test looks for node by node.

#include <doctest/doctest.h>

#include <tide/plan/detail/op_graph.hpp>
#include <tide/plan/detail/progress_proof.hpp>
#include <tide/plan/detail/replay_order.hpp>
#include <tide/plan/detail/word_match.hpp>

#include "support/mutate.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"
#include "support/small_plans.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace replay_order_test {

using namespace tide_test;
using tide::Chunks;
using tide::Exchange;
using tide::MeshShape;
using tide::detail::NodeIndex;
using tide::detail::OpGraph;
using tide::detail::Stretch;

constexpr auto group =
    tide::group(tide::param<tide::bf16>("w", {9, 40}), tide::param<tide::bf16>("v", {6, 24}, tide::shard(1)),
                tide::param<tide::bf16>("b", {50}));

/// A graph with its waits, and an order of it; the order is empty where waits are not met, or go in a circle.
struct Ordered {
  OpGraph graph;
  std::vector<Stretch> order;

  explicit Ordered(const Planned& planned) : graph(planned.collective, planned.plans) {
    tide::detail::VerifyReport report(planned.collective, planned.plans);
    tide::detail::WordMatch(planned.collective, graph, report).match();
    if (report.empty()) order = tide::detail::ProgressProof(graph, report).order();
  }
};

/// Of each queue, one past the last node that comes before a node.
using Clock = std::vector<NodeIndex>;

/// Asks for each node about nodes of every queue that have been replayed; the first pair that is said to be ordered and
/// is not, in numbers, or nothing. `told` counts what was said to be ordered.
std::string first_untrue(const Ordered& plans, std::uint64_t& told) {
  const OpGraph& graph = plans.graph;
  const std::size_t queues = graph.queues().size();
  std::vector<Clock> before(graph.size(), Clock(queues, 0));
  std::vector<NodeIndex> replayed(queues);
  for (std::size_t q = 0; q < queues; ++q) replayed[q] = graph.queues()[q].start;
  tide::detail::ReplayOrder order(graph);
  for (const Stretch& stretch : plans.order) {
    for (NodeIndex v = stretch.begin; v < stretch.end; ++v) {
      Clock& clock = before[v];
      const auto follow = [&](NodeIndex u) {
        for (std::size_t q = 0; q < queues; ++q) clock[q] = std::max(clock[q], before[u][q]);
        clock[graph.queue_of(u)] = std::max(clock[graph.queue_of(u)], u + 1);
      };
      if (v > graph.queues()[stretch.queue].start) follow(v - 1);
      if (graph.extra(v) != tide::detail::no_node) follow(graph.extra(v));
      order.reach(v, stretch.queue);
      for (std::size_t q = 0; q < queues; ++q) {
        // The first that does not come before it, and some beside: what is known of later ones is not asked again.
        const NodeIndex start = graph.queues()[q].start;
        const NodeIndex from = std::max(start, clock[q]);
        for (const NodeIndex u : {start, from == start ? start : from - 1, from, from + 1, replayed[q] - 1}) {
          if (u < start || u >= replayed[q] || q == stretch.queue || !order.known(u)) continue;
          ++told;
          if (u >= clock[q]) return "node " + std::to_string(u) + " is not before " + std::to_string(v);
        }
      }
      replayed[stretch.queue] = v + 1;
    }
  }
  return "";
}

std::vector<Planned> subjects() {
  using Tight = tide::RdmaDoublingTransport<tide::Bytes<32>, tide::PutsInFlight<2>>;
  std::vector<Planned> all;
  for (const tide::index_t ranks : {2, 3}) {
    all.push_back(planned_gather(group.view(), ranks));
    all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<1600>>>(group.view(), ranks));
    all.push_back(planned_reduce<tide::SlotReuse>(group.view(), ranks));
  }
  for (const MeshShape mesh : {MeshShape{2, 1}, MeshShape{3, 1}, MeshShape{2, 2}, MeshShape{4, 2}}) {
    all.push_back(planned_gather_on<tide::UnicastTransport, Tight>(group.view(), mesh));
    for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
      all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<12800>>>(group.view(), mesh, exchange));
      all.push_back(planned_reduce<tide::SlotReuseWithin<tide::Bytes<1600>, Chunks<1>>>(group.view(), mesh, exchange));
    }
  }
  return all;
}

TEST_CASE("replay order: what is known to be ordered is ordered by a path") {
  const std::vector<Planned> all = subjects();
  std::uint64_t told = 0;
  for (std::size_t i = 0; i < all.size(); i += static_cast<std::size_t>(sized(1, 3))) {
    CAPTURE(i);
    const Ordered plans(all[i]);
    REQUIRE_FALSE(plans.order.empty());
    CHECK(first_untrue(plans, told) == "");
  }
  CHECK(told > (sanitized ? 2'000 : 10'000));
}

TEST_CASE("replay order: so it is where waits are missing, or stand on other lanes") {
  const std::vector<Planned> all = subjects();
  std::uint64_t told = 0;
  std::uint64_t broken = 0;
  for (const std::uint64_t seed : seeds(sized(120, 20))) {
    CAPTURE(seed);
    const Planned& subject = all[seed % all.size()];
    Planned mutant = subject;
    Random random(seed);
    tide::Plan& plan =
        mutant.plans[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(mutant.plans.size()) - 1))];
    // Waits are all that orders, and nothing refuses one less before the replay.
    const auto wait = [](const tide::Op& op) { return op.kind == tide::OpKind::wait; };
    const auto waits = std::count_if(plan.ops.begin(), plan.ops.end(), wait);
    std::int64_t which = random.between(0, waits - 1);
    const auto at =
        std::find_if(plan.ops.begin(), plan.ops.end(), [&](const tide::Op& op) { return wait(op) && which-- == 0; });
    const auto to = static_cast<std::uint16_t>(random.between(0, static_cast<std::int64_t>(plan.lanes.size())));
    for (tide::Exit& exit : plan.exits) {
      const auto behind = std::count_if(plan.ops.begin(), at, [&](const tide::Op& op) { return op.lane == at->lane; });
      const auto ahead = std::count_if(plan.ops.begin(), at, [&](const tide::Op& op) { return op.lane == to; });
      if (exit.lane.value == at->lane && exit.position > behind) --exit.position;
      if (exit.lane.value == to && exit.position > ahead && to != at->lane) ++exit.position;
    }
    if (to == plan.lanes.size()) {
      plan.ops.erase(at);
    } else {
      at->lane = to;
    }
    const Ordered plans(mutant);
    if (plans.order.empty()) continue;
    ++broken;
    CHECK(first_untrue(plans, told) == "");
  }
  CHECK(broken > seeds(sized(120, 20)).size() / 2);
  CHECK(told > 10'000);
}

}  // namespace replay_order_test
