// SPDX-License-Identifier: Apache-2.0
//
// The model of the ShardedStep suites: groups of unlike shape and element, a kept part, a repeated one with a frozen
// parameter, a frozen one; and its training on all ranks of a HostCluster.

#pragma once

#include <doctest/doctest.h>

#include "support/host_ranks.hpp"
#include "support/step_rank.hpp"

#include <string>
#include <vector>

namespace tide_test::step {

using AnyMesh = tide::Mesh<tide::dynamic, tide::dynamic>;

inline constexpr auto embedding_group =
    tide::group(tide::param<tide::bf16>("tokens", {11, 3}), tide::param<float>("positions", {5}));
inline constexpr auto block_group =
    tide::group(tide::param<tide::bf16>("up", {9, 4}), tide::param<tide::bf16>("bias", {9}),
                tide::param<tide::bf16>("scale", {3}), tide::param<float>("norm", {7}));
inline constexpr auto adapter_group = tide::group(tide::param<tide::bf16>("table", {6, 2}));
inline constexpr auto head_group = tide::group(tide::param<tide::bf16>("weight", {4, 5}));

using Embedding = tide::ShardLayout<embedding_group, AnyMesh>;
using Block = tide::ShardLayout<block_group, AnyMesh>;
using Adapter = tide::ShardLayout<adapter_group, AnyMesh>;
using Head = tide::ShardLayout<head_group, AnyMesh>;

using Model = tide::Parts<tide::Part<"embedding", Embedding, tide::KeepGathered>,               //
                          tide::Part<"blocks", Block, tide::Repeat<4>, tide::Frozen<"scale">>,  //
                          tide::Part<"adapter", Adapter, tide::Frozen<>>,                       //
                          tide::Part<"head", Head>>;
using Names = PartNames<"embedding", "blocks", "adapter", "head">;

using Add = tide::CopyEngineReducer<tide::Burst, tide::Accumulate>;
using SmallRing = tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>;

template <class Box, class R = tide::CopyEngineReducer<>, class... Options>
using Step = tide::ShardedStep<Model, tide::UnicastTransport, R, tide::SingleNode, Box, Options...>;

template <class S>
std::vector<std::string> train(const Recipe& recipe, const Oracle& oracle, const tide::HostOptions& options) {
  std::vector<std::string> wrong(static_cast<std::size_t>(recipe.ranks));
  tide::HostCluster cluster({recipe.nodes, recipe.ranks / recipe.nodes}, options);
  cluster.run([&](tide::HostFabric& fabric) {
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    try {
      S sharded(fabric);
      StepRank<S, Names> own(fabric, sharded, oracle, recipe, fabric.rank().value);
      fabric.init();
      own.load();
      for (int i = 0; i < recipe.steps; ++i) own.train(i);
      own.synchronize();
      wrong[rank] = own.verdict();
      fabric.close();
    } catch (const tide::Error& error) {
      wrong[rank] = error.what();
    }
  });
  return wrong;
}

[[nodiscard]] inline Oracle oracle_of(const Recipe& recipe) {
  const AnyMesh mesh(recipe.nodes, recipe.ranks / recipe.nodes);
  return {groups_of(Model{}, Embedding(mesh), Block(mesh), Adapter(mesh), Head(mesh)), recipe};
}

template <class S>
void check_training(const Recipe& recipe, const tide::HostOptions& options = {}) {
  CAPTURE(recipe.ranks);
  CAPTURE(recipe.nodes);
  CAPTURE(recipe.seed);
  const Oracle oracle = oracle_of(recipe);
  for (const std::string& text : train<S>(recipe, oracle, options)) CHECK(text == "");
}

}  // namespace tide_test::step
