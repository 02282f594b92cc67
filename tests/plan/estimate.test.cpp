// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <tide/models/llama3_1.hpp>
#include <tide/plan/bound.hpp>
#include <tide/plan/estimate.hpp>
#include <tide/reduce/node_exchange.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include <cmath>

namespace {

using tide::index_t;
using tide::Machine;
using tide_test::Planned;

// 4 ranks that own 1,024 bytes each.
inline constexpr auto estimated_group = tide::group(tide::param<tide::bf16>("w", {16, 128}));

double estimated(const Planned& planned, const Machine& machine) {
  return tide::estimate(planned.collective, planned.plans, machine).seconds;
}
double bounded(const Planned& planned, const Machine& machine) {
  return tide::lower_bound(planned.collective, planned.plans, machine).seconds;
}

// A collective over two ranks of a node, of two lanes each.
struct ByHand {
  Planned planned;

  ByHand() {
    planned.collective.layout = {estimated_group.view(), {1, 2}, tide::TightPacking::rule};
    for (index_t r = 0; r < 2; ++r) {
      tide::Plan& plan = planned.plans.emplace_back();
      plan.rank = tide::Rank{r};
      plan.lanes = {{tide::LaneKind::caller, 0}, {tide::LaneKind::push, 1}};
    }
  }

  void copy(index_t rank, std::uint16_t lane, index_t to, index_t bytes) {
    tide::Op op;
    op.kind = tide::OpKind::copy;
    op.lane = lane;
    op.peer = static_cast<std::int32_t>(to);
    op.source = {tide::Space::shards, 0, 0};
    op.target = {tide::Space::slot, 0, 0};
    op.width = bytes;
    op.source_pitch = op.target_pitch = static_cast<std::uint32_t>(bytes);
    planned.plans[static_cast<std::size_t>(rank)].ops.push_back(op);
  }
  void signal(index_t rank, std::uint16_t lane, index_t to, index_t value) {
    word(tide::OpKind::signal, rank, lane, to, value);
  }
  void wait(index_t rank, std::uint16_t lane, index_t value) { word(tide::OpKind::wait, rank, lane, rank, value); }

 private:
  void word(tide::OpKind kind, index_t rank, std::uint16_t lane, index_t peer, index_t value) {
    tide::Op op;
    op.kind = kind;
    op.lane = lane;
    op.peer = static_cast<std::int32_t>(peer);
    op.target = {tide::Space::signals, 0, 0};
    op.target_offset = 8 * planned.collective.words().word(tide::WordKind::arrived, 0);
    op.width = value;
    op.rows = 1;
    planned.plans[static_cast<std::size_t>(rank)].ops.push_back(op);
  }
};

}  // namespace

TEST_CASE("estimate: ops of a lane follow each other, lanes share a link") {
  ByHand one;
  one.copy(0, 0, 1, 100);
  one.copy(0, 0, 1, 300);
  CHECK(estimated(one.planned, {.link_rate = 100}) == 4.0);
  one.copy(0, 1, 1, 200);  // beside them, over the same link
  CHECK(estimated(one.planned, {.link_rate = 100}) == 6.0);
  one.copy(1, 0, 0, 600);  // the other way, at the same time
  CHECK(estimated(one.planned, {.link_rate = 100}) == 6.0);
  CHECK(estimated(one.planned, {}) == 0.0);
}

TEST_CASE("estimate: a wait holds its lane until the word has risen, and an earlier run has met a value of 0") {
  ByHand waits;
  waits.copy(0, 0, 1, 100);
  waits.signal(0, 0, 1, 1);
  waits.copy(0, 0, 1, 100);
  waits.wait(1, 0, 0);
  waits.copy(1, 0, 1, 50);  // local, from the start: 50 bytes read and 50 written
  waits.wait(1, 1, 1);
  waits.copy(1, 1, 0, 500);  // from 1 s on
  const Machine machine{.link_rate = 100, .copy_rate = 100};
  CHECK(estimated(waits.planned, machine) == 6.0);
  CHECK(bounded(waits.planned, machine) == 5.0);
  const tide::Estimate estimate = tide::estimate(waits.planned.collective, waits.planned.plans, machine);
  CHECK(estimate.rank == tide::Rank{1});
  CHECK(estimate.lane == tide::Lane{tide::LaneKind::push, 1});
}

TEST_CASE("estimate: a word that rises twice at one time wakes its lane once") {
  ByHand twice;
  twice.signal(0, 0, 1, 1);
  twice.signal(0, 0, 1, 2);
  twice.wait(1, 0, 1);
  twice.copy(1, 0, 1, 100);  // local: 1 s
  twice.copy(1, 0, 0, 100);  // behind it: 1 s
  const Machine machine{.link_rate = 100, .copy_rate = 200};
  CHECK(bounded(twice.planned, machine) == 2.0);
  CHECK(estimated(twice.planned, machine) == 2.0);
}

TEST_CASE("estimate: what came to a link first gets it first") {
  ByHand order;
  order.copy(0, 0, 0, 50);  // local: 1 s, then the link
  order.copy(0, 0, 1, 100);
  order.copy(0, 1, 1, 300);  // at the link from the start: until 3 s
  CHECK(estimated(order.planned, {.link_rate = 100, .copy_rate = 100}) == 4.0);
}

TEST_CASE("estimate: calls take time on their lane") {
  ByHand calls;
  calls.copy(0, 0, 1, 100);
  calls.copy(0, 0, 1, 100);
  calls.copy(0, 1, 1, 100);
  // Lane 1 copies from 0.5 to 1.5 s or lane 0 does; the link is busy from 0.5 s on.
  CHECK(estimated(calls.planned, {.link_rate = 100, .call_seconds = 0.5}) == 3.5);
}

TEST_CASE("estimate: a wait that nobody meets takes for ever") {
  ByHand stuck;
  stuck.wait(1, 0, 1);
  CHECK(std::isinf(estimated(stuck.planned, {.link_rate = 100})));
}

TEST_CASE("estimate: never less than the bound, and the same each time") {
  const Machine h200 = tide::machines::h200_node();
  const Machine slow_network{.link_rate = 1e9, .nic_rate = 1e7, .sum_rate = 1e9, .call_seconds = 1e-6};
  for (const Machine& machine : {h200, slow_network, tide::machines::cpu(1e9)}) {
    for (const tide::MeshShape mesh : {tide::MeshShape{1, 1}, {1, 5}, {2, 2}, {3, 2}, {4, 1}, {5, 3}}) {
      CAPTURE(mesh.nodes);
      CAPTURE(mesh.ranks_per_node);
      const auto check = [&](const Planned& planned) {
        const double seconds = estimated(planned, machine);
        CHECK(std::isfinite(seconds));
        CHECK(seconds >= bounded(planned, machine) * (1 - 1e-12));
        CHECK(seconds == estimated(planned, machine));
      };
      check(tide_test::planned_gather_on<tide::UnicastTransport, tide::RdmaDoublingTransport<>>(
          tide_test::mixed_group.view(), mesh));
      for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
        check(tide_test::planned_reduce(tide_test::mixed_group.view(), mesh, exchange));
      }
      if (mesh.nodes == 1) continue;
      check(tide_test::planned_switch_reduce(tide_test::mixed_group.view(), mesh));
    }
  }
}

TEST_CASE("estimate: a reduce of a Llama-3.1-70B block over two nodes is within a tenth of its bound") {
  using Default = tide::Ring<tide::Chunks<4>, tide::Bytes<(64 << 20)>>;
  const Planned reduce =
      tide_test::planned_reduce<Default>(tide::models::llama3_1_70b::block.view(), {2, 8}, tide::Exchange::doubling);
  const Machine machine = tide::machines::h200_node();
  CHECK(bounded(reduce, machine) >= 0.9 * estimated(reduce, machine));
}
