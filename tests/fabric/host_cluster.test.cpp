// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

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

TEST_CASE("HostCluster: a rank that waits by means of its own hears of a failure, before init, too") {
  for (const bool after_init : {false, true}) {
    CAPTURE(after_init);
    tide::HostCluster cluster({1, 3});
    std::atomic<int> present{0};
    std::atomic<int> heard{0};
    const auto program = [&](tide::HostFabric& fabric) {
      if (after_init) fabric.init();
      ++present;
      while (present < 3) std::this_thread::yield();
      if (fabric.rank().value == 2) {
        fabric.raise_if_failed();  // nothing has failed yet
        throw std::logic_error("a bug of the user's");
      }
      for (;;) {
        const std::string text = text_of([&] { fabric.raise_if_failed(); });
        if (!text.empty()) {
          heard += text == "tide::HostCluster: rank 2 threw: a bug of the user's" ? 1 : 0;
          return;
        }
        std::this_thread::yield();
      }
    };
    CHECK_THROWS_AS(cluster.run(program), std::logic_error);
    CHECK(heard == 2);
  }
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
                   {"tide::Fabric: the arenas must fit into memory; needs 3.00 GiB, has 3.00 GiB."});
  ranks.options.memory_bytes = 0;  // the machine's
  check_same_error(errors_of(ranks, 2,
                             [](tide::HostFabric& fabric) {
                               static_cast<void>(fabric.reserve(index_t{1} << 50, 256));
                               fabric.init();
                             }),
                   {"tide::Fabric: the arenas must fit into memory; needs 2097152.00 GiB, has "});
  check_same_error(errors_of(ranks, 3,
                             [](tide::HostFabric& fabric) {
                               static_cast<void>(fabric.reserve(index_t{1} << 62, 256));
                               fabric.init();
                             }),
                   {"tide::Fabric: the arenas must fit into memory; needs "});
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

namespace {

/// How the program of a rank ends before its time.
enum class End { returns, closes_and_returns, closes_and_stays };

constexpr End all_ends[] = {End::returns, End::closes_and_returns, End::closes_and_stays};

/// Four steps of a gather and a reduce, of which rank `odd` leaves out the last ones.
struct EarlyEnd {
  tide::MeshShape mesh;
  index_t odd = 0;
  int steps = 0;  ///< that it makes
  End end = End::returns;
  bool gathers_once_more = false;
  bool others_close = false;  ///< that is how they wait
  tide::HostLanes lanes = tide::HostLanes::separate;
};

/// What the ranks say of them.
template <class Inter>
std::vector<std::string> errors_of_early_end(const EarlyEnd& early) {
  using Layout = tide::DynamicLayout;
  struct OneRank {
    OneRank(tide::HostFabric& fabric, const Layout& layout, const CollectiveOracle& oracle)
        : pool(fabric, layout), gather(fabric, pool, layout, oracle, "w"), reduce(fabric, layout, oracle, "w") {}
    tide::SlotPool<tide::Depth<2>, Layout> pool;
    GatherRank<HostRanks, Layout, tide::UnicastTransport, Inter> gather;
    ReduceRank<HostRanks, Layout, tide::CopyEngineReducer<>, tide::Ring<tide::Chunks<2>, tide::Bytes<8192>>, Inter>
        reduce;
  };
  tide::DynamicGroup group;
  group.add("w", {31, 6}, tide::Element::bf16, tide::Element::bf16);
  const Layout layout(group, early.mesh);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> texts(static_cast<std::size_t>(early.mesh.ranks()));
  std::atomic<index_t> raised{0};
  tide::HostCluster cluster(early.mesh, {.deadline = 60s, .lanes = early.lanes});
  std::vector<std::unique_ptr<OneRank>> ranks(texts.size());  // they outlive the programs: their end closes a fabric
  cluster.run([&](tide::HostFabric& fabric) {
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    const bool odd = fabric.rank().value == early.odd;
    try {
      OneRank& own = *(ranks[rank] = std::make_unique<OneRank>(fabric, layout, oracle));
      fabric.init();
      tide::HostStream stream = fabric.stream();
      for (int step = 0; step < (odd ? early.steps : 4); ++step) {
        own.gather.step(own.pool, Source::shards, static_cast<std::uint64_t>(step), stream);
        own.reduce.step(From::storage, static_cast<std::uint64_t>(step), stream);
      }
      if (odd && early.gathers_once_more) own.gather.step(own.pool, Source::shards, 9, stream);
      if (odd ? early.end != End::returns : early.others_close) fabric.close();
      if (!odd) stream.synchronize();
    } catch (const tide::Error& error) {
      texts[rank] = error.what();
      ++raised;
    }
    while (odd && early.end == End::closes_and_stays && raised < early.mesh.ranks() - 1) std::this_thread::yield();
  });
  return texts;
}

}  // namespace

TEST_CASE("HostCluster: a rank whose program ends early is named by those that wait for it, at once") {
  const auto begun = std::chrono::steady_clock::now();
  for (const tide::MeshShape mesh : {tide::MeshShape{1, 2}, {1, 3}, {3, 1}, {2, 2}}) {
    for (index_t odd = 0; odd < mesh.ranks(); ++odd) {
      for (const int steps : {0, 1, 3}) {
        for (const End end : all_ends) {
          EarlyEnd early{mesh, odd, steps, end};
          early.gathers_once_more = (odd + steps) % 2 == 0;
          early.others_close = steps == 1;
          early.lanes = steps == 3 ? tide::HostLanes::merged : tide::HostLanes::separate;
          CAPTURE(mesh.nodes);
          CAPTURE(mesh.ranks_per_node);
          CAPTURE(odd);
          CAPTURE(steps);
          CAPTURE(static_cast<int>(end));
          std::vector<std::string> texts = mesh.nodes == 1 ? errors_of_early_end<tide::SingleNode>(early)
                                                           : errors_of_early_end<tide::RdmaDoublingTransport<>>(early);
          CHECK(texts[static_cast<std::size_t>(odd)] == "");
          texts.erase(texts.begin() + odd);
          const std::string ended = end == End::returns ? " ended, and " : " closed its fabric, and ";
          const std::string call = early.gathers_once_more ? "reduce of 'w'" : "of 'w'";
          check_same_error(texts, {"tide::Fabric: the programs of all ranks must make the same calls before they "
                                   "end; rank " +
                                       std::to_string(odd) + ended,
                                   call, " waits for "});
        }
      }
    }
  }
  CHECK(std::chrono::steady_clock::now() - begun < 50s);  // each of them within a deadline of a minute
}

TEST_CASE("HostCluster: a rank that ends before init is named there, at once") {
  const auto begun = std::chrono::steady_clock::now();
  for (const End end : all_ends) {
    for (index_t odd = 0; odd < 3; ++odd) {
      CAPTURE(odd);
      CAPTURE(static_cast<int>(end));
      std::atomic<index_t> raised{0};
      auto texts = errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
        if (fabric.rank().value == odd) {
          if (end != End::returns) fabric.close();
          while (end == End::closes_and_stays && raised < 2) std::this_thread::yield();
          return;
        }
        try {
          fabric.init();
        } catch (const tide::Error&) {
          ++raised;
          throw;
        }
      });
      CHECK(texts[static_cast<std::size_t>(odd)] == "");
      texts.erase(texts.begin() + odd);
      check_same_error(texts, {"rank " + std::to_string(odd) + (end == End::returns ? " ended" : " closed its fabric") +
                               ", and init needs all ranks."});
    }
  }
  CHECK(std::chrono::steady_clock::now() - begun < 30s);
}

TEST_CASE("HostCluster: of a rank that throws, and whose fabric is closed by that, the others hear what it threw") {
  struct Closes {
    tide::HostFabric& fabric;
    ~Closes() {
      fabric.close();
      std::this_thread::sleep_for(20ms);  // until it has been told
    }
  };
  std::string text;
  const auto program = [&](tide::HostFabric& fabric) {
    if (fabric.rank().value == 1) {
      const Closes closes{fabric};
      throw std::runtime_error("the user's own");
    }
    text = text_of([&] { fabric.init(); });
  };
  CHECK_THROWS_AS(HostRanks{}.run(2, program), std::runtime_error);
  CHECK(text == "tide::HostCluster: rank 1 threw: the user's own");
}

TEST_CASE("HostCluster: what a rank has enqueued goes on after its program has ended, and the next run may follow") {
  const Block layout = fabric_suite::block_on(3);
  const CollectiveOracle oracle(layout.view());
  using Gather = fabric_suite::BlockGather<HostRanks>;
  using Pool = tide::SlotPool<tide::Depth<1>, Block>;
  tide::HostOptions options{.deadline = 30s};
  options.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    if (point.rank.value == 1) std::this_thread::sleep_for(5ms);  // it is not done when its program is
    return std::nullopt;
  };
  tide::HostCluster cluster({1, 3}, options);
  std::vector<std::unique_ptr<Pool>> pools(3);
  std::vector<std::unique_ptr<Gather>> gathers(3);
  std::vector<std::string> wrong(3);
  cluster.run([&](tide::HostFabric& fabric) {
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    pools[rank] = std::make_unique<Pool>(fabric, layout);
    gathers[rank] = std::make_unique<Gather>(fabric, *pools[rank], layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    poison_slots<HostRanks>(*pools[rank], stream);
    gathers[rank]->step(*pools[rank], Source::shards, 1, stream);
    if (rank != 1) stream.synchronize();
    // Nobody waits for this call in this run; rank 1 makes it in the next.
    if (rank == 0) gathers[rank]->step(*pools[rank], Source::shards, 2, stream);
  });
  cluster.run([&](tide::HostFabric& fabric) {
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    tide::HostStream stream = fabric.stream();
    if (rank != 0) {
      std::this_thread::sleep_for(20ms * rank);
      gathers[rank]->step(*pools[rank], Source::shards, 2, stream);
    }
    fabric.close();
    wrong[rank] = gathers[rank]->verdict();
  });
  for (const std::string& text : wrong) CHECK(text == "");
  gathers.clear();
}
