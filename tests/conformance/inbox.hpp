// SPDX-License-Identifier: Apache-2.0
//
// The laws of Inbox (tide/reduce/inbox.hpp) for one model of it.

#pragma once

#include <doctest/doctest.h>
#include <tide/reduce/inbox.hpp>

#include "conformance/writer.hpp"

namespace tide_test {

/// @param most  bytes that the inbox may take, whatever the group and the mesh
template <class I>
void check_inbox(tide::index_t most) {
  static_assert(tide::Inbox<I>);
  for (const tide::GroupView& group :
       {awkward_group.view(), odd_group.view(), mixed_group.view(), empty_group.view()}) {
    for (const tide::index_t ranks : writer_worlds) {
      CAPTURE(ranks);
      const tide::InboxShape shape = I::shape({group, {1, ranks}, tide::TightPacking::rule});
      CHECK(shape == I::shape({group, {1, ranks}, tide::TightPacking::rule}));
      CHECK(shape.bytes() <= most);
      CHECK(shape.pieces == ranks - 1);
      CHECK(shape.chunks >= 1);
      CHECK(shape.chunk_elements > 0);
    }
  }
}

}  // namespace tide_test
