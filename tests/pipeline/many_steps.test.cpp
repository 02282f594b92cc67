// SPDX-License-Identifier: Apache-2.0
//
// timeout: 180
//
// A thousand interleaved gathers and reduces with changing data, sources, gradients, streams and delays.

#include <doctest/doctest.h>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "conformance/many_steps.hpp"
#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"

using namespace tide_test;
using many_steps_suite::many_steps;

TEST_CASE("Pipelines: a thousand interleaved steps without delays") {
  for (const std::uint64_t seed : seeds(2)) {
    CAPTURE(seed);
    many_steps<tide::UnicastTransport>(HostRanks{}, 3, seed, sized(1000, 200));
  }
}

TEST_CASE("Pipelines: a thousand interleaved steps with delays at every op") {
  for (const std::uint64_t seed : seeds(2)) {
    CAPTURE(seed);
    many_steps<tide::MulticastTransport>(HostRanks{{.hook = random_delays(seed, 50)}}, 3, seed + 10, sized(1000, 100));
    many_steps<tide::UnicastTransport>(HostRanks{{.hook = random_delays(seed, 100)}}, 4, seed + 20, sized(1000, 100));
  }
}

TEST_CASE("Pipelines: lanes merged, with delays") {
  many_steps<tide::UnicastTransport>(HostRanks{{.lanes = tide::HostLanes::merged}}, 3, 31, sized(500, 100));
  many_steps<tide::UnicastTransport>(HostRanks{{.lanes = tide::HostLanes::merged, .hook = random_delays(32, 50)}}, 3,
                                     32, sized(500, 100));
}

TEST_CASE("Pipelines: epochs beyond 31, 32, 53 and 63 bits, and over the end of 64") {
  for (const std::uint64_t first :
       {(std::uint64_t{1} << 31) - 3, (std::uint64_t{1} << 32) - 2, (std::uint64_t{1} << 53) - 3,
        (std::uint64_t{1} << 63) - 3, ~std::uint64_t{0} - 2, ~std::uint64_t{0} / 3 - 1}) {
    CAPTURE(first);
    many_steps<tide::UnicastTransport>(HostRanks{{.first_run = first}}, 3, 41, 60);
    many_steps<tide::MulticastTransport>(HostRanks{{.lanes = tide::HostLanes::merged, .first_run = first}}, 2, 42, 60);
  }
}
