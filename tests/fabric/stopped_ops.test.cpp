// SPDX-License-Identifier: Apache-2.0
//
// A rank that fails, or stops, before each op of its plans in turn: one named error for all, nothing hangs, everything
// can be destroyed.

#include <doctest/doctest.h>
#include <tide/transport/multicast_transport.hpp>

#include "conformance/fabric.hpp"
#include "support/host_ranks.hpp"

#include <set>

using namespace tide_test;
using fabric_suite::Block;

namespace {

constexpr index_t ranks = 3;

/// Three gathers and three reduces; whoever is done listens for a failure of others.
template <class Transport>
std::vector<std::string> errors_with(tide::HostOptions options) {
  const Block layout = fabric_suite::block_on(ranks);
  const CollectiveOracle oracle(layout.view());
  return errors_of(HostRanks{options}, ranks, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Block> pool(fabric, layout);
    GatherRank<HostRanks, Block, Transport> gather(fabric, pool, layout, oracle, "the block");
    fabric_suite::BlockReduce<HostRanks> reduce(fabric, layout, oracle, "the block");
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream other = fabric.stream();
    for (std::uint64_t step = 0; step < 3; ++step) {
      gather.step(pool, step % 2 == 0 ? Source::masters : Source::shards, step, stream);
      reduce.step(From::storage, step, other);
    }
    stream.synchronize();
    other.synchronize();
    fabric_suite::listen(fabric);
  });
}

/// How many ops a rank's plans have, and where they are: (label, position).
template <class Transport>
std::set<std::pair<std::string, index_t>> ops_of(index_t rank) {
  std::set<std::pair<std::string, index_t>> ops;
  std::mutex mutex;
  const Block layout = fabric_suite::block_on(ranks);
  const CollectiveOracle oracle(layout.view());
  HostRanks all;
  all.options.hook = [&](const tide::HostHookPoint& point) -> std::optional<std::string> {
    const std::lock_guard lock(mutex);
    if (point.rank.value == rank && point.run == 1) ops.emplace(point.label, point.seq);
    return std::nullopt;
  };
  check_no_error(errors_of(all, ranks, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Block> pool(fabric, layout);
    GatherRank<HostRanks, Block, Transport> gather(fabric, pool, layout, oracle, "the block");
    fabric_suite::BlockReduce<HostRanks> reduce(fabric, layout, oracle, "the block");
    fabric.init();
    tide::HostStream stream = fabric.stream();
    for (std::uint64_t step = 0; step < 2; ++step) {
      gather.step(pool, step % 2 == 0 ? Source::masters : Source::shards, step, stream);
      reduce.step(From::storage, step, stream);
    }
    fabric.close();
  }));
  return ops;
}

}  // namespace

TEST_CASE_TEMPLATE("HostFabric: an op that fails, whichever it is, is named by all ranks", Transport,
                   tide::UnicastTransport, tide::MulticastTransport) {
  for (const index_t rank : {0, 1, 2}) {
    const auto ops = ops_of<Transport>(rank);
    REQUIRE(ops.size() > 15);
    for (const auto& [label, seq] : ops) {
      CAPTURE(rank);
      CAPTURE(label);
      CAPTURE(seq);
      tide::HostOptions options;
      options.hook = [rank, label = label, seq = seq](const tide::HostHookPoint& point) -> std::optional<std::string> {
        const bool here = point.rank.value == rank && point.label == label && point.run == 1 && point.seq == seq;
        return here ? std::optional<std::string>("a test says so") : std::nullopt;
      };
      check_same_error(errors_with<Transport>(options),
                       {"tide::HostFabric: " + label + ", step 1, rank " + std::to_string(rank) + ", lane ",
                        ", op " + std::to_string(seq) + " (", "failed: a test says so"});
    }
  }
}

TEST_CASE("HostFabric: a rank that stops before an op, whichever it is, becomes a deadline error of all") {
  const index_t rank = 1;
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    for (const auto& [label, seq] : ops_of<tide::UnicastTransport>(rank)) {
      CAPTURE(label);
      CAPTURE(seq);
      tide::HostOptions options{.deadline = fabric_suite::soon / 6, .lanes = lanes};
      options.hook = [label = label, seq = seq](const tide::HostHookPoint& point) -> std::optional<std::string> {
        if (point.rank.value == rank && point.label == label && point.run == 1 && point.seq == seq) {
          std::this_thread::sleep_for(fabric_suite::soon / 2);
        }
        return std::nullopt;
      };
      const auto texts = errors_with<tide::UnicastTransport>(options);
      check_same_error(texts, {"the deadline of ", " passed", "rank "});
    }
  }
}

TEST_CASE("HostFabric: a hook that throws fails all ranks") {
  tide::HostOptions options;
  options.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    if (point.rank.value == 2 && point.run == 1) throw std::runtime_error("a hook gave up");
    return std::nullopt;
  };
  check_same_error(errors_with<tide::UnicastTransport>(options), {"tide::HostFabric: a hook threw: a hook gave up"});
}

TEST_CASE("HostFabric: a rank whose program throws, at each point, ends the others with its text") {
  const Block layout = fabric_suite::block_on(ranks);
  const CollectiveOracle oracle(layout.view());
  for (int point = 0; point < 6; ++point) {
    CAPTURE(point);
    std::vector<std::string> texts(ranks);
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
      HostRanks{}.run(ranks, program);
    } catch (const std::runtime_error& error) {
      thrown = error.what();
    }
    CHECK(thrown == "the user's own");
    CHECK(texts[0] == "tide::HostCluster: rank 1 threw: the user's own");
    CHECK(texts[2] == texts[0]);
  }
}
