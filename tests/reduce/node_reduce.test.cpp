// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatters over several nodes: plans of both exchanges are proved, and give the oracle's bytes.

#include <doctest/doctest.h>
#include <tide/plan/verify.hpp>

#include "conformance/writer.hpp"
#include "support/interpreter.hpp"
#include "support/small_plans.hpp"

#include <string>

namespace node_reduce_test {

using namespace tide;
using tide_test::first_idle_op;
using tide_test::first_violation;
using tide_test::Planned;

constexpr MeshShape meshes[] = {{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 2}, {3, 3}, {4, 1}, {6, 1}};

using Small = Ring<Chunks<3>, Bytes<32768>>;
using Single = Ring<Chunks<1>, Bytes<16384>>;
using Narrow = SlotReuseWithin<Bytes<4096>, Chunks<2>>;

// Several chunks of 64 elements on each rank.
constexpr auto chunked =
    group(param<bf16>("w", {23, 60}), param<bf16>("v", {10, 360}, shard(1)), param<bf16>("b", {50}));

TEST_CASE("node reduce: plans hold, and give the oracle's bytes on every schedule") {
  for (const MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const Exchange exchange : {Exchange::direct, Exchange::doubling}) {
      CAPTURE(name(exchange));
      for (const GroupView& group : {tide_test::odd_group.view(), tide_test::mixed_group.view(),
                                     tide_test::narrow_group.view(), chunked.view()}) {
        CAPTURE(group.size());
        const Planned planned = tide_test::planned_reduce<Small>(group, mesh, exchange);
        CHECK(first_violation(planned) == "");
        CHECK(tide_test::run_schedules(planned.collective, planned.plans, 8) == "");
        const Planned table =
            tide_test::planned_reduce<Single>(group, mesh, exchange, Finish::accumulate, GradientSource::table);
        CHECK(first_violation(table) == "");
        CHECK(tide_test::run_schedules(table.collective, table.plans, 4) == "");
        if (!fits_slot(group)) continue;
        const Planned slot = tide_test::planned_reduce<SlotReuse>(group, mesh, exchange);
        CHECK(first_violation(slot) == "");
        CHECK(tide_test::run_schedules(slot.collective, slot.plans, 4) == "");
        const Planned narrow = tide_test::planned_reduce<Narrow>(group, mesh, exchange);
        CHECK(first_violation(narrow) == "");
        CHECK(tide_test::run_schedules(narrow.collective, narrow.plans, 4) == "");
      }
    }
  }
}

TEST_CASE("node reduce: plans hold with a bf16 wire, through rings and slots; what crosses is half as much") {
  for (const MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const Exchange exchange : {Exchange::direct, Exchange::doubling}) {
      CAPTURE(name(exchange));
      const auto planned = [&]<class Inbox>(Element wire) {
        return tide_test::planned_reduce<Inbox>(chunked.view(), mesh, exchange, Finish::store, GradientSource::storage,
                                                wire);
      };
      const Planned ring = planned.operator()<Small>(Element::bf16);
      CHECK(first_violation(ring) == "");
      CHECK(first_violation(planned.operator()<Narrow>(Element::bf16)) == "");
      const auto put_bytes = [](const Planned& all) {
        index_t bytes = 0;
        for (const Plan& plan : all.plans) {
          for (const Op& op : plan.ops) bytes += op.kind == OpKind::put ? op.bytes() : 0;
        }
        return bytes;
      };
      if (mesh.ranks_per_node > 1) {
        CHECK(put_bytes(ring) * 2 <= put_bytes(planned.operator()<Small>(Element::f32)) * 11 / 10);
      }
    }
  }
}

TEST_CASE("node reduce: no op could be left out") {
  for (const MeshShape mesh : {MeshShape{2, 2}, MeshShape{3, 1}, MeshShape{3, 2}, MeshShape{4, 1}}) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const Exchange exchange : {Exchange::direct, Exchange::doubling}) {
      CAPTURE(name(exchange));
      CHECK(first_idle_op(tide_test::planned_reduce<Single>(tide_test::odd_group.view(), mesh, exchange)) == "");
      CHECK(first_idle_op(tide_test::planned_reduce<SlotReuse>(tide_test::odd_group.view(), mesh, exchange)) == "");
      if (mesh.ranks() > 4) continue;
      CHECK(first_idle_op(tide_test::planned_reduce<Small>(chunked.view(), mesh, exchange)) == "");
    }
  }
}

}  // namespace node_reduce_test
