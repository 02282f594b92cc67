// SPDX-License-Identifier: Apache-2.0
//
// The laws of NodeExchange (tide/reduce/node_exchange.hpp) for one model of it.

#pragma once

#include <tide/reduce/node_exchange.hpp>

#include "conformance/inter_transport.hpp"

namespace tide_test {

/// Plans of reduces that are proved, that are a function of their arguments, and that give the oracle's bytes when puts
/// come late and out of order; where sums cross in another element than f32 each input is still added once.
template <class X>
void check_node_exchange() {
  static_assert(tide::NodeExchange<X>);
  constexpr tide::Exchange exchange = tide::exchange_of<X>;
  constexpr tide::Element wire = tide::wire_of<X>;
  using Small = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;
  for (const tide::MeshShape mesh : node_meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const tide::GradientSource source : {tide::GradientSource::storage, tide::GradientSource::table}) {
      const auto make = [&] {
        return planned_reduce<Small>(odd_group.view(), mesh, exchange, tide::Finish::store, source, wire);
      };
      const Planned planned = make();
      REQUIRE(first_violation(planned) == "");
      CHECK(planned.plans == make().plans);
      CHECK(planned.collective.network.exchange == exchange);
      CHECK(planned.collective.network.wire == wire);
      if constexpr (wire == tide::Element::f32) CHECK(run_schedules(planned.collective, planned.plans, 3) == "");
    }
  }
}

}  // namespace tide_test
