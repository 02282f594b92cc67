// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <tide/plan/bound.hpp>
#include <tide/plan/tally.hpp>

#include <array>
#include <set>
#include <string>

namespace {

using tide::Bound;
using tide::index_t;
using tide::Machine;
using tide::Rank;
using tide::Resource;
using tide_test::Planned;

// 4 ranks that own 1,024 bytes each.
inline constexpr auto even_group = tide::group(tide::param<tide::bf16>("w", {16, 128}));

constexpr Bound bound_of(const Planned& planned, const Machine& machine) {
  return tide::lower_bound(planned.collective, planned.plans, machine);
}

constexpr double seconds_of_gather(const Machine& machine) {
  return bound_of(tide_test::planned_gather(even_group.view(), 4), machine).seconds;
}

static_assert(seconds_of_gather({.link_rate = 1024}) == 3.0);           // to each of 3 peers
static_assert(seconds_of_gather({.copy_rate = 1024}) == 2.0);           // the own block, read and written
static_assert(seconds_of_gather({.memory_rate = 1024}) == 4.0 + 4.0);   // read for each of 4 ranks, written by each
static_assert(seconds_of_gather({.shared_memory_rate = 4096}) == 8.0);  // all of that on 4 ranks
static_assert(seconds_of_gather({.nic_rate = 1}) == 0.0);
static_assert(seconds_of_gather({}) == 0.0);

TEST_CASE("lower_bound: a multicast leaves a rank once and comes into every rank, the own included") {
  const Planned gather = tide_test::planned_gather<tide::MulticastTransport>(even_group.view(), 4);
  const Bound bound = bound_of(gather, {.link_rate = 1024});
  CHECK(bound.seconds == 4.0);
  CHECK(bound.resource == Resource::ingress);
  CHECK(bound.binding() == "ingress of rank 0");
}

TEST_CASE("lower_bound: a reduce pushes to each peer and sums what comes") {
  const Planned reduce = tide_test::planned_reduce(even_group.view(), 4);
  CHECK(bound_of(reduce, {.link_rate = 1024}).seconds == 3.0);
  const Bound sum = bound_of(reduce, {.sum_rate = 1024});
  CHECK(sum.seconds == 4.0 + 2.0);  // four inputs of 1,024 bytes, one output of 2,048
  CHECK(sum.resource == Resource::lane);
  CHECK(sum.binding() == "lane sum of rank 0");
}

TEST_CASE("lower_bound: a sum in the switch takes a part out of each rank of the node, and one sum into the owner") {
  const Planned reduce = tide_test::planned_switch_reduce(even_group.view(), {2, 2});
  tide::index_t bytes[2][4] = {};  // out of each rank, and into it
  for (const tide::Op& op : reduce.plans[1].ops) {
    if (op.kind != tide::OpKind::reduce || op.target.space != tide::Space::output) continue;
    tide::detail::for_each_use(reduce.collective, Rank{1}, op, [&](Rank rank, Resource resource, tide::index_t count) {
      if (resource == Resource::egress) bytes[0][rank.value] += count;
      if (resource == Resource::ingress) bytes[1][rank.value] += count;
    });
  }
  CHECK(bytes[0][0] == 2048);  // 512 sums in f32
  CHECK(bytes[0][1] == 2048);
  CHECK(bytes[0][2] + bytes[0][3] == 0);
  CHECK(bytes[1][0] == 0);
  CHECK(bytes[1][1] == 2048);
}

TEST_CASE("lower_bound: on a lane, calls and transfers follow each other") {
  const Planned gather = tide_test::planned_gather(even_group.view(), 2);
  const tide::Plan& plan = gather.plans[0];
  // Lane push 1: waits for the start and for the peer, one copy, two signals.
  const Bound bound = bound_of(gather, {.link_rate = 2048, .call_seconds = 0.5});
  CHECK(bound.seconds == 5 * 0.5 + 1.0);
  CHECK(bound.binding() == "lane push 1 of rank 0");
  CHECK(plan.lanes[1] == bound.lane);
}

TEST_CASE("lower_bound: names the rank that has most to do") {
  // 13 rows on 4 ranks: 4, 4, 4 and 1; the last rank takes in most.
  const auto group = tide::group(tide::param<tide::bf16>("w", {13, 32}));
  const Bound bound = bound_of(tide_test::planned_gather(group.view(), 4), {.link_rate = 64});
  CHECK(bound.seconds == 12.0);
  CHECK(bound.resource == Resource::egress);  // 4 rows to 3 peers: as much as the last rank takes in
  CHECK(bound.rank == Rank{0});
}

TEST_CASE("lower_bound: puts are bounded by the NICs, and memory is shared inside a node only") {
  Planned planned;
  planned.collective.layout.mesh = {2, 2};
  for (index_t r = 0; r < 4; ++r) {
    tide::Op put;
    put.kind = tide::OpKind::put;
    put.peer = static_cast<std::int32_t>((r + 2) % 4);
    put.width = 1000;
    planned.plans.push_back({Rank{r}, {{}}, {put}, {}});
  }
  CHECK(bound_of(planned, {.nic_rate = 100}).seconds == 10.0);
  CHECK(bound_of(planned, {.link_rate = 1}).seconds == 0.0);
  const Bound memory = bound_of(planned, {.shared_memory_rate = 100});
  CHECK(memory.seconds == 40.0);  // per node: two ranks that read 1,000 bytes and are written 1,000
  CHECK(memory.binding() == "memory shared by the node of rank 0");
}

// The laws, on plans of all kinds.
TEST_CASE("lower_bound: a faster machine has no larger bound, a plan with more ops no smaller one") {
  const std::array<Planned, 4> all = {
      tide_test::planned_gather(tide_test::odd_group.view(), 3),
      tide_test::planned_gather<tide::MulticastTransport>(tide_test::mixed_group.view(), 4),
      tide_test::planned_gather(tide_test::mixed_group.view(), 5, tide::OwnBlock::cast),
      tide_test::planned_reduce(tide_test::mixed_group.view(), 3)};
  const std::array<double Machine::*, 6> rates = {&Machine::link_rate,   &Machine::nic_rate,
                                                  &Machine::copy_rate,   &Machine::sum_rate,
                                                  &Machine::memory_rate, &Machine::shared_memory_rate};
  const Machine slow{"slow", 100, 10, 300, 200, 400, 500, 1e-3};
  for (const Planned& planned : all) {
    const double seconds = bound_of(planned, slow).seconds;
    CHECK(seconds > 0);
    for (const auto rate : rates) {
      Machine faster = slow;
      faster.*rate *= 2;
      CHECK(bound_of(planned, faster).seconds <= seconds);
    }
    Planned fewer = planned;
    while (!fewer.plans[0].ops.empty()) {
      const double before = bound_of(fewer, slow).seconds;
      fewer.plans[0].ops.pop_back();
      CHECK(bound_of(fewer, slow).seconds <= before);
    }
  }
}

TEST_CASE("lower_bound: every way of writing the same collective needs at least the bytes that have to move") {
  const Machine links{.link_rate = 1};
  for (const index_t ranks : {2, 3, 4, 5, 8}) {
    CAPTURE(ranks);
    const Planned gather = tide_test::planned_gather(even_group.view(), ranks);
    const index_t all = 4096;
    const index_t own =
        gather.collective.layout.piece(tide::ParameterIndex{0}, Rank{ranks - 1}).bytes(tide::Buffer::shards);
    CHECK(bound_of(gather, links).seconds >= static_cast<double>(all - own));
  }
}

TEST_CASE("Bound: each resource has words of its own, memory by rank or by node") {
  std::set<std::string> all;
  for (int i = 0; i < tide::resource_count; ++i) {
    const Bound bound{1, static_cast<Resource>(i), Rank{2}, {tide::LaneKind::push, 1}};
    CHECK(bound.binding().find("rank 2") != std::string::npos);
    all.insert(bound.binding());
  }
  CHECK(all.size() == tide::resource_count);
  CHECK(Bound{1, Resource::nic_in, Rank{2}, {}}.binding() == "NIC into rank 2");
  CHECK(Bound{1, Resource::shared_memory, Rank{2}, {}}.binding() == "memory shared by the node of rank 2");
  CHECK(Bound{1, Resource::lane, Rank{2}, {tide::LaneKind::push, 1}}.binding() == "lane push 1 of rank 2");
}

}  // namespace
