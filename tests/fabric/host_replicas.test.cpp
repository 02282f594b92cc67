// SPDX-License-Identifier: Apache-2.0
//
// HostReplicas: two fabrics for each rank; their streams wait for each other's events, and they fail together.

#include <doctest/doctest.h>
#include <tide/fabric/host_replicas.hpp>
#include <tide/memory/shards.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/raised.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace host_replicas_test {

using namespace tide_test;
using namespace std::chrono_literals;
using tide::HostFabric;
using tide::index_t;

constexpr index_t shards = 3;
constexpr index_t replicas = 2;

inline constexpr auto group = tide::group(tide::param<float>("w", {12}));
using Layout = tide::ShardLayout<group, tide::Mesh<1, tide::dynamic>>;

/// Something to gather on each fabric of a rank.
struct OneRank {
  OneRank(HostFabric& inside, HostFabric& across)
      : inner_pool(inside, Layout({1, shards})),
        outer_pool(across, Layout({1, across.mesh().ranks()})),
        inner_shards(inside, Layout({1, shards})),
        outer_shards(across, Layout({1, across.mesh().ranks()})),
        inner(inside, inner_pool, Layout({1, shards})),
        outer(across, outer_pool, Layout({1, across.mesh().ranks()})) {}

  tide::SlotPool<tide::Depth<1>, Layout> inner_pool;
  tide::SlotPool<tide::Depth<1>, Layout> outer_pool;
  tide::Shards<Layout> inner_shards;
  tide::Shards<Layout> outer_shards;
  tide::AllGather<Layout, tide::UnicastTransport> inner;
  tide::AllGather<Layout, tide::UnicastTransport> outer;
};

}  // namespace host_replicas_test

}  // namespace

TEST_CASE("HostReplicas: each rank has its place in two meshes") {
  using namespace host_replicas_test;
  tide::HostReplicas cluster({1, shards}, {1, replicas});
  std::atomic<int> seen{0};
  cluster.run([&](HostFabric& inside, HostFabric& across) {
    const index_t place = across.rank().value * shards + inside.rank().value;
    seen += 1 << place;
    inside.init();
    across.init();
    if (inside.mesh() != tide::MeshShape{1, shards} || across.mesh() != tide::MeshShape{1, replicas}) seen = -100;
    inside.close();
    across.close();
  });
  CHECK(seen == (1 << (shards * replicas)) - 1);
}

TEST_CASE("HostReplicas: a mesh without ranks, a rank or a replica that there is not, are refused") {
  using namespace host_replicas_test;
  for (const tide::MeshShape none : {tide::MeshShape{0, 1}, tide::MeshShape{1, 0}}) {
    CHECK(text_of([&] { tide::HostReplicas({1, 2}, none); }).find("tide::Mesh: ") == 0);
    CHECK(text_of([&] { tide::HostReplicas(none, {1, 2}); }).find("tide::Mesh: ") == 0);
    CHECK(text_of([&] { tide::HostReplicas(none, none); }).find("tide::Mesh: ") == 0);
  }
  tide::HostReplicas cluster({1, shards}, {1, replicas});
  const auto is_refused = [](index_t rank, index_t of, const auto& call) {
    CHECK(text_of(call) == "tide::Fabric: a rank must be one of the mesh; rank " + std::to_string(rank) +
                               " was asked for, there are " + std::to_string(of) + ".");
  };
  const tide::Rank first{0};
  for (const index_t odd : {index_t{-1}, shards}) {
    is_refused(odd, shards, [&] { static_cast<void>(cluster.fabric(first, tide::Rank{odd})); });
    is_refused(odd, shards, [&] { static_cast<void>(cluster.replicas(first, tide::Rank{odd})); });
  }
  for (const index_t odd : {index_t{-1}, replicas}) {
    is_refused(odd, replicas, [&] { static_cast<void>(cluster.fabric(tide::Rank{odd}, first)); });
    is_refused(odd, replicas, [&] { static_cast<void>(cluster.replicas(tide::Rank{odd}, first)); });
  }
}

TEST_CASE("HostReplicas: a stream waits for an event of the rank's other fabric, and of no other rank's") {
  using namespace host_replicas_test;
  tide::HostReplicas cluster({1, shards}, {1, replicas});
  std::vector<std::string> texts(shards * replicas);
  std::atomic<int> wrong{0};
  cluster.run([&](HostFabric& inside, HostFabric& across) {
    inside.init();
    across.init();
    auto one = inside.stream();
    auto two = across.stream();
    std::atomic<int> value{0};
    for (int i = 1; i <= 50; ++i) {
      if (i % 10 == 0) one.run([] { std::this_thread::sleep_for(1ms); });
      one.run([&, i] { value = 2 * i; });
      two.wait(one.record());
      two.run([&, i] {
        if (value != 2 * i) ++wrong;
        value = 2 * i + 1;
      });
      one.wait(two.record());
      one.run([&, i] {
        if (value != 2 * i + 1) ++wrong;
      });
    }
    one.synchronize();
    two.synchronize();
    const auto place = static_cast<std::size_t>(across.rank().value * shards + inside.rank().value);
    const tide::Rank next_shard{(inside.rank().value + 1) % shards};
    const tide::Rank next_replica{(across.rank().value + 1) % replicas};
    // Of a neighbour in the replica, of the same rank in another one, and of another rank there: inside and across.
    for (HostFabric* const other :
         {&cluster.fabric(across.rank(), next_shard), &cluster.fabric(next_replica, inside.rank()),
          &cluster.fabric(next_replica, next_shard), &cluster.replicas(next_replica, inside.rank()),
          &cluster.replicas(next_replica, next_shard)}) {
      const std::string text = text_of([&] { one.wait(tide::Event{other, 0, 1}); });
      if (text != "tide::Fabric: an event can be waited for on its own rank only.") ++wrong;
    }
    texts[place] = text_of([&] { two.wait(tide::Event{&cluster.fabric(across.rank(), next_shard), 0, 1}); });
    inside.close();
    across.close();
  });
  CHECK(wrong == 0);
  for (const std::string& text : texts) {
    CHECK(text == "tide::Fabric: an event can be waited for on its own rank only.");
  }
}

TEST_CASE("HostReplicas: what fails anywhere fails everywhere, with one text") {
  using namespace host_replicas_test;
  for (const bool inside_fails : {true, false}) {
    CAPTURE(inside_fails);
    std::vector<std::string> texts(shards * replicas);
    std::string thrown;
    std::atomic<index_t> present{0};
    try {
      tide::HostReplicas cluster({1, shards}, {1, replicas});
      cluster.run([&](HostFabric& inside, HostFabric& across) {
        inside.init();
        across.init();
        auto one = inside.stream();
        auto two = across.stream();
        ++present;
        while (present < shards * replicas) std::this_thread::yield();
        const auto place = static_cast<std::size_t>(across.rank().value * shards + inside.rank().value);
        if (place == 4) {
          if (inside_fails) throw std::runtime_error("the user's own");
          two.run([] { throw std::runtime_error("a function's own"); });
        }
        texts[place] = text_of([&] {
          for (int i = 0; i < 4000; ++i) {
            two.wait(one.record());
            two.synchronize();
            std::this_thread::sleep_for(5ms);
          }
        });
        texts[place] += " " + text_of([&] { one.synchronize(); }) + " " + text_of([&] { two.synchronize(); });
      });
    } catch (const std::runtime_error& error) {
      thrown = error.what();
    }
    const std::string first =
        inside_fails ? "tide::HostReplicas: rank 1 of replica 1 threw: the user's own"
                     : "tide::HostStream: a function on a stream threw; rank 1, stream 0: a function's own. "
                       "Ranks are the replicas of rank 1.";
    if (inside_fails) {
      texts[4] = first + " " + first + " " + first;  // it threw before it could be told
      CHECK(thrown == "the user's own");
    }
    for (const std::string& text : texts) CHECK(text == first + " " + first + " " + first);
  }
}

TEST_CASE("HostReplicas: a rank that does not come to a collective is a deadline of all") {
  using namespace host_replicas_test;
  tide::HostReplicas cluster({1, 2}, {1, 2}, {.deadline = 300ms});
  std::vector<std::string> texts(4);
  cluster.run([&](HostFabric& inside, HostFabric& across) {
    const auto place = static_cast<std::size_t>(across.rank().value * 2 + inside.rank().value);
    texts[place] = text_of([&] {
      inside.init();
      if (place == 3) std::this_thread::sleep_for(1s);
      across.init();
    });
    if (texts[place].empty()) texts[place] = text_of([&] { inside.stream().synchronize(); });
    if (texts[place].empty()) {
      std::this_thread::sleep_for(500ms);
      texts[place] = text_of([&] { inside.stream().synchronize(); });
    }
  });
  for (const std::string& text : texts) {
    CHECK(text ==
          "tide::Fabric: init needs all ranks; of 2 these did not come within 0.300 s: 1. Ranks are the "
          "replicas of rank 1.");
  }
}

TEST_CASE("HostReplicas: a rank that ends early is named at once, on whichever fabric it is missed") {
  using namespace host_replicas_test;
  for (const bool missed_inside : {true, false}) {
    for (const std::size_t odd : {std::size_t{0}, std::size_t{4}}) {
      CAPTURE(missed_inside);
      CAPTURE(odd);
      std::vector<std::string> texts(shards * replicas);
      const auto begun = std::chrono::steady_clock::now();
      tide::HostReplicas cluster({1, shards}, {1, replicas});  // with a deadline of a minute
      std::vector<std::unique_ptr<OneRank>> ranks(texts.size());
      cluster.run([&](HostFabric& inside, HostFabric& across) {
        const auto place = static_cast<std::size_t>(across.rank().value * shards + inside.rank().value);
        texts[place] = text_of([&] {
          OneRank& own = *(ranks[place] = std::make_unique<OneRank>(inside, across));
          inside.init();
          across.init();
          auto stream = inside.stream();
          auto other = across.stream();
          if (place == odd) return;
          // What is waited for is on the other fabric.
          if (missed_inside) {
            auto params = own.inner.enqueue(own.inner_shards, stream);
            params.release(stream);
            other.wait(stream.record());
            other.synchronize();
          } else {
            auto params = own.outer.enqueue(own.outer_shards, other);
            params.release(other);
            stream.wait(other.record());
            stream.synchronize();
          }
        });
      });
      CHECK(texts[odd] == "");
      const std::string ended =
          std::to_string(missed_inside ? odd % shards : odd / shards) + " ended, and gather of 'w'";
      std::string first;
      for (std::size_t place = 0; place < texts.size(); ++place) {
        if (!texts[place].empty()) first = texts[place];
      }
      CHECK_MESSAGE(first.find("tide::Fabric: the programs of all ranks must make the same calls before they end; "
                               "rank " +
                               ended) == 0,
                    first);
      const std::string whose = missed_inside ? " Ranks are those of replica " + std::to_string(odd / shards) + "."
                                              : " Ranks are the replicas of rank " + std::to_string(odd % shards) + ".";
      CHECK_MESSAGE(first.substr(first.size() - std::min(first.size(), whose.size())) == whose, first);
      for (const std::string& text : texts) CHECK((text.empty() || text == first));
      CHECK(std::chrono::steady_clock::now() - begun < 20s);
    }
  }
}

TEST_CASE("HostReplicas: an op that fails, and a late one, say whose its ranks are") {
  using namespace host_replicas_test;
  for (const bool late : {false, true}) {
    tide::HostOptions options{.deadline = late ? 300ms : 60s};
    options.hook = [late](const tide::HostHookPoint& point) -> std::optional<std::string> {
      if (point.rank.value != 2 || point.seq != 0) return std::nullopt;
      if (!late) return "a test says so";
      std::this_thread::sleep_for(1s);
      return std::nullopt;
    };
    tide::HostReplicas cluster({1, shards}, {1, 1}, options);
    std::vector<std::unique_ptr<OneRank>> ranks(shards);
    std::vector<std::string> texts(shards);
    cluster.run([&](HostFabric& inside, HostFabric& across) {
      const auto place = static_cast<std::size_t>(inside.rank().value);
      texts[place] = text_of([&] {
        OneRank& own = *(ranks[place] = std::make_unique<OneRank>(inside, across));
        inside.init();
        across.init();
        auto stream = inside.stream();
        own.inner.enqueue(own.inner_shards, stream).release(stream);
        stream.synchronize();
      });
    });
    for (const std::string& text : texts) {
      CHECK_MESSAGE(text.find(late ? "tide::HostFabric: the deadline of 0.300 s passed: "
                                   : "tide::HostFabric: gather of 'w', step 0, rank 2, lane ") == 0,
                    text);
      CHECK_MESSAGE(text.find(". Ranks are those of replica 0.") != std::string::npos, text);
    }
  }
}

TEST_CASE("HostReplicas: destroyed while lanes wait for the other fabric") {
  using namespace host_replicas_test;
  for (int i = 0; i < 20; ++i) {
    tide::HostReplicas cluster({1, 2}, {1, 2});
    cluster.run([](HostFabric& inside, HostFabric& across) {
      inside.init();
      across.init();
      auto one = inside.stream();
      auto two = across.stream();
      one.run([] { std::this_thread::sleep_for(2ms); });
      two.wait(one.record());
      two.run([] {});
      one.wait(two.record());
    });
  }
  CHECK(true);
}
