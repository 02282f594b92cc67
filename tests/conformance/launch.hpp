// SPDX-License-Identifier: Apache-2.0
//
// The laws of Launch (tide/reduce/launch.hpp) for one model of it.

#pragma once

#include <tide/reduce/launch.hpp>

#include "conformance/writer.hpp"

namespace tide_test {

/// A launch changes when a sum is done, never what is done: the plans are those of any other launch.
template <class L>
void check_launch() {
  static_assert(tide::Launch<L>);
  static_assert(L::ctas > 0, "a sum needs a CTA");
  using Reducer = tide::CopyEngineReducer<L>;
  static_assert(tide::Reducer<Reducer>);
  using Roomy = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;
  for (const tide::GroupView& group : {awkward_group.view(), odd_group.view(), mixed_group.view()}) {
    for (const tide::index_t ranks : writer_worlds) {
      CAPTURE(ranks);
      Planned planned = planned_reduce<Roomy>(group, ranks);
      planned.collective.ctas = Reducer::launch::ctas;
      for (tide::index_t r = 0; r < ranks; ++r) {
        CHECK(Reducer::reduce(planned.collective, tide::Rank{r}) == planned.plans[static_cast<std::size_t>(r)]);
      }
      CHECK(first_violation(planned) == "");
    }
  }
}

}  // namespace tide_test
