// SPDX-License-Identifier: Apache-2.0
// timeout: 240
//
// A network that loses one thing: right bytes, or the error that names who is waited for. One run on small meshes;
// lost_puts_long.test.cpp has every run on every mesh. And a network that takes few things at a time.

#include <doctest/doctest.h>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>

#include "conformance/lost_puts.hpp"
#include "support/rank_errors.hpp"

namespace lost_puts_test {

using namespace tide_test;
using namespace tide_test::lost_puts;

using Rdma = tide::RdmaDoublingTransport<tide::Bytes<96>, tide::PutsInFlight<2>>;
using SendRecv = tide::SendRecvDoublingTransport<tide::Bytes<96>, tide::PutsInFlight<2>>;
using Ring = tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>;
using Slot = tide::SlotReuseWithin<tide::Bytes<4096>, tide::Chunks<2>>;

TEST_CASE("a network that loses: of a gather each put and each signal in turn") {
  CHECK(every_loss<GatherSession<tide::UnicastTransport, Rdma>>({2, 1}, {}, {1}) == 16);
  CHECK(every_loss<GatherSession<tide::MulticastTransport, SendRecv>>({3, 1}, {.network_queue = 1}, {1}) == 42);
}

TEST_CASE("a network that loses: of a reduce each put and each signal in turn") {
  CHECK(every_loss<ReduceSession<tide::RdmaDoublingTransport<>, Ring>>({2, 2}, {}, {1}) == 16);
  CHECK(every_loss<ReduceSession<tide::RdmaDirectTransport, Slot>>({3, 1}, {.network_queue = 1}, {1}) == 56);
}

/// What the ranks say where a rank may have one thing on its way at a time.
template <class Session>
std::vector<std::string> errors_through_a_queue(tide::MeshShape mesh, tide::HostOptions options) {
  const tide::DynamicLayout layout = layout_on(mesh);
  const CollectiveOracle oracle(layout.view());
  options.network_queue = 1;
  std::vector<std::string> errors;
  for (const Outcome& outcome : outcomes_of<Session>(layout, oracle, options)) {
    CHECK(outcome.wrong == "");
    errors.push_back(outcome.error);
  }
  return errors;
}

TEST_CASE("a network that takes one thing at a time: lanes wait for it, and the bytes are right") {
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    tide::HostOptions options{.deadline = 60s, .lanes = lanes};
    options.network_hook = [](const tide::HostHookPoint&) { return tide::HostDelivery{200us}; };
    check_no_error(errors_through_a_queue<GatherSession<tide::UnicastTransport, Rdma>>({3, 2}, options));
    check_no_error(errors_through_a_queue<ReduceSession<tide::RdmaDirectTransport, Ring>>({3, 2}, options));
    check_no_error(errors_through_a_queue<ReduceSession<tide::RdmaDoublingTransport<>, Slot>>({5, 1}, options));
  }
}

TEST_CASE("a network whose hook throws: the put or signal that it was asked about is named, and its peer") {
  tide::HostOptions options{.deadline = 60s};
  options.network_hook = [](const tide::HostHookPoint& point) -> tide::HostDelivery {
    if (point.rank.value == 2) throw std::runtime_error("the cable is out");
    return {};
  };
  const auto session = errors_through_a_queue<GatherSession<tide::UnicastTransport, Rdma>>;
  check_same_error(session({3, 1}, options), {"tide::Fabric: a hook threw; gather of 'lossy' (2 parameters), step 0, "
                                              "rank 2, lane net, op ",
                                              ") to rank ", ": the cable is out"});
}

TEST_CASE("a network that takes one thing and never brings it: the lane that waits for it says so") {
  tide::HostOptions options{.deadline = deadline};
  options.network_hook = [](const tide::HostHookPoint& point) {
    return tide::HostDelivery{point.rank.value == 0 ? tide::Duration(1h) : tide::Duration(0)};
  };
  options.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    // Rank 0 is the first that waits, and the first is named.
    if (point.rank.value > 0 && point.lane.kind == tide::LaneKind::net) std::this_thread::sleep_for(deadline / 5);
    return std::nullopt;
  };
  check_same_error(errors_through_a_queue<GatherSession<tide::UnicastTransport, Rdma>>({3, 1}, options),
                   {"the deadline of ", " passed", "gather of 'lossy' (2 parameters), step 0, rank 0, lane net, op ",
                    " (put) to rank 1 waits for the network, which has 1 of this rank on their way."});
}

TEST_CASE("a network that takes two puts of a pipeline to a peer: each pipeline may have two there") {
  HostRanks ranks{.options = {.deadline = 60s}, .ranks_per_node = 1};
  ranks.options.network_depth = 2;
  std::atomic<int> puts{0};
  // The last puts of one pipeline are on their way to a peer when the first of the other are sent there.
  ranks.options.network_hook = [&](const tide::HostHookPoint& point) {
    if (point.op.kind == tide::OpKind::put) ++puts;
    return tide::HostDelivery{5ms};
  };
  const tide::DynamicLayout layout = layout_on({3, 1});
  const CollectiveOracle oracle(layout.view());
  using Session =
      GatherSession<tide::UnicastTransport, tide::RdmaDoublingTransport<tide::Bytes<96>, tide::PutsInFlight<2>>>;
  check_no_error(errors_of(ranks, 3, [&](tide::HostFabric& fabric) {
    Session one(fabric, layout, oracle);
    Session two(fabric, layout, oracle);
    fabric.init();
    tide::HostStream first = fabric.stream();
    tide::HostStream second = fabric.stream();
    one.step(0, first);
    two.step(0, second);
    first.synchronize();
    second.synchronize();
  }));
  CHECK(puts > 0);
}

}  // namespace lost_puts_test
