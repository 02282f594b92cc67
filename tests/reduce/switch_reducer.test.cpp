// SPDX-License-Identifier: Apache-2.0
//
// Plans of SwitchReducer: proved, right on every schedule, and refused for the right reason where they are broken.

#include <doctest/doctest.h>
#include <tide/plan/verify.hpp>
#include <tide/reduce/switch_reducer.hpp>

#include "conformance/reducer.hpp"
#include "support/break_plans.hpp"
#include "support/interpreter.hpp"
#include "support/random_group.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"

#include <cstdint>
#include <vector>

namespace switch_reducer_test {

using namespace tide;
using namespace tide_test::breaking;
using tide_test::first_idle_op;
using tide_test::first_violation;
using tide_test::Planned;
using tide_test::planned_switch_reduce;

constexpr MeshShape meshes[] = {{2, 2}, {3, 2}, {2, 3}, {4, 2}, {5, 2}, {3, 8}, {8, 2}, {2, 8}, {3, 1}};

template <index_t Count, index_t Budget>
using RingOf = Ring<Chunks<Count>, Bytes<Budget>>;

// Several chunks on each rank, of one size and of two; the last owners have none.
constexpr auto chunked =
    group(param<bf16>("w", {49, 40}), param<bf16>("v", {3, 720}, shard(1)), param<bf16>("b", {50}));
constexpr auto even = group(param<bf16>("w", {24, 64}), param<bf16>("b", {12}));
constexpr auto two_sizes =
    group(param<bf16>("w", {31, 40}), param<bf16, float>("v", {1, 700}), param<bf16>("b", {300}));

std::vector<GroupView> groups() {
  return {chunked.view(), two_sizes.view(), tide_test::odd_group.view(), tide_test::mixed_group.view(),
          tide_test::empty_group.view()};
}

TEST_CASE("SwitchReducer: keeps the laws of a reducer") {
  tide_test::check_reducer<SwitchReducer<>>();
  tide_test::check_reducer<SwitchReducer<Trickle<>, Accumulate>>();
}

TEST_CASE("SwitchReducer: on one node its plans are those of CopyEngineReducer") {
  using Inbox = RingOf<3, 4096>;
  CHECK(tide_test::planned_reduce<Inbox, SwitchReducer<>>(chunked.view(), 3).plans ==
        tide_test::planned_reduce<Inbox, CopyEngineReducer<>>(chunked.view(), 3).plans);
  const Planned one = planned_switch_reduce<Inbox>(chunked.view(), {1, 3});
  CHECK(first_violation(one) == "");
}

TEST_CASE("SwitchReducer: plans over nodes hold, are a function of their arguments, and give the oracle's bytes") {
  const std::uint64_t schedules = tide_test::sized(4, 1);
  for (const MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const GroupView& group : groups()) {
      if (group.size() == 3 && 720 % mesh.ranks() != 0) continue;  // of an even shard
      CAPTURE(group.size());
      const auto check = [&](const Planned& made, const Planned& again) {
        REQUIRE(first_violation(made) == "");
        CHECK(made.plans == again.plans);
        if (mesh.ranks() <= 10) CHECK(tide_test::run_schedules(made.collective, made.plans, schedules) == "");
      };
      using One = RingOf<1, 1 << 15>;
      using Two = RingOf<2, 1 << 15>;
      using Three = RingOf<3, 1 << 15>;
      check(planned_switch_reduce<One>(group, mesh), planned_switch_reduce<One>(group, mesh));
      check(planned_switch_reduce<Two, Accumulate>(group, mesh, GradientSource::table),
            planned_switch_reduce<Two, Accumulate>(group, mesh, GradientSource::table));
      check(planned_switch_reduce<Three>(group, mesh), planned_switch_reduce<Three>(group, mesh));
    }
  }
}

TEST_CASE("SwitchReducer: plans of random groups on random meshes hold, and give the oracle's bytes") {
  for (const std::uint64_t seed : tide_test::seeds(tide_test::sized(60, 6))) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const PackingRule packing = random.one_of({TightPacking::rule, Fsdp2Packing::rule});
    const MeshShape mesh{random.between(2, 5), random.between(1, 3)};
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    const DynamicGroup group = tide_test::any_group(random, mesh.ranks());
    const auto check = [&](const Planned& made) {
      REQUIRE(first_violation(made) == "");
      CHECK(tide_test::run_schedules(made.collective, made.plans, 7, seed) == "");
    };
    check(planned_switch_reduce<RingOf<1, 16384>>(group.view(), mesh, GradientSource::storage, packing));
    check(planned_switch_reduce<RingOf<3, 65536>, Accumulate>(group.view(), mesh, GradientSource::table, packing));
  }
}

TEST_CASE("SwitchReducer: an owner reads one sum for each turn of the nodes, and nothing is put twice") {
  const Planned made = planned_switch_reduce<RingOf<1, 1 << 15>>(chunked.view(), {5, 2});
  CHECK(made.collective.kernels.back() == switch_kernel(Finish::store, 3));
  index_t put = 0;
  index_t elements = 0;
  for (const Plan& plan : made.plans) {
    for (const Op& op : plan.ops) {
      put += op.kind == OpKind::put ? op.width / 4 : 0;
      elements += op.kind == OpKind::reduce && op.target.space == Space::output ? op.bytes() / 4 : 0;
    }
  }
  CHECK(elements == 49 * 40 + 3 * 720 + 50);
  CHECK(put >= 4 * elements);                   // from four other nodes
  CHECK(put <= 4 * elements + 4 * 10 * 8 * 3);  // and padding between parameters
}

TEST_CASE("SwitchReducer: no op could be left out") {
  if (tide_test::sized(1, 0) == 0) return;  // it is about plans, which no sanitizer sees
  for (const MeshShape mesh : {MeshShape{2, 2}, MeshShape{3, 2}, MeshShape{2, 3}, MeshShape{4, 2}}) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    CHECK(first_idle_op(planned_switch_reduce<RingOf<1, 4096>>(tide_test::odd_group.view(), mesh)) == "");
    CHECK(first_idle_op(planned_switch_reduce<RingOf<2, 12288>>(tide_test::odd_group.view(), mesh)) == "");
    if (mesh.nodes > 2) continue;  // in long outputs some waits are implied by what other ranks wait for
    CHECK(first_idle_op(planned_switch_reduce<RingOf<1, 4096>>(even.view(), mesh)) == "");
    CHECK(first_idle_op(planned_switch_reduce<RingOf<2, 12288>>(chunked.view(), mesh)) == "");
  }
}

constexpr std::size_t ops_of(MeshShape mesh) {
  std::size_t count = 0;
  for (const Plan& plan : planned_switch_reduce<RingOf<1, 4096>>(tide_test::single_row.view(), mesh).plans)
    count += plan.ops.size();
  return count;
}
static_assert(ops_of({2, 2}) > 0);

// ---- broken plans: three nodes of two ranks, so that one place of the second row is never filled

Planned subject() { return planned_switch_reduce<RingOf<2, 12288>>(chunked.view(), {3, 2}); }

Which switch_sum(const Planned& p) {
  return [&p](const Op& op) { return detail::adds_in_switch(op, p.collective); };
}

TEST_CASE("SwitchReducer, broken: a put to the row of another turn, where another sum lies") {
  check_broken(subject(),
               [](Planned& p) {  // node 2's first sum for rank 0 lands where node 0's lies
                 Op& put = op(p.plans[4], [](const Op& o) { return o.kind == OpKind::put && o.peer == 0; });
                 put.target_offset -= p.collective.network.piece_bytes;
               },
               Law::reuse, {"network_inbox 0 bytes", "which writes them, too"});
}

TEST_CASE("SwitchReducer, broken: two owners' rows are swapped") {
  check_broken(subject(),
               [](Planned& p) {  // rank 0 reads what is for rank 1
                 Op& sum = op(p.plans[0], switch_sum(p));
                 sum.source_offset += 2 * p.collective.network.piece_bytes;
                 sum.extra_offset += 2 * p.collective.network.piece_bytes;
               },
               Law::order, {"(reduce), which reads them"});
}

TEST_CASE("SwitchReducer, broken: a row is read twice, and another not at all") {
  check_broken(subject(),
               [](Planned& p) {
                 Op& sum = op(p.plans[0], switch_sum(p));
                 sum.extra_offset = sum.source_offset;
               },
               Law::sum, {"rank 0, sum 1, op", "not each node once: the sums are over [0, 1) [0, 1) [1, 2) [1, 2)"});
}

TEST_CASE("SwitchReducer, broken: a node's sum is nowhere") {
  check_broken(subject(),
               [](Planned& p) {  // the kernel of one row, so that node 2 is left out
                 p.collective.kernels.push_back(switch_kernel(Finish::store, 1));
                 op(p.plans[0], switch_sum(p)).kernel = static_cast<std::uint8_t>(p.collective.kernels.size() - 1);
               },
               Law::sum, {"rank 0, sum 1, op", "with the sum over nodes [0, 2) of 3"});
}

TEST_CASE("SwitchReducer, broken: a place that should be zero for ever is not") {
  check_broken(subject(),
               [](Planned& p) {  // a put is too long, and comes to the place of a fourth node as well
                 Op& put = op(p.plans[3], [](const Op& o) { return o.kind == OpKind::put && o.peer == 1; });
                 put.width += p.collective.network.piece_bytes;
               },
               Law::sum,
               {"rank 0, sum 1, op", "(reduce) adds network_inbox 0 bytes", "of rank 1",
                "where a sum of the same elements should be; there is a sum over nodes [1, 2)"});
}

TEST_CASE("SwitchReducer: which of the places stays zero does not matter, as long as one does") {
  Planned p = subject();
  for (Op& o : p.plans[3].ops) {  // node 1's sums for rank 0 lie in the second row instead of the first
    if (o.kind == OpKind::put && o.peer == 1) o.target_offset += p.collective.network.piece_bytes;
  }
  CHECK(first_violation(p) == "");
  CHECK(tide_test::run_schedules(p.collective, p.plans, 3) == "");
}

TEST_CASE("SwitchReducer, broken: a collective whose memory does not start as zeros has no sums in the switch") {
  check_broken(subject(), [](Planned& p) { p.collective.network.exchange = Exchange::direct; }, Law::sum,
               {"rank 0, sum, op", "the collective needs 2 inputs, an f32 output and its own finish"});
}

TEST_CASE("SwitchReducer, broken: a put before the owner has given its place back") {
  check_broken(subject(),
               [](Planned& p) {
                 p.collective.network.puts_in_flight = 8;  // else there are too many
                 Plan& plan = p.plans[2];
                 drop(plan, find(plan, [&](const Op& o) {
                        return o.kind == OpKind::wait && plan.lanes[o.lane].kind == LaneKind::net &&
                               p.collective.words().kind(o.word()) == WordKind::ready;
                      }));
               },
               Law::reuse, {"(reduce) reads network_inbox", "rank 2, net", "(put), which overwrites them"});
}

TEST_CASE("SwitchReducer, broken: the node's own sum before the owner has given its place back") {
  check_broken(subject(),
               [](Planned& p) {
                 Plan& plan = p.plans[2];
                 drop(plan, find(plan, [&](const Op& o) {
                        return o.kind == OpKind::wait && plan.lanes[o.lane] == Lane{LaneKind::sum, 0} &&
                               p.collective.words().kind(o.word()) == WordKind::ready;
                      }));
               },
               Law::reuse, {"rank 3, sum 1, op", "(reduce) reads network_inbox", "rank 2, sum, op", "overwrites them"});
}

TEST_CASE("SwitchReducer, broken: an owner that does not wait for a peer's word that all has landed there") {
  check_broken(
      subject(), [](Planned& p) { drop(p.plans[0], find(p.plans[0], on_word(p, OpKind::wait, WordKind::landed))); },
      Law::order, {"(put) writes network_inbox", "of rank 1", "rank 0, sum 1, op", "(reduce), which reads them"});
}

TEST_CASE("SwitchReducer, broken: a peer that says so too early") {
  check_broken(subject(),
               [](Planned& p) {
                 Plan& plan = p.plans[1];
                 drop(plan, find(plan, [&](const Op& o) {
                        return o.kind == OpKind::wait && p.collective.words().kind(o.word()) == WordKind::arrived &&
                               plan.lanes[o.lane].kind == LaneKind::net;
                      }));
               },
               Law::order, {"(put) writes network_inbox", "of rank 1", "(reduce), which reads them"});
}

TEST_CASE("SwitchReducer, broken: a sum that reaches beyond the memory of the ranks") {
  check_broken(subject(),
               [](Planned& p) { op(p.plans[0], switch_sum(p)).extra_offset = p.collective.network.inbox_bytes - 4; },
               Law::bounds, {"rank 0, sum 1, op", "reads network_inbox 0 bytes"});
  check_broken(subject(), [](Planned& p) { op(p.plans[0], switch_sum(p)).peer = 1; }, Law::bounds,
               {"adds in the switch what is no place of the network inbox"});
  check_broken(subject(), [](Planned& p) { op(p.plans[0], switch_sum(p)).source.space = Space::partials; }, Law::bounds,
               {"adds in the switch what is no place of the network inbox"});
}

}  // namespace switch_reducer_test
