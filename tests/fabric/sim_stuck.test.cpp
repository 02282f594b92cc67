// SPDX-License-Identifier: Apache-2.0
// labels: sim
//
// Worlds in which nothing can go on: found at once, by any rank, and named: the op that waits, what it waits for, and
// what keeps that.

#include <doctest/doctest.h>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>

#include "conformance/fabric.hpp"
#include "conformance/lost_puts.hpp"
#include "conformance/op_places.hpp"
#include "support/raised.hpp"
#include "support/sim_ranks.hpp"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace sim_stuck_test {

using namespace tide_test;
using fabric_suite::Block;
using lost_puts::every_loss;
using lost_puts::GatherSession;
using lost_puts::ReduceSession;
using op_places::Place;
using op_places::world;

using Rdma = tide::RdmaDoublingTransport<tide::Bytes<96>, tide::PutsInFlight<2>>;
using SendRecv = tide::SendRecvDoublingTransport<tide::Bytes<96>, tide::PutsInFlight<2>>;
using Ring = tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>;
using Slot = tide::SlotReuseWithin<tide::Bytes<4096>, tide::Chunks<2>>;

template <class Inter, class Inbox>
using Reduces = ReduceSession<Inter, Inbox, tide::CopyEngineReducer<>, SimRanks>;

TEST_CASE("SimFabric: of every run, each put and each signal to another node in turn is lost") {
  const std::vector<std::uint64_t> all{0, 1, 2};
  CHECK(every_loss<GatherSession<tide::UnicastTransport, Rdma, SimRanks>>({2, 1}, {}, all) == 48);
  CHECK(every_loss<GatherSession<tide::MulticastTransport, SendRecv, SimRanks>>({3, 1}, {.network_queue = 1}, all) ==
        126);
  CHECK(every_loss<Reduces<tide::RdmaDoublingTransport<>, Ring>>({2, 2}, {}, all) == 48);
  CHECK(every_loss<Reduces<tide::RdmaDirectTransport, Slot>>({3, 1}, {.network_queue = 1}, all) == 168);
}

/// Three gathers and three reduces, and a wait for all of them.
template <class Transport>
std::vector<std::string> errors_with(const SimRanks& ranks) {
  return op_places::errors_of_steps<Transport>(ranks, 3, [](tide::SimFabric& fabric, auto&, auto&) { fabric.close(); });
}

/// Where the ops of a rank's plans are.
template <class Transport>
std::set<Place> ops_of(index_t rank) {
  std::set<Place> ops;
  SimRanks ranks;
  ranks.options.watch = [&](const tide::HostHookPoint& point, double, double) {
    if (point.rank.value == rank && point.run == 1) ops.insert({std::string(point.label), point.seq});
  };
  check_no_error(errors_with<Transport>(ranks));
  return ops;
}

TEST_CASE_TEMPLATE("SimFabric: a rank that stops before an op, whichever it is, is named by all", Transport,
                   tide::UnicastTransport, tide::MulticastTransport) {
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    for (const Place& place : ops_of<Transport>(1)) {
      CAPTURE(place.label);
      CAPTURE(place.seq);
      SimRanks ranks;
      ranks.options.host.lanes = lanes;
      ranks.options.delay = [&](const tide::HostHookPoint& point) -> tide::Duration {
        return place.is_at(point, 1) ? tide::Duration::max() : tide::Duration(0);
      };
      check_same_error(errors_with<Transport>(ranks),
                       {"tide::SimFabric: nothing can go on: rank ",
                        "rank 1 has stopped before " + place.label + ", step 1, rank 1, lane ",
                        ", op " + std::to_string(place.seq) + " ("});
    }
  }
}

TEST_CASE("SimFabric: an op that a hook lets fail, and a hook that throws, fail all ranks") {
  SimRanks ranks;
  ranks.options.host.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    if (point.rank.value == 2 && point.run == 1 && point.seq == 5) return "a test says so";
    return std::nullopt;
  };
  check_same_error(errors_with<tide::UnicastTransport>(ranks),
                   {"tide::SimFabric: ", "step 1, rank 2, lane ", ", op 5 (", ") failed: a test says so"});
  ranks.options.host.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    if (point.rank.value == 2 && point.run == 1) throw std::runtime_error("a hook gave up");
    return std::nullopt;
  };
  check_same_error(
      errors_with<tide::UnicastTransport>(ranks),
      {"tide::Fabric: a hook threw; ", "of 'the block' (2 parameters), step 1, rank 2, lane ", "): a hook gave up"});
  ranks.options.host.hook = nullptr;
  ranks.options.delay = [](const tide::HostHookPoint&) -> tide::Duration { throw std::runtime_error("gave up, too"); };
  check_same_error(errors_with<tide::UnicastTransport>(ranks),
                   {"tide::Fabric: a hook threw; ", "step 0, rank ", ": gave up, too"});
}

TEST_CASE("SimFabric: what a lost signal keeps waiting says who sent it") {
  SimRanks ranks{{}, 1};
  ranks.options.host.network_hook = [](const tide::HostHookPoint& point) {
    return tide::HostDelivery{tide::Duration(0), false, point.rank.value == 2 && point.op.kind == tide::OpKind::put};
  };
  const tide::DynamicLayout layout = lost_puts::layout_on({3, 1});
  const CollectiveOracle oracle(layout.view());
  check_same_error(
      errors_of(ranks, 3,
                [&](tide::SimFabric& fabric) {
                  GatherSession<tide::UnicastTransport, tide::RdmaDoublingTransport<>, SimRanks> session(fabric, layout,
                                                                                                         oracle);
                  fabric.init();
                  tide::HostStream stream = fabric.stream();
                  session.step(0, stream);
                  stream.synchronize();
                }),
      {"tide::SimFabric: nothing can go on: rank ",
       "gather of 'lossy' (2 parameters), step 0, rank 0, lane net, op 7 (wait) waits for rank 2 of node 2, round 0: "
       "arrived[2] is 0, expected 1; rank 2 has sent it, and it does not come."});
}

TEST_CASE("SimFabric: a network that takes fewer puts than a plan has on their way is an error") {
  SimRanks ranks{{}, 1};
  ranks.options.host.network_depth = 1;
  ranks.options.host.network_hook = [](const tide::HostHookPoint& point) {
    return tide::HostDelivery{point.rank.value == 0 ? 2ms : 0ms};  // what rank 0 gets lets it put more
  };
  const tide::DynamicLayout layout = lost_puts::layout_on({3, 1});
  const CollectiveOracle oracle(layout.view());
  check_same_error(
      errors_of(ranks, 3,
                [&](tide::SimFabric& fabric) {
                  GatherSession<tide::UnicastTransport, Rdma, SimRanks> session(fabric, layout, oracle);
                  fabric.init();
                  tide::HostStream stream = fabric.stream();
                  session.step(0, stream);
                  stream.synchronize();
                }),
      {"tide::Fabric: the network takes 1 puts to a rank at a time", "lane net", "(put) to rank", "is one more"});
}

TEST_CASE("SimFabric: a rank whose program ends early is named, with what waits for it") {
  using Gather = fabric_suite::BlockGather<SimRanks>;
  using Pool = tide::SlotPool<tide::Depth<1>, Block>;
  const Block layout = fabric_suite::block_on(world);
  const CollectiveOracle oracle(layout.view());
  for (const bool closes : {false, true}) {
    std::vector<std::unique_ptr<Pool>> pools(world);
    std::vector<std::unique_ptr<Gather>> gathers(world);  // their memory closes the fabric, later
    std::vector<std::string> texts(world);
    {
      tide::SimCluster cluster({1, world});
      cluster.run([&](tide::SimFabric& fabric) {
        const auto rank = static_cast<std::size_t>(fabric.rank().value);
        pools[rank] = std::make_unique<Pool>(fabric, layout);
        gathers[rank] = std::make_unique<Gather>(fabric, *pools[rank], layout, oracle, "the block");
        fabric.init();
        tide::HostStream stream = fabric.stream();
        if (rank == 1 && closes) fabric.close();
        if (rank == 1) return;
        texts[rank] = text_of([&] {
          gathers[rank]->step(*pools[rank], Source::shards, 1, stream);
          stream.synchronize();
        });
      });
      gathers.clear();
    }
    CHECK(texts[1] == "");
    CHECK(texts[0] == texts[2]);
    CHECK(texts[0].find("tide::Fabric: the programs of all ranks must make the same calls before they end; rank 1 " +
                        std::string(closes ? "closed its fabric" : "ended") +
                        ", and gather of 'the block' (2 parameters), step 0, rank ") == 0);
    CHECK(texts[0].find(" waits for rank 1: ") != std::string::npos);
  }
  auto texts = errors_of(SimRanks{}, 3, [](tide::SimFabric& fabric) {
    if (fabric.rank().value != 1) fabric.init();
  });
  CHECK(
      texts[0] ==
      "tide::Fabric: the programs of all ranks must make the same calls before they end; rank 1 ended, and init needs "
      "all ranks.");
}

TEST_CASE("SimFabric: a function that catches what it may not do harms nobody") {
  check_no_error(errors_of(SimRanks{}, 2, [](tide::SimFabric& fabric) {
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream other = fabric.stream();
    const tide::Event event = other.record();
    stream.run([&] {
      CHECK(text_of([&] { fabric.sleep(1ms); }) ==
            "tide::SimFabric: a function on a stream must not wait, nor close its fabric.");
    });
    stream.synchronize();
    event.synchronize();
    fabric.sleep(2h);  // longer than any deadline, and nobody waits
    fabric.close();
  }));
}

TEST_CASE("SimFabric: a function on a stream must not wait") {
  const auto texts = errors_of(SimRanks{}, 2, [](tide::SimFabric& fabric) {
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream other = fabric.stream();
    const tide::Event event = other.record();
    if (fabric.rank().value == 0) stream.run([&] { fabric.close(); });
    stream.synchronize();
    event.synchronize();
  });
  check_same_error(
      texts,
      {"tide::HostStream: a function on a stream threw; rank 0, stream 0: tide::SimFabric: a function on a stream "
       "must not wait, nor close its fabric."});
}

TEST_CASE("SimCluster: what a rank threw first is thrown again, whatever its type, and the others end") {
  std::vector<std::string> texts(3);
  const auto program = [&](int kind) {
    return [&texts, kind](tide::SimFabric& fabric) {
      const auto rank = static_cast<std::size_t>(fabric.rank().value);
      if (rank != 2) {
        texts[rank] = text_of([&] { fabric.init(); });
        return;
      }
      if (kind == 0) throw 42;
      throw std::logic_error("a bug of the user's");
    };
  };
  CHECK_THROWS_AS(SimRanks{}.run(3, program(0)), int);
  CHECK_THROWS_AS(SimRanks{}.run(3, program(1)), std::logic_error);
  CHECK(texts[0] == "tide::SimCluster: rank 2 threw: a bug of the user's");
  CHECK(texts[1] == texts[0]);
}

TEST_CASE("SimCluster: a mesh without ranks is refused, and so are arenas larger than memory") {
  CHECK(text_of([] { tide::SimCluster({0, 4}); }) == "tide::Mesh: Nodes must be positive; or tide::dynamic.");
  SimRanks ranks;
  ranks.options.host.memory_bytes = index_t{3} << 30;
  const auto reserve = [](tide::SimFabric& fabric) {
    static_cast<void>(fabric.reserve((index_t{1} << 30) + 1, 256));
    fabric.init();
  };
  check_same_error(errors_of(ranks, 3, reserve),
                   {"tide::Fabric: the arenas must fit into memory; needs 3.00 GiB, has 3.00 GiB."});
  ranks.options.memory = tide::SimMemory::counted;
  check_no_error(errors_of(ranks, 3, reserve));
}

TEST_CASE("SimCluster: a rank waits for others by means of its own") {
  bool told = false;
  tide::SimCluster cluster({1, 2}, {.seed = 3});
  cluster.run([&](tide::SimFabric& fabric) {
    fabric.init();
    if (fabric.rank().value == 0) {
      fabric.sleep(1ms);
      told = true;
    }
    while (!told) fabric.raise_if_failed();
    if (fabric.now() != 1e-3) told = false;
  });
  CHECK(told);
}

}  // namespace sim_stuck_test
