// SPDX-License-Identifier: Apache-2.0
//
// Seeded properties on host ranks, with lanes that are merged, ops and puts that are late.

#include <doctest/doctest.h>

#include "conformance/random_collectives.hpp"
#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/sanitizer.hpp"

namespace random_collectives_test {

using namespace tide_test;

TEST_CASE("Pipelines: random groups on random meshes give the oracle's bytes") {
  for (const std::uint64_t seed : seeds(static_cast<std::uint64_t>(sized(150, 20)))) {
    CAPTURE(seed);
    Random random(seed);
    HostRanks ranks;
    if (random.once_in(4)) ranks.options.lanes = tide::HostLanes::merged;
    if (random.once_in(3)) ranks.options.hook = random_delays(seed, 60);
    random_collectives::Suite<HostRanks>{seed, ranks}.on_one_node(random);
  }
}

TEST_CASE("Pipelines: random groups on random nodes give the oracle's bytes, packed tightly or padded") {
  for (const std::uint64_t seed : seeds(static_cast<std::uint64_t>(sized(80, 10)))) {
    CAPTURE(seed);
    Random random(seed);
    HostRanks ranks;
    if (random.once_in(4)) ranks.options.lanes = tide::HostLanes::merged;
    if (random.once_in(2)) ranks.options.hook = random_delays(seed, 60);
    ranks.options.network_hook = [seed](const tide::HostHookPoint& point) {
      return tide::HostDelivery{
          std::chrono::microseconds(mix(seed, point.run, static_cast<std::uint64_t>(point.seq)) % 300)};
    };
    random_collectives::Suite<HostRanks>{seed, ranks}.on_nodes(random);
  }
}

}  // namespace random_collectives_test
