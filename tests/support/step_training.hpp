// SPDX-License-Identifier: Apache-2.0
//
// The model of the ShardedStep suites: groups of unlike shape and element, a kept part, a repeated one with a frozen
// parameter, a frozen one; one whose parts take turns; and their training on all ranks of a HostCluster.

#pragma once

#include <doctest/doctest.h>
#include <tide/fabric/host_replicas.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

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

// The same layouts, taking turns: a frozen part among them, and a kept one.
using LayeredModel = tide::Parts<
    tide::Part<"embedding", Embedding>,
    tide::Layers<tide::Repeat<3>, tide::Part<"blocks", Block, tide::Frozen<"scale">>,
                 tide::Part<"adapter", Adapter, tide::Frozen<>>, tide::Part<"head", Head, tide::KeepGathered>>>;

using Add = tide::CopyEngineReducer<tide::Burst, tide::Accumulate>;
using SmallRing = tide::Ring<tide::Chunks<2>, tide::Bytes<16384>>;

// Over one node as over several; small puts, so that a group needs many.
using Rails = tide::RdmaDoublingTransport<tide::Bytes<64>, tide::PutsInFlight<2>>;

template <class Box, class R = tide::CopyEngineReducer<>, class... Options>
using Step = tide::ShardedStep<Model, tide::UnicastTransport, R, Rails, Box, Options...>;
template <class Box, class R = tide::CopyEngineReducer<>, class... Options>
using LayeredStep = tide::ShardedStep<LayeredModel, tide::UnicastTransport, R, Rails, Box, Options...>;

/// One rank's training; what was wrong, or the error that it raised.
/// @tparam N  the names of the parts
template <class S, class N, class... Fabrics>
std::string train_rank(const Recipe& recipe, const Oracle& oracle, index_t rank, tide::HostPort& fabric,
                       Fabrics&... replicas) {
  try {
    S sharded(fabric, replicas...);
    StepRank<S, N> own(fabric, sharded, oracle, recipe, rank);
    fabric.init();
    (replicas.init(), ...);
    own.load();
    for (int i = 0; i < recipe.steps; ++i) own.train(i);
    own.synchronize();
    std::string verdict = own.verdict();
    fabric.close();
    (replicas.close(), ...);
    return verdict;
  } catch (const tide::Error& error) {
    return error.what();
  }
}

/// What makes the ranks that some options are of.
template <class Options>
struct ClustersOf;
template <>
struct ClustersOf<tide::HostOptions> {
  using Cluster = tide::HostCluster;
  using Replicas = tide::HostReplicas;
};

/// @tparam Options  of the ranks: `HostOptions`, or others that `ClustersOf` knows
template <class S, class N = Names, class Options>
std::vector<std::string> train(const Recipe& recipe, const Oracle& oracle, const Options& options) {
  const tide::MeshShape mesh{recipe.nodes, recipe.ranks / recipe.nodes};
  std::vector<std::string> wrong(static_cast<std::size_t>(recipe.ranks * recipe.replicas));
  if constexpr (S::replicated) {
    typename ClustersOf<Options>::Replicas cluster(mesh, {recipe.replicas, 1}, options);  // each on nodes of its own
    cluster.run([&](tide::HostPort& fabric, tide::HostPort& replicas) {
      const index_t rank = replicas.rank().value * recipe.ranks + fabric.rank().value;
      wrong[static_cast<std::size_t>(rank)] = train_rank<S, N>(recipe, oracle, rank, fabric, replicas);
    });
  } else {
    typename ClustersOf<Options>::Cluster cluster(mesh, options);
    cluster.run([&](tide::HostPort& fabric) {
      const index_t rank = fabric.rank().value;
      wrong[static_cast<std::size_t>(rank)] = train_rank<S, N>(recipe, oracle, rank, fabric);
    });
  }
  return wrong;
}

/// @tparam M  a model of the four layouts, in this order
template <class M = Model>
[[nodiscard]] Oracle oracle_of(const Recipe& recipe) {
  const AnyMesh mesh(recipe.nodes, recipe.ranks / recipe.nodes);
  return {groups_of(typename M::Placed{}, Embedding(mesh), Block(mesh), Adapter(mesh), Head(mesh)), recipe};
}

template <class S, class M = Model, class Options = tide::HostOptions>
void check_training(const Recipe& recipe, const Options& options = {}) {
  CAPTURE(recipe.ranks);
  CAPTURE(recipe.nodes);
  CAPTURE(recipe.seed);
  const Oracle oracle = oracle_of<M>(recipe);
  for (const std::string& text : train<S>(recipe, oracle, options)) CHECK(text == "");
}

}  // namespace tide_test::step
