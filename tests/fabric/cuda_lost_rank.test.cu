// SPDX-License-Identifier: Apache-2.0
// labels: gpu
// timeout: 180
// ranks: 2 3 2:CUDA_DEVICE_MAX_CONNECTIONS=1 4:CUDA_DEVICE_MAX_CONNECTIONS=1
//
// A process that ends in the middle of a step: the others get a named error within their deadline, and end with exit
// code 0, with static objects and all.

#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "conformance/fabric.hpp"
#include "support/cuda_process.cuh"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using namespace tide_test;

TEST_CASE("CudaFabric: a rank whose process ends mid-step is named by the others, who end within their deadline") {
  CudaProcess::skip_unless_ranks_fit();
  const index_t n = CudaProcess::world();
  constexpr std::chrono::seconds deadline{2};
  const index_t lost = n - 1;
  const fabric_suite::Block layout({1, n});
  const CollectiveOracle oracle(layout.view());
  CudaProcess ranks;
  ranks.options.deadline = deadline;
  std::string error;
  std::chrono::steady_clock::duration took{};
  ranks.run(n, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, fabric_suite::Block> pool(fabric, layout);
    fabric_suite::BlockGather<CudaProcess> gather(fabric, pool, layout, oracle, "the block");
    fabric_suite::BlockReduce<CudaProcess> reduce(fabric, layout, oracle, "the block");
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<CudaProcess>(pool, stream);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      gather.step(pool, Source::shards, step, stream);
      reduce.step(From::storage, step, stream);
    }
    stream.synchronize();
    static_cast<void>(CudaProcess::everybody(""));
    if (fabric.rank().value == lost) {
      // In the middle: its gather is on its way and its reduce is not.
      static_cast<void>(gather.start(pool, Source::shards, 4, stream));
      std::_Exit(0);
    }
    const auto begun = std::chrono::steady_clock::now();
    try {
      gather.step(pool, Source::shards, 4, stream);
      reduce.step(From::storage, 4, stream);
      stream.synchronize();
    } catch (const tide::Error& thrown) {
      error = thrown.what();
    }
    took = std::chrono::steady_clock::now() - begun;
  });
  CAPTURE(error);
  CHECK(error.find("tide::CudaFabric: the deadline of 2.000 s passed") == 0);
  CHECK((error.find("reduce of 'the block' (2 parameters), step 3") != std::string::npos ||
         error.find("gather of 'the block' (2 parameters), step 3") != std::string::npos));
  if (std::getenv("CUDA_DEVICE_MAX_CONNECTIONS") == nullptr) {
    CHECK(error.find("waits for rank " + std::to_string(lost)) != std::string::npos);
  }
  CHECK(took < deadline + 4s);
}
