// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/reduce/copy_engine_reducer.hpp>

#include "conformance/reducer.hpp"

using namespace tide;

TEST_CASE("CopyEngineReducer: keeps the laws of a reducer") {
  tide_test::check_reducer<CopyEngineReducer<>>();
  tide_test::check_reducer<CopyEngineReducer<Trickle<>, Accumulate>>();
}

TEST_CASE("CopyEngineReducer: a rank that owns nothing sums nothing and still gets its gradients back") {
  const auto planned = tide_test::planned_reduce(tide_test::single_row.view(), 3);
  for (const Plan& plan : planned.plans) {
    index_t sums = 0;
    bool frees = false;
    for (const Op& op : plan.ops) sums += op.kind == OpKind::reduce ? 1 : 0;
    for (const Exit& exit : plan.exits) frees = frees || exit.kind == ExitKind::gradients_free;
    CHECK((sums > 0) == (plan.rank == Rank{0}));
    CHECK(frees);
  }
}

TEST_CASE("CopyEngineReducer: a plan is a constant expression for a small group on a static mesh") {
  constexpr std::size_t ops = [] {
    std::size_t count = 0;
    for (const Plan& plan : tide_test::planned_reduce(tide_test::single_row.view(), 2).plans) count += plan.ops.size();
    return count;
  }();
  // The owner: start, its wait, the wait for the piece, the sum, a credit. The other: start, its wait, the wait for the
  // credit of the last run, the push, two signals, and the wait for the push.
  static_assert(ops == 12);
}
