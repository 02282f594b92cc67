// SPDX-License-Identifier: Apache-2.0
// labels: sim

#include <doctest/doctest.h>

#include "conformance/refusals.hpp"
#include "support/sim_ranks.hpp"

using namespace tide_test;

TEST_CASE("SimFabric: init refuses ranks that differ, with one error for all") { fabric_suite::symmetric(SimRanks{}); }

TEST_CASE("SimFabric: init refuses plans in which ranks do not tell each other what they wait for") {
  fabric_suite::words_that_do_not_fit(SimRanks{});
}

TEST_CASE("SimFabric: a rank that does not come to init in time is named") { fabric_suite::late_for_init(SimRanks{}); }

TEST_CASE("SimFabric: work and events complete in launch order") { fabric_suite::in_order(SimRanks{}); }

TEST_CASE("SimFabric: runs of one pipeline stay in order over two streams") {
  fabric_suite::one_pipeline_on_two_streams(SimRanks{});
}

TEST_CASE("SimFabric: an exit comes after what its stream did before the call, on idle ranks too") {
  fabric_suite::exits_after_calls(SimRanks{});
}

TEST_CASE("SimFabric: a rank that never enqueues is named by all, and every further call repeats the error") {
  fabric_suite::absent_from_a_call(SimRanks{});
}

TEST_CASE("SimFabric: a stream that is busy for longer than the deadline fails all ranks") {
  fabric_suite::slow_stream(SimRanks{});
}

TEST_CASE("SimFabric: more runs than find room are a deadline error of the call") {
  fabric_suite::too_many_runs(SimRanks{});
}

TEST_CASE("SimFabric: close waits, may be repeated, and ends the calls") { fabric_suite::closing(SimRanks{}); }

TEST_CASE("SimFabric: before init there is no memory and no call") { fabric_suite::before_init(SimRanks{}); }

TEST_CASE("SimFabric: bad input is refused, the same on all ranks, and changes nothing") {
  fabric_suite::bad_gathers(SimRanks{});
  fabric_suite::bad_gathers_in_place(SimRanks{});
  fabric_suite::bad_reduces(SimRanks{});
}

TEST_CASE("SimFabric: handles that are too many, dropped or called apart are refused") {
  fabric_suite::too_many_handles(SimRanks{});
  fabric_suite::dropped_handle(SimRanks{});
  fabric_suite::different_calls(SimRanks{});
  fabric_suite::refused_too_late(SimRanks{});
}

TEST_CASE("SimFabric: refusals of several ranks end in one error for all, whoever has its turn first") {
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) fabric_suite::refusals_race(SimRanks{{.seed = seed}}, 6);
}

TEST_CASE("SimFabric: a stream of another fabric is refused on all ranks, and the next call works") {
  tide::SimCluster elsewhere({1, 1});
  tide::HostStream foreign = elsewhere.fabric(tide::Rank{0}).stream();
  using C = fabric_suite::Caller<SimRanks>;
  fabric_suite::refused<SimRanks>(
      SimRanks{}, tide::Errc::argument, {"tide::Fabric: the stream must belong to the fabric of the pipeline"},
      [&](C& c) { static_cast<void>(c.gather.pipeline().enqueue(c.gather.shards(), foreign)); },
      [](C& c) { static_cast<void>(c.gather.pipeline().enqueue(c.gather.shards(), *c.stream)); });
}
