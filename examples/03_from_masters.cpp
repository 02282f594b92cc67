// SPDX-License-Identifier: Apache-2.0
//
// Mixed precision keeps f32 masters and computes in bf16. The cast that this needs writes straight into the own slot,
// and peers are served from there. Who casts himself writes the own block in place, and then nothing moves twice
// either.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>

using tide_example::expect;

namespace tiny {
inline constexpr auto block = tide::group(        //
    tide::param<tide::bf16>("weight", {40, 16}),  //
    tide::param<tide::bf16>("bias", {40}));
}

using Layout = tide::ShardLayout<tiny::block, tide::Mesh<1, 4>>;

void one_rank(tide::HostFabric& fabric) {
  tide::MasterShards<Layout> masters{fabric};
  tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};
  tide::AllGather<Layout, tide::UnicastTransport> gather{fabric, slots};
  fabric.init();
  auto stream = fabric.stream();
  const auto rank = static_cast<float>(fabric.rank().value);

  // snippet: from-masters
  std::ranges::fill(masters.get<"weight">(), rank + 0.001F);  // f32: 10 rows of 16
  std::ranges::fill(masters.get<"bias">(), -rank);
  {
    auto params = gather.enqueue(masters, stream);  // casts the own block, then serves the peers
    params.complete().synchronize();
    expect(params.get<"weight">()(39, 15) == tide::bf16(3.001F), "rounded once, to the nearest bf16");
    params.release(stream);
  }
  // end: from-masters

  // snippet: in-place
  const auto own = gather.own_block(slots.acquire(stream));
  stream.run([&] {
    const auto weight = own.get<"weight">();  // the own rows, inside the slot
    for (tide::index_t row = 0; row < weight.rows; ++row) {
      for (tide::index_t i = 0; i < weight.width; ++i) weight(row, i) = tide::bf16(10 * rank);
    }
    const auto bias = own.get<"bias">();
    for (tide::index_t i = 0; i < bias.width; ++i) bias(0, i) = tide::bf16(rank);
  });
  auto params = gather.enqueue(tide::in_place, stream);
  params.complete().synchronize();
  // end: in-place
  expect(params.get<"weight">()(9, 15) == tide::bf16(0.0F), "the last row of rank 0");
  expect(params.get<"weight">()(10, 0) == tide::bf16(10.0F), "the first row of rank 1");
  expect(params.get<"bias">()(39) == tide::bf16(3.0F), "the last element of rank 3");
  params.release(stream);
}

int main() {
  tide::HostCluster cluster{{1, 4}};
  cluster.run(one_rank);
  return tide_example::verdict();
}
