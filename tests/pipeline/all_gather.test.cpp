// SPDX-License-Identifier: Apache-2.0
// compile: -O3 -march=native

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/random_group.hpp"

using namespace tide_test;

namespace {

/// Every element, every way of sharding, an empty parameter, fewer rows than ranks, a tied name.
tide::DynamicGroup awkward_group(index_t ranks) {
  std::vector<index_t> ragged;
  for (index_t r = 0; r < ranks; ++r) ragged.push_back(r % 3);
  index_t rows = 0;
  for (const index_t count : ragged) rows += count;
  tide::DynamicGroup group;
  group.add("w", {13, 6}, Element::bf16, Element::bf16);
  group.add("half", {7}, Element::f16, Element::f16);
  group.add("few", {2, 5}, Element::f32, Element::f32);
  group.add("empty", {0, 4}, Element::bf16, Element::bf16);
  group.add("columns", {3, 2 * ranks, 5}, Element::f8_e4m3, Element::bf16, tide::shard(1));
  group.add("wide", {11}, Element::f64, Element::f32);
  group.add("ragged", {rows, 3}, Element::bf16, Element::bf16, {}, ragged);
  group.add("ruled", {9, 2}, Element::f8_e5m2, Element::f16, tide::shard_by<LastTakesRest>());
  group.add("one", {1}, Element::bf16, Element::f32);
  group.add_alias("tied", "w");
  return group;
}

/// Every source once on each rank, then all of them again in the other order.
template <class Transport, class Layout>
void gather_from_every_source(const Layout& layout, tide::HostOptions options = {}) {
  const index_t ranks = layout.view().mesh.ranks();
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  HostRanks{options}.run(ranks, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout> pool(fabric, layout);
    Guarded<HostRanks> guarded(fabric);
    GatherRank<HostRanks, Layout, Transport> gather(fabric, pool, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    std::uint64_t seed = 1;
    for (const Source source : {Source::shards, Source::masters, Source::in_place, Source::in_place, Source::masters,
                                Source::shards, Source::shards}) {
      gather.step(pool, source, seed++, stream);
    }
    guarded.check(pool, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict() + guarded.verdict();
  });
  for (index_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[static_cast<std::size_t>(rank)] == "");
  }
}

}  // namespace

TEST_CASE_TEMPLATE("AllGather: every element, rule and source arrives bit for bit, and no other byte changes",
                   Transport, tide::UnicastTransport, tide::MulticastTransport) {
  for (const index_t ranks : {1, 2, 3, 4, 5, 8}) {
    for (const tide::PackingRule packing : {tide::TightPacking::rule, tide::Fsdp2Packing::rule}) {
      CAPTURE(ranks);
      CAPTURE(packing.start_alignment);
      gather_from_every_source<Transport>(tide::DynamicLayout(awkward_group(ranks), {1, ranks}, packing));
    }
  }
}

TEST_CASE("AllGather: lanes merged into one thread deliver the same") {
  for (const index_t ranks : {1, 2, 3, 5}) {
    const tide::DynamicLayout layout(awkward_group(ranks), {1, ranks});
    gather_from_every_source<tide::UnicastTransport>(layout, {.lanes = tide::HostLanes::merged});
    gather_from_every_source<tide::MulticastTransport>(layout, {.lanes = tide::HostLanes::merged});
  }
}

TEST_CASE("AllGather: a group of empty parameters is gathered, and so is one that a single rank owns") {
  tide::DynamicGroup empty;
  empty.add("nothing", {0}, Element::bf16, Element::bf16);
  empty.add("no columns", {4, 0}, Element::f32, Element::f32);
  tide::DynamicGroup single;
  single.add("one", {1, 7}, Element::bf16, Element::bf16);
  for (const index_t ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    gather_from_every_source<tide::UnicastTransport>(tide::DynamicLayout(empty, {1, ranks}));
    gather_from_every_source<tide::MulticastTransport>(tide::DynamicLayout(single, {1, ranks}));
  }
}
