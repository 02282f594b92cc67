// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/ragged_shard.hpp>
#include <tide/plan/fingerprint.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace {

using tide::fingerprint;
using tide::index_t;
using tide_test::Planned;

inline constexpr auto tiny_group = tide::group(tide::param<tide::bf16>("w", {4, 2}), tide::param<tide::bf16>("b", {4}));

// The same in every process and with every compiler: a change of this number is a change of what ranks compare.
constexpr std::uint64_t tiny = [] {
  const Planned gather = tide_test::planned_gather(tiny_group.view(), 2);
  return fingerprint(gather.collective, gather.plans);
}();
static_assert(tiny != 0);

TEST_CASE("fingerprint: a group built at run time has that of the same group written in C++") {
  tide::DynamicGroup group;
  group.add("w", {4, 2}, tide::Element::bf16, tide::Element::bf16);
  group.add("b", {4}, tide::Element::bf16, tide::Element::bf16);
  const Planned gather = tide_test::planned_gather(group.view(), 2);
  CHECK(fingerprint(gather.collective, gather.plans) == tiny);
}

TEST_CASE("fingerprint: a copy of a repeated name has that of the same name in one piece") {
  const auto repeated = tide::group(tide::repeat<2>("x.{}.", tide::param<tide::bf16>("w", {4})));
  const auto written = tide::group(tide::param<tide::bf16>("x.0.w", {4}), tide::param<tide::bf16>("x.1.w", {4}));
  CHECK(fingerprint(tide_test::planned_gather(repeated.view(), 2).collective) ==
        fingerprint(tide_test::planned_gather(written.view(), 2).collective));
}

TEST_CASE("fingerprint: differs where names, shapes, elements, cuts, ties or meshes differ") {
  using tide::param;
  constexpr auto other_name = tide::group(param<tide::bf16>("v", {4, 2}), param<tide::bf16>("b", {4}));
  constexpr auto other_order = tide::group(param<tide::bf16>("b", {4}), param<tide::bf16>("w", {4, 2}));
  constexpr auto other_shape = tide::group(param<tide::bf16>("w", {4, 1, 2}), param<tide::bf16>("b", {4}));
  constexpr auto other_element = tide::group(param<tide::f16>("w", {4, 2}), param<tide::bf16>("b", {4}));
  constexpr auto other_gradient = tide::group(param<tide::bf16, float>("w", {4, 2}), param<tide::bf16>("b", {4}));
  constexpr auto other_dimension = tide::group(
      param<tide::bf16>("w", {4, 2}, {tide::Sharding::Kind::chunked, 1, nullptr, {}}), param<tide::bf16>("b", {4}));
  constexpr auto other_rows =
      tide::group(param<tide::bf16>("w", {4, 2}, tide::ragged<3, 1>()), param<tide::bf16>("b", {4}));
  constexpr auto tied =
      tide::group(param<tide::bf16>("w", {4, 2}), param<tide::bf16>("b", {4}), tide::alias("head", "w"));
  std::set<std::uint64_t> seen = {fingerprint(tide_test::planned_gather(tiny_group.view(), 2).collective)};
  const auto differs = [&](const tide::Collective& collective) { CHECK(seen.insert(fingerprint(collective)).second); };
  for (const tide::GroupView& group : {other_name.view(), other_order.view(), other_shape.view(), other_element.view(),
                                       other_gradient.view(), other_dimension.view(), other_rows.view(), tied.view()}) {
    differs(tide_test::planned_gather(group, 2).collective);
  }
  differs(tide_test::planned_gather(tiny_group.view(), 3).collective);
  differs(tide_test::planned_gather(tiny_group.view(), 2, tide::OwnBlock::copy, tide::Fsdp2Packing::rule).collective);
  differs(tide_test::planned_gather(tiny_group.view(), 2, tide::OwnBlock::in_place).collective);
  differs(tide_test::planned_reduce(tiny_group.view(), 2).collective);
  differs(tide_test::planned_reduce(tiny_group.view(), 2, tide::Finish::accumulate).collective);
  using Narrow = tide::Ring<tide::Chunks<1>, tide::Bytes<128>>;
  const auto long_group = tide::group(param<tide::bf16>("w", {4, 200}));
  const auto wide = fingerprint(tide_test::planned_reduce(long_group.view(), 2).collective);
  CHECK(fingerprint(tide_test::planned_reduce<Narrow>(long_group.view(), 2).collective) != wide);
  tide::Collective mesh = tide_test::planned_gather(tiny_group.view(), 2).collective;
  mesh.layout.mesh = {2, 1};
  differs(mesh);
}

// With one field more these do not compile: then the lists below lack it, and perhaps the hash.
[[maybe_unused]] constexpr void all_fields(const tide::Collective& c, const tide::Kernel& k, const tide::Plan& p) {
  [[maybe_unused]] const auto& [layout, operation, own, gradients, finish, ctas, inbox, network, kernels] = c;
  [[maybe_unused]] const auto& [group, mesh, packing, alignment, remembers] = layout;
  [[maybe_unused]] const auto& [chunks, pieces, elements, bytes, room, place, slot] = inbox;
  [[maybe_unused]] const auto& [in, ins, partial, partials, piece, puts, exchange, wire] = network;
  [[maybe_unused]] const auto& [kind, input, output, end, inputs] = k;
  [[maybe_unused]] const auto& [rank, lanes, ops, exits] = p;
  [[maybe_unused]] const auto& [lane_kind, index] = lanes[0];
  [[maybe_unused]] const auto& [exit_kind, lane, position] = exits[0];
  [[maybe_unused]] const auto& [space, instance, parameter] = ops[0].source;
}

TEST_CASE("fingerprint: differs where any field of a collective does, but for the CTAs of a GPU") {
  using tide::Collective;
  Collective collective = tide_test::planned_reduce(tiny_group.view(), {2, 2}, tide::Exchange::doubling).collective;
  collective.kernels.resize(1);
  const std::vector<std::function<void(Collective&)>> changes = {
      [](Collective& c) { c.layout.group = tide_test::odd_group.view(); },
      [](Collective& c) {
        c.layout.mesh = {4, 1};
      },
      [](Collective& c) {
        c.layout.mesh = {1, 4};
      },
      [](Collective& c) { c.layout.packing.start_alignment = 32; },
      [](Collective& c) { c.layout.packing.padding = tide::PackingRule::Padding::to_chunk; },
      [](Collective& c) { c.layout.storage_alignment = 512; },
      [](Collective& c) { c.operation = tide::Operation::gather; },
      [](Collective& c) { c.own = tide::OwnBlock::cast; },
      [](Collective& c) { c.gradients = tide::GradientSource::table; },
      [](Collective& c) { c.finish = tide::Finish::accumulate; },
      [](Collective& c) { ++c.inbox.chunks; },
      [](Collective& c) { ++c.inbox.pieces; },
      [](Collective& c) { ++c.inbox.chunk_elements; },
      [](Collective& c) { ++c.inbox.element_bytes; },
      [](Collective& c) { ++c.inbox.piece_room; },
      [](Collective& c) { c.inbox.place = tide::InboxPlace::slot; },
      [](Collective& c) { ++c.inbox.slot_bytes; },
      [](Collective& c) { ++c.network.inbox_bytes; },
      [](Collective& c) { ++c.network.inbox_instances; },
      [](Collective& c) { ++c.network.partials_bytes; },
      [](Collective& c) { ++c.network.partials_instances; },
      [](Collective& c) { ++c.network.piece_bytes; },
      [](Collective& c) { ++c.network.puts_in_flight; },
      [](Collective& c) { c.network.exchange = tide::Exchange::in_switch; },
      [](Collective& c) { c.network.wire = tide::Element::bf16; },
      [](Collective& c) { c.kernels.clear(); },
      [](Collective& c) { c.kernels.push_back(c.kernels[0]); },
      [](Collective& c) { c.kernels[0].kind = tide::Kernel::Kind::switch_sum; },
      [](Collective& c) { c.kernels[0].input = tide::Element::f8_e4m3; },
      [](Collective& c) { c.kernels[0].output = tide::Element::f8_e4m3; },
      [](Collective& c) { c.kernels[0].finish = tide::Finish::accumulate; },
      [](Collective& c) { ++c.kernels[0].inputs; },
  };
  std::set<std::uint64_t> seen = {fingerprint(collective)};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    Collective changed = collective;
    changes[i](changed);
    CHECK(seen.insert(fingerprint(changed)).second);
  }
  Collective same = collective;
  same.ctas = 16;
  CHECK(fingerprint(same) == fingerprint(collective));
}

TEST_CASE("fingerprint: differs where any field of an op does") {
  const tide::Plan plan = tide_test::planned_gather(tiny_group.view(), 2).plans[0];
  const std::vector<std::function<void(tide::Op&)>> changes = {
      [](tide::Op& op) { op.kind = op.kind == tide::OpKind::put ? tide::OpKind::copy : tide::OpKind::put; },
      [](tide::Op& op) { ++op.kernel; },
      [](tide::Op& op) { ++op.lane; },
      [](tide::Op& op) { ++op.peer; },
      [](tide::Op& op) { op.source.space = tide::Space::partials; },
      [](tide::Op& op) { ++op.source.instance; },
      [](tide::Op& op) { ++op.source.parameter; },
      [](tide::Op& op) { op.target.space = tide::Space::partials; },
      [](tide::Op& op) { ++op.target.instance; },
      [](tide::Op& op) { ++op.target.parameter; },
      [](tide::Op& op) { op.extra.space = tide::Space::partials; },
      [](tide::Op& op) { ++op.extra.instance; },
      [](tide::Op& op) { ++op.extra.parameter; },
      [](tide::Op& op) { ++op.rows; },
      [](tide::Op& op) { ++op.source_offset; },
      [](tide::Op& op) { ++op.target_offset; },
      [](tide::Op& op) { ++op.extra_offset; },
      [](tide::Op& op) { ++op.width; },
      [](tide::Op& op) { ++op.source_pitch; },
      [](tide::Op& op) { ++op.target_pitch; },
  };
  std::set<std::uint64_t> seen = {fingerprint(plan)};
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (const auto& change : changes) {
      tide::Plan changed = plan;
      change(changed.ops[i]);
      REQUIRE(changed != plan);
      CHECK(seen.insert(fingerprint(changed)).second);
    }
  }
}

TEST_CASE("fingerprint: differs where ops change places, and where lanes or exits do") {
  const tide::Plan plan = tide_test::planned_gather(tiny_group.view(), 3).plans[0];
  std::set<std::uint64_t> seen = {fingerprint(plan)};
  for (std::size_t i = 1; i < plan.ops.size(); ++i) {
    tide::Plan swapped = plan;
    std::swap(swapped.ops[i - 1], swapped.ops[i]);
    if (swapped != plan) CHECK(seen.insert(fingerprint(swapped)).second);
  }
  tide::Plan changed = plan;
  changed.rank = tide::Rank{1};
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  changed.lanes[1].index = 7;
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  changed.lanes[1].kind = tide::LaneKind::net;
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  changed.lanes.push_back({tide::LaneKind::net, 0});
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  changed.exits[0].kind = tide::ExitKind::shards_ready;
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  changed.exits[0].lane = tide::LaneIndex{1};
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  changed.exits.push_back(plan.exits[0]);
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  --changed.exits[0].position;
  CHECK(seen.insert(fingerprint(changed)).second);
  changed = plan;
  changed.ops.pop_back();
  CHECK(seen.insert(fingerprint(changed)).second);
}

TEST_CASE("fingerprint: differs where one rank's plan does, and where ranks' plans change places") {
  Planned gather = tide_test::planned_gather(tiny_group.view(), 3);
  const std::uint64_t before = fingerprint(gather.collective, gather.plans);
  std::swap(gather.plans[0], gather.plans[1]);
  CHECK(fingerprint(gather.collective, gather.plans) != before);
  std::swap(gather.plans[0], gather.plans[1]);
  CHECK(fingerprint(gather.collective, gather.plans) == before);
  gather.plans[2].ops.back().width += 1;
  CHECK(fingerprint(gather.collective, gather.plans) != before);
}

}  // namespace
