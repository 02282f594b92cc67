// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/plan_builder.hpp>

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
