// SPDX-License-Identifier: Apache-2.0
//
// An extension point: how blocks move. A transport is a function that writes each rank's plan. This one is a ring:
// every block travels from neighbour to neighbour, so a rank writes to one peer only. Before it runs, `verify` proves
// that it delivers every byte once, without a race, a deadlock or an overrun, however its lanes are scheduled.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

using tide::index_t;
using tide_example::expect;

// snippet: own-transport
struct RingTransport {
  static constexpr std::string_view name = "ring";
  static constexpr tide::Capability capability = tide::Capability::none;
  static constexpr tide::OwnBlock own_block = tide::OwnBlock::copy;

  static constexpr tide::Plan gather(const tide::Collective& collective, tide::Rank rank) {
    const tide::LayoutView& layout = collective.layout;
    const tide::SignalWords words = collective.words();
    const index_t ranks = collective.ranks();
    const tide::Rank next{(rank.value + 1) % ranks};
    const tide::Rank before{(rank.value + ranks - 1) % ranks};
    const index_t steps = ranks - 1;
    tide::PlanBuilder plan{collective, rank};

    // The own block goes into the own slot first: by a copy or a cast, or the caller has written it there.
    if (steps > 0) plan.signal(plan.caller(), before, words.word(tide::WordKind::ready, rank.value));
    const bool cast = collective.own == tide::OwnBlock::cast;
    std::vector<tide::Block> own =
        layout.blocks(rank, cast ? tide::Buffer::masters : tide::Buffer::shards, tide::Buffer::slot);
    if (cast) tide::name_kernels(own, collective);
    for (const tide::Block& block : tide::coalesce(own)) {
      if (cast) plan.cast(plan.caller(), block);
      if (collective.own == tide::OwnBlock::copy) {
        plan.copy(plan.caller(), rank, tide::Space::shards, tide::Space::slot, block);
      }
    }

    // Step s passes on the block of the rank that is s before this one, once it has come.
    if (steps > 0) {
      const index_t started = words.word(tide::WordKind::event, plan.caller().value);
      plan.signal(plan.caller(), rank, started);
      const tide::LaneIndex lane = plan.lane(tide::LaneKind::push, 1);
      const index_t pushed = words.word(tide::WordKind::event, lane.value);
      const index_t came = words.word(tide::WordKind::arrived, before.value);
      plan.wait(lane, started);
      plan.wait(lane, words.word(tide::WordKind::ready, next.value));
      for (index_t s = 0; s < steps; ++s) {
        if (s > 0) plan.wait(lane, came, s, steps);
        const tide::Rank owner{(rank.value + ranks - s) % ranks};
        for (const tide::Block& block : tide::coalesce(layout.blocks(owner, tide::Buffer::slot, tide::Buffer::slot))) {
          plan.copy(lane, next, tide::Space::slot, tide::Space::slot, block);
        }
        plan.signal(lane, next, words.word(tide::WordKind::arrived, rank.value), s + 1, steps);
      }
      plan.signal(lane, rank, pushed);
      plan.wait(plan.caller(), came, steps, steps);
      plan.wait(plan.caller(), pushed);
    }
    plan.exit(tide::ExitKind::complete, plan.caller());
    return std::move(plan).finish();
  }
};
static_assert(tide::Transport<RingTransport>);
// end: own-transport

namespace tiny {
inline constexpr auto block = tide::group(        //
    tide::param<tide::bf16>("weight", {50, 16}),  //
    tide::param<tide::bf16>("expert", {6, 20, 4}, tide::shard(1)),
    tide::param<float>("bias", {7}));  // 2, 2, 2 and 1 rows on four ranks, 2, 2, 2, 1 and 0 on five
}
template <index_t Ranks>
using Layout = tide::ShardLayout<tiny::block, tide::Mesh<1, Ranks>>;

template <index_t Ranks>
void prove() {
  for (const tide::OwnBlock own : {tide::OwnBlock::copy, tide::OwnBlock::in_place, tide::OwnBlock::cast}) {
    // snippet: prove
    tide::Collective collective;
    collective.layout = Layout<Ranks>{}.view();
    collective.own = own;
    tide::fill_kernels(collective);
    std::vector<tide::Plan> plans;
    for (index_t r = 0; r < Ranks; ++r) plans.push_back(RingTransport::gather(collective, tide::Rank{r}));
    const tide::Verdict verdict = tide::verify(collective, plans);
    for (const tide::Violation& violation : verdict.violations) std::puts(describe(violation).c_str());
    // end: prove
    expect(verdict.holds(), "the ring keeps all laws");
  }
}

template <index_t Ranks>
void one_rank(tide::HostFabric& fabric) {
  tide::Shards<Layout<Ranks>> shards{fabric};
  tide::SlotPool<tide::Depth<1>, Layout<Ranks>> slots{fabric};
  tide::AllGather<Layout<Ranks>, RingTransport> gather{fabric, slots};
  fabric.init();
  auto stream = fabric.stream();
  for (int step = 0; step < 10; ++step) {
    const auto value = static_cast<float>(fabric.rank().value + step);
    std::ranges::fill(shards.template get<"weight">(), tide::bf16(value));
    std::ranges::fill(shards.template get<"bias">(), value);
    auto params = gather.enqueue(shards, stream);
    params.complete().synchronize();
    const auto first = static_cast<float>(step);
    expect(params.template get<"weight">()(0, 0) == tide::bf16(first), "the first row is that of rank 0");
    expect(params.template get<"bias">()(6) == first + 3, "the last row is that of rank 3");
    params.release(stream);
  }
}

int main() {
  prove<1>();
  prove<2>();
  prove<4>();
  prove<5>();
  tide::HostCluster four{{1, 4}};
  four.run(one_rank<4>);
  tide::HostCluster five{{1, 5}};
  five.run(one_rank<5>);
  return tide_example::verdict();
}
