// SPDX-License-Identifier: Apache-2.0
//
// A small model, cut over four ranks and gathered: every rank gets every parameter whole, each byte moved once.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>

using tide_example::expect;

// snippet: first-layout
namespace tiny {
inline constexpr auto block = tide::group(                  //
    tide::param<tide::bf16>("attention.weight", {96, 32}),  // 24 rows for each of four ranks
    tide::param<tide::bf16>("attention.bias", {96}),        //
    tide::param<tide::bf16>("mlp.up.weight", {128, 32}),    //
    tide::param<tide::bf16>("mlp.down.weight", {32, 128}),  //
    tide::param<float>("norm.weight", {30}));               // 8, 8, 8 and 6 rows
}

using Layout = tide::ShardLayout<tiny::block, tide::Mesh<1, 4>>;
using Gather = tide::AllGather<Layout, tide::UnicastTransport>;
// end: first-layout

// snippet: first-gather
void one_rank(tide::HostFabric& fabric) {
  tide::Shards<Layout> shards{fabric};                   // the rows that this rank owns
  tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};  // room for one whole group
  Gather gather{fabric, slots};
  fabric.init();  // from here on there is memory

  const auto rank = static_cast<float>(fabric.rank().value);
  std::ranges::fill(shards.get<"attention.weight">(), tide::bf16(rank));
  std::ranges::fill(shards.get<"norm.weight">(), rank);

  // snippet: at-a-glance
  auto stream = fabric.stream();
  auto params = gather.enqueue(shards, stream);
  params.complete().synchronize();

  const auto weight = params.get<"attention.weight">();  // TensorView<bf16, 96, 32>
  const auto norm = params.get<"norm.weight">();         // TensorView<float, 30>
  // end: at-a-glance
  expect(weight(23, 31) == tide::bf16(0.0F) && weight(24, 0) == tide::bf16(1.0F), "row 24 is the first of rank 1");
  expect(norm(23) == 2 && norm(24) == 3 && norm(29) == 3, "rank 3 owns the last 6 rows");

  params.release(stream);  // the slot may be filled again
}

int main() {
  tide::HostCluster cluster{{1, 4}};  // four ranks, each a thread
  cluster.run(one_rank);
  return tide_example::verdict();
}
// end: first-gather
