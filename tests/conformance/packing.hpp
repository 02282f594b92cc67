// SPDX-License-Identifier: Apache-2.0
//
// The laws of Packing (tide/layout/packing.hpp) for one model of it, alone and in what is built on it.

#pragma once

#include <tide/layout/packing.hpp>

#include "conformance/writer.hpp"
#include "support/laws.hpp"

namespace tide_test {

/// All shapes over all worlds and some nodes.
template <class P>
void check_packing() {
  static_assert(tide::Packing<P>);
  constexpr tide::PackingRule rule = P::rule;
  static_assert(tide::is_alignment(rule.start_alignment));
  static_assert(rule.padding <= tide::PackingRule::Padding::to_chunk);
  for (const tide::GroupView& group :
       {awkward_group.view(), odd_group.view(), mixed_group.view(), empty_group.view(), single_row.view()}) {
    for (const tide::index_t ranks : writer_worlds) {
      CAPTURE(group.size());
      CAPTURE(ranks);
      const tide::LayoutView layout{group, {1, ranks}, rule};
      CHECK(laws::layout(layout));
      tide::index_t whole = 0;
      for (const tide::Parameter& parameter : group.parameters) {
        whole += parameter.shape.elements() * static_cast<tide::index_t>(size_bytes(parameter.gathered));
      }
      tide::index_t packed = 0;
      for (tide::index_t r = 0; r < ranks; ++r) packed += layout.bytes(tide::Buffer::shards, tide::Rank{r});
      CHECK(packed >= whole);  // no byte of a shard is shared
      // What padding leaves in packed buffers is nobody's: plans of each source of the own block are proved.
      for (const tide::OwnBlock own : {tide::OwnBlock::copy, tide::OwnBlock::in_place, tide::OwnBlock::cast}) {
        CAPTURE(name(own));
        CHECK(first_violation(planned_gather<tide::UnicastTransport>(group, ranks, own, rule)) == "");
      }
    }
    for (const tide::MeshShape mesh : {tide::MeshShape{2, 1}, tide::MeshShape{3, 2}}) {
      CAPTURE(mesh.nodes);
      CHECK(laws::layout({group, mesh, rule}));
      CHECK(first_violation(planned_gather_on<tide::UnicastTransport>(group, mesh, tide::OwnBlock::copy, rule)) == "");
    }
  }
}

}  // namespace tide_test
