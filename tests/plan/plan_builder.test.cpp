// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/plan_builder.hpp>

#include <functional>
#include <string>

using namespace tide;

namespace {

constexpr Block block{ParameterIndex{4}, 100, 200, 12, 12, 3, 16, 64, 2};

}  // namespace

TEST_CASE("PlanBuilder: a lane is made when it is first asked for, and found again") {
  const Collective collective;
  PlanBuilder builder(collective, Rank{0});
  CHECK(builder.lane(LaneKind::push, 2) == LaneIndex{1});
  CHECK(builder.lane(LaneKind::sum) == LaneIndex{2});
  CHECK(builder.lane(LaneKind::push, 2) == LaneIndex{1});
  CHECK(builder.lane(LaneKind::caller) == PlanBuilder::caller());
}

TEST_CASE("PlanBuilder: ops hold what they were given, in issue order") {
  const Collective collective;
  PlanBuilder builder(collective, Rank{1});
  const LaneIndex push = builder.lane(LaneKind::push, 1);
  builder.wait(push, 7, -2, 9);
  builder.copy(push, Rank{3}, Space::gradients, Space::inbox, block, 5);
  builder.signal(push, Rank{3}, 8, 4, 9);
  builder.multicast(push, Space::shards, Space::slot, block);
  builder.cast(PlanBuilder::caller(), block);
  builder.reduce(push, 1, block, 5, 640);
  builder.exit(ExitKind::shards_ready, push);
  const Plan plan = std::move(builder).finish();
  REQUIRE(plan.ops.size() == 6);
  CHECK(plan.ops[0].kind == OpKind::wait);
  CHECK(plan.ops[0].peer == 1);
  CHECK(plan.ops[0].word() == 7);
  CHECK(plan.ops[0].value() == -2);
  CHECK(plan.ops[0].per_run() == 9);
  CHECK(plan.ops[1].peer == 3);
  CHECK(plan.ops[1].source == Place{Space::gradients, 0, 4});
  CHECK(plan.ops[1].target == Place{Space::inbox, 5, 4});
  CHECK(plan.ops[1].bytes() == 36);
  CHECK(plan.ops[1].source_pitch == 16);
  CHECK(plan.ops[1].target_pitch == 64);
  CHECK(plan.ops[2].peer == 3);
  CHECK(plan.ops[2].value() == 4);
  CHECK(plan.ops[3].kind == OpKind::multicast);
  CHECK(plan.ops[4].kernel == 2);
  CHECK(plan.ops[4].source.space == Space::master);
  CHECK(plan.ops[5].extra == Place{Space::inbox, 5, 4});
  CHECK(plan.ops[5].extra_offset == 640);
  CHECK(plan.exits == std::vector<Exit>{{ExitKind::shards_ready, push, 5}});
}

TEST_CASE("PlanBuilder: a number that an op has no room for is refused by the op's name, and nothing is appended") {
  const Collective collective;
  PlanBuilder builder(collective, Rank{3});
  const LaneIndex caller = PlanBuilder::caller();
  builder.signal(caller, Rank{0}, 1);
  const auto refused = [&](const std::string& text, const std::function<void(PlanBuilder&)>& write) {
    CAPTURE(text);
    const std::string whole = "tide::PlanBuilder: " + text;
    CHECK_THROWS_WITH_AS(write(builder), whole.c_str(), Error);
    CHECK(PlanBuilder(builder).finish().ops.size() == 1);
  };
  const auto with = [](auto change) {
    Block changed = block;
    change(changed);
    return changed;
  };
  const Address from{{Space::partials, 0, 0}, 0};
  const Address to{{Space::network_inbox, 0, 0}, 0};
  constexpr index_t too_many = index_t{1} << 32;

  refused("the lane of an op must be 0 to 65535; copy, op 1 of rank 3 has 65536.",
          [&](PlanBuilder& b) { b.copy(LaneIndex{65536}, Rank{1}, Space::shards, Space::slot, block); });
  refused("the lane of an op must be 0 to 65535; wait, op 1 of rank 3 has -1.",
          [&](PlanBuilder& b) { b.wait(LaneIndex{-1}, 1); });
  refused("the lane of an op must be 0 to 65535; put, op 1 of rank 3 has 70000.",
          [&](PlanBuilder& b) { b.put(LaneIndex{70000}, Rank{1}, from, to, 8, 1, 1, 1); });
  refused("an instance of a space, or a chunk, must be 0 to 255; copy, op 1 of rank 3 has 256.",
          [&](PlanBuilder& b) { b.copy(caller, Rank{1}, Space::gradients, Space::inbox, block, 256); });
  refused("an instance of a space, or a chunk, must be 0 to 255; reduce, op 1 of rank 3 has 256.",
          [&](PlanBuilder& b) { b.reduce(caller, 0, block, 256, 0); });
  refused("the value of a put must be 0 to 4294967295; put, op 1 of rank 3 has 4294967296.",
          [&](PlanBuilder& b) { b.put(caller, Rank{1}, from, to, 8, 1, too_many, 1); });
  refused("the value of a put must be 0 to 4294967295; put, op 1 of rank 3 has -1.",
          [&](PlanBuilder& b) { b.put(caller, Rank{1}, from, to, 8, 1, -1, 1); });
  refused("the raises of a word in a run must be 0 to 4294967295; put, op 1 of rank 3 has 4294967296.",
          [&](PlanBuilder& b) { b.put(caller, Rank{1}, from, to, 8, 1, 1, too_many); });
  refused("the raises of a word in a run must be 0 to 4294967295; signal, op 1 of rank 3 has 4294967296.",
          [&](PlanBuilder& b) { b.signal(caller, Rank{1}, 1, 1, too_many); });
  refused("a word must be 0 to 1152921504606846975; wait, op 1 of rank 3 has 1152921504606846976.",
          [&](PlanBuilder& b) { b.wait(caller, index_t{1} << 60); });
  refused("the position of an input must be 0 to 2147483647; reduce, op 1 of rank 3 has 4294967296.",
          [&](PlanBuilder& b) { b.reduce(caller, too_many, block, 0, 0); });
  refused("the parameter of a block must be 0 to 65535; cast, op 1 of rank 3 has 65536.",
          [&](PlanBuilder& b) { b.cast(caller, with([](Block& o) { o.parameter = ParameterIndex{65536}; })); });
  refused("the parameter of a block must be 0 to 65535; reduce, op 1 of rank 3 has 65536.", [&](PlanBuilder& b) {
    b.reduce(caller, 0, with([](Block& o) { o.parameter = ParameterIndex{65536}; }), 0, 0);
  });
  refused("the rows of a block must be 0 to 2147483647; multicast, op 1 of rank 3 has 2147483648.",
          [&](PlanBuilder& b) {
            b.multicast(caller, Space::shards, Space::slot, with([](Block& o) { o.rows = max_rows + 1; }));
          });
  refused("the rows of a block must be 0 to 2147483647 bytes apart; cast, op 1 of rank 3 has 2147483648.",
          [&](PlanBuilder& b) { b.cast(caller, with([](Block& o) { o.source_pitch = max_pitch + 1; })); });
  refused("the rows of a block must be 0 to 2147483647 bytes apart; cast, op 1 of rank 3 has -16.",
          [&](PlanBuilder& b) { b.cast(caller, with([](Block& o) { o.target_pitch = -16; })); });
  refused("the index of a lane must be 0 to 2147483647; lane 1 of rank 3 has 4294967296.",
          [&](PlanBuilder& b) { static_cast<void>(b.lane(LaneKind::push, too_many)); });
}

TEST_CASE("PlanBuilder: the largest numbers that an op has room for come through") {
  const Collective collective;
  PlanBuilder builder(collective, Rank{0});
  builder.put(LaneIndex{65535}, Rank{1}, {}, {}, 8, 1, 4294967295, 4294967295);
  builder.copy(LaneIndex{65535}, Rank{1}, Space::gradients, Space::inbox, block, 255);
  const Plan plan = std::move(builder).finish();
  CHECK(plan.ops[0].lane == 65535);
  CHECK(plan.ops[0].raise() == Op::Raise{1, 4294967295, 4294967295});
  CHECK(plan.ops[1].target.instance == 255);
}
