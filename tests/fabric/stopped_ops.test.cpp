// SPDX-License-Identifier: Apache-2.0
//
// A rank that fails, or stops, before each op of its plans in turn: one named error for all, nothing hangs, everything
// can be destroyed.

#include <doctest/doctest.h>
#include <tide/transport/multicast_transport.hpp>

#include "conformance/op_places.hpp"
#include "support/host_ranks.hpp"

#include <set>

using namespace tide_test;
using fabric_suite::Block;
using op_places::errors_of_steps;
using op_places::Place;
using op_places::world;

namespace {

/// Three gathers and three reduces; whoever is done listens for a failure of others.
template <class Transport>
std::vector<std::string> errors_with(tide::HostOptions options) {
  return errors_of_steps<Transport>(HostRanks{options}, 3,
                                    [](tide::HostFabric& fabric, tide::HostStream& stream, tide::HostStream& other) {
                                      stream.synchronize();
                                      other.synchronize();
                                      fabric_suite::listen(fabric);
                                    });
}

/// Where the ops of a rank's plans are.
template <class Transport>
std::set<Place> ops_of(index_t rank) {
  std::set<Place> ops;
  std::mutex mutex;
  HostRanks all;
  all.options.hook = [&](const tide::HostHookPoint& point) -> std::optional<std::string> {
    const std::lock_guard lock(mutex);
    if (point.rank.value == rank && point.run == 1) ops.insert({std::string(point.label), point.seq});
    return std::nullopt;
  };
  check_no_error(errors_of_steps<Transport>(all, 2, [](tide::HostFabric& fabric, auto&, auto&) { fabric.close(); }));
  return ops;
}

}  // namespace

TEST_CASE_TEMPLATE("HostFabric: an op that fails, whichever it is, is named by all ranks", Transport,
                   tide::UnicastTransport, tide::MulticastTransport) {
  for (const index_t rank : {0, 1, 2}) {
    const auto ops = ops_of<Transport>(rank);
    REQUIRE(ops.size() > 15);
    for (const Place& place : ops) {
      CAPTURE(rank);
      CAPTURE(place.label);
      CAPTURE(place.seq);
      tide::HostOptions options;
      options.hook = [rank, place](const tide::HostHookPoint& point) -> std::optional<std::string> {
        return place.is_at(point, rank) ? std::optional<std::string>("a test says so") : std::nullopt;
      };
      check_same_error(errors_with<Transport>(options),
                       {"tide::HostFabric: " + place.label + ", step 1, rank " + std::to_string(rank) + ", lane ",
                        ", op " + std::to_string(place.seq) + " (", "failed: a test says so"});
    }
  }
}

TEST_CASE("HostFabric: a rank that stops before an op, whichever it is, becomes a deadline error of all") {
  struct Case {
    tide::HostLanes lanes;
    Place place;
    std::vector<std::string> texts{};
  };
  std::vector<Case> cases;
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    for (const Place& place : ops_of<tide::UnicastTransport>(1)) cases.push_back({lanes, place});
  }
  const auto run = [](Case& stopped) {
    tide::HostOptions options{.deadline = fabric_suite::soon, .lanes = stopped.lanes};
    options.hook = [&stopped](const tide::HostHookPoint& point) -> std::optional<std::string> {
      if (stopped.place.is_at(point, 1)) std::this_thread::sleep_for(2 * fabric_suite::soon);
      return std::nullopt;
    };
    stopped.texts = errors_with<tide::UnicastTransport>(options);
  };
  constexpr std::size_t at_once = 10;  // clusters share nothing, and these do little but wait
  for (std::size_t first = 0; first < cases.size(); first += at_once) {
    std::vector<std::thread> threads;
    for (std::size_t i = first; i < std::min(first + at_once, cases.size()); ++i) {
      threads.emplace_back(run, std::ref(cases[i]));
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const Case& stopped : cases) {
    CAPTURE(stopped.place.label);
    CAPTURE(stopped.place.seq);
    check_same_error(stopped.texts, {"the deadline of " + fabric_suite::soon_text + " passed", "rank "});
  }
}

TEST_CASE("HostFabric: a hook that throws fails all ranks") {
  tide::HostOptions options;
  options.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    if (point.rank.value == 2 && point.run == 1) throw std::runtime_error("a hook gave up");
    return std::nullopt;
  };
  check_same_error(
      errors_with<tide::UnicastTransport>(options),
      {"tide::Fabric: a hook threw; ", "of 'the block' (2 parameters), step 1, rank 2, lane ", ": a hook gave up"});
}

TEST_CASE("HostFabric: a rank whose program throws, at each point, ends the others with its text") {
  const Block layout = fabric_suite::block_on(world);
  const CollectiveOracle oracle(layout.view());
  for (int point = 0; point < 6; ++point) {
    CAPTURE(point);
    std::vector<std::string> texts(world);
    const auto program = [&](tide::HostFabric& fabric) {
      const auto here = [&](int number) {
        if (fabric.rank().value == 1 && point == number) throw std::runtime_error("the user's own");
      };
      try {
        here(0);
        tide::SlotPool<tide::Depth<2>, Block> pool(fabric, layout);
        fabric_suite::BlockGather<HostRanks> gather(fabric, pool, layout, oracle);
        here(1);
        fabric.init();
        here(2);
        tide::HostStream stream = fabric.stream();
        auto params = gather.start(pool, Source::masters, 1, stream);
        here(3);
        params.release(stream);
        here(4);
        stream.synchronize();
        here(5);
        fabric_suite::listen(fabric);
      } catch (const tide::Error& error) {
        texts[static_cast<std::size_t>(fabric.rank().value)] = error.what();
        throw;
      }
    };
    std::string thrown;
    try {
      HostRanks{}.run(world, program);
    } catch (const std::runtime_error& error) {
      thrown = error.what();
    }
    CHECK(thrown == "the user's own");
    CHECK(texts[0] == "tide::HostCluster: rank 1 threw: the user's own");
    CHECK(texts[2] == texts[0]);
  }
}
