// SPDX-License-Identifier: Apache-2.0
//
// timeout: 300
// labels: sim
//
// ShardedStep in virtual time: masters and losses are those of training without shards, in any order that a seed
// chooses, over nodes, and over replicas; and what overlaps takes less time.

#include <doctest/doctest.h>
#include <tide/fabric/sim_replicas.hpp>

#include "support/sanitizer.hpp"
#include "support/step_training.hpp"

#include <array>
#include <vector>

namespace tide_test::step {

template <>
struct ClustersOf<tide::SimOptions> {
  using Cluster = tide::SimCluster;
  using Replicas = tide::SimReplicas;
};

}  // namespace tide_test::step

namespace sim_step_test {

using namespace tide_test;
using namespace std::chrono_literals;
using step::check_training;
using step::Recipe;

using PlainStep = step::Step<tide::SlotReuse>;
using NarrowStep = step::Step<step::SmallRing, step::Add, tide::Prefetch<0>, tide::Buffers<1>>;
using Averages = tide::Replicated<tide::UnicastTransport, tide::CopyEngineReducer<>, step::Rails, step::SmallRing>;
using ReplicatedStep = step::Step<tide::SlotReuse, tide::CopyEngineReducer<>, Averages>;

[[nodiscard]] tide::SimOptions shuffled(std::uint64_t seed) { return {.seed = seed, .jitter = 20us}; }

TEST_CASE("ShardedStep: in virtual time masters and losses are those of training without shards, in any order") {
  for (const index_t ranks : {1, 2, 3, 5, 8}) {
    for (const std::uint64_t seed : {0U, 1U, 2U}) {
      check_training<PlainStep>({.ranks = ranks, .some_missing = true, .scribble = true}, shuffled(seed));
      check_training<NarrowStep>({.ranks = ranks, .micro_batches = 2}, shuffled(seed));
    }
  }
  for (const index_t nodes : {2, 3}) {
    check_training<PlainStep>({.ranks = 6, .nodes = nodes, .scribble = true}, shuffled(9));
    check_training<NarrowStep>({.ranks = 6, .nodes = nodes},
                               tide::SimOptions{.host = {.lanes = tide::HostLanes::merged}});
  }
}

TEST_CASE("ShardedStep: in virtual time replicas average as on host ranks") {
  for (const std::uint64_t seed : {0U, 4U}) {
    check_training<ReplicatedStep>({.ranks = 2, .replicas = 3}, shuffled(seed));
    check_training<ReplicatedStep>({.ranks = 4, .nodes = 2, .replicas = 2}, shuffled(seed));
  }
}

inline constexpr auto layer_group = tide::group(tide::param<tide::bf16>("w", {1024, 1024}));
using Layer = tide::ShardLayout<layer_group, tide::Mesh<1, 4>>;
using Layers = tide::Parts<tide::Part<"layers", Layer, tide::Repeat<8>>>;

/// Seconds of a step whose layers take `kernel` each way, of which nothing is moved.
template <class Step>
double step_seconds(tide::Duration kernel) {
  tide::SimCluster cluster({1, 4}, {.memory = tide::SimMemory::counted});
  double loaded = 0;
  cluster.run([&](tide::SimFabric& fabric) {
    Step sharded(fabric);
    fabric.init();
    tide::HostStream compute = fabric.stream();
    sharded.load(compute, [](const auto&) {});
    compute.synchronize();
    loaded = fabric.now();
    for (index_t i = 0; i < 8; ++i) {
      auto layer = sharded.template forward<"layers">(compute, i);
      fabric.busy(compute, kernel);
      layer.release();
    }
    for (index_t i = 8; i-- > 0;) {
      auto layer = sharded.template backward<"layers">(compute, i);
      fabric.busy(compute, 2 * kernel);
      static_cast<void>(layer.reduce());
    }
    sharded.update(compute, [](const auto&) {});
    fabric.close();
  });
  return cluster.now() - loaded;
}

TEST_CASE("ShardedStep: gathers ahead and reduces beside hide behind kernels, and do not where none are ahead") {
  using Ahead = tide::ShardedStep<Layers, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::SingleNode,
                                  tide::SlotReuse, tide::Prefetch<2>>;
  using Behind = tide::ShardedStep<Layers, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::SingleNode,
                                   tide::SlotReuse, tide::Prefetch<0>>;
  const double kernels = 8 * 3 * 100e-6;
  const double nothing = step_seconds<Ahead>(0us);
  const double ahead = step_seconds<Ahead>(100us);
  const double behind = step_seconds<Behind>(100us);
  CHECK(nothing > 100e-6);
  CHECK(ahead > kernels);
  CHECK(ahead < kernels + 0.5 * nothing);
  CHECK(behind > ahead + 100e-6);
}

}  // namespace sim_step_test
