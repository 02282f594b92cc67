// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>
#include <tide/reduce/copy_engine_reducer.hpp>

#include "conformance/fabric.hpp"
#include "support/host_ranks.hpp"
#include "support/raised.hpp"

#include <atomic>
#include <memory>

using namespace tide_test;
using fabric_suite::Block;

static_assert(!std::is_copy_constructible_v<tide::HostCluster> &&
              std::is_nothrow_move_constructible_v<tide::HostCluster>);

TEST_CASE("HostCluster: the program runs once for each rank, at the same time") {
  std::atomic<int> present{0};
  std::vector<int> ran(5, 0);
  tide::HostCluster cluster({1, 5});
  CHECK(cluster.mesh() == tide::MeshShape{1, 5});
  cluster.run([&](tide::HostFabric& fabric) {
    ++present;
    while (present < 5) std::this_thread::yield();
    ++ran[static_cast<std::size_t>(fabric.rank().value)];
    if (&fabric != &cluster.fabric(fabric.rank())) ++ran[0];
  });
  CHECK(ran == std::vector<int>(5, 1));
}

TEST_CASE("HostCluster: a mesh without ranks is refused") {
  CHECK(text_of([] { tide::HostCluster({0, 4}); }) == "tide::Mesh: Nodes must be positive; or tide::dynamic.");
  CHECK(text_of([] { tide::HostCluster({1, 0}); }) == "tide::Mesh: RanksPerNode must be positive; or tide::dynamic.");
}

TEST_CASE("HostCluster: what a rank threw first is thrown again, whatever its type, and the others end") {
  const HostRanks ranks;
  const auto program = [](int kind) {
    return [kind](tide::HostFabric& fabric) {
      if (fabric.rank().value != 2) return fabric.init();
      if (kind == 0) throw 42;
      if (kind == 1) throw std::logic_error("a bug of the user's");
      tide::raise(tide::Errc::argument, "tide: an error of ours");
    };
  };
  CHECK_THROWS_AS(ranks.run(3, program(0)), int);
  CHECK_THROWS_AS(ranks.run(3, program(1)), std::logic_error);
  CHECK(text_of([&] { ranks.run(3, program(2)); }) == "tide: an error of ours");
}

TEST_CASE("HostCluster: two clusters and two pipelines of one type live in one process and interleave") {
  const Block layout = fabric_suite::block_on(3);
  const CollectiveOracle oracle(layout.view());
  tide::HostCluster first({1, 3});
  tide::HostCluster second({1, 3});
  std::vector<std::string> wrong(6);
  std::atomic<int> turn{0};
  const auto program = [&](int cluster) {
    return [&, cluster](tide::HostFabric& fabric) {
      tide::SlotPool<tide::Depth<2>, Block> pool(fabric, layout);
      fabric_suite::BlockGather<HostRanks> one(fabric, pool, layout, oracle);
      fabric_suite::BlockGather<HostRanks> two(fabric, pool, layout, oracle);
      fabric_suite::BlockReduce<HostRanks> sum(fabric, layout, oracle);
      fabric_suite::BlockReduce<HostRanks> other_sum(fabric, layout, oracle);
      fabric.init();
      tide::HostStream stream = fabric.stream();
      poison_slots<HostRanks>(pool, stream);
      for (std::uint64_t step = 0; step < 20; ++step) {
        ++turn;
        const std::uint64_t seed = step * 10 + static_cast<std::uint64_t>(cluster);
        auto params = one.start(pool, Source::shards, seed, stream);
        two.step(pool, Source::masters, seed + 1, stream);
        sum.step(From::storage, seed + 2, stream);
        one.read(params, Source::shards, seed, stream);
        params.release(stream);
        other_sum.step(From::table, seed + 3, stream);
        if (step % 5 == 0) stream.synchronize();
      }
      fabric.close();
      wrong[static_cast<std::size_t>(cluster * 3 + fabric.rank().value)] =
          one.verdict() + two.verdict() + sum.verdict() + other_sum.verdict();
    };
  };
  std::thread beside([&] { second.run(program(1)); });
  first.run(program(0));
  beside.join();
  for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("HostCluster: one that failed does not touch another") {
  tide::HostCluster failed({1, 2});
  tide::HostCluster sound({1, 2});
  CHECK_THROWS_AS(failed.run([](tide::HostFabric& fabric) {
    if (fabric.rank().value == 0) throw std::runtime_error("gone");
    fabric.init();
  }),
                  std::runtime_error);
  sound.run([](tide::HostFabric& fabric) { fabric.init(); });
  sound.run([](tide::HostFabric& fabric) { fabric.close(); });
  CHECK(text_of([&] { failed.fabric(tide::Rank{1}).close(); }) == "tide::HostCluster: rank 0 threw: gone");
}

TEST_CASE("HostCluster: work goes on over several runs of the cluster") {
  const Block layout = fabric_suite::block_on(2);
  const CollectiveOracle oracle(layout.view());
  using Gather = fabric_suite::BlockGather<HostRanks>;
  using Pool = tide::SlotPool<tide::Depth<1>, Block>;
  struct Kept {
    std::unique_ptr<Pool> pool;
    std::unique_ptr<Gather> gather;
  };
  tide::HostCluster cluster({1, 2});
  std::vector<Kept> kept(2);
  std::vector<std::string> wrong(2);
  const auto own = [&](tide::HostFabric& fabric) -> Kept& {
    return kept[static_cast<std::size_t>(fabric.rank().value)];
  };
  cluster.run([&](tide::HostFabric& fabric) {
    own(fabric).pool = std::make_unique<Pool>(fabric, layout);
    own(fabric).gather = std::make_unique<Gather>(fabric, *own(fabric).pool, layout, oracle);
    fabric.init();
  });
  for (std::uint64_t step = 1; step < 4; ++step) {
    cluster.run([&](tide::HostFabric& fabric) {
      tide::HostStream stream = fabric.stream();
      poison_slots<HostRanks>(*own(fabric).pool, stream);
      own(fabric).gather->step(*own(fabric).pool, Source::shards, step, stream);
      stream.synchronize();
      wrong[static_cast<std::size_t>(fabric.rank().value)] += own(fabric).gather->verdict();
    });
  }
  for (const std::string& text : wrong) CHECK(text == "");
  kept.clear();
}

TEST_CASE("HostCluster: destroying one ends waits for ranks that will not come") {
  const auto begin = std::chrono::steady_clock::now();
  const Block layout = fabric_suite::block_on(2);
  std::vector<tide::bf16> memory(64);
  {
    tide::HostCluster cluster({1, 2});  // its deadline is a minute
    using Pool = tide::SlotPool<tide::Depth<1>, Block>;
    std::vector<std::unique_ptr<Pool>> pools(2);
    cluster.run([&](tide::HostFabric& fabric) {
      auto& pool = pools[static_cast<std::size_t>(fabric.rank().value)];
      pool = std::make_unique<Pool>(fabric, layout);
      fabric_suite::Gather<Block> gather(fabric, *pool, layout);
      fabric.init();
      tide::HostStream stream = fabric.stream();
      if (fabric.rank().value == 0) {
        const tide::ShardsView<Block, tide::Buffer::shards> shards(memory.data(), layout, fabric.rank());
        static_cast<void>(gather.enqueue(shards, stream));
      }
    });
  }
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
}

TEST_CASE("HostCluster: memory that the arenas cannot have is refused on all ranks, in GiB") {
  HostRanks ranks;
  ranks.options.memory_bytes = index_t{3} << 30;
  check_same_error(errors_of(ranks, 3,
                             [](tide::HostFabric& fabric) {
                               static_cast<void>(fabric.reserve((index_t{1} << 30) + 1, 256));
                               fabric.init();
                             }),
                   {"tide::HostFabric: the arenas must fit into memory; needs 3.00 GiB, has 3.00 GiB."});
  ranks.options.memory_bytes = 0;  // the machine's
  check_same_error(errors_of(ranks, 2,
                             [](tide::HostFabric& fabric) {
                               static_cast<void>(fabric.reserve(index_t{1} << 50, 256));
                               fabric.init();
                             }),
                   {"tide::HostFabric: the arenas must fit into memory; needs 2097152.00 GiB, has "});
  check_same_error(errors_of(ranks, 3,
                             [](tide::HostFabric& fabric) {
                               static_cast<void>(fabric.reserve(index_t{1} << 62, 256));
                               fabric.init();
                             }),
                   {"tide::HostFabric: the arenas must fit into memory; needs "});
}

TEST_CASE("HostCluster: a deadline of any length is kept") {
  HostRanks ranks;
  ranks.options.deadline = tide::Duration::max();
  check_no_error(errors_of(ranks, 2, [](tide::HostFabric& fabric) {
    fabric.init();
    tide::HostStream stream = fabric.stream();
    HostRanks::occupy(stream, 20ms);
    stream.synchronize();
  }));
}

namespace {

// Never closed: destroyed after main, with its threads waiting.
tide::HostCluster& static_cluster() {
  static tide::HostCluster cluster({1, 2});
  return cluster;
}

}  // namespace

TEST_CASE("HostCluster: a static one may be left as it is at the end of the program") {
  static_cluster().run([](tide::HostFabric& fabric) {
    fabric.init();
    tide::HostStream stream = fabric.stream();
    HostRanks::occupy(stream, 1ms);
  });
  CHECK(static_cluster().mesh().ranks() == 2);
}
