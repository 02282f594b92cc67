// SPDX-License-Identifier: Apache-2.0
//
// Gathers and reduces that share the slots of one pool.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/collectives.hpp"
#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/raised.hpp"

#include <string>
#include <vector>

namespace slot_reuse_pipeline_test {

using namespace tide_test;

using Layout = tide::DynamicLayout;
using Reduce = ReduceRank<HostRanks, Layout, tide::CopyEngineReducer<>, tide::SlotReuse>;
using Gather = GatherRank<HostRanks, Layout, tide::UnicastTransport>;

Layout layout_of(index_t ranks, Element gradient = Element::bf16) {
  tide::DynamicGroup group;
  group.add("w", {ranks * 53 + 1, 67}, Element::bf16, gradient);
  group.add("b", {301}, Element::f32, Element::f32);
  group.add("columns", {5, ranks * 4, 3}, Element::bf16, gradient, tide::shard(1));
  return {group, {1, ranks}};
}

/// Without padding: a gather leaves no byte of what was in the slot before.
Layout even_layout(index_t ranks) {
  tide::DynamicGroup group;
  group.add("w", {ranks * 64, 24}, Element::bf16, Element::bf16);
  group.add("b", {ranks * 128}, Element::bf16, Element::bf16);
  return {group, {1, ranks}};
}

TEST_CASE("SlotReuse: sums are the tree's from a slot that gathers have filled, whoever is late") {
  for (const index_t ranks : {1, 2, 3, 5}) {
    for (const bool delays : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(delays);
      const Layout first = even_layout(ranks);
      const Layout second = layout_of(ranks);
      const CollectiveOracle first_oracle(first.view());
      const CollectiveOracle second_oracle(second.view());
      std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
      HostRanks all;
      if (delays) all.options.hook = random_delays(7, 10);
      check_no_error(errors_of(all, ranks, [&](tide::HostFabric& fabric) {
        tide::SlotPool<tide::Depth<2>, Layout> pool(fabric, second);
        Gather gather(fabric, pool, first, first_oracle);
        Reduce reduce(fabric, pool, first, first_oracle);
        Gather other_gather(fabric, pool, first, first_oracle);
        Reduce other_reduce(fabric, pool, second, second_oracle);
        fabric.init();
        tide::HostStream compute = fabric.stream();
        tide::HostStream reader = fabric.stream();
        for (std::uint64_t step = 0; step < 12; ++step) {
          gather.step(pool, Source::masters, step, compute);
          // In flight at once, in both slots; the readers write over the gradients the moment that they are free.
          const tide::ReduceTicket one = reduce.start(From::storage, step, compute);
          const tide::ReduceTicket two = other_reduce.start(step % 2 == 0 ? From::table : From::storage, step, compute);
          reduce.read(one, step, reader);
          other_reduce.read(two, step, reader);
          other_gather.step(pool, Source::shards, step, compute);
        }
        fabric.close();
        wrong[static_cast<std::size_t>(fabric.rank().value)] =
            gather.verdict() + reduce.verdict() + other_gather.verdict() + other_reduce.verdict();
      }));
      check_right(wrong);
    }
  }
}

TEST_CASE("SlotReuse: takes no memory beside the slots") {
  check_no_error(errors_of(HostRanks{}, 2, [](tide::HostFabric& fabric) {
    const Layout layout = even_layout(2);
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
    const index_t before = fabric.reserve(0, 256);
    tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, tide::SingleNode, tide::SlotReuse> reduce(fabric, pool,
                                                                                                     layout);
    const index_t words = tide::align_up(tide::SignalWords{2}.bytes(), 256);
    if (fabric.reserve(0, 256) != before + words) tide::raise(tide::Errc::capacity, "an inbox was reserved");
    if (pool.slot_bytes() != layout.view().bytes(tide::Buffer::slot)) tide::raise(tide::Errc::capacity, "slots grew");
  }));
}

TEST_CASE("SlotReuse: a reduce is refused while all slots are held, on every rank, and runs when one is free") {
  std::vector<std::string> wrong(2);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    const Layout layout = even_layout(2);
    const CollectiveOracle oracle(layout.view());
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
    Gather gather(fabric, pool, layout, oracle);
    Reduce reduce(fabric, pool, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    {
      auto params = gather.start(pool, Source::shards, 1, stream);
      const std::string text = text_of([&] { reduce.start(From::storage, 1, stream); });
      if (text != "tide::SlotPool: a slot must be released before another group is reduced; all 1 are held.") {
        tide::raise(tide::Errc::order, text);
      }
      gather.read(params, Source::shards, 1, stream);
      params.release(stream);
    }
    reduce.step(From::storage, 1, stream);
    gather.step(pool, Source::shards, 2, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict() + reduce.verdict();
  }));
  check_right(wrong);
}

TEST_CASE("SlotReuse: wider gradients, a pool of smaller slots and a foreign pool are refused") {
  const auto construct = [](const Layout& layout, const Layout& pooled) {
    return errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
      tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, pooled);
      tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, tide::SingleNode, tide::SlotReuse> reduce(fabric, pool,
                                                                                                       layout);
    });
  };
  const Layout wide = layout_of(2, Element::f32);
  check_same_error(construct(wide, wide), {"tide::SlotReuse: no gradient element may be wider than its gathered one"});
  check_same_error(construct(layout_of(2), even_layout(2)), {"tide::SlotPool: a slot must hold the layout"});
}

}  // namespace slot_reuse_pipeline_test
