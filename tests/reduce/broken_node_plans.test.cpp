// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatters over nodes and through slots that are broken in one way each, and the reason that `verify` gives.

#include <doctest/doctest.h>

#include <tide/plan/verify.hpp>

#include "support/small_plans.hpp"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>

namespace broken_node_plans_test {

using namespace tide;
using tide_test::Planned;

// Several chunks of 64 elements on each rank, of one size.
constexpr auto even = group(param<bf16>("w", {24, 64}), param<bf16>("b", {12}));
using Small = Ring<Chunks<2>, Bytes<6400>>;

Planned doubling(MeshShape mesh = {3, 2}) {
  return tide_test::planned_reduce<Small>(even.view(), mesh, Exchange::doubling);
}
Planned direct() { return tide_test::planned_reduce<Small>(even.view(), {3, 2}, Exchange::direct); }
Planned in_slot() {
  return tide_test::planned_reduce<SlotReuseWithin<Bytes<4096>, Chunks<2>>>(even.view(), {2, 2}, Exchange::doubling);
}

using Which = std::function<bool(const Plan&, const Op&)>;

Which on(LaneKind kind, index_t index, OpKind op) {
  return [=](const Plan& plan, const Op& o) {
    return o.kind == op && plan.lanes[o.lane] == Lane{kind, static_cast<std::int32_t>(index)};
  };
}
Which on_word(const Planned& planned, LaneKind kind, OpKind op, WordKind word) {
  return [&planned, kind, op, word](const Plan& plan, const Op& o) {
    return o.kind == op && plan.lanes[o.lane].kind == kind && planned.collective.words().kind(o.word()) == word;
  };
}

std::size_t find(const Plan& plan, const Which& which, int n = 0) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    if (which(plan, plan.ops[i]) && n-- == 0) return i;
  }
  FAIL("the plan has no such op");
  return 0;
}
Op& op(Plan& plan, const Which& which, int n = 0) { return plan.ops[find(plan, which, n)]; }

/// Drops an op; exits stay behind the ops that they were behind.
void drop(Plan& plan, std::size_t at) {
  const std::uint16_t lane = plan.ops[at].lane;
  const auto before = std::count_if(plan.ops.begin(), plan.ops.begin() + static_cast<std::ptrdiff_t>(at),
                                    [lane](const Op& o) { return o.lane == lane; });
  for (Exit& exit : plan.exits) exit.position -= exit.lane.value == lane && exit.position > before ? 1 : 0;
  plan.ops.erase(plan.ops.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Whether the first violation is of a law and says these words. The plans were right before `break_them`.
void check_broken(Planned planned, const std::function<void(Planned&)>& break_them, Law law,
                  std::initializer_list<const char*> words) {
  REQUIRE(verify(planned.collective, planned.plans).holds());
  break_them(planned);
  const Verdict verdict = verify(planned.collective, planned.plans);
  REQUIRE_FALSE(verdict.holds());
  const Violation& first = verdict.violations.front();
  CAPTURE(describe(first));
  CHECK(name(first.law) == name(law));
  for (const char* word : words) {
    CAPTURE(word);
    CHECK(first.text.find(word) != std::string::npos);
  }
}

TEST_CASE("broken plans over nodes: a put of sums that are not there yet") {
  check_broken(
      doubling(),
      [](Planned& p) { drop(p.plans[0], find(p.plans[0], on_word(p, LaneKind::net, OpKind::wait, WordKind::event))); },
      Law::order, {"rank 0, sum, op", "(reduce) writes partials", "rank 0, net, op", "(put), which reads them"});
}

TEST_CASE("broken plans over nodes: a put to where the last one has not been added") {
  check_broken(
      doubling(),
      [](Planned& p) { drop(p.plans[0], find(p.plans[0], on_word(p, LaneKind::net, OpKind::wait, WordKind::credit))); },
      Law::reuse,
      {"rank 2, sum 1, op", "(reduce) reads network_inbox", "rank 0, net, op",
       "(put), which overwrites them in the next run"});
}

TEST_CASE("broken plans over nodes: an answer before what had come was added") {
  // Of two nodes, each takes the other's put for the news that its own has been added.
  check_broken(doubling({2, 2}),
               [](Planned& p) {
                 Plan& plan = p.plans[0];
                 const Which event = on_word(p, LaneKind::net, OpKind::wait, WordKind::event);
                 const auto of_sums = [&](const Plan& in, const Op& o) {
                   return event(in, o) && in.lanes[static_cast<std::size_t>(p.collective.words().index(o.word()))] ==
                                              Lane{LaneKind::sum, 1};
                 };
                 drop(plan, find(plan, of_sums));
               },
               Law::reuse, {"(reduce) reads network_inbox", "(put), which overwrites them"});
}

TEST_CASE("broken plans over nodes: an addition before the sum of the other node has landed") {
  check_broken(doubling(),
               [](Planned& p) {
                 drop(p.plans[0], find(p.plans[0], on_word(p, LaneKind::net, OpKind::wait, WordKind::arrived)));
               },
               Law::order, {"(put) writes network_inbox", "rank 0, sum 1, op", "(reduce), which reads them"});
}

TEST_CASE("broken plans over nodes: the own sum on the wrong side of the tree") {
  check_broken(doubling(),
               [](Planned& p) {
                 Op& add = op(p.plans[0], on(LaneKind::sum, 1, OpKind::reduce));
                 add.peer = 1 - add.peer;
               },
               Law::sum, {"rank 0, sum 1, op", "where the tree does not: the sums are over [1, 2) [0, 1)"});
}

TEST_CASE("broken plans over nodes: a node that is left out, or added twice") {
  check_broken(direct(),
               [](Planned& p) {  // the third node's sum is taken from where the second's has landed
                 for (Op& o : p.plans[4].ops) {
                   if (o.kind == OpKind::put && o.peer == 0) o.target_offset -= p.collective.network.piece_bytes;
                 }
                 for (Op& o : p.plans[2].ops) {
                   if (o.kind == OpKind::put && o.peer == 0) o.target_offset += p.collective.network.piece_bytes;
                 }
               },
               Law::sum, {"rank 0, sum 1, op", "where the tree does not: the sums are over [0, 1) [2, 3) [1, 2)"});
  check_broken(doubling(),
               [](Planned& p) {  // the output is written one addition too early
                 Plan& plan = p.plans[0];
                 Op& early = op(plan, on(LaneKind::sum, 1, OpKind::reduce));
                 const Which adds = on(LaneKind::sum, 1, OpKind::reduce);
                 for (Op& o : plan.ops) {
                   if (!adds(plan, o) || o.target.space != Space::output || &o == &early) continue;
                   early.rows = 1;  // of two owners
                   early.target = o.target;
                   early.target_offset = o.target_offset;
                   early.kernel = o.kernel;
                   break;
                 }
               },
               Law::sum, {"rank 0, sum 1, op", "with the sum over nodes [0, 2) of 3"});
}

TEST_CASE("broken plans over nodes: a put that brings the sum of another owner") {
  check_broken(doubling({2, 2}),
               [](Planned& p) {
                 Op& put = op(p.plans[0], on(LaneKind::net, 0, OpKind::put));
                 put.source_offset = 0;
               },
               Law::sum, {"rank 2, sum 1, op", "where a sum of the same elements should be"});
}

TEST_CASE("broken plans over nodes: a put that is too short") {
  check_broken(doubling({2, 2}), [](Planned& p) { op(p.plans[0], on(LaneKind::net, 0, OpKind::put)).width -= 4; },
               Law::sum, {"rank 2, sum 1, op", "(reduce) adds network_inbox", "should be"});
}

/// Moves an exit before the last sum of its lane.
void hurry(Plan& plan, ExitKind kind) {
  for (Exit& exit : plan.exits) {
    if (exit.kind != kind) continue;
    std::int32_t position = 0;
    for (const Op& o : plan.ops) {
      if (o.lane != exit.lane.value) continue;
      if (o.kind == OpKind::reduce) exit.position = position;
      ++position;
    }
  }
}

TEST_CASE("broken plans over nodes: shards are ready before the last addition, gradients free before the last sum") {
  check_broken(doubling(), [](Planned& p) { hurry(p.plans[0], ExitKind::shards_ready); }, Law::order,
               {"rank 0, sum 1, op", "(reduce) writes output", "the caller of rank 0, which reads them"});
  check_broken(doubling(), [](Planned& p) { hurry(p.plans[0], ExitKind::gradients_free); }, Law::reuse,
               {"reads gradients", "the caller of rank 0, which overwrites them in the next run"});
}

TEST_CASE("broken plans through slots: a push before the slot is free") {
  check_broken(
      in_slot(),
      [](Planned& p) { drop(p.plans[0], find(p.plans[0], on_word(p, LaneKind::push, OpKind::wait, WordKind::ready))); },
      Law::reuse, {"rank 0, push 1, op", "(copy) writes inbox", "the caller of rank 1, which writes them, too"});
}

TEST_CASE("broken plans through slots: a sum of the node over pieces that have not been added") {
  check_broken(in_slot(),
               [](Planned& p) {
                 Op& sum = op(p.plans[0], on(LaneKind::sum, 0, OpKind::reduce));
                 sum.target_offset = p.collective.inbox.slot_bytes - 2 * sum.bytes();
               },
               Law::reuse, {"rank 1, push 1, op", "(copy)", "rank 0, sum, op"});
}

TEST_CASE("broken plans through slots: the slot goes to the next before its sums have been put") {
  check_broken(tide_test::planned_reduce<SlotReuse>(even.view(), {3, 2}, Exchange::doubling),
               [](Planned& p) {  // rank 2 only sends in the second round of some chunks; its puts read the slot
                 for (Plan& plan : p.plans) {
                   for (Exit& exit : plan.exits) {
                     if (exit.kind == ExitKind::shards_ready) exit.position -= 1;
                   }
                 }
               },
               Law::reuse, {"inbox", "the caller of rank"});
}

}  // namespace broken_node_plans_test
