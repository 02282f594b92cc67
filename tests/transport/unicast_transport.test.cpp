// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/plan/verify.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "conformance/transport.hpp"

#include <set>
#include <vector>

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

namespace {

// The own block of each rank is cast in parts: whole parameters, rows of "columns", and "w" cut inside.
DynamicGroup large_group(index_t ranks) {
  DynamicGroup group;
  group.add("w", {4 * 8192, 8192}, Element::bf16, Element::bf16);
  group.add("norm", {4099}, Element::f32, Element::f32);
  group.add("columns", {8192, ranks * 2048}, Element::bf16, Element::bf16, shard(1));
  group.add("odd", {7, 13}, Element::bf16, Element::bf16);
  return group;
}

}  // namespace

TEST_CASE("UnicastTransport: a large own block is pushed part by part while the rest of it is cast") {
  for (const index_t ranks : {index_t{2}, index_t{3}, index_t{5}}) {
    CAPTURE(ranks);
    const DynamicGroup group = large_group(ranks);
    const auto cast = tide_test::planned_gather<UnicastTransport>(group.view(), ranks, OwnBlock::cast);
    CHECK(verify(cast.collective, cast.plans).holds());
    const Plan& plan = cast.plans[0];
    std::vector<index_t> pushed(4, 0);  // bytes to the first peer by how many parts were cast
    std::vector<index_t> casts(4, 0);
    index_t done = 0;
    for (const Op& op : plan.ops) {
      if (op.kind == OpKind::cast) casts[static_cast<std::size_t>(done)] += op.bytes();
      if (op.kind == OpKind::signal && op.lane == 0 && op.peer == plan.rank.value) ++done;
      if (op.kind == OpKind::copy && plan.lanes[op.lane] == Lane{LaneKind::push, 1}) {
        REQUIRE(done > 0);
        pushed[static_cast<std::size_t>(done - 1)] += op.bytes();
      }
    }
    CHECK(done == 4);
    const index_t all = cast.collective.layout.bytes(Buffer::shards, Rank{0});
    for (std::size_t part = 0; part < 4; ++part) {
      CAPTURE(part);
      CHECK(pushed[part] > all / 4 - all / 50);
      CHECK(pushed[part] < all / 4 + all / 50);
      CHECK(casts[part] > 0);
    }
    // The variants of a pipeline raise the same words as often.
    for (const OwnBlock own : {OwnBlock::copy, OwnBlock::in_place}) {
      const auto other = tide_test::planned_gather<UnicastTransport>(group.view(), ranks, own);
      CHECK(verify(other.collective, other.plans).holds());
      index_t events = 0;
      for (const Op& op : other.plans[0].ops) {
        events += op.kind == OpKind::signal && op.lane == 0 && op.peer == 0 ? 1 : 0;
      }
      CHECK(events == 4);
    }
  }
}
