// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/plan.hpp>

#include "support/small_plans.hpp"

using namespace tide;

TEST_CASE("Lane: is called by its kind, a push lane by its number, too") {
  CHECK(Lane{LaneKind::caller, 0}.name() == "caller");
  CHECK(Lane{LaneKind::push, 3}.name() == "push 3");
  CHECK(Lane{LaneKind::sum, 0}.name() == "sum");
  CHECK(Lane{LaneKind::net, 0}.name() == "net");
}

TEST_CASE("Plan: lane 0 is the caller's, every op is on a lane, and lanes add up to the ops") {
  for (const index_t ranks : {1, 2, 5}) {
    for (const auto& planned : {tide_test::planned_gather(tide_test::odd_group.view(), ranks),
                                tide_test::planned_reduce(tide_test::odd_group.view(), ranks)}) {
      for (const Plan& plan : planned.plans) {
        CHECK(plan.lanes.front() == Lane{LaneKind::caller, 0});
        index_t sum = 0;
        for (index_t lane = 0; lane < static_cast<index_t>(plan.lanes.size()); ++lane)
          sum += plan.size(LaneIndex{lane});
        CHECK(sum == static_cast<index_t>(plan.ops.size()));
        for (const Exit& exit : plan.exits) CHECK(exit.position <= plan.size(exit.lane));
      }
    }
  }
}
