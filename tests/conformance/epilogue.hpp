// SPDX-License-Identifier: Apache-2.0
//
// The laws of Epilogue (tide/reduce/epilogue.hpp) for one model of it.

#pragma once

#include <tide/reduce/epilogue.hpp>

#include "conformance/writer.hpp"
#include "support/interpreter.hpp"

namespace tide_test {

/// The finish is one that a caller may ask for; plans with it are proved and give the oracle's bytes, scaled once and
/// stored or added as it says, on schedules that differ.
template <class E>
void check_epilogue() {
  static_assert(tide::Epilogue<E>);
  static_assert(E::finish == tide::Finish::store || E::finish == tide::Finish::accumulate,
                "a partial sum is no end of a reduce-scatter");
  static_assert(tide::CopyEngineReducer<tide::Burst, E>::finish == E::finish);
  using Roomy = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;
  for (const tide::GroupView& group : {awkward_group.view(), mixed_group.view()}) {
    for (const tide::index_t ranks : writer_worlds) {
      CAPTURE(ranks);
      const Planned planned = planned_reduce<Roomy>(group, ranks, E::finish);
      CHECK(first_violation(planned) == "");
      CHECK(run_schedules(planned.collective, planned.plans, 5) == "");
    }
    const Planned planned = planned_reduce<Roomy>(group, {2, 2}, tide::Exchange::doubling, E::finish);
    CHECK(first_violation(planned) == "");
    CHECK(run_schedules(planned.collective, planned.plans, 5) == "");
  }
}

}  // namespace tide_test
