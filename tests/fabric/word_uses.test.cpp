// SPDX-License-Identifier: Apache-2.0
//
// What ranks compare at init of the plans that they do not share: that each word a rank waits for is raised by another,
// as often and as far. A transport that errs there would hang in the middle of a step, or go on too early.

#include <doctest/doctest.h>
#include <tide/fabric/detail/word_uses.hpp>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include "conformance/fabric.hpp"
#include "conformance/inter_transport.hpp"
#include "support/host_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace word_uses_test {

using namespace tide_test;
using tide::Op;
using tide::OpKind;
using tide::WordKind;

std::string judged(const Planned& planned) {
  std::vector<tide::detail::WordUse> uses;
  for (const tide::Plan& plan : planned.plans) {
    for (const auto& use : tide::detail::word_uses({planned.collective, plan, {}}, 0)) uses.push_back(use);
  }
  std::reverse(uses.begin(), uses.end());  // in whatever order they come
  return tide::detail::disagreement(std::move(uses), planned.collective.words(), [](int) { return "a gather"; });
}

TEST_CASE("word uses: plans that ship agree, whatever the mesh and the exchange") {
  for (const tide::index_t ranks : {1, 2, 3, 5, 8}) {
    CHECK(judged(planned_gather(odd_group.view(), ranks)) == "");
    CHECK(judged(planned_gather<tide::MulticastTransport>(empty_group.view(), ranks)) == "");
    CHECK(judged(planned_reduce(odd_group.view(), ranks)) == "");
    CHECK(judged(planned_reduce<tide::SlotReuse>(single_row.view(), ranks)) == "");
  }
  using Small = tide::RdmaDoublingTransport<tide::Bytes<48>, tide::PutsInFlight<2>>;
  for (const tide::MeshShape mesh : node_meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const tide::GroupView& group : {odd_group.view(), empty_group.view(), single_row.view()}) {
      for (const tide::OwnBlock own : {tide::OwnBlock::copy, tide::OwnBlock::in_place, tide::OwnBlock::cast}) {
        CHECK(judged(planned_gather_on<tide::UnicastTransport, Small>(group, mesh, own)) == "");
      }
      for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
        CHECK(judged(planned_reduce<tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>>(group, mesh, exchange)) == "");
        CHECK(judged(planned_reduce<tide::SlotReuse>(group, mesh, exchange)) == "");
      }
      CHECK(judged(planned_switch_reduce<tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>>(group, mesh)) == "");
    }
  }
}

/// Takes a raise or a wait that others count on out of each rank's plan in turn, and says more or less in another's.
TEST_CASE("word uses: whatever one rank says otherwise is noticed, but for a signal too many") {
  for (const tide::MeshShape mesh : {tide::MeshShape{1, 3}, {3, 1}, {2, 2}}) {
    const Planned planned =
        mesh.nodes == 1 ? planned_gather(odd_group.view(), mesh.ranks()) : planned_gather_on(odd_group.view(), mesh);
    const tide::SignalWords words = planned.collective.words();
    int changed = 0;
    for (std::size_t rank = 0; rank < planned.plans.size(); ++rank) {
      const std::vector<Op>& ops = planned.plans[rank].ops;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        CAPTURE(rank);
        CAPTURE(i);
        const Op& op = ops[i];
        const bool is_signal = op.kind == OpKind::signal && words.kind(op.word()) != WordKind::event;
        const bool is_wait = op.kind == OpKind::wait && words.kind(op.word()) != WordKind::event;
        Planned other = planned;
        Op& here = other.plans[rank].ops[i];
        if (is_signal) {
          ++changed;
          other.plans[rank].ops.erase(other.plans[rank].ops.begin() + static_cast<std::ptrdiff_t>(i));
          CHECK(judged(other) != "");
        }
        if (is_wait) {
          ++changed;
          ++here.width;  // one more than is ever raised, or the next run's
          CHECK(judged(other) != "");
        }
        if (is_signal || is_wait || op.kind == OpKind::put) {
          other = planned;
          ++(op.kind == OpKind::put ? here.target_pitch : here.rows);  // another number of raises in a run
          CHECK(judged(other) != "");
        }
      }
    }
    CHECK(changed > 10);
  }
}

TEST_CASE("word uses: the sentence says who, whom, which word and how often") {
  const Planned planned = planned_gather_on(odd_group.view(), {2, 1});
  const auto puts = [](const Op& op) { return op.kind == OpKind::put; };
  const auto with = [&](tide::index_t rank, const auto& change) {
    Planned other = planned;
    change(other.plans[static_cast<std::size_t>(rank)].ops);
    return judged(other);
  };
  const std::string rule = "tide::PlanVariant: ranks must tell each other what they wait for; in a gather ";
  CHECK(with(0,
             [&](auto& ops) {
               Op& put = *std::find_if(ops.begin(), ops.end(), puts);
               put.target_pitch = 2;
             }) ==
        rule +
            "rank 1 waits for arrived[0] up to 1, 1 in a run, and rank 0 puts and raises arrived[0] of rank 1 up "
            "to 1, 2 in a run.");
  CHECK(with(0, [&](auto& ops) { std::erase_if(ops, puts); }) ==
        rule + "rank 1 waits for arrived[0] up to 1, 1 in a run, and no rank raises it.");
  const auto lands = [&](const Op& op) {
    return op.kind == OpKind::wait && op.word() == planned.collective.words().word(WordKind::arrived, 1);
  };
  CHECK(with(0, [&](auto& ops) { std::erase_if(ops, lands); }) ==
        rule + "rank 1 puts and raises arrived[1] of rank 0 up to 1, 1 in a run, and rank 0 does not wait for it.");
  CHECK(with(0, [&](auto& ops) { std::find_if(ops.begin(), ops.end(), lands)->width = 2; }) ==
        rule +
            "rank 0 waits for arrived[1] up to 2, 1 in a run, and rank 1 puts and raises arrived[1] of rank 0 up to 1, "
            "1 in a run.");
}

/// A user's transport over nodes that is wrong on rank 1.
enum class Fault { counts_more_puts, raises_less, waits_for_more, counts_more_signals };

template <Fault Which>
struct Faulty : tide::RdmaDoublingTransport<tide::Bytes<96>> {
  static constexpr std::string_view name = "faulty";

  template <class Intra>
  static tide::Plan gather(const tide::Collective& collective, tide::Rank rank) {
    tide::Plan plan = tide::RdmaDoublingTransport<tide::Bytes<96>>::gather<Intra>(collective, rank);
    if (rank.value != 1) return plan;
    const auto words = collective.words();
    const auto found = std::find_if(plan.ops.rbegin(), plan.ops.rend(), [&](const Op& op) {
      const bool arrived = op.kind == OpKind::wait && words.kind(op.word()) == WordKind::arrived;
      const bool ready = op.kind == OpKind::signal && words.kind(op.word()) == WordKind::ready;
      return Which == Fault::counts_more_signals ? ready
             : Which == Fault::waits_for_more    ? arrived
                                                 : op.kind == OpKind::put;
    });
    if (Which == Fault::waits_for_more) ++found->width;
    if (Which == Fault::counts_more_signals) ++found->rows;
    if (Which == Fault::raises_less) found->source_pitch -= 1;
    if (Which == Fault::counts_more_puts) found->target_pitch += 1;
    return plan;
  }
};

template <class Inter>
void refused_at_init() {
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 1}, {3, 1}, {2, 2}}) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    tide::DynamicGroup group;
    group.add("w", {60, 4}, Element::bf16, Element::bf16);
    const tide::DynamicLayout layout(group, mesh);
    const auto begun = std::chrono::steady_clock::now();
    HostRanks ranks;
    ranks.ranks_per_node = mesh.ranks_per_node;
    const auto texts = errors_of(ranks, mesh.ranks(), [&](tide::HostFabric& fabric) {
      tide::SlotPool<tide::Depth<1>, tide::DynamicLayout> pool(fabric, layout);
      tide::AllGather<tide::DynamicLayout, tide::UnicastTransport, Inter> gather(fabric, pool, layout, "w");
      fabric.init();
    });
    check_same_error(texts,
                     {"tide::PlanVariant: ranks must tell each other what they wait for; in gather of 'w'", "rank 1 "});
    CHECK(std::chrono::steady_clock::now() - begun < 20s);  // the deadline is a minute
  }
}

TEST_CASE("HostFabric: init refuses plans in which a rank waits for what no other tells, by name and on every rank") {
  refused_at_init<Faulty<Fault::counts_more_puts>>();
  refused_at_init<Faulty<Fault::raises_less>>();
  refused_at_init<Faulty<Fault::waits_for_more>>();
  refused_at_init<Faulty<Fault::counts_more_signals>>();
}

}  // namespace word_uses_test
