// SPDX-License-Identifier: Apache-2.0
//
// One model, one gather and one reduce type: every unit that includes this instantiates the same templates.
#pragma once

#include <tide/tide.hpp>

#include <atomic>

namespace consumer {

inline constexpr auto block =
    tide::group(tide::param<tide::bf16>("weight", {6, 8}), tide::param<tide::bf16>("bias", {5}));

using Layout = tide::ShardLayout<block, tide::Mesh<1, tide::dynamic>>;
using Slots = tide::SlotPool<tide::Depth<2>, Layout>;
using Gather = tide::AllGather<Layout, tide::UnicastTransport>;
using Reduce = tide::ReduceScatter<Layout, tide::CopyEngineReducer<>>;

/// What a rank needs for steps; made by one unit, used by another.
struct Rank {
  explicit Rank(tide::HostFabric& fabric)
      : slots(fabric), gather(fabric, slots), reduce(fabric, slots), shards(fabric), gradients(fabric), sums(fabric) {}

  Slots slots;
  Gather gather;
  Reduce reduce;
  tide::Shards<Layout> shards;
  tide::Gradients<Layout> gradients;
  tide::MasterShards<Layout> sums;
};

/// A gather: whether each rank's rows of "weight" are rank + 1.
inline bool gather_is_right(Rank& rank, tide::HostFabric& fabric, tide::HostStream& stream) {
  for (tide::bf16& value : rank.shards.get<"weight">()) value = tide::bf16(static_cast<float>(fabric.rank().value + 1));
  auto params = rank.gather.enqueue(rank.shards, stream);
  params.complete().synchronize();
  const auto weight = params.get<"weight">();
  bool right = true;
  for (tide::index_t row = 0; row < 6; ++row) {
    const tide::index_t owner = row / tide::ceil_div(6, fabric.mesh().ranks());
    right = right && static_cast<float>(weight(row, 7)) == static_cast<float>(owner + 1);
  }
  params.release(stream);
  return right;
}

/// A reduce: whether the average of gradients that are all 2 * (rank + 1) is ranks + 1.
inline bool reduce_is_right(Rank& rank, tide::HostFabric& fabric, tide::HostStream& stream) {
  for (tide::bf16& value : rank.gradients.get<"weight">().elements()) {
    value = tide::bf16(static_cast<float>(2 * (fabric.rank().value + 1)));
  }
  for (tide::bf16& value : rank.gradients.get<"bias">().elements()) value = tide::bf16(0.0F);
  rank.reduce.enqueue(rank.gradients, rank.sums, stream).shards_ready.synchronize();
  bool right = true;
  for (const float sum : rank.sums.get<"weight">())
    right = right && sum == static_cast<float>(fabric.mesh().ranks() + 1);
  return right;
}

/// A gather and a reduce on two CPU ranks: whether both are right.
inline bool two_ranks_are_right() {
  std::atomic<bool> right{true};
  tide::HostCluster cluster({1, 2});
  cluster.run([&](tide::HostFabric& fabric) {
    Rank rank(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    if (!gather_is_right(rank, fabric, stream)) right = false;
    if (!reduce_is_right(rank, fabric, stream)) right = false;
    fabric.close();
  });
  return right;
}

}  // namespace consumer
