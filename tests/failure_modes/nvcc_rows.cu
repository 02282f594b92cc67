// SPDX-License-Identifier: Apache-2.0
//
// Compiled, not run, where nvcc is: as relocatable device code, without exceptions or run-time types, 512 parameters in
// one group, gathered and reduced on GPUs.

#include <tide/tide.cuh>

namespace nvcc_rows {

constexpr auto experts = tide::group(tide::repeat<256>("experts.{}.", tide::param<tide::bf16>("up", {64, 32}),
                                                       tide::param<tide::bf16>("down", {32, 64})));
static_assert(experts.view().size() == 512);
using Layout = tide::ShardLayout<experts, tide::Mesh<1, 2>>;

void step(tide::CudaFabric& fabric) {
  tide::Shards<Layout> shards{fabric};
  tide::Gradients<Layout> gradients{fabric};
  tide::MasterShards<Layout> averages{fabric};
  tide::SlotPool<tide::Depth<1>, Layout> slots{fabric};
  tide::AllGather<Layout, tide::UnicastTransport> gather{fabric, slots};
  tide::ReduceScatter<Layout, tide::CopyEngineReducer<>> reduce{fabric};
  fabric.init();
  auto stream = fabric.stream();
  auto params = gather.enqueue(shards, stream);
  params.release(stream);
  reduce.enqueue(gradients, averages, stream).shards_ready.synchronize();
}

}  // namespace nvcc_rows
