// SPDX-License-Identifier: Apache-2.0
// labels: slow
// timeout: 900
//
// A network that loses one thing: each put and each signal of a run in turn, on every mesh, by every exchange, through
// every inbox. With TIDE_LOSSES=all in the environment those of three runs, which takes three times as long.

#include <doctest/doctest.h>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>

#include "conformance/lost_puts.hpp"

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace lost_puts_long_test {

using namespace tide_test;
using namespace tide_test::lost_puts;

using Rdma = tide::RdmaDoublingTransport<tide::Bytes<96>, tide::PutsInFlight<2>>;
using SendRecv = tide::SendRecvDoublingTransport<tide::Bytes<160>, tide::PutsInFlight<4>>;
using Doubling = tide::RdmaDoublingTransport<>;
using Direct = tide::RdmaDirectTransport;
using Ring = tide::Ring<tide::Chunks<2>, tide::Bytes<12288>>;
using Slot = tide::SlotReuseWithin<tide::Bytes<8192>, tide::Chunks<2>>;

using Runs = std::vector<std::uint64_t>;

constexpr tide::MeshShape meshes[] = {{2, 1}, {2, 2}, {3, 2}, {5, 1}, {3, 3}};

/// All that runs lose on every mesh; at least 3 cases for each rank and run.
template <class Session>
void on_every_mesh(const tide::HostOptions& options = {}) {
  const bool all = std::getenv("TIDE_LOSSES") != nullptr;
  for (const tide::MeshShape mesh : meshes) {
    CHECK(every_loss<Session>(mesh, options, all ? Runs{0, 1, 2} : Runs{1}) >= (all ? 9 : 3) * mesh.ranks());
  }
}

TEST_CASE("a network that loses: gathers by puts") { on_every_mesh<GatherSession<tide::UnicastTransport, Rdma>>(); }

TEST_CASE("a network that loses: gathers by sends and receives") {
  on_every_mesh<GatherSession<tide::MulticastTransport, SendRecv>>({.lanes = tide::HostLanes::merged});
}

TEST_CASE("a network that loses: reduces by doubling, through a ring") {
  on_every_mesh<ReduceSession<Doubling, Ring>>({.network_queue = 2});
}

TEST_CASE("a network that loses: reduces by sends and receives, through a slot") {
  on_every_mesh<ReduceSession<SendRecv, Slot>>();
}

TEST_CASE("a network that loses: direct reduces, through a ring") {
  on_every_mesh<ReduceSession<Direct, Ring>>({.lanes = tide::HostLanes::merged});
}

TEST_CASE("a network that loses: direct reduces, through a slot") {
  on_every_mesh<ReduceSession<Direct, Slot>>({.network_queue = 1});
}

TEST_CASE("a network that loses: reduces in the switch") {
  on_every_mesh<ReduceSession<Direct, Ring, tide::SwitchReducer<>>>();
}

}  // namespace lost_puts_long_test
