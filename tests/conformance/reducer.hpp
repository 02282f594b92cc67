// SPDX-License-Identifier: Apache-2.0
//
// The laws of Reducer (tide/reduce/reducer.hpp) for one model of it.

#pragma once

#include <tide/reduce/reducer.hpp>

#include "conformance/writer.hpp"

namespace tide_test {

/// Storage and tables, stored and accumulated sums, inboxes of few and of many chunks and slots, over all worlds and
/// shapes.
template <class R>
void check_reducer() {
  static_assert(tide::Reducer<R>);
  using Tiny = tide::Ring<tide::Chunks<2>, tide::Bytes<2048>>;
  using Small = tide::Ring<tide::Chunks<3>, tide::Bytes<8192>>;
  for (const tide::GroupView& group : {awkward_group.view(), odd_group.view(), empty_group.view(), single_row.view()}) {
    for (const tide::index_t ranks : writer_worlds) {
      CAPTURE(group.size());
      CAPTURE(ranks);
      check_writer([&] { return planned_reduce<Tiny, R>(group, ranks, R::finish, tide::GradientSource::storage); });
      check_writer([&] { return planned_reduce<Small, R>(group, ranks, R::finish, tide::GradientSource::table); });
      check_writer([&] { return planned_reduce<tide::SlotReuse, R>(group, ranks, R::finish); });
    }
  }
}

}  // namespace tide_test
