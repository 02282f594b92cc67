// SPDX-License-Identifier: Apache-2.0
//
// Gradients, as they lie in bf16, become averaged f32 shards. Two events say how far that is: gradients that are free
// may be overwritten, shards that are ready may be read.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>

using tide_example::expect;

namespace tiny {
inline constexpr auto block = tide::group(               //
    tide::param<tide::bf16>("weight", {64, 48}),         //
    tide::param<tide::bf16>("bias", {64}),               //
    tide::param<tide::bf16, float>("gate.bias", {10}));  // gathered in bf16, its gradient is f32
}

// snippet: reduce-scatter
using Layout = tide::ShardLayout<tiny::block, tide::Mesh<1, 4>>;
using Reduce = tide::ReduceScatter<Layout, tide::CopyEngineReducer<>>;

void one_rank(tide::HostFabric& fabric) {
  tide::Gradients<Layout> gradients{fabric};
  tide::MasterShards<Layout> averages{fabric};
  Reduce reduce{fabric};
  fabric.init();

  const auto rank = static_cast<float>(fabric.rank().value);
  auto backward = fabric.stream();
  auto optimizer = fabric.stream();
  for (float step = 1; step <= 3; ++step) {
    backward.run([&, step] {  // what a kernel launch is on a GPU
      std::ranges::fill(gradients.get<"weight">().elements(), tide::bf16(step * rank));
      std::ranges::fill(gradients.get<"bias">().elements(), tide::bf16(step));
      std::ranges::fill(gradients.get<"gate.bias">().elements(), -step * rank);
    });
    const tide::ReduceTicket ticket = reduce.enqueue(gradients, averages, backward);
    backward.wait(ticket.gradients_free);  // so the next step may overwrite them

    optimizer.wait(ticket.shards_ready);
    optimizer.run([&, step] {
      expect(averages.get<"weight">()[0] == 1.5F * step, "the average of 0, 1, 2 and 3");
      expect(averages.get<"bias">()[15] == step, "the average of equals");
      expect(averages.get<"gate.bias">().size() == (rank < 3 ? 3 : 1), "10 rows are 3, 3, 3 and 1");
      expect(averages.get<"gate.bias">()[0] == -1.5F * step, "f32 gradients in the same call");
    });
    backward.wait(optimizer.record());  // the next reduce overwrites the averages
  }
  backward.synchronize();
}
// end: reduce-scatter

int main() {
  tide::HostCluster cluster{{1, 4}};
  cluster.run(one_rank);
  return tide_example::verdict();
}
