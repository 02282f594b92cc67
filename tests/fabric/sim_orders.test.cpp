// SPDX-License-Identifier: Apache-2.0
// labels: sim
//
// SimFabric under many orders: whatever a seed lets come first or late, every byte is the oracle's, and each seed gives
// its order again.

#include <doctest/doctest.h>

#include "conformance/fabric.hpp"
#include "conformance/many_steps.hpp"
#include "conformance/random_collectives.hpp"
#include "support/sanitizer.hpp"
#include "support/sim_ranks.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace sim_orders_test {

using namespace tide_test;

/// Ranks whose ops and puts a seed delays by more than most of them take.
[[nodiscard]] SimRanks shuffled(std::uint64_t seed) { return {{.seed = seed, .jitter = 20us}}; }

TEST_CASE("SimFabric: random groups give the oracle's bytes in any order") {
  for (const std::uint64_t seed : seeds(static_cast<std::uint64_t>(sized(120, 10)))) {
    CAPTURE(seed);
    Random random(seed);
    SimRanks ranks = random.once_in(4) ? SimRanks{} : shuffled(seed);
    if (random.once_in(4)) ranks.options.host.lanes = tide::HostLanes::merged;
    if (random.once_in(4)) ranks.options.machine = {};  // everything takes no time
    random_collectives::Suite<SimRanks>{seed, ranks}.on_one_node(random);
  }
}

TEST_CASE("SimFabric: over nodes, random groups give the oracle's bytes in any order") {
  for (const std::uint64_t seed : seeds(static_cast<std::uint64_t>(sized(80, 10)))) {
    CAPTURE(seed);
    Random random(seed);
    SimRanks ranks = shuffled(seed);
    if (random.once_in(4)) ranks.options.host.lanes = tide::HostLanes::merged;
    if (random.once_in(2)) {
      ranks.options.host.network_hook = [seed](const tide::HostHookPoint& point) {
        return tide::HostDelivery{
            std::chrono::microseconds(mix(seed, point.run, static_cast<std::uint64_t>(point.seq)) % 300)};
      };
      ranks.options.host.network_queue = random.between(0, 2);
    }
    random_collectives::Suite<SimRanks>{seed, ranks}.on_nodes(random);
  }
}

TEST_CASE("SimFabric: many interleaved steps of several pipelines and streams, in any order") {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    CAPTURE(seed);
    many_steps_suite::many_steps<tide::UnicastTransport>(shuffled(seed), 2 + static_cast<index_t>(seed % 3), seed,
                                                         sized(200, 40));
  }
}

TEST_CASE("SimFabric: epochs beyond 31, 53 and 63 bits, and over the end of 64") {
  for (const std::uint64_t first : {(std::uint64_t{1} << 31) - 3, (std::uint64_t{1} << 53) - 3,
                                    (std::uint64_t{1} << 63) - 3, ~std::uint64_t{0} - 2}) {
    CAPTURE(first);
    many_steps_suite::many_steps<tide::UnicastTransport>(SimRanks{{.seed = 3, .host = {.first_run = first}}}, 3, 41,
                                                         sized(60, 30));
  }
}

/// What ran when.
struct Ran {
  std::string label;
  std::uint64_t run;
  std::int32_t rank;
  index_t seq;
  double begin;
  double end;

  [[nodiscard]] friend bool operator==(const Ran&, const Ran&) = default;
};

/// Some steps on three ranks; what ran, and when the last of it was over.
std::pair<std::vector<Ran>, double> history(SimRanks ranks, bool slow_threads = false) {
  std::vector<Ran> all;
  double end = 0;
  ranks.options.watch = [&](const tide::HostHookPoint& point, double begin, double over) {
    all.push_back({std::string(point.label), point.run, point.rank.value, point.seq, begin, over});
  };
  const fabric_suite::Block layout = fabric_suite::block_on(3);
  const CollectiveOracle oracle(layout.view());
  check_no_error(errors_of(ranks, 3, [&](tide::SimFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, fabric_suite::Block> pool(fabric, layout);
    fabric_suite::BlockGather<SimRanks> gather(fabric, pool, layout, oracle);
    fabric_suite::BlockReduce<SimRanks> reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream other = fabric.stream();
    for (std::uint64_t step = 0; step < 4; ++step) {
      if (slow_threads && (step + static_cast<std::uint64_t>(fabric.rank().value)) % 3 == 0) {
        std::this_thread::sleep_for(3ms);
      }
      gather.step(pool, Source::masters, step, stream);
      reduce.step(From::storage, step, other);
      if (step % 2 == 1) stream.synchronize();
    }
    fabric.close();
    end = fabric.now();
  }));
  return {all, end};
}

TEST_CASE("SimFabric: a seed gives the same order and the same times each time, however threads run") {
  const auto plain = history({});
  CHECK(plain.first.size() > 300);
  CHECK(plain == history({}, true));
  std::vector<std::vector<Ran>> orders{plain.first};
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const auto one = history(shuffled(seed));
    CHECK(one == history(shuffled(seed), true));
    CHECK(one.second > plain.second);
    CHECK(std::find(orders.begin(), orders.end(), one.first) == orders.end());
    orders.push_back(one.first);
    // Without delays only what comes at one time may come in another order.
    const auto ties = history({{.seed = seed}});
    CHECK(ties == history({{.seed = seed}}, true));
    CHECK(ties.first.size() == plain.first.size());
  }
}

}  // namespace sim_orders_test
