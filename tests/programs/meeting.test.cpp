// SPDX-License-Identifier: Apache-2.0
// labels: threads
//
// Where the ranks of shard_model meet: none leaves before all have come, and none waits for one that will not.

#include <doctest/doctest.h>

#include "../../examples/support/timing.hpp"

#include <atomic>
#include <stdexcept>

namespace meeting_test {

using tide::index_t;

TEST_CASE("Meeting: nobody leaves before all have come, meeting after meeting") {
  for (const index_t ranks : {1, 2, 3, 5, 8}) {
    CAPTURE(ranks);
    tide::HostCluster cluster({1, ranks});
    tide_example::Meeting meet(ranks);
    std::atomic<index_t> came{0};
    std::atomic<int> early{0};
    cluster.run([&](tide::HostFabric& fabric) {
      for (index_t round = 1; round <= 50; ++round) {
        ++came;
        meet.wait(fabric);
        if (came < round * ranks) ++early;
        meet.wait(fabric);
      }
    });
    CHECK(early == 0);
    CHECK(came == 50 * ranks);
  }
}

TEST_CASE("Meeting: a rank that throws instead of coming ends the others with what it threw") {
  for (const index_t absent : {0, 2}) {
    CAPTURE(absent);
    tide::HostCluster cluster({1, 3});
    tide_example::Meeting meet(3);
    std::atomic<int> left{0};
    const auto program = [&](tide::HostFabric& fabric) {
      if (fabric.rank().value == absent) throw std::logic_error("does not come");
      meet.wait(fabric);
      ++left;
    };
    CHECK_THROWS_WITH_AS(cluster.run(program), "does not come", std::logic_error);
    CHECK(left == 0);
  }
}

TEST_CASE("timed: what a rank throws comes out, while others wait in a meeting of the work") {
  tide::HostCluster cluster({1, 3});
  tide_example::Meeting meet(3);
  const tide_example::RankWork work = [&](tide::HostFabric& fabric) {
    if (fabric.rank().value == 1) throw std::logic_error("wrong");
    meet.wait(fabric);
  };
  CHECK_THROWS_WITH_AS(static_cast<void>(tide_example::timed(cluster, work)), "wrong", std::logic_error);
}

}  // namespace meeting_test
