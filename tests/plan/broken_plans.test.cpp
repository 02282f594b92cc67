// SPDX-License-Identifier: Apache-2.0
//
// Plans that are broken in one way each, and the reason that `verify` gives: law, ops, bytes.

#include <doctest/doctest.h>

#include <tide/plan/verify.hpp>

#include "support/break_plans.hpp"
#include "support/small_plans.hpp"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace {

using namespace tide_test;
using namespace tide_test::breaking;
using tide::Bytes;
using tide::Chunks;
using tide::index_t;
using tide::Lane;
using tide::LaneKind;
using tide::Law;
using tide::Op;
using tide::OpKind;
using tide::OwnBlock;
using tide::Plan;
using tide::Space;
using tide::WordKind;

// 'w': 8 bytes a row, rank 0 has 2 rows; 'b' starts at 256.
constexpr auto two = tide::group(tide::param<tide::bf16>("w", {6, 4}), tide::param<tide::bf16>("b", {6}));
// Several chunks of 64 elements for each of three ranks.
constexpr auto long_group = tide::group(tide::param<tide::bf16>("w", {12, 48}), tide::param<tide::bf16>("b", {9}));

Planned gather(index_t ranks = 3) { return planned_gather<tide::UnicastTransport>(two.view(), ranks); }
Planned reduce(index_t ranks = 3) {
  return planned_reduce<tide::Ring<Chunks<2>, Bytes<768>>>(long_group.view(), ranks);
}

// ---- order and reuse in a gather -----------------------------------------------------------------------------------

TEST_CASE("broken plans: a dropped wait for arrival lets the caller read too early") {
  check_broken(gather(),
               [](Planned& p) { drop(p.plans[2], find(p.plans[2], on_word(p, OpKind::wait, WordKind::arrived))); },
               Law::order,
               {"rank 0, push 2, op", "(copy) writes slot bytes [0, 16) of 'w' of rank 2",
                "unordered with the caller of rank 2, which reads them"});
}

TEST_CASE("broken plans: a violation has both ops with their bytes") {
  Planned planned = gather();
  drop(planned.plans[2], find(planned.plans[2], on_word(planned, OpKind::wait, WordKind::arrived)));
  const tide::Violation v = tide::verify(planned.collective, planned.plans).violations.at(0);
  CHECK(v.first.is_op());
  CHECK(v.first.rank == tide::Rank{0});
  CHECK(v.first.op == planned.plans[0].ops[static_cast<std::size_t>(v.first.seq)]);
  CHECK(v.first.lane.value == v.first.op.lane);
  CHECK(v.first.bytes == tide::ByteRange{tide::Rank{2}, {Space::slot, 0, 0}, 0, 16});
  CHECK_FALSE(v.second.is_op());
  CHECK(v.second.exists());
  CHECK(v.second.rank == tide::Rank{2});
  CHECK(v.second.bytes == v.first.bytes);
}

// snippet: broken-plan
TEST_CASE("broken plans: a dropped wait for a ready slot lets the next run overwrite what is being read") {
  check_broken(gather(),
               [](Planned& p) { drop(p.plans[0], find(p.plans[0], on_word(p, OpKind::wait, WordKind::ready))); },
               Law::reuse,
               {"the caller of rank 1 reads slot bytes [0, 16) of 'w' of rank 1", "rank 0, push 1, op",
                "(copy), which overwrites them in the next run"});
}
// end: broken-plan

TEST_CASE("broken plans: a missing ready handshake") {
  check_broken(gather(),
               [](Planned& p) {
                 for (Plan& plan : p.plans) {
                   drop_all(plan, on_word(p, OpKind::wait, WordKind::ready));
                   drop_all(plan, on_word(p, OpKind::signal, WordKind::ready));
                 }
               },
               Law::reuse, {"the caller of rank", "reads slot bytes", "overwrites them in the next run"});
}

TEST_CASE("broken plans: a push that does not wait for the caller's shards") {
  check_broken(
      gather(), [](Planned& p) { drop(p.plans[1], find(p.plans[1], on_word(p, OpKind::wait, WordKind::event))); },
      Law::order, {"the caller of rank 1 writes shards bytes [0, 16) of 'w' of rank 1", "push 1, op", "reads them"});
}

TEST_CASE("broken plans: a push that still reads when the caller writes the next shards") {
  check_broken(
      gather(),
      [](Planned& p) {
        const Which event = on_word(p, OpKind::wait, WordKind::event);
        drop(p.plans[1], find(p.plans[1], [&](const Op& o) { return event(o) && o.lane == 0; }));
      },
      Law::reuse,
      {"(copy) reads shards bytes", "unordered with the caller of rank 1, which overwrites them in the next run"});
}

TEST_CASE("broken plans: a signal before the copy that it announces") {
  check_broken(gather(),
               [](Planned& p) {
                 const std::size_t at = find(p.plans[0], on_word(p, OpKind::signal, WordKind::arrived));
                 std::swap(p.plans[0].ops[at - 1], p.plans[0].ops[at]);
               },
               Law::order,
               {"rank 0, push 1, op", "(copy) writes slot bytes [256, 260) of 'b' of rank 1", "which reads them"});
}

TEST_CASE("broken plans: peers are served from the slot before the cast has filled it") {
  check_broken(planned_gather<tide::UnicastTransport>(two.view(), 3, OwnBlock::cast),
               [](Planned& p) {
                 const std::size_t at = find(p.plans[0], on_word(p, OpKind::signal, WordKind::event));
                 std::swap(p.plans[0].ops[at - 1], p.plans[0].ops[at]);
               },
               Law::order, {"(cast) writes slot bytes [256, 260) of 'b' of rank 0", "(copy), which reads them"});
}

TEST_CASE("broken plans: an op that names another parameter than the one it moves") {
  const auto name = [](tide::Place Op::*side, OpKind kind) {
    return [=](Planned& p) {
      for (Plan& plan : p.plans) {
        for (Op& o : plan.ops) {
          if (o.kind == kind && (o.*side).parameter == 1) return static_cast<void>((o.*side).parameter = 0);
        }
      }
    };
  };
  check_broken(gather(), name(&Op::source, OpKind::copy), Law::agreement,
               {"rank 0, caller, op", "(copy) moves shards bytes [16, 20) of 'b' of rank 0", "which are not of 'w'"});
  check_broken(gather(), name(&Op::target, OpKind::copy), Law::agreement, {"which are not of 'w'"});
  check_broken(planned_gather<tide::MulticastTransport>(two.view(), 3), name(&Op::source, OpKind::multicast),
               Law::agreement, {"(multicast) moves", "which are not of 'w'"});
  check_broken(planned_gather<tide::UnicastTransport>(two.view(), 3, OwnBlock::cast), name(&Op::source, OpKind::cast),
               Law::agreement, {"(cast) moves master bytes", "which are not of 'w'"});
  check_broken(reduce(), name(&Op::source, OpKind::copy), Law::agreement,
               {"(copy) moves gradients bytes", "which are not of 'w'"});
}

TEST_CASE("broken plans: an exit too early") {
  check_broken(gather(), [](Planned& p) { --p.plans[1].exits[0].position; }, Law::reuse,
               {"rank 1, push 2, op", "(copy) reads shards bytes",
                "the caller of rank 1, which overwrites them in the next run"});
  check_broken(planned_gather<tide::MulticastTransport>(two.view(), 3),
               [](Planned& p) { p.plans[1].exits[0].position -= 2; }, Law::order,
               {"(multicast) writes slot bytes", "the caller of rank 1, which reads them"});
}

TEST_CASE("broken plans: an exit before the call, on a rank that owns nothing, and so touches nothing before it") {
  static constexpr auto one_row = tide::group(tide::param<tide::bf16>("w", {1, 3}));
  const auto exit_on_idle_lane = [](Planned& p) {
    Plan& plan = p.plans[1];
    const auto sum = tide::LaneIndex{static_cast<index_t>(plan.lanes.size()) - 1};
    REQUIRE(plan.lanes.back().kind == LaneKind::sum);
    REQUIRE(plan.exits[0].kind == tide::ExitKind::shards_ready);
    REQUIRE(plan.exits[0].lane != sum);
    plan.exits[0] = {tide::ExitKind::shards_ready, sum, 0};
  };
  check_broken(
      planned_reduce<tide::Ring<Chunks<2>, Bytes<768>>>(one_row.view(), 3), exit_on_idle_lane, Law::reuse,
      {"rank 1: exit shards_ready may come before the call of its run, so what waits for it does not wait for what the "
       "caller's stream did before"});
  check_broken(
      planned_reduce<tide::SlotReuse>(one_row.view(), 3), exit_on_idle_lane, Law::reuse,
      {"rank 1: exit shards_ready may come before the call of its run, so what waits for it does not wait for what the "
       "caller's stream did before"});
}

TEST_CASE("broken plans: no gather may be complete an op earlier, for the slot may be another pipeline's then") {
  static constexpr auto one_row = tide::group(tide::param<tide::bf16>("w", {1, 4}));
  int checked = 0;
  const auto check = [&](const Planned& planned) {
    for (std::size_t r = 0; r < planned.plans.size(); ++r) {
      Planned early = planned;
      tide::Exit& exit = early.plans[r].exits[0];
      REQUIRE(exit.kind == tide::ExitKind::complete);
      if (exit.position == 0) continue;  // a rank alone that has nothing to copy
      --exit.position;
      ++checked;
      CAPTURE(r);
      CHECK(!verify(early.collective, early.plans).holds());
    }
  };
  for (const auto& group : {two.view(), one_row.view()}) {
    for (const OwnBlock own : {OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast}) {
      CAPTURE(name(own));
      for (const index_t ranks : {1, 2, 3, 5}) check(planned_gather<tide::UnicastTransport>(group, ranks, own));
      for (const tide::MeshShape mesh : {tide::MeshShape{2, 1}, {3, 1}, {5, 1}, {2, 2}, {3, 2}, {2, 3}}) {
        CAPTURE(mesh.nodes);
        CAPTURE(mesh.ranks_per_node);
        check(planned_gather_on<tide::UnicastTransport>(group, mesh, own));
        const OwnBlock own_there = own == OwnBlock::copy ? OwnBlock::multicast : own;
        check(planned_gather_on<tide::MulticastTransport>(group, mesh, own_there));
      }
    }
  }
  CHECK(checked > 300);
}

TEST_CASE("broken plans: a gather that is complete while it still serves peers from the own slot") {
  // From masters nothing but the next run's cast writes there, and that comes behind the waits on the same lane.
  const auto before_waits = [](Planned& p) {
    Plan& plan = p.plans[0];
    std::int32_t waits = 0;
    for (const Op& op : plan.ops) {
      if (op.lane == 0 && op.kind == OpKind::wait && p.collective.words().kind(op.word()) == WordKind::event) ++waits;
    }
    REQUIRE(waits > 0);
    plan.exits[0].position -= waits;
  };
  check_broken(planned_gather<tide::UnicastTransport>(two.view(), 3, OwnBlock::cast), before_waits, Law::reuse,
               {"(copy) reads slot bytes", "the caller of rank 0, which overwrites them"});
}

TEST_CASE("broken plans: two writers of the same bytes, unordered") {
  check_broken(gather(),
               [](Planned& p) {  // rank 0 sends its second row to where rank 1 sends its first
                 Op& copy = op(p.plans[0], on_lane(p.plans[0], LaneKind::push, 2, OpKind::copy));
                 copy.target_offset = 16;
               },
               Law::delivery, {"slot bytes [16, 32) of 'w' of rank 2", "(copy) writes in the same run, too"});
}

TEST_CASE("broken plans: two writers of the same bytes, one after the other") {
  check_broken(gather(),
               [](Planned& p) {
                 const std::size_t at = find(p.plans[0], on_caller(OpKind::copy));
                 insert(p.plans[0], at, p.plans[0].ops[at]);
                 ++p.plans[0].exits[0].position;
               },
               Law::delivery,
               {"rank 0, caller, op", "writes slot bytes [0, 16) of 'w' of rank 0, which rank 0, caller, op"});
}

TEST_CASE("broken plans: an order that only memory apart from the plan could give is not trusted") {
  // Both pushes of rank 0 write to rank 1, on two lanes, with no order between them.
  check_broken(gather(),
               [](Planned& p) { op(p.plans[0], on_lane(p.plans[0], LaneKind::push, 2, OpKind::copy)).peer = 1; },
               Law::no_incast,
               {"(copy) to slot bytes [", "of 'w' of rank 1 and rank", "both go to rank 1 at step 0 of lanes push 2"});
}

// ---- delivery ------------------------------------------------------------------------------------------------------

TEST_CASE("broken plans: a block one byte too long") {
  const auto widen = [](int n) { return [n](Planned& p) { ++op(p.plans[2], on_caller(OpKind::copy), n).width; }; };
  check_broken(gather(), widen(0), Law::delivery,
               {"rank 2, caller, op", "writes slot bytes [48, 49) of 'w' of rank 2, which is padding"});
  check_broken(gather(), widen(1), Law::bounds, {"reads shards bytes [16, 21) of 'b' of rank 2, which has 20 bytes"});
  check_broken(gather(),
               [](Planned& p) { ++op(p.plans[0], on_lane(p.plans[0], LaneKind::push, 2, OpKind::copy)).width; },
               Law::delivery, {"slot bytes [16, 17) of 'w' of rank 2", "in the same run, too"});
}

TEST_CASE("broken plans: a write into padding") {
  check_broken(gather(), [](Planned& p) { op(p.plans[1], on_caller(OpKind::copy), 1).target_offset = 100; },
               Law::delivery,
               {"rank 1, caller, op", "writes slot bytes [100, 104) of 'w' of rank 1, which is padding"});
  check_broken(planned_reduce<tide::Ring<Chunks<2>, Bytes<1 << 20>>>(odd_group.view(), 1),
               [](Planned& p) { op(p.plans[0], on_lane(p.plans[0], LaneKind::sum, 0, OpKind::reduce), 0).width += 2; },
               Law::sum,
               {"rank 0, sum, op", "(reduce) writes output bytes [312, 316) of 'w' of rank 0, which is padding"});
}

TEST_CASE("broken plans: a dropped copy") {
  check_broken(
      gather(),
      [](Planned& p) { drop(p.plans[0], find(p.plans[0], on_lane(p.plans[0], LaneKind::push, 1, OpKind::copy))); },
      Law::delivery,
      {"the caller of rank 1 reads slot bytes [0, 16) of 'w' of rank 1, which no op has written in this run"});
}

TEST_CASE("broken plans: bytes that belong elsewhere") {
  check_broken(
      planned_gather<tide::MulticastTransport>(two.view(), 3),
      [](Planned& p) {
        Op& w = op(p.plans[0], on_lane(p.plans[0], LaneKind::push, 0, OpKind::multicast));
        w.rows = 2;
        w.width = 8;
        w.source_pitch = 0;
        w.target_pitch = 8;
      },
      Law::delivery,
      {"rank 0, push 0, op", "(multicast) writes slot bytes [8, 16) of 'w' of rank 0 with what belongs at [0, 8)"});
}

TEST_CASE("broken plans: a cast by the kernel of another element") {
  check_broken(planned_gather<tide::UnicastTransport>(mixed_group.view(), 2, OwnBlock::cast),
               [](Planned& p) {
                 Op& cast = op(p.plans[0], on_caller(OpKind::cast));
                 cast.kernel = static_cast<std::uint8_t>(cast.kernel == 0 ? 1 : 0);
               },
               Law::delivery, {"rank 0, caller, op", "(cast) writes slot bytes", "something else than its elements"});
}

TEST_CASE("broken plans: a copy that reads what it writes") {
  check_broken(planned_gather<tide::UnicastTransport>(two.view(), 1, OwnBlock::copy),
               [](Planned& p) {
                 Op copy = p.plans[0].ops[0];
                 copy.source = copy.target;
                 copy.target_offset = 8;
                 copy.width = 16;
                 p.plans[0].ops.push_back(copy);
                 ++p.plans[0].exits[0].position;
               },
               Law::order,
               {"rank 0, caller, op 2 (copy) writes slot bytes [8, 16) of 'w' of rank 0, which it reads as well"});
}

// ---- progress ------------------------------------------------------------------------------------------------------

TEST_CASE("broken plans: waits in a circle") {
  check_broken(gather(2),
               [](Planned& p) {  // each rank says that its slot is ready when the other's block has arrived
                 for (Plan& plan : p.plans) {
                   const std::size_t from = find(plan, on_word(p, OpKind::wait, WordKind::arrived));
                   const Op wait = plan.ops[from];
                   plan.ops.erase(plan.ops.begin() + static_cast<std::ptrdiff_t>(from));
                   insert(plan, 0, wait);
                 }
               },
               Law::progress,
               {"rank 0, caller, op 0 (wait), which waits for arrived[1] of rank 0", "behind rank 1, push 1, op",
                "which waits for event[0] of rank 1", "each waits for the next, the last for the first"});
}

TEST_CASE("broken plans: a wait before its own signal") {
  check_broken(gather(2),
               [](Planned& p) {
                 Plan& plan = p.plans[0];
                 const std::size_t from = find(plan, on_word(p, OpKind::signal, WordKind::arrived));
                 Op wait = op(plan, on_word(p, OpKind::wait, WordKind::event));
                 wait.target_offset = 8 * p.collective.words().word(WordKind::event, 5);
                 Op signal = wait;
                 signal.kind = OpKind::signal;
                 insert(plan, from, signal);
                 insert(plan, from, wait);
               },
               Law::progress, {"rank 0, push 1, op", "which waits for event[5] of rank 0, which comes behind it"});
}

TEST_CASE("broken plans: lanes whose order is safe only as long as they are not merged") {
  check_broken(gather(2),
               [](Planned& p) {  // the push lane's ops are issued before the signal that starts it
                 Plan& plan = p.plans[0];
                 std::stable_sort(plan.ops.begin(), plan.ops.end(),
                                  [](const Op& a, const Op& b) { return a.lane > b.lane; });
               },
               Law::progress,
               {"rank 0, push 1, op 0 (wait), which waits for event[0] of rank 0",
                "with the lanes of each rank merged into one"});
}

TEST_CASE("broken plans: a wrong epoch") {
  const auto epoch = [](index_t value) {
    return [value](Planned& p) { op(p.plans[0], on_word(p, OpKind::wait, WordKind::arrived)).width = value; };
  };
  check_broken(
      gather(), epoch(2), Law::progress,
      {"rank 0, caller, op",
       "waits for arrived[1] of rank 0 >= 2, which no signal raises to just that; the last is rank 1, push 2, op"});
  check_broken(gather(), epoch(0), Law::order, {"(copy) writes slot bytes", "the caller of rank 0, which reads them"});
  check_broken(gather(), epoch(-1), Law::order, {"(copy) writes slot bytes", "the caller of rank 0, which reads them"});
}

TEST_CASE("broken plans: a word that nobody raises, or that goes back") {
  check_broken(gather(),
               [](Planned& p) { drop(p.plans[1], find(p.plans[1], on_word(p, OpKind::signal, WordKind::arrived))); },
               Law::progress, {"rank 2, caller, op", "waits for arrived[1] of rank 2 >= 1, which nobody raises"});
  check_broken(reduce(),
               [](Planned& p) {
                 const Which arrived = on_word(p, OpKind::signal, WordKind::arrived);
                 const Which first = [&](const Op& o) { return arrived(o) && o.peer == 1; };
                 std::swap(op(p.plans[0], first, 0).width, op(p.plans[0], first, 1).width);
               },
               Law::progress, {"rank 0, push 1, op", "raises arrived[0] of rank 1 to 1 when it is 2; words only grow"});
  check_broken(gather(), [](Planned& p) { op(p.plans[1], on_word(p, OpKind::signal, WordKind::arrived)).width = 2; },
               Law::progress, {"rank 1, push 1, op", "raises arrived[1] of rank 2 to 2; in a run it goes from 1 to 1"});
}

// ---- agreement -----------------------------------------------------------------------------------------------------

TEST_CASE("broken plans: a word with two sources") {
  check_broken(
      gather(),
      [](Planned& p) {
        const Which arrived = on_word(p, OpKind::signal, WordKind::arrived);
        const Op theirs = op(p.plans[1], arrived);
        Op& ours = op(p.plans[0], arrived, 1);
        REQUIRE(ours.peer == theirs.peer);
        ours.target_offset = theirs.target_offset;
      },
      Law::agreement,
      {"rank 0, push 2, op", "and rank 1, push 1, op", "both raise arrived[1] of rank 2; a word has one source"});
  check_broken(gather(), [](Planned& p) { op(p.plans[1], on_word(p, OpKind::signal, WordKind::event)).peer = 2; },
               Law::agreement, {"rank 1, caller, op", "raises event[0] of rank 2; an event is of the own rank"});
}

TEST_CASE("broken plans: ranks that disagree about a word") {
  check_broken(reduce(), [](Planned& p) { ++op(p.plans[0], on_word(p, OpKind::wait, WordKind::arrived)).rows; },
               Law::agreement,
               {"rank 0, sum, op", "takes arrived[1] of rank 0 to grow by", "in a run, rank 1, push 2, op"});
  check_broken(reduce(), [](Planned& p) { ++op(p.plans[0], on_word(p, OpKind::signal, WordKind::arrived)).rows; },
               Law::agreement, {"rank 0, push 1, op", "lets arrived[0] of rank 1 grow by"});
}

TEST_CASE("broken plans: plans that do not belong together") {
  check_broken(gather(), [](Planned& p) { p.plans.pop_back(); }, Law::agreement,
               {"there are 2 plans for a mesh of 3 ranks"});
  check_broken(gather(), [](Planned& p) { std::swap(p.plans[0], p.plans[1]); }, Law::agreement,
               {"the plan in place 0 says that it is of rank 1"});
  check_broken(gather(),
               [](Planned& p) {
                 p.plans[0].lanes[0] = {LaneKind::net, 0};
               },
               Law::agreement, {"rank 0: lane 0 must be the caller's"});
  check_broken(gather(), [](Planned& p) { p.plans[0].lanes[2] = p.plans[0].lanes[1]; }, Law::agreement,
               {"rank 0: lane 1 must be of a known kind and differ"});
  check_broken(gather(),
               [](Planned& p) {
                 p.plans[0].lanes[1] = {LaneKind::sum, 0};
               },
               Law::agreement, {"rank 0: lane 'sum' has no place in a gather over 1x3 ranks"});
  check_broken(gather(), [](Planned& p) { p.plans[0].lanes[1].index = 3; }, Law::agreement,
               {"rank 0: lane 'push 3' has no place in a gather over 1x3 ranks"});
  check_broken(gather(), [](Planned& p) { p.plans[1].exits.clear(); }, Law::agreement,
               {"rank 1 has 0 exits complete; a gather has one"});
  check_broken(reduce(), [](Planned& p) { p.plans[1].exits.push_back(p.plans[1].exits[0]); }, Law::agreement,
               {"rank 1 has 2 exits shards_ready"});
  check_broken(gather(), [](Planned& p) { p.plans[1].exits[0].position = 99; }, Law::bounds,
               {"rank 1: exit complete is after op 99 of caller"});
  check_broken(reduce(), [](Planned& p) { p.collective.inbox.pieces = 3; }, Law::agreement,
               {"it needs 1 to 256 chunks of 2 pieces"});
}

// ---- bounds --------------------------------------------------------------------------------------------------------

TEST_CASE("broken plans: places that do not exist") {
  const auto set = [](auto change) {
    return [change](Planned& p) { change(op(p.plans[1], on_caller(OpKind::copy))); };
  };
  check_broken(gather(), set([](Op& o) { o.kind = static_cast<OpKind>(9); }), Law::bounds,
               {"(kind 9) is of a kind that does not exist"});
  check_broken(gather(), set([](Op& o) { o.lane = 7; }), Law::bounds,
               {"rank 1, lane 7, op", "is on a lane that the plan does not have"});
  check_broken(gather(), set([](Op& o) { o.peer = 3; }), Law::bounds,
               {"rank 1, caller, op", "names rank 3, which does not exist"});
  check_broken(gather(), set([](Op& o) { o.peer = -1; }), Law::bounds, {"names rank -1"});
  check_broken(gather(), set([](Op& o) { o.source.instance = 1; }), Law::bounds,
               {"reads shards 1, of which there are 1"});
  check_broken(gather(), set([](Op& o) { o.source.parameter = 2; }), Law::bounds,
               {"parameter 2, which the group does not have"});
  check_broken(gather(), set([](Op& o) { o.source.space = Space::gradients; }), Law::bounds, {"which has 0 bytes"});
  check_broken(gather(), set([](Op& o) { o.source.space = Space::signals; }), Law::bounds,
               {"reads space signals, which no op may move"});
  check_broken(gather(), set([](Op& o) { o.target.space = Space::shards; }), Law::bounds,
               {"may not write to space shards"});
  check_broken(gather(), set([](Op& o) { o.target_offset = -8; }), Law::bounds, {"writes slot bytes [-8, "});
  check_broken(gather(), set([](Op& o) { o.target_offset = INT64_MAX - 4; }), Law::bounds, {"writes slot bytes"});
  check_broken(gather(), set([](Op& o) { o.width = 0; }), Law::bounds, {"reads no bytes"});
  check_broken(gather(), set([](Op& o) { o.rows = 0; }), Law::bounds, {"reads no bytes"});
  check_broken(gather(), set([](Op& o) {
                 o.rows = UINT32_MAX;
                 o.source_pitch = UINT32_MAX;
               }),
               Law::bounds, {"reads shards bytes"});
  check_broken(gather(), set([](Op& o) {
                 o.rows = 2;
                 o.width = 8;
                 o.target_pitch = 4;
                 o.source_pitch = 8;
               }),
               Law::bounds, {"writes rows of 8 bytes that are 4 bytes apart"});
  check_broken(gather(), set([](Op& o) {
                 o.kind = OpKind::put;
                 o.peer = 0;
               }),
               Law::bounds, {"(put) goes to a rank of the same node"});
  check_broken(gather(), [](Planned& p) { op(p.plans[0], on_caller(OpKind::wait)).target_offset += 4; }, Law::bounds,
               {"where no word is"});
  check_broken(gather(), [](Planned& p) { op(p.plans[0], on_caller(OpKind::signal)).target_offset = 1 << 20; },
               Law::bounds, {"where no word is"});
}

TEST_CASE("broken plans: elements that are not aligned") {
  check_broken(planned_gather<tide::UnicastTransport>(two.view(), 2, OwnBlock::cast),
               [](Planned& p) { ++op(p.plans[0], on_caller(OpKind::cast)).target_offset; }, Law::bounds,
               {"(cast) writes slot bytes [1, 25) of 'w' of rank 0, not aligned to elements of 2 bytes"});
  check_broken(reduce(),
               [](Planned& p) { ++op(p.plans[0], on_lane(p.plans[0], LaneKind::sum, 0, OpKind::reduce)).extra_offset; },
               Law::bounds, {"(reduce) reads inbox chunk 0 bytes [1, ", "not aligned to elements of 2 bytes"});
}

TEST_CASE("broken plans: a block over two gradients that each have a pointer") {
  // Storage lets a block run from one parameter into the next; pointers do not.
  constexpr auto touching = tide::group(tide::param<float>("a", {64}), tide::param<float>("b", {64}));
  const Planned planned = planned_reduce<tide::Ring<Chunks<2>, Bytes<4096>>>(touching.view(), 1);
  REQUIRE(planned.plans[0].ops[2].kind == OpKind::reduce);
  REQUIRE(planned.plans[0].ops[2].width == 512);
  check_broken(planned, [](Planned& p) { p.collective.gradients = tide::GradientSource::table; }, Law::bounds,
               {"rank 0, sum, op 2 (reduce) reads gradients bytes [0, 512) of 'a' of rank 0, which lies in [0, 256), "
                "behind a pointer of its own"});
}

// ---- partition -----------------------------------------------------------------------------------------------------

struct Overlapping {
  static constexpr index_t begin(index_t rows, index_t ranks, index_t rank) noexcept {
    return rank == 1 ? rows + 1 : rank == ranks ? rows : 0;
  }
};

TEST_CASE("broken plans: a layout whose pieces are no partition") {
  constexpr auto overlapping = tide::group(tide::param<tide::bf16>("w", {6, 4}, tide::shard_by<Overlapping>()));
  check_broken(gather(), [&](Planned& p) { p.collective.layout.group = overlapping.view(); }, Law::partition,
               {"a shard rule must cut all rows into consecutive ranges", "'w'"});
  check_broken(gather(),
               [&](Planned& p) {
                 p.collective.layout.mesh = {1 << 20, 1 << 20};
               },
               Law::partition, {"the mesh is 1048576x1048576"});
  check_broken(gather(), [&](Planned& p) { p.collective.layout.storage_alignment = 0; }, Law::partition,
               {"alignments be 1 to 2^30"});
}

// ---- sums ----------------------------------------------------------------------------------------------------------

TEST_CASE("broken plans: two swapped inputs of the tree") {
  check_broken(
      reduce(4),
      [](Planned& p) {  // ranks 1 and 2 push to rank 0 where the other should
        const index_t piece = p.collective.inbox.piece_bytes();
        for (const auto& [rank, lane, by] : {std::tuple(1, 3, piece), std::tuple(2, 2, -piece)}) {
          Plan& plan = p.plans[static_cast<std::size_t>(rank)];
          const Which push = on_lane(plan, LaneKind::push, lane, OpKind::copy);
          for (Op& o : plan.ops) o.target_offset += push(o) ? by : 0;
        }
      },
      Law::sum,
      {"rank 0, sum, op", "(reduce) adds inbox chunk 0 bytes",
       "of 'w' of rank 0, where the gradient of rank 1, bytes [0, ", "should be; there is that of rank 2, bytes [0, "});
}

TEST_CASE("broken plans: the own gradient in a wrong place of the tree") {
  check_broken(
      reduce(), [](Planned& p) { op(p.plans[1], on_lane(p.plans[1], LaneKind::sum, 0, OpKind::reduce)).peer = 0; },
      Law::sum, {"rank 1, sum, op", "writes output bytes", "with its own gradient in position 0 of the tree, not 1"});
}

TEST_CASE("broken plans: a sum of other elements, other inputs, another finish") {
  const Planned mixed = planned_reduce<tide::Ring<Chunks<2>, Bytes<4096>>>(mixed_group.view(), 2);
  check_broken(mixed,
               [](Planned& p) {
                 p.collective.kernels.push_back(p.collective.kernels.at(1));
                 p.collective.kernels.back().input = tide::Element::f16;
                 const Which sum = on_lane(p.plans[0], LaneKind::sum, 0, OpKind::reduce);
                 for (Op& o : p.plans[0].ops) {
                   if (sum(o) && o.kernel == 1) o.kernel = static_cast<std::uint8_t>(p.collective.kernels.size() - 1);
                 }
               },
               Law::sum, {"rank 0, sum, op", "adds gradients bytes", "by a kernel for another element"});
  check_broken(mixed, [](Planned& p) { p.collective.kernels[0].inputs = 3; }, Law::sum,
               {"adds 3 inputs by kernel 0; the collective needs 2 inputs"});
  check_broken(mixed, [](Planned& p) { p.collective.kernels[0].finish = tide::Finish::accumulate; }, Law::sum,
               {"its own finish"});
  check_broken(mixed, [](Planned& p) { p.collective.kernels[0].kind = tide::Kernel::Kind::cast; }, Law::bounds,
               {"names kernel 0, which does something else"});
  check_broken(mixed, [](Planned& p) { p.collective.kernels.clear(); }, Law::bounds,
               {"names kernel 0, which the collective does not have"});
}

TEST_CASE("broken plans: a dropped sum, and one done twice") {
  const auto sums = [](Plan& plan) { return on_lane(plan, LaneKind::sum, 0, OpKind::reduce); };
  check_broken(reduce(), [&](Planned& p) { drop(p.plans[1], find(p.plans[1], sums(p.plans[1]))); }, Law::sum,
               {"the caller of rank 1 reads output bytes", "which no op has written in this run"});
  check_broken(reduce(),
               [&](Planned& p) {
                 const std::size_t at = find(p.plans[1], sums(p.plans[1]));
                 insert(p.plans[1], at, p.plans[1].ops[at]);
                 for (tide::Exit& exit : p.plans[1].exits) ++exit.position;
               },
               Law::sum,
               {"rank 1, sum, op", "writes output bytes", "which rank 1, sum, op", "writes in the same run, too"});
}

TEST_CASE("broken plans: a push of other bytes") {
  check_broken(
      reduce(),
      [](Planned& p) { op(p.plans[2], on_lane(p.plans[2], LaneKind::push, 1, OpKind::copy)).source_offset += 2; },
      Law::sum,
      {"rank 0, sum, op",
       "where the gradient of rank 2, bytes [0, 128), should be; there is that of rank 2, bytes [2, 130)"});
}

TEST_CASE("broken plans: a chunk that is used again without a credit") {
  check_broken(
      reduce(),
      [](Planned& p) {
        const Which credit = on_word(p, OpKind::wait, WordKind::credit);
        drop(p.plans[1], find(p.plans[1], credit, 2));
      },
      Law::reuse,
      {"(reduce) reads inbox chunk", "of rank 2, unordered with rank 1, push 1, op", "(copy), which overwrites them"});
  check_broken(reduce(),
               [](Planned& p) {
                 for (Plan& plan : p.plans) {
                   drop_all(plan, on_word(p, OpKind::wait, WordKind::credit));
                   drop_all(plan, on_word(p, OpKind::signal, WordKind::credit));
                 }
               },
               Law::reuse, {"inbox chunk", "overwrites them"});
}

TEST_CASE("broken plans: a sum that does not wait for its pieces") {
  check_broken(reduce(),
               [](Planned& p) { drop(p.plans[1], find(p.plans[1], on_word(p, OpKind::wait, WordKind::arrived))); },
               Law::order,
               {"rank 2, push 2, op", "(copy) writes inbox chunk 0 bytes", "of 'w' of rank 1", "rank 1, sum, op",
                "(reduce), which reads them"});
}

TEST_CASE("broken plans: gradients are declared free while they are read") {
  check_broken(
      reduce(), [](Planned& p) { --p.plans[0].exits[1].position; }, Law::reuse,
      {"rank 0, push", "(copy) reads gradients bytes", "the caller of rank 0, which overwrites them in the next run"});
}

TEST_CASE("broken plans: the output is declared ready while it is written") {
  check_broken(
      reduce(),
      [](Planned& p) {
        REQUIRE(p.plans[0].exits[0].kind == tide::ExitKind::shards_ready);
        const std::size_t last = find(p.plans[0], on_lane(p.plans[0], LaneKind::sum, 0, OpKind::reduce), 2);
        const auto& ops = p.plans[0].ops;
        p.plans[0].exits[0].position =
            static_cast<std::int32_t>(std::count_if(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(last),
                                                    [&](const Op& o) { return o.lane == ops[last].lane; }));
      },
      Law::order,
      {"rank 0, sum, op", "(reduce) writes output bytes", "unordered with the caller of rank 0, which reads them"});
}

// ---- rows that are followed together --------------------------------------------------------------------------------

// 8 rows of 24 bytes, of which each of three ranks has 8.
constexpr auto in_rows = tide::group(tide::param<tide::bf16>("w", {8, 12}, tide::shard(1)));

TEST_CASE("broken plans: of rows that are copied together, the first one that is wrong is named") {
  check_broken(
      planned_gather<tide::UnicastTransport>(in_rows.view(), 3),
      [](Planned& p) {
        Op& o = op(p.plans[0], on_lane(p.plans[0], LaneKind::push, 1, OpKind::copy));
        REQUIRE(o.rows == 8);
        o.source_pitch = 6;
      },
      Law::delivery,
      {"rank 0, push 1, op", "(copy) writes slot bytes [24, 26) of 'w' of rank 1 with what belongs at [6, 8)"});
  check_broken(planned_reduce<tide::Ring<Chunks<1>, Bytes<768>>>(in_rows.view(), 3),
               [](Planned& p) {
                 Op& o = op(p.plans[0], on_lane(p.plans[0], LaneKind::push, 1, OpKind::copy));
                 REQUIRE(o.rows == 8);
                 o.source_pitch -= 2;
               },
               Law::sum,
               {"rank 1, sum, op", "(reduce) adds inbox chunk 0 bytes [8, 16) of 'w' of rank 1",
                "where the gradient of rank 0, bytes [32, 40), should be; there is that of rank 0, bytes [30, 38)"});
}

TEST_CASE("broken plans: one row too many among those that were copied together") {
  const auto twice = [](Planned& p) {
    const std::size_t at = find(p.plans[0], on_lane(p.plans[0], LaneKind::push, 1, OpKind::copy));
    Op o = p.plans[0].ops[at];
    o.source_offset += 5 * static_cast<index_t>(o.source_pitch);
    o.target_offset += 5 * static_cast<index_t>(o.target_pitch);
    o.rows = 1;
    insert(p.plans[0], at + 1, o);
  };
  check_broken(planned_gather<tide::UnicastTransport>(in_rows.view(), 3), twice, Law::delivery,
               {"rank 0, push 1, op", "(copy) writes slot bytes [120, 128) of 'w' of rank 1, which rank 0, push 1, op",
                "(copy) writes in the same run, too"});
}

TEST_CASE("broken plans: one row of many that nobody waits for") {
  check_broken(planned_gather<tide::UnicastTransport>(in_rows.view(), 3),
               [](Planned& p) {
                 Plan& plan = p.plans[0];
                 const std::size_t at = find(plan, on_lane(plan, LaneKind::push, 1, OpKind::copy));
                 Op o = plan.ops[at];
                 plan.ops[at].rows = 7;
                 o.source_offset += 7 * static_cast<index_t>(o.source_pitch);
                 o.target_offset += 7 * static_cast<index_t>(o.target_pitch);
                 o.rows = 1;
                 insert(plan, find(plan, on_lane(plan, LaneKind::push, 1, OpKind::signal)) + 1, o);
               },
               Law::order,
               {"rank 0, push 1, op", "(copy) writes slot bytes [168, 176) of 'w' of rank 1",
                "unordered with the caller of rank 1, which reads them"});
}

}  // namespace
