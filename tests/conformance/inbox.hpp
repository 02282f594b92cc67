// SPDX-License-Identifier: Apache-2.0
//
// The laws of Inbox (tide/reduce/inbox.hpp) for one model of it.

#pragma once

#include <doctest/doctest.h>
#include <tide/reduce/inbox.hpp>
#include <tide/reduce/slot_reuse.hpp>

#include "conformance/writer.hpp"

namespace tide_test {

/// @param most  bytes that the inbox may take: a number for every layout, or a function of it
template <class I, class Most>
void check_inbox(Most most) {
  static_assert(tide::Inbox<I>);
  for (const tide::GroupView& group :
       {awkward_group.view(), odd_group.view(), mixed_group.view(), narrow_group.view(), empty_group.view()}) {
    if (tide::reuses_slots<I> && !tide::fits_slot(group)) continue;
    for (const tide::index_t ranks : writer_worlds) {
      CAPTURE(ranks);
      const tide::LayoutView layout{group, {1, ranks}, tide::TightPacking::rule};
      const tide::InboxShape shape = I::shape(layout);
      CHECK(shape == I::shape(layout));
      if constexpr (requires { most(layout); }) {
        CHECK(shape.bytes() <= most(layout));
      } else {
        CHECK(shape.bytes() <= most);
      }
      CHECK(shape.pieces == ranks - 1);
      CHECK(shape.chunks >= 1);
      CHECK(shape.chunk_elements > 0);
    }
  }
}

}  // namespace tide_test
