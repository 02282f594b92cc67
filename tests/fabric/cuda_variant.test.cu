// SPDX-License-Identifier: Apache-2.0
// labels: no_gpu
//
// What CudaFabric asks of plans over nodes before it runs them: NCCL counts puts, and knows no values.

#include <tide/fabric/detail/cuda_program.cuh>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include "conformance/inter_transport.hpp"
#include "support/raised.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tide_test;
using tide::Exchange;
using tide::Op;
using tide::OpKind;
using tide::Plan;

using Small = tide::RdmaDoublingTransport<tide::Bytes<48>, tide::PutsInFlight<2>>;
using Few = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;

// What is raised when a plan is prepared for a GPU.
std::string said_of(const tide::Collective& collective, Plan plan) {
  return text_of([&] {
    const std::vector<tide::KernelCode> code(collective.kernels.size(), nullptr);
    const tide::detail::CudaVariant variant(collective, code, std::move(plan), 0);
  });
}

void all_are_taken(const Planned& planned) {
  for (const Plan& plan : planned.plans) CHECK(said_of(planned.collective, plan) == "");
}

}  // namespace

TEST_CASE("CudaVariant: plans that ship are taken, whatever the nodes and however they are crossed") {
  for (const tide::MeshShape mesh : node_meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const tide::GroupView& group : {odd_group.view(), empty_group.view(), single_row.view()}) {
      for (const tide::OwnBlock own : {tide::OwnBlock::copy, tide::OwnBlock::in_place, tide::OwnBlock::cast}) {
        all_are_taken(planned_gather_on<tide::UnicastTransport, Small>(group, mesh, own));
      }
      for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
        all_are_taken(planned_reduce<Few>(group, mesh, exchange));
        all_are_taken(planned_reduce<tide::SlotReuse>(group, mesh, exchange));
      }
      all_are_taken(planned_switch_reduce<Few>(group, mesh));
    }
  }
}

TEST_CASE("CudaVariant: puts whose word does not count up by ones are refused, with the rank and the word") {
  const Planned planned = planned_gather_on<tide::UnicastTransport, Small>(odd_group.view(), {2, 2});
  const auto broken = [&](const auto& change) {
    Plan plan = planned.plans[0];
    const auto put =
        std::find_if(plan.ops.begin(), plan.ops.end(), [](const Op& op) { return op.kind == OpKind::put; });
    REQUIRE(put != plan.ops.end());
    change(plan, put);
    return said_of(planned.collective, plan);
  };
  const std::string rule = "tide::CudaFabric: puts to a rank must count its word up by ones; rank 0 puts ";
  CHECK(broken([](Plan&, auto put) { put->source_pitch = 2; }) == rule + "to rank 2 with arrived[0] = 2.");
  CHECK(broken([](Plan& plan, auto put) { plan.ops.erase(put); }) == rule + "to rank 2 with arrived[0] = 2.");
  CHECK(broken([](Plan&, auto put) { ++put->target_pitch; }).find(rule) == 0);
  CHECK(broken([&](Plan&, auto put) {
          put->extra_offset = 8 * planned.collective.words().word(tide::WordKind::credit, 0);
        }).find(rule + "to rank 2 with credit[0] = 1") == 0);
}

TEST_CASE("CudaVariant: a run that leaves puts unawaited, or takes those of another, is refused") {
  const Planned planned = planned_gather_on<tide::UnicastTransport, Small>(odd_group.view(), {2, 2});
  const tide::SignalWords words = planned.collective.words();
  const tide::index_t landing = words.word(tide::WordKind::arrived, 2);
  const auto broken = [&](const auto& change) {
    Plan plan = planned.plans[0];
    change(plan.ops);
    return said_of(planned.collective, plan);
  };
  const std::string rule =
      "tide::CudaFabric: a run must wait for all that other nodes put in it, and for nothing else; rank 0 ";
  const auto is_last = [&](const Op& op) {
    return op.kind == OpKind::wait && op.word() == landing && op.value() == op.per_run();
  };
  CHECK(broken([&](auto& ops) { std::erase_if(ops, is_last); }).find(rule + "never waits for arrived[2] = ") == 0);
  CHECK(broken([&](auto& ops) {
          std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
            return op.kind == OpKind::wait && op.word() == landing;
          })->width = 0;
        }) == rule + "waits for arrived[2] = 0.");
  CHECK(broken([&](auto& ops) {
          Op signal;
          signal.kind = OpKind::signal;
          signal.peer = 2;
          signal.target_offset = 8 * words.word(tide::WordKind::arrived, 0);
          signal.width = 1;
          ops.push_back(signal);
        }) == rule + "signals without a put arrived[0] = 1.");
}
