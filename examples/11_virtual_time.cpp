// SPDX-License-Identifier: Apache-2.0
//
// A machine that you do not have: sixteen H200s in two nodes, in virtual time. How far ahead must a training step of
// Llama 3.1 8B blocks gather? And a small program of four ranks in twenty orders that its ops may have.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

using namespace std::chrono_literals;
using tide_example::expect;

// snippet: virtual-time
using Block = tide::ShardLayout<tide::models::llama3_1_8b::block, tide::Mesh<2, 8>>;
using Model = tide::Parts<tide::Part<"blocks", Block, tide::Repeat<8>>>;

template <tide::index_t Ahead>
using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::RdmaDoublingTransport<>,
                               tide::SlotReuse, tide::Prefetch<Ahead>>;

// Seconds of a step whose kernels take `kernel` for a block, and twice that for its backward.
template <class Step>
double step_seconds(tide::Duration kernel) {
  tide::SimCluster cluster{{2, 8}, {.machine = tide::machines::h200_node(), .memory = tide::SimMemory::counted}};
  cluster.run([&](tide::SimFabric& fabric) {
    Step step{fabric};
    fabric.init();  // arenas are addresses: nothing is read or written
    auto compute = fabric.stream();
    step.load(compute, [](const auto&) {});
    for (tide::index_t i = 0; i < 8; ++i) {
      auto block = step.template forward<"blocks">(compute, i);
      fabric.busy(compute, kernel);
      block.release();
    }
    for (tide::index_t i = 8; i-- > 0;) {
      auto block = step.template backward<"blocks">(compute, i);
      fabric.busy(compute, 2 * kernel);
      static_cast<void>(block.reduce());
    }
    step.update(compute, [](const auto&) {});
    fabric.close();
  });
  return cluster.now();
}
// end: virtual-time

using Four = tide::Mesh<1, 4>;
inline constexpr auto six_rows = tide::group(tide::param<tide::bf16>("weight", {6, 8}));
using Layout = tide::ShardLayout<six_rows, Four>;

// snippet: any-order
// Written for the ranks of a process: it runs on a HostCluster, too.
void one_rank(tide::HostPort& fabric, std::vector<float>& sums) {
  tide::Shards<Layout> shards{fabric};
  tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};
  tide::AllGather<Layout, tide::UnicastTransport> gather{fabric, slots};
  fabric.init();
  std::ranges::fill(shards.get<"weight">(), tide::bf16(static_cast<float>(fabric.rank().value + 1)));
  auto stream = fabric.stream();
  auto params = gather.enqueue(shards, stream);
  stream.run([weight = params.get<"weight">(), &sum = sums[static_cast<std::size_t>(fabric.rank().value)]] {
    for (const tide::bf16 element : weight.elements()) sum += static_cast<float>(element);
  });
  params.release(stream);
  fabric.close();
}

void in_any_order() {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<float> sums(4);
    tide::SimCluster cluster{{1, 4}, {.seed = seed, .jitter = 20us}};
    cluster.run([&](tide::SimFabric& fabric) { one_rank(fabric, sums); });
    for (const float sum : sums) expect(sum == 8 * (2 * 1 + 2 * 2 + 2 * 3), "two rows of each of three ranks");
  }
}
// end: any-order

int main() {
  const double kernels = 8 * 3 * 4e-3;
  const double none = step_seconds<Step<0>>(4ms);
  const double one = step_seconds<Step<1>>(4ms);
  const double two = step_seconds<Step<2>>(4ms);
  std::printf("kernels alone %.1f ms; gathered when needed %.1f ms, one block ahead %.1f ms, two ahead %.1f ms\n",
              kernels * 1e3, none * 1e3, one * 1e3, two * 1e3);
  expect(one < 0.95 * none, "a block that is gathered ahead is there when it is needed");
  expect(two <= one, "more of them do no harm");
  expect(one < 1.2 * kernels, "what crosses nodes hides behind the kernels");
  in_any_order();
  return tide_example::verdict();
}
