// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/models/llama3_1.hpp>
#include <tide/pipeline/detail/reduce_plans.hpp>
#include <tide/reduce/auto_transport.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/ring.hpp>

#include <vector>

namespace auto_transport_test {

using tide::Exchange;
using tide::index_t;
using tide::Rank;

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
  CHECK(chosen_on<tide::AutoTransport<>>({17, 2}) == Exchange::doubling);
}

TEST_CASE("AutoTransport: what is chosen depends on the machine that is named") {
  CHECK(chosen_on<tide::AutoTransport<OnSlowWires>>({3, 2}) == Exchange::direct);
  CHECK(chosen_on<tide::AutoTransport<OnSlowHosts>>({16, 2}) == Exchange::doubling);
}

TEST_CASE("AutoTransport: never more memory than is said, and the gather of its transport") {
  using Auto = tide::AutoTransport<>;
  for (const index_t nodes : {1, 2, 3, 5, 8}) {
    const tide::LayoutView layout{tide::models::llama3_1_70b::block.view(), {nodes, 4}, tide::TightPacking::rule};
    const tide::Collective chosen = tide::detail::reduce_collective<tide::CopyEngineReducer<>, Auto, Default>(
        layout, tide::GradientSource::storage);
    CHECK(chosen.inbox.bytes() + chosen.network.bytes() <= tide::detail::reduce_memory<Auto, Default>(layout).bytes());
    CHECK(Auto::network(layout) == tide::RdmaDoublingTransport<>::network(layout));
  }
}

}  // namespace auto_transport_test
