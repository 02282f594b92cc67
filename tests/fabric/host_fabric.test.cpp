// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <algorithm>

#include "conformance/fabric.hpp"
#include "support/host_ranks.hpp"
#include "support/raised.hpp"
#include "support/small_plans.hpp"

using namespace tide_test;

TEST_CASE("HostFabric: init refuses ranks that differ, with one error for all") {
  fabric_suite::symmetric(HostRanks{});
}

TEST_CASE("HostFabric: init refuses plans in which ranks do not tell each other what they wait for") {
  fabric_suite::words_that_do_not_fit(HostRanks{});
}

TEST_CASE("HostFabric: variants of a pipeline that do not signal alike are refused") {
  const Planned planned = planned_gather(odd_group.view(), 2);
  const tide::PlanVariant one{planned.collective, planned.plans[0], {}};
  // To another rank, and to a lane of the own one: that word counts over the runs of all variants, too.
  for (const std::int32_t told : {1, 0}) {
    CAPTURE(told);
    tide::PlanVariant silent = one;
    auto& ops = silent.plan.ops;
    const auto tells = [told](const tide::Op& op) { return op.kind == tide::OpKind::signal && op.peer == told; };
    const auto found = std::find_if(ops.begin(), ops.end(), tells);
    REQUIRE(found != ops.end());
    ops.erase(found);
    tide::HostCluster cluster({1, 2});
    CHECK(text_of([&] {
            cluster.fabric(tide::Rank{0}).attach({one, silent}, {}, "gather of 'w'");
          }) ==
          "tide::PlanVariant: all variants of a pipeline must signal and wait alike; of gather of 'w', variant 1 does "
          "not as variant 0 does.");
  }
}

TEST_CASE("HostFabric: a rank that does not come to init in time is named") {
  fabric_suite::late_for_init(HostRanks{});
}

TEST_CASE("HostFabric: work and events complete in launch order") { fabric_suite::in_order(HostRanks{}); }

TEST_CASE("HostFabric: runs of one pipeline stay in order over two streams") {
  fabric_suite::one_pipeline_on_two_streams(HostRanks{});
}

TEST_CASE("HostFabric: calls that differ in what their ranks are at, which one of them has not said") {
  tide::detail::CallLedger ledger(2);
  const auto label = [](tide::Rank, std::int32_t) { return std::string("gather"); };
  CHECK(ledger.enter(tide::Rank{0}, 0, 0, {}, label).differs == "");
  CHECK(ledger.enter(tide::Rank{1}, 0, 0, {"in Pass::last after update", 2}, label).differs ==
        "tide::Fabric: all ranks must make the same calls in the same order; call 0 is gather in slot 0 on rank 0 and "
        "gather in slot 0, in Pass::last after update 2, on rank 1.");
}

TEST_CASE("HostFabric: an exit comes after what its stream did before the call, on idle ranks too") {
  fabric_suite::exits_after_calls(HostRanks{});
}

TEST_CASE("HostFabric: a rank that never enqueues is named by all, and every further call repeats the error") {
  fabric_suite::absent_from_a_call(HostRanks{});
}

TEST_CASE("HostFabric: a function on a stream that takes longer than the deadline fails all ranks") {
  fabric_suite::slow_stream(HostRanks{});
}

TEST_CASE("HostFabric: more runs than find room are a deadline error of the call") {
  fabric_suite::too_many_runs(HostRanks{});
}

TEST_CASE("HostFabric: close waits, may be repeated, and ends the calls") { fabric_suite::closing(HostRanks{}); }

TEST_CASE("HostFabric: before init there is no memory and no call") { fabric_suite::before_init(HostRanks{}); }
