// SPDX-License-Identifier: Apache-2.0
// labels: no_gpu
//
// What CudaFabric asks of plans over nodes before it runs them: NCCL counts puts, and knows no values. And where it
// puts each rendezvous, if nodes are crossed by sends and receives.

#include <tide/fabric/detail/cuda_nodes.cuh>
#include <tide/fabric/detail/cuda_program.cuh>
#include <tide/fabric/detail/variants.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include "conformance/inter_transport.hpp"
#include "support/raised.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <tuple>
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

// Whether what a lane has done before an exit is over at a step: its ops are, and each put has been taken along.
void check_exit(const tide::detail::CudaVariant& variant, const tide::Exit& exit, std::ptrdiff_t at) {
  tide::index_t ops = 0;
  bool has_put = false;
  for (std::ptrdiff_t s = 0; s <= at; ++s) {
    const tide::detail::CudaStep& step = variant.steps[static_cast<std::size_t>(s)];
    if (step.kind == tide::detail::CudaStep::Kind::rendezvous) {
      has_put = false;
      continue;
    }
    for (std::size_t i = step.first; i < step.last; ++i) {
      const Op& op = variant.plan.ops[i];
      if (op.lane != exit.lane.value) continue;
      if (ops < exit.position) has_put = has_put || op.kind == OpKind::put;
      ++ops;
    }
  }
  CHECK(ops >= exit.position);
  CHECK_FALSE(has_put);
}

void rendezvous_are_placed(const Planned& planned) {
  const tide::MeshShape mesh = planned.collective.layout.mesh;
  CAPTURE(mesh.nodes);
  CAPTURE(mesh.ranks_per_node);
  const auto all = tide::rendezvous(planned.collective, planned.plans);
  std::set<std::tuple<tide::index_t, std::int32_t, std::int32_t>> tokens_sent;
  std::set<std::tuple<tide::index_t, std::int32_t, std::int32_t>> tokens_received;
  for (const Plan& plan : planned.plans) {
    const std::int32_t rank = plan.rank.value;
    CAPTURE(rank);
    const auto& expected = all[static_cast<std::size_t>(rank)];
    const std::vector<tide::KernelCode> code(planned.collective.kernels.size(), nullptr);
    const tide::detail::CudaVariant variant(planned.collective, code, plan, 0, expected);
    std::size_t done = 0;
    std::size_t met = 0;
    for (const tide::detail::CudaStep& step : variant.steps) {
      if (step.kind == tide::detail::CudaStep::Kind::rendezvous) {
        REQUIRE(met < expected.size());
        CHECK(step.first == met);
        CHECK(done == expected[met++].position);
        continue;
      }
      CHECK(step.first == done);
      done = step.last;
      const Op& op = plan.ops[step.first];
      const bool crosses = op.raises() && mesh.node(tide::Rank{op.peer}) != mesh.node(plan.rank);
      CHECK(crosses == (step.kind == tide::detail::CudaStep::Kind::send));
    }
    CHECK(done == plan.ops.size());
    CHECK(met == expected.size());
    for (const tide::detail::CudaRendezvous& each : variant.rendezvous) {
      for (const auto to : each.tokens_to) tokens_sent.insert({each.phase, rank, to});
      for (const auto from : each.tokens_from) tokens_received.insert({each.phase, from, rank});
      for (const tide::Rendezvous::Send& send : each.sends) {
        const Op& op = plan.ops[send.op];
        const auto has = [&](const auto& list) { return std::count(list.begin(), list.end(), op.lane) == 1; };
        CHECK(has(each.lanes));
        if (op.kind == OpKind::put) CHECK(has(each.put_lanes));
        CHECK(std::count(each.peers.begin(), each.peers.end(), op.peer) == 1);
      }
    }
    std::vector<int> found(plan.exits.size(), 0);
    for (const std::int32_t e : variant.first_exits) {
      ++found[static_cast<std::size_t>(e)];
      check_exit(variant, plan.exits[static_cast<std::size_t>(e)], -1);
    }
    for (std::size_t s = 0; s < variant.steps.size(); ++s) {
      for (const std::int32_t e : variant.steps[s].exits) {
        ++found[static_cast<std::size_t>(e)];
        check_exit(variant, plan.exits[static_cast<std::size_t>(e)], static_cast<std::ptrdiff_t>(s));
      }
    }
    CHECK(found == std::vector<int>(plan.exits.size(), 1));
  }
  CHECK(tokens_sent == tokens_received);
}

}  // namespace

TEST_CASE(
    "CudaVariant: a rendezvous comes where the plan needs it, and an exit behind those that take its lane's puts "
    "along") {
  for (const tide::MeshShape mesh : node_meshes) {
    for (const tide::GroupView& group : {odd_group.view(), empty_group.view(), single_row.view()}) {
      for (const tide::OwnBlock own : {tide::OwnBlock::copy, tide::OwnBlock::in_place, tide::OwnBlock::cast}) {
        rendezvous_are_placed(planned_gather_on<tide::UnicastTransport, Small>(group, mesh, own));
      }
      for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
        rendezvous_are_placed(planned_reduce<Few>(group, mesh, exchange));
        rendezvous_are_placed(planned_reduce<tide::SlotReuse>(group, mesh, exchange));
      }
      rendezvous_are_placed(planned_switch_reduce<Few>(group, mesh));
    }
  }
}

TEST_CASE("CudaVariant: an exit that stands right behind a put waits for the rendezvous that takes it along") {
  Planned planned = planned_gather_on<tide::UnicastTransport, Small>(odd_group.view(), {2, 1});
  for (Plan& plan : planned.plans) {
    tide::index_t before = 0;
    std::uint16_t lane = 0;
    for (const Op& op : plan.ops) {
      if (op.kind == OpKind::put) lane = op.lane;
    }
    for (const Op& op : plan.ops) {
      before += op.lane == lane ? 1 : 0;
      if (op.kind == OpKind::put)
        plan.exits.push_back({tide::ExitKind::complete, tide::LaneIndex{lane}, static_cast<std::int32_t>(before)});
    }
    REQUIRE(plan.exits.size() > 1);
  }
  rendezvous_are_placed(planned);
}

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

TEST_CASE(
    "CudaVariant: what a rank sends and receives is asked of all plans, and may not differ from variant to variant") {
  const auto variant_of = [](tide::OwnBlock own, tide::Rank rank) {
    const Planned planned = planned_gather_on<tide::UnicastTransport, Small>(odd_group.view(), {3, 2}, own);
    tide::PlanVariant variant{planned.collective, planned.plans[static_cast<std::size_t>(rank.value)], {}};
    variant.plan_of = [plans = planned.plans](tide::Rank each) { return plans[static_cast<std::size_t>(each.value)]; };
    return variant;
  };
  for (tide::index_t r = 0; r < 6; ++r) {
    const tide::Rank rank{r};
    std::vector<tide::PlanVariant> variants{variant_of(tide::OwnBlock::copy, rank),
                                            variant_of(tide::OwnBlock::cast, rank)};
    const auto kept = tide::detail::rendezvous_of(variants);
    for (std::size_t v = 0; v < 2; ++v) {
      std::vector<Plan> plans;
      for (tide::index_t each = 0; each < 6; ++each) plans.push_back(variants[v].plan_of(tide::Rank{each}));
      CHECK(kept[v] == tide::rendezvous(variants[v].collective, plans)[static_cast<std::size_t>(r)]);
    }
    CHECK(text_of([&] { tide::detail::require_one_rendezvous(kept, "gather of 'w'"); }) == "");
    const std::string refusal =
        "tide::PlanVariant: all variants of a pipeline must signal and wait alike; of gather of 'w', variant 1 does "
        "not as variant 0 does.";
    auto changed = kept;
    ++changed[1]->back().phase;
    CHECK(text_of([&] { tide::detail::require_one_rendezvous(changed, "gather of 'w'"); }) == refusal);
    changed[1] = std::nullopt;
    CHECK(text_of([&] { tide::detail::require_one_rendezvous(changed, "gather of 'w'"); }) == refusal);
    variants[0].plan_of = nullptr;
    CHECK_FALSE(tide::detail::rendezvous_of(variants)[0].has_value());
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

TEST_CASE("CudaNodes: logical nodes send and receive where NCCL registers no buffers in a step") {
  using tide::detail::why_no_sends;
  CHECK(why_no_sends(false, nullptr) == "");
  CHECK(why_no_sends(true, "0") == "");
  for (const char* other : {static_cast<const char*>(nullptr), "1", ""}) {
    CHECK(why_no_sends(true, other).find("NCCL_LOCAL_REGISTER=0") != std::string::npos);
  }
}
