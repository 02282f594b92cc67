// SPDX-License-Identifier: Apache-2.0
//
// An extension point: how rows are cut over ranks. Attention heads of 8 rows should stay whole, and FSDP2's rule would
// cut through them.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>

using tide::index_t;
using tide_example::expect;

// snippet: own-shard-rule
/// Cuts between units of `Unit` rows only, as evenly as that allows.
template <index_t Unit>
struct WholeUnits {
  static constexpr index_t begin(index_t rows, index_t ranks, index_t rank) noexcept {
    const index_t units = tide::ceil_div(rows, Unit);
    return std::min(rank * units / ranks * Unit, rows);
  }
};
static_assert(tide::ShardRule<WholeUnits<8>>);

inline constexpr auto attention = tide::group(                                           //
    tide::param<tide::bf16>("query.weight", {80, 16}, tide::shard_by<WholeUnits<8>>()),  // ten heads
    tide::param<tide::bf16>("query.bias", {80}, tide::shard_by<WholeUnits<8>>()),        //
    tide::param<tide::bf16>("norm.weight", {80}));                                       // by FSDP2's rule

using Layout = tide::ShardLayout<attention, tide::Mesh<1, 4>>;
// end: own-shard-rule

// The compiler has checked the laws of shard rules for this group: the shards are in order, complete and disjoint.
static_assert(Layout{}.view().piece(tide::ParameterIndex{0}, tide::Rank{0}).count == 16);  // 2 heads
static_assert(Layout{}.view().piece(tide::ParameterIndex{0}, tide::Rank{1}).count == 24);  // 3 heads
static_assert(Layout{}.view().piece(tide::ParameterIndex{2}, tide::Rank{1}).count == 20);

void one_rank(tide::HostFabric& fabric) {
  tide::Shards<Layout> shards{fabric};
  tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};
  tide::AllGather<Layout, tide::UnicastTransport> gather{fabric, slots};
  fabric.init();
  const auto rank = static_cast<float>(fabric.rank().value);
  std::ranges::fill(shards.get<"query.weight">(), tide::bf16(rank));

  auto stream = fabric.stream();
  auto params = gather.enqueue(shards, stream);
  params.complete().synchronize();
  const auto weight = params.get<"query.weight">();
  for (index_t row = 0; row < 80; ++row) {
    expect(weight(row, 0) == weight(row / 8 * 8, 15), "every head lies on one rank");
  }
  expect(weight(15, 0) == tide::bf16(0.0F) && weight(16, 0) == tide::bf16(1.0F), "rank 1 begins with the third head");
  params.release(stream);
}

int main() {
  tide::HostCluster cluster{{1, 4}};
  cluster.run(one_rank);
  return tide_example::verdict();
}
