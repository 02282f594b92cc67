// SPDX-License-Identifier: Apache-2.0
// labels: sim
//
// SimReplicas: two fabrics for each rank, one time; they share links, wait for each other's events, and fail together.

#include <doctest/doctest.h>
#include <tide/fabric/sim_replicas.hpp>
#include <tide/memory/shards.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/raised.hpp"

#include <string>
#include <vector>

namespace sim_replicas_test {

using namespace tide_test;
using namespace std::chrono_literals;
using tide::index_t;

inline constexpr auto replicated_group = tide::group(tide::param<tide::bf16>("w", {64, 512}));
using Layout = tide::ShardLayout<replicated_group, tide::Mesh<1, 4>>;
using Gather = tide::AllGather<Layout, tide::UnicastTransport>;
using Pool = tide::SlotPool<tide::Depth<2>, Layout>;

TEST_CASE("SimReplicas: both fabrics of a rank use one link") {
  const auto run = [](bool inside, bool across) {
    tide::SimReplicas cluster({1, 4}, {1, 4}, {.machine = {.link_rate = 1e8}});
    cluster.run([&](tide::SimFabric& own, tide::SimFabric& replicas) {
      Pool pool(own);
      Pool other_pool(replicas);
      tide::Shards<Layout> shards(own);
      tide::Shards<Layout> other_shards(replicas);
      Gather gather(own, pool);
      Gather other_gather(replicas, other_pool);
      own.init();
      replicas.init();
      tide::HostStream stream = own.stream();
      tide::HostStream other = replicas.stream();
      if (inside) gather.enqueue(shards, stream).release(stream);
      if (across) other_gather.enqueue(other_shards, other).release(other);
      stream.wait(other.record());
      own.close();
      replicas.close();
    });
    return cluster.now();
  };
  const double alone = run(true, false);
  CHECK(alone == run(false, true));
  CHECK(run(true, true) == doctest::Approx(2 * alone));
}

TEST_CASE("SimReplicas: a stream waits for an event of the rank's other fabric, and of no other rank's") {
  tide::SimReplicas cluster({1, 3}, {1, 2});
  std::vector<std::string> texts(6);
  cluster.run([&](tide::SimFabric& inside, tide::SimFabric& across) {
    inside.init();
    across.init();
    tide::HostStream one = inside.stream();
    tide::HostStream two = across.stream();
    inside.busy(one, 3ms);
    two.wait(one.record());
    two.synchronize();
    const auto place = static_cast<std::size_t>(across.rank().value * 3 + inside.rank().value);
    tide::SimFabric& neighbour = cluster.fabric(across.rank(), tide::Rank{(inside.rank().value + 1) % 3});
    texts[place] = text_of([&] { one.wait(tide::Event{&neighbour, 0, 1}); });
    inside.close();
    across.close();
  });
  CHECK(cluster.now() == 3e-3);
  for (const std::string& text : texts) {
    CHECK(text == "tide::Fabric: an event can be waited for on its own rank only.");
  }
}

TEST_CASE("SimReplicas: what fails anywhere fails everywhere, with one text") {
  for (const bool ends : {false, true}) {
    tide::SimReplicas cluster({1, 2}, {1, 2}, {.host = {.deadline = 300ms}});
    std::vector<std::string> texts(4);
    cluster.run([&](tide::SimFabric& inside, tide::SimFabric& across) {
      const auto place = static_cast<std::size_t>(across.rank().value * 2 + inside.rank().value);
      texts[place] = text_of([&] {
        inside.init();
        if (place == 3 && ends) return;
        if (place == 3) inside.sleep(1s);
        across.init();
        inside.stream().synchronize();
        inside.sleep(1s);
        inside.stream().synchronize();
      });
    });
    if (ends) CHECK(texts[3] == "");
    if (ends) texts.pop_back();
    for (const std::string& text : texts) {
      CHECK(text == (ends ? "tide::Fabric: the programs of all ranks must make the same calls before they end; rank 1 "
                            "ended, and init needs all ranks. Ranks are the replicas of rank 1."
                          : "tide::Fabric: init needs all ranks; of 2 these did not come within 0.300 s: 1. "
                            "Ranks are the replicas of rank 1."));
    }
  }
  // What a host waits for is of the host: it has both fabrics.
  std::vector<std::string> late(4);
  tide::SimReplicas({1, 2}, {1, 2}, {.host = {.deadline = 300ms}})
      .run([&](tide::SimFabric& inside, tide::SimFabric& across) {
        const auto place = static_cast<std::size_t>(across.rank().value * 2 + inside.rank().value);
        late[place] = text_of([&] {
          inside.init();
          across.init();
          tide::HostStream stream = inside.stream();
          inside.busy(stream, place == 3 ? 1s : 0s);
          stream.synchronize();
          inside.sleep(1s);
        });
      });
  for (const std::string& text : late) {
    CHECK(text ==
          "tide::SimFabric: the deadline of 0.300 s passed: rank 1 of replica 1 waits for an event; no op waits: "
          "a function on a stream, or an op, takes longer.");
  }
  std::vector<std::string> texts(4);
  const auto program = [&](tide::SimFabric& inside, tide::SimFabric& across) {
    const auto place = static_cast<std::size_t>(across.rank().value * 2 + inside.rank().value);
    texts[place] = text_of([&] { inside.init(); });
    if (place == 2) throw std::runtime_error("the user's own");
    if (texts[place].empty()) {
      texts[place] = text_of([&] {
        across.init();
        inside.stream().synchronize();
      });
    }
  };
  CHECK_THROWS_AS(tide::SimReplicas({1, 2}, {1, 2}).run(program), std::runtime_error);
  CHECK(texts[0] == "tide::SimReplicas: rank 0 of replica 1 threw: the user's own");
  CHECK(texts[1] == texts[0]);
  CHECK(texts[3] == texts[0]);
}

}  // namespace sim_replicas_test
