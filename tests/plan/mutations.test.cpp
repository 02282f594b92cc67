// SPDX-License-Identifier: Apache-2.0
// labels: slow
// timeout: 400
//
// What `verify` accepts is right: of 14,600 plans with one op changed, and of 2,952 with one wait on another lane, each
// that it accepts gives the oracle's bytes on 20 schedules, some of which freeze lanes of the rank that was changed.

#include <doctest/doctest.h>

#include <tide/plan/verify.hpp>

#include "support/interpreter.hpp"
#include "support/mutate.hpp"
#include "support/sanitizer.hpp"
#include "support/small_plans.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace tide_test;
using tide::Chunks;
using tide::Finish;
using tide::OwnBlock;

constexpr auto small =
    tide::group(tide::param<tide::bf16>("w", {5, 2, 3}), tide::param<tide::bf16>("b", {4}, tide::shard(0)),
                tide::param<float>("c", {2, 12}, tide::shard(1)), tide::param<tide::bf16>("one", {1}));
constexpr auto family =
    tide::group(tide::repeat<3>("{}.", tide::param<tide::bf16>("up", {4, 3}), tide::param<tide::bf16>("down", {6, 2})));
// Enough for several chunks of 64 elements on each of three ranks.
constexpr auto chunked =
    tide::group(tide::param<tide::bf16>("w", {7, 20}), tide::param<tide::bf16>("v", {10, 36}, tide::shard(1)),
                tide::param<tide::bf16>("b", {50}));
// The same on up to four.
constexpr auto over_nodes =
    tide::group(tide::param<tide::bf16>("w", {9, 40}), tide::param<tide::bf16>("v", {6, 24}, tide::shard(1)),
                tide::param<tide::bf16>("b", {50}));
constexpr auto unlike = tide::group(tide::param<tide::bf16, float>("w", {9, 13}), tide::param<tide::bf16>("b", {61}),
                                    tide::param<tide::f8_e5m2, tide::f16>("q", {11, 14}));

/// The collectives that are mutated.
std::vector<Planned> subjects() {
  std::vector<Planned> all;
  for (const tide::index_t ranks : {1, 2, 3}) {
    for (const tide::GroupView& group : {small.view(), family.view()}) {
      for (const OwnBlock own : {OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast}) {
        all.push_back(planned_gather<tide::UnicastTransport>(group, ranks, own));
      }
      for (const OwnBlock own : {OwnBlock::multicast, OwnBlock::in_place, OwnBlock::cast}) {
        all.push_back(planned_gather<tide::MulticastTransport>(group, ranks, own, tide::Fsdp2Packing::rule));
      }
    }
    for (const tide::GroupView& group : {chunked.view(), unlike.view()}) {
      all.push_back(planned_reduce<tide::Ring<Chunks<1>, tide::Bytes<1600>>>(group, ranks));
      all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<1600>>>(group, ranks, Finish::accumulate));
      all.push_back(planned_reduce<tide::Ring<Chunks<3>, tide::Bytes<3200>>>(group, ranks, Finish::store,
                                                                             tide::GradientSource::table));
    }
    for (const Finish finish : {Finish::store, Finish::accumulate}) {
      all.push_back(planned_reduce<tide::SlotReuse>(chunked.view(), ranks, finish));
    }
  }
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 1}, tide::MeshShape{3, 1}, tide::MeshShape{2, 2}}) {
    for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
      all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<6400>>>(over_nodes.view(), mesh, exchange));
      all.push_back(planned_reduce<tide::Ring<Chunks<1>, tide::Bytes<6400>>>(
          unlike.view(), mesh, exchange, Finish::accumulate, tide::GradientSource::table));
      for (const Finish finish : {Finish::store, Finish::accumulate}) {
        all.push_back(planned_reduce<tide::SlotReuseWithin<tide::Bytes<1600>, Chunks<1>>>(over_nodes.view(), mesh,
                                                                                          exchange, finish));
      }
    }
    all.push_back(planned_switch_reduce<tide::Ring<Chunks<2>, tide::Bytes<6400>>>(over_nodes.view(), mesh));
    all.push_back(planned_switch_reduce<tide::Ring<Chunks<1>, tide::Bytes<6400>>, tide::Accumulate>(
        unlike.view(), mesh, tide::GradientSource::table));
  }
  return all;
}

/// The same over nodes: chunks of a row or a part of it, few puts in flight, sums of sums.
std::vector<Planned> subjects_over_nodes() {
  using Tight = tide::RdmaDoublingTransport<tide::Bytes<32>, tide::PutsInFlight<2>>;
  using Loose = tide::RdmaDoublingTransport<tide::Bytes<64>, tide::PutsInFlight<3>>;
  std::vector<Planned> all;
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 1}, {2, 2}, {3, 1}, {4, 1}}) {
    for (const tide::GroupView& group : {small.view(), family.view()}) {
      for (const OwnBlock own : {OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast}) {
        all.push_back(planned_gather_on<tide::UnicastTransport, Tight>(group, mesh, own));
      }
      for (const OwnBlock own : {OwnBlock::multicast, OwnBlock::cast}) {
        all.push_back(planned_gather_on<tide::MulticastTransport, Loose>(group, mesh, own, tide::Fsdp2Packing::rule));
      }
    }
    for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
      all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<8192>>>(chunked.view(), mesh, exchange));
    }
    all.push_back(planned_switch_reduce<tide::Ring<Chunks<2>, tide::Bytes<8192>>>(chunked.view(), mesh));
  }
  return all;
}

// Rows that `verify` follows together: those of one parameter, of the owners on a rail, in chunks that cut them.
constexpr auto many_rows =
    tide::group(tide::param<tide::bf16>("w", {16, 40}), tide::param<tide::bf16>("v", {12, 48}, tide::shard(1)),
                tide::param<tide::bf16>("u", {9, 48}, tide::shard(1)), tide::param<tide::bf16>("b", {50}));

std::vector<Planned> subjects_in_rows() {
  using Inter = tide::RdmaDoublingTransport<tide::Bytes<64>, tide::PutsInFlight<2>>;
  std::vector<Planned> all;
  for (const tide::index_t ranks : {2, 3, 4}) {
    for (const OwnBlock own : {OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast}) {
      all.push_back(planned_gather<tide::UnicastTransport>(many_rows.view(), ranks, own));
    }
    all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<32000>>>(many_rows.view(), ranks));
    for (const Finish finish : {Finish::store, Finish::accumulate}) {
      all.push_back(planned_reduce<tide::SlotReuse>(many_rows.view(), ranks, finish));
    }
  }
  for (const tide::MeshShape mesh : {tide::MeshShape{4, 2}, tide::MeshShape{8, 1}, tide::MeshShape{6, 2}}) {
    for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
      all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<128000>>>(many_rows.view(), mesh, exchange));
      for (const Finish finish : {Finish::store, Finish::accumulate}) {
        all.push_back(planned_reduce<tide::SlotReuseWithin<tide::Bytes<64000>, Chunks<1>>>(many_rows.view(), mesh,
                                                                                           exchange, finish));
      }
    }
    all.push_back(planned_switch_reduce<tide::Ring<Chunks<2>, tide::Bytes<128000>>>(many_rows.view(), mesh));
    all.push_back(planned_gather_on<tide::UnicastTransport, Inter>(many_rows.view(), mesh, OwnBlock::copy));
  }
  return all;
}

constexpr std::uint64_t mutations = sized(10'000, 500);
constexpr std::uint64_t mutations_over_nodes = sized(4'000, 200);
constexpr std::uint64_t mutations_in_rows = sized(600, 50);
constexpr std::uint64_t schedules = 20;

void check_mutations(const std::vector<Planned>& all, std::uint64_t count) {
  std::vector<PlanOracle> oracles;
  for (const Planned& planned : all) {
    for (const tide::Violation& v : tide::verify(planned.collective, planned.plans).violations) FAIL(describe(v));
    oracles.emplace_back(planned.collective, Interpreter::runs, 1);
  }
  std::uint64_t accepted = 0;
  std::map<std::string, std::uint64_t> changed;
  std::map<std::string, std::uint64_t> passed;
  for (const std::uint64_t seed : seeds(count)) {
    CAPTURE(seed);
    const std::size_t which = seed % all.size();
    Mutator mutator(seed);
    Planned mutant = all[which];
    std::string what;
    while (mutant.plans == all[which].plans) what = mutator.mutate(mutant.plans);
    CAPTURE(what);
    ++changed[what];
    if (!tide::verify(mutant.collective, mutant.plans).holds()) continue;
    ++accepted;
    ++passed[what];
    std::size_t rank = 0;
    while (mutant.plans[rank] == all[which].plans[rank]) ++rank;
    Interpreter interpreter(mutant.collective, mutant.plans, oracles[which]);
    for (std::uint64_t i = 0; i < schedules; ++i) {
      CAPTURE(i);
      const std::string problem = interpreter.run(schedule(i, mutant.plans, static_cast<std::int64_t>(rank)));
      CHECK(problem == "");
    }
  }
  for (const auto& [what, number] : changed) MESSAGE(what << ": " << passed[what] << " of " << number << " accepted");
  MESSAGE(accepted << " accepted in all");
  if (seeds(count).size() == count) CHECK(accepted > count / 20);
}

/// A wait of a plan moved to lane `to`, with exits behind the ops that they were behind.
void move_wait(tide::Plan& plan, std::size_t at, std::uint16_t to) {
  for (tide::Exit& exit : plan.exits) {
    const auto before = [&](std::int64_t lane) {
      return std::count_if(plan.ops.begin(), plan.ops.begin() + static_cast<std::ptrdiff_t>(at),
                           [lane](const tide::Op& op) { return op.lane == lane; });
    };
    const std::int64_t lane = exit.lane.value;
    if (lane == plan.ops[at].lane && exit.position > before(lane)) --exit.position;
    if (lane == to && exit.position > before(lane)) ++exit.position;
  }
  plan.ops[at].lane = to;
}

// What the caller knows of lanes by the exits of a reduce into a slot is the longest way to an order, and the easiest
// to take for one that is none: every wait is moved to every lane.
TEST_CASE("verify: each wait of a reduce into a slot that may stand on another lane gives the oracle's bytes there") {
  std::uint64_t moved = 0;
  std::uint64_t accepted = 0;
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 2}, tide::MeshShape{4, 2}}) {
    for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
      const Planned planned =
          planned_reduce<tide::SlotReuseWithin<tide::Bytes<1600>, Chunks<1>>>(over_nodes.view(), mesh, exchange);
      const PlanOracle oracle(planned.collective, Interpreter::runs, 1);
      for (std::size_t rank = 0; rank < planned.plans.size(); ++rank) {
        const tide::Plan& plan = planned.plans[rank];
        for (std::size_t at = 0; at < plan.ops.size(); ++at) {
          for (std::uint16_t to = 0; to < plan.lanes.size() && plan.ops[at].kind == tide::OpKind::wait; ++to) {
            if (to == plan.ops[at].lane) continue;
            Planned mutant = planned;
            move_wait(mutant.plans[rank], at, to);
            ++moved;
            if (!tide::verify(mutant.collective, mutant.plans).holds()) continue;
            ++accepted;
            CAPTURE(mesh.nodes);
            CAPTURE(rank);
            CAPTURE(at);
            CAPTURE(to);
            Interpreter interpreter(mutant.collective, mutant.plans, oracle);
            for (std::uint64_t i = 0; i < schedules; ++i) {
              CAPTURE(i);
              const std::string problem = interpreter.run(schedule(i, mutant.plans, static_cast<std::int64_t>(rank)));
              CHECK(problem == "");
            }
          }
        }
      }
    }
  }
  MESSAGE(accepted << " of " << moved << " accepted");
  CHECK(accepted > moved / 50);
}

TEST_CASE("verify: each mutation of a plan that is accepted gives the oracle's bytes on every schedule") {
  check_mutations(subjects(), mutations);
}

TEST_CASE("verify: each accepted mutation of plans of many rows does") {
  check_mutations(subjects_in_rows(), mutations_in_rows);
}

TEST_CASE("verify: each accepted mutation of plans over nodes does, however late puts come") {
  check_mutations(subjects_over_nodes(), mutations_over_nodes);
}

}  // namespace
