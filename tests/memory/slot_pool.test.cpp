// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "conformance/fabric.hpp"
#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/raised.hpp"

using namespace tide_test;
using fabric_suite::Block;
using fabric_suite::Head;

namespace {

constexpr index_t ranks = 3;

inline constexpr auto large = tide::group(tide::param<float>("large", {40, 11}));
using Large = tide::ShardLayout<large, tide::Mesh<1, tide::dynamic>>;

static_assert(!std::is_move_constructible_v<tide::SlotPool<tide::Depth<1>, Block>>, "pipelines point to their pool");
static_assert(std::is_nothrow_move_constructible_v<tide::SlotLease>);

}  // namespace

TEST_CASE("SlotPool: a slot holds the largest group; bytes are depth times that") {
  check_no_error(errors_of(HostRanks{}, ranks, [](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<3>, Block, Large, Head> pool(fabric);
    if (pool.slot_bytes() != Large::slot_bytes || pool.bytes() != 3 * Large::slot_bytes || pool.depth != 3) {
      tide::raise(tide::Errc::argument, "wrong size");
    }
    if (!pool.holds<Block> || pool.holds<tide::DynamicLayout>) tide::raise(tide::Errc::argument, "wrong layouts");
  }));
}

TEST_CASE("SlotPool: slots that are held differ, are given back unused, and are given out in the order of release") {
  check_no_error(errors_of(HostRanks{}, 1, [](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<3>, Block> pool(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::SlotLease a = pool.acquire(stream);
    tide::SlotLease b = pool.acquire(stream);
    {
      const tide::SlotLease c = pool.acquire(stream);
      if (a.slot() == b.slot() || b.slot() == c.slot() || a.slot() == c.slot())
        tide::raise(tide::Errc::argument, "shared");
      const std::string text = text_of([&] { static_cast<void>(pool.acquire(stream)); });
      if (text.find("all 3 are held") == std::string::npos) tide::raise(tide::Errc::argument, text);
    }
    tide::SlotLease again = pool.acquire(stream);
    if (again.slot() == a.slot() || again.slot() == b.slot()) tide::raise(tide::Errc::argument, "shared again");
    a = std::move(again);  // what `a` held goes when `again` does
    pool.life().release(b.take(), stream.record());
  }));
}

TEST_CASE("SlotPool: two groups share two slots, prefetched on one stream and read slowly on another") {
  const Block block({1, ranks});
  const Large other({1, ranks});
  const CollectiveOracle block_oracle(block.view());
  const CollectiveOracle other_oracle(other.view());
  for (const bool delays : {false, true}) {
    std::vector<std::string> wrong(ranks);
    HostRanks all;
    if (delays) all.options.hook = random_delays(3, 20);
    check_no_error(errors_of(all, ranks, [&](tide::HostFabric& fabric) {
      tide::SlotPool<tide::Depth<2>, Block, Large> pool(fabric, block, other);
      fabric_suite::BlockGather<HostRanks> first(fabric, pool, block, block_oracle);
      GatherRank<HostRanks, Large, tide::UnicastTransport> second(fabric, pool, other, other_oracle);
      fabric.init();
      tide::HostStream compute = fabric.stream();
      tide::HostStream prefetch = fabric.stream();
      poison_slots<HostRanks>(pool, prefetch);
      compute.wait(prefetch.record());
      for (std::uint64_t step = 0; step < 40; ++step) {
        // Both live at once; each slot's next gather is enqueued while its reader still sleeps.
        auto a = first.start(pool, step % 2 == 0 ? Source::masters : Source::in_place, step, prefetch);
        auto b = second.start(pool, step % 3 == 0 ? Source::in_place : Source::shards, step, prefetch);
        if ((step + static_cast<std::uint64_t>(fabric.rank().value)) % 4 == 0) HostRanks::occupy(compute, 2ms);
        first.read(a, step % 2 == 0 ? Source::masters : Source::in_place, step, compute);
        a.release(compute);
        if ((step + static_cast<std::uint64_t>(fabric.rank().value)) % 5 == 1) HostRanks::occupy(compute, 1ms);
        second.read(b, step % 3 == 0 ? Source::in_place : Source::shards, step, compute);
        b.release(compute);
      }
      fabric.close();
      wrong[static_cast<std::size_t>(fabric.rank().value)] = first.verdict() + second.verdict();
    }));
    for (const std::string& text : wrong) CHECK(text == "");
  }
}

TEST_CASE("SlotPool: a slot released at once, unread, is not written before its gather is done") {
  const Block block({1, ranks});
  const CollectiveOracle oracle(block.view());
  std::vector<std::string> wrong(ranks);
  HostRanks all;
  all.options.hook = random_delays(5, 10);
  check_no_error(errors_of(all, ranks, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric, block);
    fabric_suite::BlockGather<HostRanks> gather(fabric, pool, block, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream other = fabric.stream();
    for (std::uint64_t step = 0; step < 30; ++step) {
      gather.start(pool, Source::shards, 2 * step, stream).release(other);
      other.run([] {});
      if (step == 0) poison_slots<HostRanks>(pool, other);
      auto params = gather.start(pool, Source::masters, 2 * step + 1, other);
      params.release(other);
    }
    poison_slots<HostRanks>(pool, other);
    gather.step(pool, Source::shards, 99, other);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict();
  }));
  for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("SlotPool: who gets a slot that was given back unused waits for what is still written there") {
  tide::HostCluster cluster({1, 1});
  tide::HostFabric& fabric = cluster.fabric(tide::Rank{0});
  tide::SlotPool<tide::Depth<1>, Block> pool(fabric, Block({1, 1}));
  fabric.init();
  tide::HostStream first = fabric.stream();
  tide::HostStream second = fabric.stream();
  std::string written;  // stands for the slot: without the wait, a race
  std::atomic<bool> go{false};
  {
    const tide::SlotLease lease = pool.acquire(first);
    first.run([&] {
      while (!go) std::this_thread::yield();
      written += "first";
    });
  }
  const tide::SlotLease lease = pool.acquire(second);
  second.run([&] { written += " second"; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  go = true;
  second.synchronize();
  CHECK(written == "first second");
}

TEST_CASE("SlotPool: a pipeline whose layout does not fit, or whose pool is another fabric's, is not made") {
  tide::DynamicGroup small;
  small.add("small", {4}, Element::bf16, Element::bf16);
  tide::DynamicGroup big;
  big.add("big", {4000}, Element::bf16, Element::bf16);
  const auto texts = errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    const tide::DynamicLayout fits(small, fabric.mesh());
    const tide::DynamicLayout does_not(big, fabric.mesh());
    tide::SlotPool<tide::Depth<1>, tide::DynamicLayout> pool(fabric, fits);
    tide::AllGather<tide::DynamicLayout, tide::UnicastTransport> gather(fabric, pool, does_not);
  });
  check_same_error(texts, {"tide::SlotPool: a slot must hold the layout; name the largest in SlotPool. gather of 'big' "
                           "needs 8192 bytes, has 256."});
  tide::HostCluster elsewhere({1, 1});
  tide::SlotPool<tide::Depth<1>, Block> foreign(elsewhere.fabric(tide::Rank{0}));
  tide::HostCluster cluster({1, 1});
  CHECK(text_of([&] { fabric_suite::Gather<Block> gather(cluster.fabric(tide::Rank{0}), foreign); }) ==
        "tide::SlotPool: the pool must be made for the fabric of the pipeline; gather of 'w' and 1 more on rank 0 "
        "got "
        "another one's.");
}
