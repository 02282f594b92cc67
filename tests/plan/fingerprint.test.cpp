// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/ragged_shard.hpp>
#include <tide/plan/fingerprint.hpp>

#include <algorithm>
#include <array>
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

TEST_CASE("fingerprint: differs where any field of an op does") {
  const tide::Plan plan = tide_test::planned_gather(tiny_group.view(), 2).plans[0];
  const std::vector<std::function<void(tide::Op&)>> changes = {
      [](tide::Op& op) { op.kind = op.kind == tide::OpKind::put ? tide::OpKind::copy : tide::OpKind::put; },
      [](tide::Op& op) { ++op.kernel; },
      [](tide::Op& op) { ++op.lane; },
      [](tide::Op& op) { ++op.peer; },
      [](tide::Op& op) { op.source.space = tide::Space::partials; },
      [](tide::Op& op) { ++op.source.instance; },
      [](tide::Op& op) { ++op.target.parameter; },
      [](tide::Op& op) { op.extra.space = tide::Space::partials; },
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
