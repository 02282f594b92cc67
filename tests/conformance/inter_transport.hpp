// SPDX-License-Identifier: Apache-2.0
//
// The laws of InterTransport (tide/transport/transport.hpp) for one model of it.

#pragma once

#include <tide/transport/transport.hpp>

#include "conformance/writer.hpp"
#include "support/interpreter.hpp"

namespace tide_test {

/// The meshes that every way over nodes is tried on: any number of nodes, one and several ranks on each.
inline constexpr tide::MeshShape node_meshes[] = {{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 2}, {3, 3}};

/// Plans that are proved, that are a function of their arguments, and that give the oracle's bytes when puts come late
/// and out of order.
template <class Inter, class Intra>
void check_inter_transport(const tide::GroupView& group, tide::MeshShape mesh, tide::OwnBlock own) {
  static_assert(tide::InterTransport<Inter>);
  CAPTURE(mesh.nodes);
  CAPTURE(mesh.ranks_per_node);
  CAPTURE(group.size());
  CAPTURE(name(own));
  const Planned planned = planned_gather_on<Intra, Inter>(group, mesh, own);
  REQUIRE(first_violation(planned) == "");
  CHECK(planned.plans == planned_gather_on<Intra, Inter>(group, mesh, own).plans);
  CHECK(run_schedules(planned.collective, planned.plans, 8) == "");
}

/// Every source of the own block, over all meshes and shapes; on some meshes also that no op could be left out.
template <class Inter, class Intra>
void check_inter_transport() {
  for (const tide::GroupView& group : {awkward_group.view(), odd_group.view(), empty_group.view(), single_row.view()}) {
    for (const tide::MeshShape mesh : node_meshes) {
      for (const tide::OwnBlock own : {Intra::own_block, tide::OwnBlock::in_place, tide::OwnBlock::cast}) {
        check_inter_transport<Inter, Intra>(group, mesh, own);
      }
    }
    for (const tide::MeshShape mesh : {tide::MeshShape{2, 2}, {5, 1}, {6, 1}, {3, 2}}) {
      CHECK(first_idle_op(planned_gather_on<Intra, Inter>(group, mesh, Intra::own_block)) == "");
    }
  }
}

}  // namespace tide_test
