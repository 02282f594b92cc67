// SPDX-License-Identifier: Apache-2.0
//
// The program of docs/your-model.md.

// snippet: your-program
#include <tide/tide.hpp>

#include <algorithm>
#include <cstdio>

inline constexpr auto block = tide::group(          // your parameters: name, shape, element
    tide::param<tide::bf16>("weight", {1000, 64}),  //
    tide::param<tide::bf16>("bias", {1000}));

using Layout = tide::ShardLayout<block, tide::Mesh<1, 4>>;  // over 4 ranks of one node
using Gather = tide::AllGather<Layout, tide::UnicastTransport>;

int main() {
  tide::HostCluster cluster{{1, 4}};  // 4 ranks, each a thread of this process
  cluster.run([](tide::HostFabric& fabric) {
    tide::Shards<Layout> shards{fabric};  // 250 rows of "weight" and 250 elements of "bias"
    tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};
    Gather gather{fabric, slots};
    fabric.init();

    std::ranges::fill(shards.get<"weight">(), tide::bf16(static_cast<float>(fabric.rank().value)));
    std::ranges::fill(shards.get<"bias">(), tide::bf16(0.5F));

    auto stream = fabric.stream();
    auto params = gather.enqueue(shards, stream);
    params.complete().synchronize();

    const auto weight = params.get<"weight">();  // all 1000 x 64 of it
    if (fabric.rank().value == 0) std::printf("row 999 came from rank %g\n", static_cast<float>(weight(999, 63)));
    params.release(stream);
  });
}
// end: your-program
