// SPDX-License-Identifier: Apache-2.0
//
// Layers share two slots: while one is computed with, the next is gathered into the other. Streams and events order
// it all; the host only enqueues.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>

using tide_example::expect;

namespace tiny {
inline constexpr auto embedding = tide::group(tide::param<tide::bf16>("tokens.weight", {100, 24}));
inline constexpr auto layer = tide::group(        //
    tide::param<tide::bf16>("weight", {24, 24}),  //
    tide::param<tide::bf16>("bias", {24}));
}  // namespace tiny

using Embedding = tide::ShardLayout<tiny::embedding, tide::Mesh<1, 4>>;
using Layer = tide::ShardLayout<tiny::layer, tide::Mesh<1, 4>>;

float sum(std::span<const tide::bf16> elements) {
  float total = 0;
  for (const tide::bf16 element : elements) total += static_cast<float>(element);
  return total;
}

// snippet: prefetch
void one_rank(tide::HostFabric& fabric) {
  tide::Shards<Embedding> embedding_shards{fabric};
  tide::Shards<Layer> layer_shards{fabric};
  tide::SlotPool<tide::Depth<2>, Embedding, Layer> slots{fabric};  // each slot holds the larger of the two
  tide::AllGather<Embedding, tide::UnicastTransport> gather_embedding{fabric, slots, "embedding"};
  tide::AllGather<Layer, tide::UnicastTransport> gather_layer{fabric, slots, "layer"};
  fabric.init();
  std::ranges::fill(embedding_shards.get<"tokens.weight">(), tide::bf16(1.0F));
  std::ranges::fill(layer_shards.get<"weight">(), tide::bf16(2.0F));
  std::ranges::fill(layer_shards.get<"bias">(), tide::bf16(3.0F));

  auto compute = fabric.stream();
  auto prefetch = fabric.stream();
  float results[3][2] = {};
  for (auto& [of_embedding, of_layer] : results) {
    auto embedding = gather_embedding.enqueue(embedding_shards, prefetch);
    auto layer = gather_layer.enqueue(layer_shards, prefetch);  // runs ahead of what follows

    compute.wait(embedding.complete());
    compute.run([tokens = embedding.get<"tokens.weight">(), &out = of_embedding] { out = sum(tokens.elements()); });
    embedding.release(compute);  // the slot is free when `compute` has come to here

    compute.wait(layer.complete());
    compute.run([weight = layer.get<"weight">(), bias = layer.get<"bias">(), &out = of_layer] {
      out = sum(weight.elements()) + sum(bias.elements());
    });
    layer.release(compute);
  }
  compute.synchronize();
  // end: prefetch
  for (const auto& [of_embedding, of_layer] : results) {
    expect(of_embedding == 100 * 24, "the sum of 2400 ones");
    expect(of_layer == 24 * 24 * 2 + 24 * 3, "the sum of 576 twos and 24 threes");
  }
}

int main() {
  tide::HostCluster cluster{{1, 4}};
  cluster.run(one_rank);
  return tide_example::verdict();
}
