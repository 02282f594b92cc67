// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <tide/plan/traffic.hpp>

#include <cstdint>

namespace {

using tide::Traffic;

constexpr tide::Block rows_of_8{tide::ParameterIndex{0}, 0, 0, 8, 8, 3, 16, 32, 0};

// The traffic of the only op that `write` appends to the plan of rank 1 of 4.
template <class Write>
constexpr Traffic traffic_of(tide::Collective collective, Write write) {
  collective.layout.mesh = {1, 4};
  tide::PlanBuilder builder(collective, tide::Rank{1});
  write(builder);
  return tide::traffic(collective, std::move(builder).finish().ops.front());
}

constexpr tide::Collective with_kernel(tide::Kernel kernel) {
  tide::Collective collective;
  collective.kernels.push_back(kernel);
  return collective;
}

constexpr tide::LaneIndex lane = tide::PlanBuilder::caller();

static_assert(traffic_of({}, [](tide::PlanBuilder& plan) {
                plan.copy(lane, tide::Rank{2}, tide::Space::shards, tide::Space::slot, rows_of_8);
              }) == Traffic{24, 24, 1});
static_assert(traffic_of({}, [](tide::PlanBuilder& plan) {
                plan.multicast(lane, tide::Space::shards, tide::Space::slot, rows_of_8);
              }) == Traffic{24, 24, 4});
static_assert(traffic_of({}, [](tide::PlanBuilder& plan) { plan.signal(lane, tide::Rank{2}, 0); }) == Traffic{});
static_assert(traffic_of({}, [](tide::PlanBuilder& plan) { plan.wait(lane, 0); }) == Traffic{});

// 6 floats in, 6 bf16 out.
static_assert(traffic_of(with_kernel({tide::Kernel::Kind::cast, tide::Element::f32, tide::Element::bf16}),
                         [](tide::PlanBuilder& plan) { plan.cast(lane, rows_of_8); }) == Traffic{24, 12, 1});

// 12 bf16 of each of 4 ranks in, 12 floats out, which are read first if they are added to.
constexpr tide::Kernel sum{tide::Kernel::Kind::sum, tide::Element::bf16, tide::Element::f32, tide::Finish::store, 4};
constexpr tide::Kernel add{tide::Kernel::Kind::sum, tide::Element::bf16, tide::Element::f32, tide::Finish::accumulate,
                           4};
constexpr auto reduced = [](tide::PlanBuilder& plan) { plan.reduce(lane, 1, rows_of_8, 0, 0); };
static_assert(traffic_of(with_kernel(sum), reduced) == Traffic{4 * 24, 48, 1});
static_assert(traffic_of(with_kernel(add), reduced) == Traffic{4 * 24 + 48, 48, 1});

// 6 floats of each of two places, of every rank, in; 6 out: the own rank's part is counted.
static_assert(traffic_of(with_kernel(tide::switch_kernel(tide::Finish::store, 2)), reduced) == Traffic{2 * 24, 24, 1});

// As many floats as bf16 do not fit.
static_assert([] {
  tide::Op op;
  op.kind = tide::OpKind::reduce;
  op.width = INT64_MAX - 1;
  return tide::target_width(with_kernel(sum), op);
}() == -1);

TEST_CASE("traffic: a put moves its bytes to one rank") {
  tide::Op put;
  put.kind = tide::OpKind::put;
  put.width = 4096;
  CHECK(tide::traffic({}, put) == Traffic{4096, 4096, 1});
}

}  // namespace
