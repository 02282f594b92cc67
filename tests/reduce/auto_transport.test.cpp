// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/models/llama3_1.hpp>
#include <tide/pipeline/detail/reduce_plans.hpp>
#include <tide/reduce/auto_transport.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/slot_reuse.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace auto_transport_test {

using tide::Element;
using tide::Exchange;
using tide::index_t;

using Default = tide::Ring<tide::Chunks<4>, tide::Bytes<(64 << 20)>>;

// What a reduce of a Llama-3.1-70B block crosses nodes by.
template <class Inter>
Exchange chosen_on(tide::MeshShape mesh) {
  const tide::LayoutView layout{tide::models::llama3_1_70b::block.view(), mesh, tide::TightPacking::rule};
  return tide::detail::reduce_collective<tide::CopyEngineReducer<>, Inter, Default>(layout,
                                                                                    tide::GradientSource::storage)
      .network.exchange;
}

// A network without latency or calls: only bytes count.
struct OnSlowWires {
  static constexpr tide::Machine machine{.nic_rate = 1e9};
};
// Calls that take for ever: only their number counts.
struct OnSlowHosts {
  static constexpr tide::Machine machine{.call_seconds = 1};
};

TEST_CASE("AutoTransport: the exchange with the lower bound, doubling where they are equal") {
  CHECK(chosen_on<tide::AutoTransport<>>({2, 8}) == Exchange::doubling);
  CHECK(chosen_on<tide::AutoTransport<>>({3, 8}) == Exchange::direct);
  CHECK(chosen_on<tide::AutoTransport<>>({4, 8}) == Exchange::doubling);
  CHECK(chosen_on<tide::AutoTransport<>>({5, 8}) == Exchange::direct);
  CHECK(chosen_on<tide::AutoTransport<>>({8, 8}) == Exchange::doubling);
  CHECK(chosen_on<tide::AutoTransport<>>({16, 8}) == Exchange::doubling);
  CHECK(chosen_on<tide::AutoTransport<>>({17, 2}) == Exchange::doubling);
}

TEST_CASE("AutoTransport: what is chosen depends on the machine that is named") {
  CHECK(chosen_on<tide::AutoTransport<OnSlowWires>>({3, 2}) == Exchange::direct);
  CHECK(chosen_on<tide::AutoTransport<OnSlowHosts>>({16, 2}) == Exchange::doubling);
}

// The bounds that the head of the header quotes, in hundredths of a millisecond.
std::int64_t hundredths(tide::MeshShape mesh, Exchange exchange) {
  tide::Collective collective;
  collective.layout = {tide::models::llama3_1_70b::block.view(), mesh, tide::TightPacking::rule};
  collective.operation = tide::Operation::reduce;
  const tide::ReduceMemory memory = Default::memory(collective.layout, exchange);
  collective.inbox = memory.inbox;
  collective.network = memory.network;
  tide::fill_kernels_over_nodes(collective);
  std::vector<tide::Plan> rail;
  for (index_t node = 0; node < mesh.nodes; ++node) {
    rail.push_back(tide::CopyEngineReducer<>::reduce_over_nodes(collective, mesh.rank(node, 0)));
  }
  return std::llround(1e5 * tide::lower_bound(collective, rail, tide::machines::h200_node()).seconds);
}

TEST_CASE("AutoTransport: the bounds that it compares") {
  CHECK(hundredths({3, 8}, Exchange::doubling) == 857);
  CHECK(hundredths({3, 8}, Exchange::direct) == 571);
  CHECK(hundredths({5, 8}, Exchange::doubling) == 1028);
  CHECK(hundredths({5, 8}, Exchange::direct) == 685);
  CHECK(hundredths({8, 8}, Exchange::doubling) == 749);
  CHECK(hundredths({8, 8}, Exchange::direct) == 749);
  CHECK(hundredths({16, 8}, Exchange::doubling) == 802);
  CHECK(hundredths({16, 8}, Exchange::direct) == 897);
}

inline constexpr auto thousand_rows = tide::group(tide::param<tide::bf16>("w", {1000, 64}));

template <class Inbox>
void check_memory(index_t nodes, index_t ranks) {
  CAPTURE(nodes);
  CAPTURE(ranks);
  using Auto = tide::AutoTransport<>;
  const tide::LayoutView layout{thousand_rows.view(), {nodes, ranks}, tide::TightPacking::rule};
  const index_t said = tide::detail::own_bytes(tide::detail::reduce_memory<Auto, Inbox>(layout));
  for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
    if (!tide::detail::fits_inbox<Inbox>(layout, exchange, Element::f32)) continue;
    CHECK(tide::detail::own_bytes(Inbox::memory(layout, exchange)) <= said);
  }
  const tide::Collective chosen =
      tide::detail::reduce_collective<tide::CopyEngineReducer<>, Auto, Inbox>(layout, tide::GradientSource::storage);
  CHECK(tide::detail::own_bytes({chosen.inbox, chosen.network}) <= said);
}

TEST_CASE("AutoTransport: memory is the most that either exchange may take") {
  for (const index_t nodes : {2, 3, 5, 7}) {
    for (const index_t ranks : {1, 4}) {
      check_memory<Default>(nodes, ranks);
      check_memory<tide::SlotReuseWithin<tide::Bytes<65536>, tide::Chunks<4>>>(nodes, ranks);
    }
  }
}

TEST_CASE("AutoTransport: where one exchange does not fit the inbox the other is taken") {
  using Narrow = tide::Ring<tide::Chunks<4>, tide::Bytes<8192>>;
  constexpr tide::LayoutView layout{thousand_rows.view(), {5, 1}, tide::TightPacking::rule};
  static_assert(Narrow::fits(layout, Exchange::direct) && !Narrow::fits(layout, Exchange::doubling));
  const tide::Collective chosen =
      tide::detail::reduce_collective<tide::CopyEngineReducer<>, tide::AutoTransport<>, Narrow>(
          layout, tide::GradientSource::storage);
  CHECK(chosen.network.exchange == Exchange::direct);
}

inline constexpr auto six_of_64 = tide::group(tide::repeat<6>("{}.w", tide::param<tide::bf16>("", {64, 32})));

template <class Inbox>
void check_sources(tide::MeshShape mesh) {
  CAPTURE(mesh.nodes);
  CAPTURE(mesh.ranks_per_node);
  const tide::LayoutView layout{six_of_64.view(), mesh, tide::TightPacking::rule};
  const auto of = [&](tide::GradientSource source) {
    return tide::detail::reduce_collective<tide::CopyEngineReducer<>, tide::AutoTransport<>, Inbox>(layout, source);
  };
  const tide::Collective storage = of(tide::GradientSource::storage);
  const tide::Collective table = of(tide::GradientSource::table);
  CHECK(table.gradients == tide::GradientSource::table);
  CHECK(table.network.exchange == storage.network.exchange);
  CHECK(table.inbox.bytes() == storage.inbox.bytes());
  CHECK(table.network.bytes() == storage.network.bytes());
}

TEST_CASE("AutoTransport: one exchange for gradients in storage and behind pointers, whose bounds are unlike") {
  for (const index_t nodes : {3, 5, 7}) {
    for (const index_t ranks : {1, 2, 8}) {
      check_sources<Default>({nodes, ranks});
      check_sources<tide::SlotReuse>({nodes, ranks});
    }
  }
}

TEST_CASE("AutoTransport: gathers as its transport does") {
  const tide::LayoutView layout{tide::models::llama3_1_70b::block.view(), {3, 4}, tide::TightPacking::rule};
  CHECK(tide::AutoTransport<>::network(layout) == tide::RdmaDoublingTransport<>::network(layout));
}

}  // namespace auto_transport_test
