// SPDX-License-Identifier: Apache-2.0
//
// The laws of Packing (tide/layout/packing.hpp) for one model of it, alone and in what is built on it.

#pragma once

#include <tide/layout/packing.hpp>

#include "conformance/writer.hpp"
#include "support/laws.hpp"

namespace tide_test {

/// Plans over the nodes of a mesh: gathers by every transport, in one chunk and in many, and reduces by every exchange.
template <class P>
void check_packing_over_nodes(const tide::GroupView& group, tide::MeshShape mesh) {
  using tide::OwnBlock;
  using Small = tide::RdmaDoublingTransport<tide::Bytes<48>, tide::PutsInFlight<2>>;
  using Ring = tide::Ring<tide::Chunks<2>, tide::Bytes<65536>>;
  CAPTURE(mesh.nodes);
  CAPTURE(mesh.ranks_per_node);
  CHECK(laws::layout({group, mesh, P::rule}));
  for (const OwnBlock own : {OwnBlock::in_place, OwnBlock::cast}) {
    CAPTURE(name(own));
    CHECK(first_violation(planned_gather_on<tide::UnicastTransport>(group, mesh, own, P::rule)) == "");
    CHECK(first_violation(planned_gather_on<tide::MulticastTransport>(group, mesh, own, P::rule)) == "");
  }
  CHECK(first_violation(planned_gather_on<tide::UnicastTransport, Small>(group, mesh, OwnBlock::copy, P::rule)) == "");
  CHECK(first_violation(
            planned_gather_on<tide::MulticastTransport, Small>(group, mesh, OwnBlock::multicast, P::rule)) == "");
  const auto from = tide::GradientSource::storage;
  for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
    CAPTURE(name(exchange));
    for (const tide::Element wire : {tide::Element::f32, tide::Element::bf16}) {
      CHECK(first_violation(planned_reduce<Ring>(group, mesh, exchange, tide::Finish::store, from, wire, P::rule)) ==
            "");
    }
    if (!tide::fits_slot(group)) continue;
    CHECK(first_violation(planned_reduce<tide::SlotReuse>(group, mesh, exchange, tide::Finish::store, from,
                                                          tide::Element::f32, P::rule)) == "");
  }
  CHECK(first_violation(planned_switch_reduce<Ring>(group, mesh, from, P::rule)) == "");
}

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
    for (const tide::MeshShape mesh : {tide::MeshShape{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 3}, {7, 3}}) {
      if (sanitized && mesh.ranks() > 6) continue;
      check_packing_over_nodes<P>(group, mesh);
    }
  }
}

}  // namespace tide_test
