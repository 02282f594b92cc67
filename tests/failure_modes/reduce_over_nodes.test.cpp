// SPDX-License-Identifier: Apache-2.0
//
// timeout: 300
//
// What goes wrong between nodes: rows 20, 22 and 23 of the failure modes, and puts that never come.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace reduce_over_nodes_test {

using namespace tide_test;

using Layout = tide::DynamicLayout;
using Doubling = tide::RdmaDoublingTransport<>;
using Direct = tide::RdmaDirectTransport;
using Narrow = tide::Ring<tide::Chunks<2>, tide::Bytes<(1 << 14)>>;
using Slot = tide::SlotReuseWithin<tide::Bytes<8192>, tide::Chunks<2>>;

/// Several chunks on each rank.
Layout layout_on(tide::MeshShape mesh) {
  tide::DynamicGroup group;
  group.add("w", {mesh.ranks() * 9 + 1, 40}, Element::bf16, Element::bf16);
  group.add("b", {61}, Element::bf16, Element::bf16);
  return {group, mesh};
}

/// What each rank raised, or found wrong, in some reduces.
template <class Inter, class Inbox, class Reducer = tide::CopyEngineReducer<>>
std::vector<std::string> reduce_with(const Layout& layout, tide::HostOptions options, int steps = 3) {
  const CollectiveOracle oracle(layout.view(), tide::CrossesItself<Reducer> ? Values::whole : Values::spread);
  const tide::MeshShape mesh = layout.view().mesh;
  return errors_of(HostRanks{std::move(options), mesh.ranks_per_node}, mesh.ranks(), [&](tide::HostFabric& fabric) {
    ReduceRank<HostRanks, Layout, Reducer, Inbox, Inter> reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    for (int step = 0; step < steps; ++step) reduce.step(From::storage, static_cast<std::uint64_t>(step), stream);
    stream.synchronize();
    fabric.close();
    if (!reduce.verdict().empty()) tide::raise(tide::Errc::operation, reduce.verdict());
  });
}

TEST_CASE("failure modes 20: any number of nodes, with one slow rank") {
  for (const index_t nodes : {3, 5, 6, 7}) {
    CAPTURE(nodes);
    for (const index_t slow : {index_t{0}, nodes - 1}) {
      CAPTURE(slow);
      tide::HostOptions options{.deadline = 60s};
      options.hook = [slow](const tide::HostHookPoint& point) -> std::optional<std::string> {
        if (point.rank.value == slow) std::this_thread::sleep_for(std::chrono::microseconds(100));
        return std::nullopt;
      };
      check_no_error(reduce_with<Doubling, Narrow>(layout_on({nodes, 1}), options, 2));
      check_no_error(reduce_with<Direct, Slot>(layout_on({nodes, 1}), options, 2));
    }
  }
}

TEST_CASE("failure modes 22: no rank has more puts on their way to a peer than its collective says") {
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 2}, tide::MeshShape{5, 1}, tide::MeshShape{3, 2}}) {
    CAPTURE(mesh.nodes);
    const Layout layout = layout_on(mesh);
    tide::HostOptions options{.deadline = 60s};
    options.network_hook = [](const tide::HostHookPoint&) { return tide::HostDelivery{200us}; };
    options.network_depth = Narrow::memory(layout.view(), tide::Exchange::doubling).network.puts_in_flight;
    check_no_error(reduce_with<Doubling, Narrow>(layout, options));
    options.network_depth = Narrow::memory(layout.view(), tide::Exchange::direct).network.puts_in_flight;
    check_no_error(reduce_with<Direct, Narrow>(layout, options));
    options.network_depth = Slot::memory(layout.view(), tide::Exchange::doubling).network.puts_in_flight;
    check_no_error(reduce_with<Doubling, Slot>(layout, options));
    options.network_depth = Narrow::memory(layout.view(), tide::Exchange::in_switch).network.puts_in_flight;
    check_no_error(reduce_with<Direct, Narrow, tide::SwitchReducer<>>(layout, options));
  }
}

TEST_CASE("failure modes: a connection that breaks, at a put or at a credit, is named by all ranks") {
  for (const int lost : {0, 1, 4, 9}) {
    CAPTURE(lost);
    std::atomic<int> sent{0};
    tide::HostOptions options{.deadline = 400ms};
    options.network_hook = [&](const tide::HostHookPoint&) { return tide::HostDelivery{.dropped = sent++ == lost}; };
    const auto check_named = [](const std::vector<std::string>& texts) {
      check_same_error(texts, {"the deadline of 0.400 s passed", "reduce of 'w' and 1 more", "waits for"});
    };
    check_named(reduce_with<Doubling, Narrow>(layout_on({3, 1}), options, 4));
    sent = 0;
    check_named(reduce_with<Direct, Narrow, tide::SwitchReducer<>>(layout_on({2, 2}), options, 4));
  }
}

}  // namespace reduce_over_nodes_test
