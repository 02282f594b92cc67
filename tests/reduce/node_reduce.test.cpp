// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatters over several nodes: plans of both exchanges are proved, and give the oracle's bytes.

#include <doctest/doctest.h>
#include <tide/plan/verify.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>

#include "conformance/node_exchange.hpp"
#include "conformance/writer.hpp"
#include "support/interpreter.hpp"
#include "support/random_group.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"
#include "support/small_plans.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace node_reduce_test {

using namespace tide;
using tide_test::first_idle_op;
using tide_test::first_violation;
using tide_test::Planned;

constexpr MeshShape meshes[] = {{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 2}, {3, 3}, {4, 1}, {6, 1}};

using Small = Ring<Chunks<3>, Bytes<16384>>;
using Single = Ring<Chunks<1>, Bytes<16384>>;
using Narrow = SlotReuseWithin<Bytes<4096>, Chunks<2>>;

// Several chunks of 64 elements on each rank.
constexpr auto chunked =
    group(param<bf16>("w", {17, 40}), param<bf16>("v", {3, 360}, shard(1)), param<bf16>("b", {50}));

/// Of all groups two for each mesh, so that each kind of node meets each kind of group.
std::vector<GroupView> groups_for(MeshShape mesh) {
  if (mesh.nodes % 2 == 0) return {tide_test::odd_group.view(), chunked.view()};
  return {tide_test::mixed_group.view(), tide_test::narrow_group.view(), chunked.view()};
}

TEST_CASE("node reduce: every exchange that ships keeps the laws of one") {
  tide_test::check_node_exchange<RdmaDoublingTransport<>>();
  tide_test::check_node_exchange<SendRecvDoublingTransport<>>();
  tide_test::check_node_exchange<RdmaDirectTransport>();
  tide_test::check_node_exchange<SendRecvDirectTransport>();
  tide_test::check_node_exchange<Bf16Wire<RdmaDoublingTransport<>>>();
  tide_test::check_node_exchange<Bf16Wire<RdmaDirectTransport>>();
}

TEST_CASE("node reduce: plans hold, and give the oracle's bytes on every schedule") {
  const std::uint64_t schedules = tide_test::sized(5, 2);
  for (const MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const Exchange exchange : {Exchange::direct, Exchange::doubling}) {
      CAPTURE(name(exchange));
      for (const GroupView& group : groups_for(mesh)) {
        CAPTURE(group.size());
        const auto check = [&](const Planned& planned) {
          CHECK(first_violation(planned) == "");
          CHECK(tide_test::run_schedules(planned.collective, planned.plans, schedules) == "");
        };
        check(tide_test::planned_reduce<Small>(group, mesh, exchange));
        check(tide_test::planned_reduce<Single>(group, mesh, exchange, Finish::accumulate, GradientSource::table));
        if (!fits_slot(group)) continue;
        check(tide_test::planned_reduce<SlotReuse>(group, mesh, exchange));
        check(tide_test::planned_reduce<Narrow>(group, mesh, exchange));
      }
    }
  }
}

TEST_CASE("node reduce: plans of random groups, packed tightly or padded, hold and give the oracle's bytes") {
  for (const std::uint64_t seed : tide_test::seeds(tide_test::sized(60, 6))) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const MeshShape mesh{random.between(2, 7), random.between(1, 3)};
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    const PackingRule packing = random.one_of({TightPacking::rule, Fsdp2Packing::rule});
    const DynamicGroup group = tide_test::any_group(random, mesh.ranks());
    const GradientSource source = random.one_of({GradientSource::storage, GradientSource::table});
    for (const Exchange exchange : {Exchange::direct, Exchange::doubling}) {
      CAPTURE(name(exchange));
      const auto planned = [&]<class Inbox>(Element wire) {
        return tide_test::planned_reduce<Inbox>(group.view(), mesh, exchange, Finish::store, source, wire, packing);
      };
      const auto check = [&](const Planned& made) {
        REQUIRE(first_violation(made) == "");
        CHECK(tide_test::run_schedules(made.collective, made.plans, 2, seed) == "");
      };
      check(planned.operator()<Ring<Chunks<2>, Bytes<65536>>>(Element::f32));
      CHECK(first_violation(planned.operator()<Ring<Chunks<1>, Bytes<65536>>>(Element::bf16)) == "");
      if (!fits_slot(group.view())) continue;
      check(planned.operator()<SlotReuse>(Element::f32));
      CHECK(first_violation(planned.operator()<Narrow>(Element::bf16)) == "");
    }
  }
}

TEST_CASE("node reduce: a put begins with the first element of the parameter that it names, not with padding") {
  // All ranks but the first have no row of 'few' and 40 elements of 'w', behind room for the 16 of that row.
  static constexpr auto padded = group(param<bf16>("few", {1, 16}), param<bf16>("w", {40, 8}));
  const Planned direct = tide_test::planned_reduce<Small>(padded.view(), {4, 2}, Exchange::direct, Finish::store,
                                                          GradientSource::storage, Element::f32, Fsdp2Packing::rule);
  CHECK(first_violation(direct) == "");
  CHECK(direct.collective.layout.bytes(Buffer::output, Rank{5}) == 4 * (16 + 40));
  index_t puts = 0;
  for (const Op& op : direct.plans[1].ops) {
    if (op.kind != OpKind::put) continue;
    ++puts;
    CHECK(padded.view()[ParameterIndex{op.source.parameter}].name.reads("w"));
    CHECK(op.width == 4 * 40);
  }
  CHECK(puts == 3);
}

TEST_CASE("node reduce: chunks of padding pass nothing on: what was put before them is waited for behind them") {
  // Of all ranks but the first: a chunk of 'w', five of padding, where 'row' would be, and one of 'v'.
  static constexpr auto gap = group(param<bf16>("w", {6, 64}), param<bf16>("row", {1, 320}), param<bf16>("v", {6, 64}));
  using Two = SlotReuseWithin<Bytes<1>, Chunks<2>>;
  for (const index_t nodes : {2, 3, 4, 5, 6}) {
    CAPTURE(nodes);
    for (const Element wire : {Element::f32, Element::bf16}) {
      for (const Exchange exchange : {Exchange::direct, Exchange::doubling}) {
        CAPTURE(name(exchange));
        CHECK(first_violation(tide_test::planned_reduce<Two>(gap.view(), {nodes, 1}, exchange, Finish::store,
                                                             GradientSource::storage, wire, Fsdp2Packing::rule)) == "");
      }
    }
  }
}

// A plan is a constant expression for a small group on a static mesh.
template <class Inbox>
constexpr std::size_t ops_of(MeshShape mesh, Exchange exchange) {
  std::size_t count = 0;
  for (const Plan& plan : tide_test::planned_reduce<Inbox>(tide_test::single_row.view(), mesh, exchange).plans) {
    count += plan.ops.size();
  }
  return count;
}
static_assert(ops_of<Single>({2, 2}, Exchange::direct) > 0 && ops_of<SlotReuse>({3, 1}, Exchange::doubling) > 0);

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

// The most ops of a kind that a rank has for a chunk. Each chunk is one run of one parameter.
index_t most_ops(const Planned& planned, OpKind kind, Space source) {
  index_t most = 0;
  for (const Plan& plan : planned.plans) {
    const auto count = [&](auto which) { return std::count_if(plan.ops.begin(), plan.ops.end(), which); };
    const index_t chunks =
        count([](const Op& op) { return op.kind == OpKind::reduce && op.target.space == Space::output; });
    const index_t ops = count([&](const Op& op) {
      return op.kind == kind && (op.source.space == Space::gradients) == (source == Space::gradients) &&
             (kind == OpKind::reduce || op.peer == plan.rank.value);
    });
    REQUIRE(chunks > 1);
    most = std::max(most, ceil_div(ops, chunks));
  }
  return most;
}

TEST_CASE("node reduce: owners with equal parts are rows of one op") {
  static constexpr auto even = group(param<bf16>("w", {128, 96}));
  const auto planned = [](MeshShape mesh, Exchange exchange, Element wire = Element::f32) {
    return tide_test::planned_reduce<Ring<Chunks<3>, Bytes<32768>>>(even.view(), mesh, exchange, Finish::store,
                                                                    GradientSource::table, wire);
  };
  const auto sums = [](const Planned& all) { return most_ops(all, OpKind::reduce, Space::gradients); };
  const auto additions = [](const Planned& all) { return most_ops(all, OpKind::reduce, Space::partials); };
  const auto packs = [](const Planned& all) { return most_ops(all, OpKind::copy, Space::gradients); };

  const Planned doubling = planned({8, 2}, Exchange::doubling);
  CHECK(sums(doubling) <= 4);       // of eight owners, in the order of doubling
  CHECK(additions(doubling) == 3);  // one of each round
  const Planned direct = planned({8, 2}, Exchange::direct);
  CHECK(sums(direct) == 1);
  CHECK(additions(direct) == 1);
  const Planned narrow = planned({8, 2}, Exchange::doubling, Element::bf16);
  CHECK(additions(narrow) == 9);                                            // each round rounds, widens and adds
  CHECK(additions(planned({8, 2}, Exchange::direct, Element::bf16)) == 9);  // rounds for each of seven puts
  const Planned leaves = planned({8, 1}, Exchange::doubling);
  CHECK(packs(leaves) <= 4);
  CHECK(additions(leaves) == 3);
  CHECK(packs(planned({8, 1}, Exchange::direct)) == 1);
}

TEST_CASE("node reduce: no op could be left out") {
  if (tide_test::sized(1, 0) == 0) return;  // it is about plans, which no sanitizer sees
  for (const MeshShape mesh : {MeshShape{2, 2}, MeshShape{3, 1}, MeshShape{3, 2}, MeshShape{4, 1}}) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const Exchange exchange : {Exchange::direct, Exchange::doubling}) {
      CAPTURE(name(exchange));
      CHECK(first_idle_op(tide_test::planned_reduce<Single>(tide_test::odd_group.view(), mesh, exchange)) == "");
      CHECK(first_idle_op(tide_test::planned_reduce<SlotReuse>(tide_test::odd_group.view(), mesh, exchange)) == "");
      if (mesh.nodes > 2) continue;  // in long outputs some credits are implied by what third nodes send
      CHECK(first_idle_op(tide_test::planned_reduce<Small>(chunked.view(), mesh, exchange)) == "");
    }
  }
}

}  // namespace node_reduce_test
