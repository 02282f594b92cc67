// SPDX-License-Identifier: Apache-2.0
//
// The laws of Transport (tide/transport/transport.hpp) for one model of it.

#pragma once

#include <tide/transport/transport.hpp>

#include "conformance/writer.hpp"

namespace tide_test {

/// Every source of the own block, over all worlds and shapes.
template <class T>
void check_transport() {
  static_assert(tide::Transport<T>);
  for (const tide::GroupView& group :
       {awkward_group.view(), odd_group.view(), mixed_group.view(), empty_group.view(), single_row.view()}) {
    for (const tide::index_t ranks : writer_worlds) {
      for (const tide::OwnBlock own : {T::own_block, tide::OwnBlock::in_place, tide::OwnBlock::cast}) {
        CAPTURE(group.size());
        CAPTURE(ranks);
        CAPTURE(name(own));
        check_writer([&] { return planned_gather<T>(group, ranks, own); });
      }
    }
  }
}

}  // namespace tide_test
