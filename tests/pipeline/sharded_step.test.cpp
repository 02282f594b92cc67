// SPDX-License-Identifier: Apache-2.0
//
// timeout: 900
//
// ShardedStep against training without shards: masters and losses bit for bit, with delays, missing gradients, frozen
// and kept parts, micro-batches, gradients that are scribbled over the moment they are free. TIDE_STEPS=100000 in the
// environment makes the last case as long.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/sharded_step.hpp>

#include "support/delays.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"
#include "support/step_training.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace {

namespace sharded_step_test {

using namespace tide_test;
using step::check_training;
using step::Recipe;

// A step each with everything small, everything large, micro-batches.
using PlainStep = step::Step<tide::SlotReuse>;
using NarrowStep = step::Step<step::SmallRing, step::Add, tide::Prefetch<0>, tide::Buffers<1>>;
using WideStep = step::Step<tide::SlotReuse, step::Add, tide::Prefetch<3>, tide::Depth<9>, tide::Buffers<3>>;

static_assert(PlainStep::depth == 4 && NarrowStep::depth == 2 && WideStep::depth == 9);
static_assert(step::Step<step::SmallRing, step::Add, tide::Prefetch<50>>::depth == 7);  // a slot for each group

// Ten groups: the embedding, then three times a block, its adapter and a head that stays gathered.
using LayeredStep = step::LayeredStep<tide::SlotReuse>;
using LayeredAhead = step::LayeredStep<step::SmallRing, step::Add, tide::Prefetch<2>, tide::Buffers<1>>;

static_assert(LayeredStep::groups == 10 && LayeredStep::depth == 6 && LayeredAhead::depth == 6);
static_assert(LayeredStep::place<"embedding">() == 0 && LayeredStep::repeat<"head"> == 3);
static_assert(LayeredStep::place<"blocks">(0) == 1 && LayeredStep::place<"adapter">(0) == 2);
static_assert(LayeredStep::place<"head">(0) == 3 && LayeredStep::place<"blocks">(2) == 7);
static_assert(LayeredStep::place<"head">(2) == 9);

}  // namespace sharded_step_test

}  // namespace

TEST_CASE("ShardedStep: masters and losses are those of training without shards, for any number of ranks") {
  using namespace sharded_step_test;
  for (const index_t ranks : {1, 2, 3, 4, 5, 8}) {
    check_training<PlainStep>({.ranks = ranks});
    check_training<NarrowStep>({.ranks = ranks});
    check_training<WideStep>({.ranks = ranks});
  }
}

TEST_CASE("ShardedStep: over several nodes, as many as there are") {
  using namespace sharded_step_test;
  struct Mesh {
    index_t nodes;
    index_t ranks_per_node;
  };
  for (const Mesh mesh : {Mesh{2, 1}, Mesh{2, 2}, Mesh{3, 2}, Mesh{2, 3}, Mesh{5, 1}, Mesh{4, 2}}) {
    Recipe recipe{.ranks = mesh.nodes * mesh.ranks_per_node, .nodes = mesh.nodes, .some_missing = true};
    check_training<PlainStep>(recipe);
    check_training<NarrowStep>(recipe, {.hook = random_delays(7, 100)});
    recipe.scribble = true;
    recipe.micro_batches = 2;
    check_training<WideStep>(recipe);
  }
}

TEST_CASE("ShardedStep: layers of several groups, whose parts take turns") {
  using namespace sharded_step_test;
  for (const index_t ranks : {1, 2, 3, 5, 8}) {
    check_training<LayeredStep, step::LayeredModel>({.ranks = ranks, .some_missing = true, .scribble = true});
    check_training<LayeredAhead, step::LayeredModel>({.ranks = ranks, .micro_batches = 2});
  }
  check_training<LayeredStep, step::LayeredModel>({.ranks = 6, .nodes = 3, .scribble = true},
                                                  {.hook = random_delays(8, 100)});
}

TEST_CASE("ShardedStep: ranks that own nothing of a group, and are slow, keep their slots until they have read them") {
  using namespace sharded_step_test;
  static constexpr auto layer = tide::group(tide::param<tide::bf16>("w", {12, 16}), tide::param<tide::bf16>("b", {12}));
  static constexpr auto output = tide::group(tide::param<tide::bf16>("w", {2, 16}));
  using Layer = tide::ShardLayout<layer, step::AnyMesh>;
  using Output = tide::ShardLayout<output, step::AnyMesh>;
  using Model = tide::Parts<tide::Part<"layers", Layer, tide::Repeat<3>>, tide::Part<"output", Output>>;
  using Names = step::PartNames<"layers", "output">;
  using Step =
      tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, step::Rails, tide::SlotReuse>;
  for (const std::uint64_t seed : seeds(2)) {
    for (const tide::MeshShape shape : {tide::MeshShape{1, 4}, {1, 6}, {2, 3}}) {
      CAPTURE(seed);
      CAPTURE(shape.nodes);
      CAPTURE(shape.ranks_per_node);
      const Recipe recipe{
          .ranks = shape.ranks(), .nodes = shape.nodes, .steps = sized(40, 10), .slow_readers = true, .seed = seed};
      const step::AnyMesh mesh(shape.nodes, shape.ranks_per_node);
      const step::Oracle oracle(step::groups_of(Model::Placed{}, Layer(mesh), Output(mesh)), recipe);
      for (const std::string& text : step::train<Step, Names>(recipe, oracle, tide::HostOptions{})) CHECK(text == "");
    }
  }
}

TEST_CASE("ShardedStep: layouts that are read at run time") {
  using namespace sharded_step_test;
  using Model = tide::Parts<tide::Part<"layers", tide::DynamicLayout, tide::Repeat<2>>,
                            tide::Part<"fixed", tide::DynamicLayout, tide::Frozen<>>>;
  using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::SingleNode>;
  constexpr index_t ranks = 3;
  std::vector<int> wrong(ranks, 0);
  tide::HostCluster cluster({1, ranks});
  cluster.run([&](tide::HostFabric& fabric) {
    tide::DynamicGroup layer;
    layer.add("w", {7, 3}, tide::Element::bf16, tide::Element::bf16);
    tide::DynamicGroup fixed;
    fixed.add("table", {5}, tide::Element::f32, tide::Element::f32);
    Step training(fabric, {tide::DynamicLayout(layer, {1, ranks}), tide::DynamicLayout(fixed, {1, ranks})});
    fabric.init();
    int& own_wrong = wrong[static_cast<std::size_t>(fabric.rank().value)];
    tide::HostStream stream = fabric.stream();
    training.load(stream, [&](auto group) {
      stream.run([=] {
        if constexpr (requires { group.masters(); }) {
          group.for_each([](const tide::Parameter&, auto own, auto) { std::fill(own.begin(), own.end(), 1.0F); });
        } else {
          const auto own = group.shards().bytes_of(tide::ParameterIndex{0});
          std::fill_n(reinterpret_cast<float*>(own.data()), own.size() / sizeof(float), 5.0F);
        }
      });
    });
    for (int n = 0; n < 3; ++n) {
      for (index_t i = 0; i < 2; ++i) training.forward<"layers">(stream, i).release();
      auto table = training.forward<"fixed">(stream);
      stream.run([&own_wrong, at = reinterpret_cast<const float*>(table.at(tide::ParameterIndex{0}))] {
        own_wrong += std::count(at, at + 5, 5.0F) == 5 ? 0 : 1;
      });
      table.release();
      training.backward<"fixed">(stream).release();
      for (index_t i = 2; i-- > 0;) {
        auto group = training.backward<"layers">(stream, i);
        stream.run([i, r = fabric.rank().value,
                    at = reinterpret_cast<tide::bf16*>(group.gradients().at(tide::ParameterIndex{0}))] {
          std::fill_n(at, 21, tide::bf16(static_cast<float>(r + 3 * i)));  // the average is 1 + 3 i
        });
        group.reduce();
      }
      training.update(stream, [&](auto group) {
        stream.run([=, &own_wrong] {
          group.for_each([&](const tide::Parameter&, auto masters, auto reduced) {
            const auto i = static_cast<float>(group.index());
            for (std::size_t k = 0; k < masters.size(); ++k) {
              own_wrong += reduced[k] == 1 + 3 * i && masters[k] == 1 - static_cast<float>(n) * reduced[k] ? 0 : 1;
              masters[k] -= reduced[k];
            }
          });
        });
      });
    }
    stream.synchronize();
    fabric.close();
  });
  for (const int count : wrong) CHECK(count == 0);
}

TEST_CASE("ShardedStep: micro-batches are added in fp32") {
  using namespace sharded_step_test;
  for (const index_t ranks : {1, 3, 4}) {
    check_training<NarrowStep>({.ranks = ranks, .micro_batches = 3});
    check_training<WideStep>({.ranks = ranks, .micro_batches = 2, .some_missing = true, .evaluate = true});
    check_training<WideStep>({.ranks = ranks, .micro_batches = 2, .scale = 0.5F / static_cast<float>(ranks)});
  }
}

TEST_CASE("ShardedStep: a parameter without a gradient, on one rank or on all, counts as zeros") {
  using namespace sharded_step_test;
  for (const std::uint64_t seed : seeds(4)) {
    check_training<PlainStep>({.ranks = 3, .some_missing = true, .seed = seed});
    check_training<NarrowStep>({.ranks = 2, .some_missing = true, .seed = seed + 10});
  }
}

TEST_CASE("ShardedStep: whatever is delayed, nothing is overwritten before its last reader") {
  using namespace sharded_step_test;
  for (const std::uint64_t seed : seeds(3)) {
    const Recipe recipe{.ranks = 3,
                        .steps = sized(30, 8),
                        .some_missing = true,
                        .scribble = seed % 2 == 0,  // which waits for more than training does
                        .evaluate = true,
                        .slow_readers = true,
                        .seed = seed};
    check_training<PlainStep>(recipe, {.hook = random_delays(seed, 30)});
    check_training<NarrowStep>(recipe, {.hook = random_delays(seed + 3, 30)});
    Recipe more = recipe;
    more.micro_batches = 2;
    check_training<WideStep>(more, {.hook = random_delays(seed + 6, 30)});
  }
}

TEST_CASE("ShardedStep: one queue for each rank is enough") {
  using namespace sharded_step_test;
  const Recipe recipe{.ranks = 3, .steps = 6, .scribble = true, .evaluate = true, .slow_readers = true};
  check_training<PlainStep>(recipe, {.lanes = tide::HostLanes::merged, .hook = random_delays(3, 50)});
  check_training<NarrowStep>(recipe, {.lanes = tide::HostLanes::merged});
}

TEST_CASE("ShardedStep: many small steps over worlds of 1 to 9 ranks and 1 to 5 nodes, with delays at every op") {
  using namespace sharded_step_test;
  const char* asked = std::getenv("TIDE_STEPS");
  const int steps = asked != nullptr ? std::atoi(asked) : sized(1000, 300);
  for (index_t ranks = 1; ranks <= 9; ++ranks) {
    const index_t nodes[] = {1, 2, 1, 4, 5, 3, 1, 2, 3};  // of 1 to 9 ranks
    const Recipe recipe{.ranks = ranks,
                        .nodes = nodes[ranks - 1],
                        .steps = (steps + 8) / 9,
                        .some_missing = ranks % 2 == 0,
                        .scribble = ranks % 3 == 0,
                        .slow_readers = ranks % 4 == 0,
                        .seed = static_cast<std::uint64_t>(ranks)};
    check_training<PlainStep>(recipe, {.hook = random_delays(recipe.seed, 1500)});
  }
}
