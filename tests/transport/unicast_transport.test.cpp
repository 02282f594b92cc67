// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/transport/unicast_transport.hpp>

#include "conformance/transport.hpp"

#include <set>

using namespace tide;

TEST_CASE("UnicastTransport: keeps the laws of a transport") { tide_test::check_transport<UnicastTransport>(); }

TEST_CASE("UnicastTransport: at each lane number the targets of all ranks form a permutation") {
  const auto planned = tide_test::planned_gather(tide_test::odd_group.view(), 5);
  for (std::int32_t number = 1; number < 5; ++number) {
    std::set<std::int32_t> targets;
    for (const Plan& plan : planned.plans) {
      for (const Op& op : plan.ops) {
        if (op.kind == OpKind::copy && plan.lanes[op.lane] == Lane{LaneKind::push, number}) targets.insert(op.peer);
      }
    }
    std::size_t senders = 0;
    for (const Plan& plan : planned.plans) {
      for (const Lane& lane : plan.lanes) senders += lane == Lane{LaneKind::push, number} ? 1U : 0U;
    }
    CHECK(targets.size() == senders);
  }
}

TEST_CASE("UnicastTransport: a plan is a constant expression for a small group on a static mesh") {
  constexpr std::size_t ops = [] {
    std::size_t count = 0;
    for (const Plan& plan : tide_test::planned_gather(tide_test::single_row.view(), 2).plans) count += plan.ops.size();
    return count;
  }();
  // The owner: its copy, start, and on the push lane two waits, a copy, two signals, then the wait for that lane.
  // The other: ready, and the wait for the arrival.
  static_assert(ops == 10);
}
