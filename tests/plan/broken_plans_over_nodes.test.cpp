// SPDX-License-Identifier: Apache-2.0
//
// Plans over nodes that are broken in one way each, and the reason that `verify` gives: what puts, network inboxes,
// paces and rails add to the ways of broken_plans.test.cpp.

#include <doctest/doctest.h>

#include <tide/plan/print.hpp>

#include "support/break_plans.hpp"
#include "support/interpreter.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace broken_plans_over_nodes_test {

using namespace tide_test;
using namespace tide_test::breaking;
using tide::index_t;
using tide::LaneKind;
using tide::Law;
using tide::MeshShape;
using tide::Op;
using tide::OpKind;
using tide::Plan;
using tide::Space;
using tide::WordKind;

using Whole = tide::RdmaDoublingTransport<>;
using Tight = tide::RdmaDoublingTransport<tide::Bytes<16>, tide::PutsInFlight<2>>;

// 8 bytes a row.
constexpr auto rows = tide::group(tide::param<tide::bf16>("w", {12, 4}), tide::param<tide::bf16>("b", {12}));

template <class Inter = Whole>
Planned gather(MeshShape mesh = {3, 1}) {
  return planned_gather_on<tide::UnicastTransport, Inter>(rows.view(), mesh);
}

Which puts() {
  return [](const Op& o) { return o.kind == OpKind::put; };
}
Which puts_to(int peer) {
  return [peer](const Op& o) { return o.kind == OpKind::put && o.peer == peer; };
}
Which net(const Planned& p, OpKind kind, WordKind word) {
  return [which = on_word(p, kind, word), &p](const Op& o) {
    return which(o) && p.plans[0].lanes[o.lane].kind == LaneKind::net;
  };
}

TEST_CASE("broken plans over nodes: a dropped put") {
  check_broken(gather(), [](Planned& p) { drop(p.plans[0], find(p.plans[0], puts())); }, Law::progress,
               {"rank 1, net, op", "waits for arrived[0] of rank 1 >= 1, which nobody raises"});
  check_broken(gather<Tight>(), [](Planned& p) { drop(p.plans[0], find(p.plans[0], puts_to(1), 1)); }, Law::progress,
               {"rank 1, net, op", "which no signal raises to just that"});
}

TEST_CASE("broken plans over nodes: a put to the wrong rail peer, or to another rail") {
  check_broken(gather(), [](Planned& p) { op(p.plans[0], puts_to(1)).peer = 2; }, Law::progress,
               {"rank 0, net, op", "(put) to network_inbox bytes [",
                "of 'w' of rank 2 raises arrived[0] of rank 2 to 1", "when it is 1; words only grow"});
  check_broken(gather({2, 2}), [](Planned& p) { op(p.plans[0], puts_to(2)).peer = 3; }, Law::no_incast,
               {"rank 0, net, op", "(put) to network_inbox bytes [", "and rank 1, net, op",
                "both go to rank 3 at step 0 of lanes net"});
  check_broken(gather(), [](Planned& p) { op(p.plans[0], puts_to(1)).source_offset = 8; }, Law::bounds,
               {"rank 0, net, op", "(put) reads shards bytes [8, 48) of 'w' of rank 0, which has 40 bytes"});
}

TEST_CASE("broken plans over nodes: a put of other bytes, or to another place") {
  const auto shift = [](index_t from, index_t to) {
    return [=](Planned& p) {
      Op& put = op(p.plans[0], puts_to(1));
      put.source_offset += from;
      put.target_offset += to;
      put.width -= from;
    };
  };
  check_broken(
      gather(), shift(8, 0), Law::delivery,
      {"rank 1, push 0, op", "(copy) writes slot bytes [0, 24) of 'w' of rank 1 with what belongs at [8, 32)"});
  check_broken(gather(), shift(8, 8), Law::delivery,
               {"rank 1, push 0, op", "(copy) writes slot bytes [0, 8) of 'w' of rank 1 with something else"});
}

TEST_CASE("broken plans over nodes: a put within a node, of several rows, from or to where none goes") {
  const auto set = [](auto change) { return [change](Planned& p) { change(op(p.plans[0], puts())); }; };
  check_broken(gather({2, 2}), set([](Op& o) { o.peer = 1; }), Law::bounds,
               {"rank 0, net, op", "(put) goes to a rank of the same node; that takes a copy"});
  check_broken(gather(), set([](Op& o) { o.rows = 2; }), Law::bounds, {"(put) has 2 rows; a put is contiguous"});
  check_broken(gather(), set([](Op& o) { o.source.space = Space::slot; }), Law::bounds,
               {"(put) may not be put from space slot"});
  check_broken(gather(), set([](Op& o) { o.target.space = Space::slot; }), Law::bounds,
               {"(put) may not write to space slot"});
  check_broken(gather(), set([](Op& o) { o.extra_offset = 3; }), Law::bounds, {"(put) names signals byte 3, where no"});
  check_broken(gather(), set([](Op& o) { o.target.instance = 1; }), Law::bounds,
               {"(put) writes network_inbox 1, of which there are 1"});
  check_broken(gather(), set([](Op& o) { o.target_offset += 4096; }), Law::bounds,
               {"(put) writes network_inbox bytes [4", "of 'w' of rank 1, which has 96 bytes"});
  check_broken(gather({2, 2}),
               [](Planned& p) {
                 Op& copy = op(p.plans[0], on_lane(p.plans[0], LaneKind::push, 1, OpKind::copy));
                 copy.peer = 2;
               },
               Law::bounds, {"rank 0, push 1, op", "(copy) goes to a rank of another node; that takes a put"});
}

TEST_CASE("broken plans over nodes: puts to one rank on two lanes") {
  check_broken(gather<Tight>(),
               [](Planned& p) {
                 p.plans[0].lanes.push_back({LaneKind::net, 1});
                 op(p.plans[0], puts_to(1), 1).lane = static_cast<std::uint16_t>(p.plans[0].lanes.size() - 1);
               },
               Law::bounds,
               {"rank 0, net 1, op", "(put) goes to rank 1, as puts of net do; all puts to a rank are on one lane"});
}

TEST_CASE("broken plans over nodes: a lane that is no net lane waits for another node") {
  check_broken(gather({2, 1}),
               [](Planned& p) {
                 const std::size_t at = find(p.plans[1], net(p, OpKind::wait, WordKind::arrived));
                 Op wait = p.plans[1].ops[at];
                 wait.lane = 0;
                 p.plans[1].ops.push_back(wait);
               },
               Law::agreement,
               {"rank 1, caller, op", "waits for another node, which only a net lane may, by rank 0, net, op"});
}

TEST_CASE("broken plans over nodes: what came is spread before it has come") {
  const auto push_event = [](const Planned& p) {
    return [which = on_word(p, OpKind::wait, WordKind::event), &p](const Op& o) {
      return which(o) && p.plans[0].lanes[o.lane].kind == LaneKind::push;
    };
  };
  // The wait for the second round names the first: a spread from the wrong round.
  check_broken(gather(), [&](Planned& p) { drop(p.plans[0], find(p.plans[0], push_event(p), 1)); }, Law::order,
               {"rank 1, net, op", "(put) writes network_inbox bytes", "of rank 0", "unordered with rank 0, push 0, op",
                "(copy), which reads them"});
  check_broken(gather(), [&](Planned& p) { op(p.plans[0], push_event(p), 1).width = 1; }, Law::order,
               {"(put) writes network_inbox bytes", "(copy), which reads them"});
  // The net lane says that something came before it knows.
  check_broken(gather(),
               [](Planned& p) { drop(p.plans[0], find(p.plans[0], net(p, OpKind::wait, WordKind::arrived))); },
               Law::order, {"rank 2, net, op", "(put) writes network_inbox bytes", "(copy), which reads them"});
}

TEST_CASE("broken plans over nodes: a block is passed on before it has come") {
  check_broken(gather({4, 1}),
               [](Planned& p) {  // rank 1 puts in the second round what it does not wait for
                 const std::size_t at = find(p.plans[1], net(p, OpKind::wait, WordKind::arrived));
                 const Op wait = p.plans[1].ops[at];
                 const std::size_t put = find(p.plans[1], puts_to(3), 1);
                 insert(p.plans[1], put + 1, wait);
                 p.plans[1].ops.erase(p.plans[1].ops.begin() + static_cast<std::ptrdiff_t>(at));
               },
               Law::order,
               {"rank 0, net, op", "(put) writes network_inbox bytes", "of rank 1, unordered with rank 1, net, op",
                "(put), which reads them"});
}

TEST_CASE("broken plans over nodes: spread from the wrong place, of another node") {
  check_broken(gather(),
               [](Planned& p) {
                 const Which copies = on_lane(p.plans[0], LaneKind::push, 0, OpKind::copy);
                 Op& copy = op(p.plans[0], copies, 2);
                 REQUIRE(copy.source.space == Space::network_inbox);
                 copy.source_offset += 8;
                 copy.width = 8;
                 copy.rows = 1;
               },
               Law::delivery, {"rank 0, push 0, op", "(copy) writes slot bytes", "with what belongs at ["});
}

TEST_CASE("broken plans over nodes: a network inbox is used again without a word from its rank") {
  const auto no_ready = [](Planned& p) { drop(p.plans[0], find(p.plans[0], net(p, OpKind::wait, WordKind::ready))); };
  check_broken(gather(), no_ready, Law::reuse,
               {"the caller of rank 1 writes network_inbox bytes [", "of rank 1, unordered with rank 0, net, op",
                "(put), which writes them, too in the next run"});
  check_broken(
      gather(),
      [](Planned& p) {  // said when the run begins, but before the slot is there
        drop(p.plans[1], find(p.plans[1], net(p, OpKind::wait, WordKind::event)));
      },
      Law::order,
      {"the caller of rank 1 writes shards bytes", "unordered with rank 1, net, op", "(put), which reads them"});
}

TEST_CASE("broken plans over nodes: the caller is told while the net lane still reads") {
  // One rank owns all: the others' last ops are puts.
  constexpr auto one = tide::group(tide::param<tide::bf16>("w", {1, 64}));
  check_broken(planned_gather_on<tide::UnicastTransport, Whole>(one.view(), {2, 1}),
               [](Planned& p) { drop(p.plans[0], find(p.plans[0], on_word(p, OpKind::wait, WordKind::event), 1)); },
               Law::reuse,
               {"rank 0, net, op", "(put) reads shards bytes [0, 128) of 'w' of rank 0",
                "the caller of rank 0, which overwrites them in the next run"});
  check_broken(
      planned_gather_on<tide::UnicastTransport, Whole>(one.view(), {4, 1}),
      [](Planned& p) {
        const Which event = on_word(p, OpKind::wait, WordKind::event);
        drop(p.plans[1], find(p.plans[1], [&](const Op& o) { return event(o) && o.lane == 0; }));
      },
      Law::reuse,
      {"rank 1, net, op", "(put) reads network_inbox bytes [0, 128)", "the caller of rank 1, which overwrites them"});
}

TEST_CASE("broken plans over nodes: more puts on their way than the collective allows") {
  const Planned tight = planned_gather_on<tide::UnicastTransport, Tight>(rows.view(), {4, 1});
  const auto credit = [](const Planned& p) { return net(p, OpKind::wait, WordKind::credit); };
  check_broken(tight, [&](Planned& p) { drop(p.plans[0], find(p.plans[0], credit(p))); }, Law::bounds,
               {"rank 0, net, op", "(put) to network_inbox bytes [", "is issued when rank 0, net, op",
                " may still be on its way to rank", "more are in flight than the collective allows"});
  check_broken(gather<Tight>(), [](Planned& p) { p.collective.network.puts_in_flight = 1; }, Law::bounds,
               {"(put) to network_inbox bytes [", "of rank 1 may still be on its way"});
  check_broken(gather(), [](Planned& p) { p.collective.network.puts_in_flight = 0; }, Law::bounds,
               {"(put) may not be in flight: the collective allows no put"});
}

TEST_CASE("broken plans over nodes: all ranks put to one at a time") {
  check_broken(gather({4, 1}),
               [](Planned& p) {  // rank 0 first, then rank 1, whoever it is that puts
                 for (Plan& plan : p.plans) {
                   std::int32_t last = -1;
                   std::int32_t target = -1;
                   for (Op& o : plan.ops) {
                     if (o.kind != OpKind::put) continue;
                     if (o.peer != last) target += target + 1 == plan.rank.value ? 2 : 1;
                     last = o.peer;
                     o.peer = target;
                   }
                 }
               },
               Law::no_incast, {"rank 1, net, op", "and rank 3, net, op", "both go to rank 0 at step 0 of lanes net"});
}

TEST_CASE("broken plans over nodes: a network that is none") {
  check_broken(planned_gather_on<tide::UnicastTransport, Whole>(rows.view(), {1, 2}),
               [](Planned& p) { p.collective.network.inbox_bytes = 64; }, Law::agreement,
               {"a mesh of one node has nothing on a network"});
  check_broken(gather(), [](Planned& p) { p.collective.network.inbox_instances = 300; }, Law::agreement,
               {"the network has 300 inboxes of 96 bytes"});
  check_broken(gather(), [](Planned& p) { p.collective.network.inbox_bytes = -1; }, Law::agreement,
               {"none may be negative"});
}

/// A gather of two nodes in which rank 1 does not wait for the word of rank 0's put, but for a word that a signal
/// raises behind the put: on the net lane of rank 0, or by its caller, who has waited for that lane.
Planned announced_by_signal(bool by_caller) {
  Planned planned = gather({2, 1});
  const tide::SignalWords words = planned.collective.words();
  Plan& sender = planned.plans[0];
  Op signal;
  signal.kind = OpKind::signal;
  signal.peer = 1;
  signal.source = signal.target = {Space::signals, 0, 0};
  signal.target_offset = 8 * words.word(WordKind::credit, 0);
  signal.width = 1;
  const std::size_t put = find(sender, puts());
  if (by_caller) {
    Op event = signal;
    event.lane = sender.ops[put].lane;
    event.peer = 0;
    event.target_offset = 8 * words.word(WordKind::event, 4);
    Op wait = event;
    wait.kind = OpKind::wait;
    wait.lane = 0;
    insert(sender, put + 1, event);
    insert(sender, put + 2, wait);
    insert(sender, put + 3, signal);
    sender.exits[0].position += 2;
  } else {
    signal.lane = sender.ops[put].lane;
    insert(sender, put + 1, signal);
  }
  op(planned.plans[1], net(planned, OpKind::wait, WordKind::arrived)).target_offset = signal.target_offset;
  return planned;
}

TEST_CASE("verify over nodes: a signal behind a put on the same lane comes behind its bytes") {
  const Planned planned = announced_by_signal(false);
  CHECK(tide::verify(planned.collective, planned.plans).holds());
  CHECK(run_schedules(planned.collective, planned.plans, 20) == "");
}

TEST_CASE("verify over nodes: that a put's lane has gone on says nothing of its bytes") {
  const Planned planned = announced_by_signal(true);
  const tide::Verdict verdict = tide::verify(planned.collective, planned.plans);
  REQUIRE_FALSE(verdict.holds());
  CHECK(verdict.violations[0].law == Law::order);
  CHECK(verdict.violations[0].text.find("(put) writes network_inbox bytes") != std::string::npos);
  CHECK(run_schedules(planned.collective, planned.plans, 40) != "");
}

/// A reduce into a slot, over nodes, that says `shards_ready` on lane `sum 1` before its puts of the last round are
/// done.
///
/// The wait for them stands on lane `sum` instead, behind `gradients_free`: the caller knows of it in the next run.
Planned ready_before_the_last_put() {
  static constexpr auto group =
      tide::group(tide::param<tide::bf16>("w", {9, 40}), tide::param<tide::bf16>("v", {6, 24}, tide::shard(1)),
                  tide::param<tide::bf16>("b", {50}));
  Planned planned = planned_reduce<tide::SlotReuseWithin<tide::Bytes<1600>, tide::Chunks<1>>>(
      group.view(), MeshShape{4, 2}, tide::Exchange::doubling);
  Plan& plan = planned.plans[6];
  const auto lane = [&](int index) {
    return static_cast<std::uint16_t>(
        std::find(plan.lanes.begin(), plan.lanes.end(), tide::Lane{LaneKind::sum, index}) - plan.lanes.begin());
  };
  std::size_t last = plan.ops.size() - 1;
  while (plan.ops[last].lane != lane(1)) --last;
  const tide::SignalWords words = planned.collective.words();
  REQUIRE(on_word(planned, OpKind::wait, WordKind::event)(plan.ops[last]));
  REQUIRE(plan.lanes[static_cast<std::size_t>(words.index(plan.ops[last].word()))] == tide::Lane{LaneKind::net, 1});
  for (tide::Exit& exit : plan.exits) exit.position -= exit.lane.value == lane(1) ? 1 : 0;
  plan.ops[last].lane = lane(0);
  return planned;
}

/// The same plan, its lane `i` at place `places[i]`.
void rename_lanes(const tide::SignalWords& words, Plan& plan, const std::vector<std::uint16_t>& places) {
  const std::vector<tide::Lane> lanes = plan.lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) plan.lanes[places[i]] = lanes[i];
  for (Op& op : plan.ops) {
    op.lane = places[op.lane];
    if (op.moves() || words.kind(op.word()) != WordKind::event) continue;
    op.target_offset = 8 * words.word(WordKind::event, places[static_cast<std::size_t>(words.index(op.word()))]);
  }
  for (tide::Exit& exit : plan.exits) exit.lane = tide::LaneIndex{places[static_cast<std::size_t>(exit.lane.value)]};
}

TEST_CASE("broken plans over nodes: a put that reads a slot which is given away is seen where its lane is late") {
  const Planned broken = ready_before_the_last_put();
  const PlanOracle oracle(broken.collective, Interpreter::runs, 1);
  Interpreter interpreter(broken.collective, broken.plans, oracle);
  CHECK(interpreter.run({6, Schedule::Kind::freeze_lane, 5}).find("run 0: output byte") != std::string::npos);
}

TEST_CASE("broken plans over nodes: a slot is given away while a put still reads it, however lanes are numbered") {
  const Planned broken = ready_before_the_last_put();
  std::vector<std::uint16_t> places(broken.plans[6].lanes.size());
  std::iota(places.begin(), places.end(), std::uint16_t{0});
  do {  // the caller's lane stays the first
    Planned planned = broken;
    rename_lanes(planned.collective.words(), planned.plans[6], places);
    const tide::Verdict verdict = tide::verify(planned.collective, planned.plans);
    REQUIRE_FALSE(verdict.holds());
    const tide::Violation& first = verdict.violations.front();
    CAPTURE(first.text);
    CHECK(first.law == Law::reuse);
    CHECK(first.text.find("rank 6, net 1, op") == 0);
    CHECK(first.text.find("(put) reads inbox chunk 0 bytes [1408, 1580) of 'w' of rank 6, unordered with the caller of "
                          "rank 6, which overwrites them in the next run") != std::string::npos);
  } while (std::next_permutation(places.begin() + 1, places.end()));
}

}  // namespace broken_plans_over_nodes_test
