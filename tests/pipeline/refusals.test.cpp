// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "conformance/refusals.hpp"
#include "support/host_ranks.hpp"

using namespace tide_test;

TEST_CASE("AllGather: null, misaligned and foreign shards are refused on all ranks, and the next call works") {
  fabric_suite::bad_gathers(HostRanks{});
}

TEST_CASE("AllGather: a gather in place needs a slot of its pool") { fabric_suite::bad_gathers_in_place(HostRanks{}); }

TEST_CASE("ReduceScatter: bad shards and bad gradients are refused on all ranks, and the next call works") {
  fabric_suite::bad_reduces(HostRanks{});
}

TEST_CASE("SlotPool: a second gather while a handle lives, and more groups than slots, are refused") {
  fabric_suite::too_many_handles(HostRanks{});
}

TEST_CASE("SlotPool: a handle dropped without release poisons the pool on all ranks") {
  fabric_suite::dropped_handle(HostRanks{});
}

TEST_CASE("HostFabric: different calls, or another order of them, are one error for all") {
  fabric_suite::different_calls(HostRanks{});
}

TEST_CASE("HostFabric: input refused after others have begun the call fails all ranks with its sentence") {
  fabric_suite::refused_too_late(HostRanks{});
}

TEST_CASE("HostFabric: refusals that race with a call end in one error for all") {
  fabric_suite::refusals_race(HostRanks{}, 30);
}

TEST_CASE("HostFabric: a stream of another fabric is refused on all ranks, and the next call works") {
  tide::HostCluster elsewhere({1, 1});
  tide::HostStream foreign = elsewhere.fabric(tide::Rank{0}).stream();
  using C = fabric_suite::Caller<HostRanks>;
  const std::string words = "tide::Fabric: the stream must belong to the fabric of the pipeline";
  fabric_suite::refused<HostRanks>(
      HostRanks{}, tide::Errc::argument, {words},
      [&](C& c) { static_cast<void>(c.gather.pipeline().enqueue(c.gather.shards(), foreign)); },
      [](C& c) { static_cast<void>(c.gather.pipeline().enqueue(c.gather.shards(), *c.stream)); });
  fabric_suite::refused<HostRanks>(
      HostRanks{}, tide::Errc::argument, {words},
      [&](C& c) {
        c.reduce.storage().missing(tide::ParameterIndex{0});
        static_cast<void>(c.reduce.pipeline().enqueue(c.reduce.storage(), c.reduce.output(), foreign));
      },
      [](C& c) { static_cast<void>(c.reduce.pipeline().enqueue(c.reduce.storage(), c.reduce.output(), *c.stream)); },
      true);
}
