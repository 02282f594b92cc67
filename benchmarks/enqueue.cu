// SPDX-License-Identifier: Apache-2.0
//
// enqueue: what the host pays for a gather and a reduce-scatter of a Llama-3.1-70B block on all GPUs of this machine,
// and for each driver call that they are made of. Median over steps, in microseconds, of the slowest rank.

#include "../examples/support/args.hpp"
#include "../examples/support/program.hpp"
#include "support/described_run.cuh"

#include <tide/fabric/cuda_cluster.cuh>
#include <tide/models/llama3_1.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

using Layout = tide::ShardLayout<tide::models::llama3_1_70b::block, tide::Mesh<1, tide::dynamic>>;

double median_us(const std::function<void()>& call, const std::function<void()>& after, int count) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    all.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    after();
  }
  return tide_benchmark::median(std::move(all));
}

struct Line {
  std::string what;
  double microseconds = 0;
};

// Calls of the driver between the first two GPUs, or inside the one, each behind a wait that is not met yet, as in a
// step.
std::vector<Line> driver_calls(int devices) {
  using tide::detail::check;
  std::vector<Line> lines;
  check(cudaSetDevice(0), "cudaSetDevice");
  std::byte* own = nullptr;
  std::byte* peer = nullptr;
  constexpr std::size_t size = std::size_t{1} << 29;
  check(cudaMalloc(&own, size), "cudaMalloc");
  if (devices > 1) {
    const cudaError_t status = cudaDeviceEnablePeerAccess(1, 0);  // NCCL may have done it
    if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "cudaDeviceEnablePeerAccess");
    static_cast<void>(cudaGetLastError());
    check(cudaSetDevice(1), "cudaSetDevice");
    check(cudaMalloc(&peer, size), "cudaMalloc");
    check(cudaSetDevice(0), "cudaSetDevice");
  } else {
    check(cudaMalloc(&peer, size), "cudaMalloc");
  }
  check(cudaMemset(own, 0, 4096), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  cudaStream_t stream = nullptr;
  cudaStream_t rescue = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaStreamCreateWithFlags(&rescue, cudaStreamNonBlocking), "cudaStreamCreate");
  std::vector<cudaEvent_t> events(64);
  for (cudaEvent_t& event : events) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }
  const auto word = reinterpret_cast<CUdeviceptr>(own);
  std::uint64_t epoch = 0;
  const auto time = [&](const std::string& what, const std::function<void(int)>& call) {
    constexpr int calls = 24;
    lines.push_back({what, median_us(
                               [&] {
                                 for (int i = 0; i < calls; ++i) call(i);
                               },
                               [&] {
                                 check(cuStreamWriteValue64(rescue, word, epoch, 0), "cuStreamWriteValue64");
                                 check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                                 ++epoch;
                                 check(cuStreamWaitValue64(stream, word, epoch, CU_STREAM_WAIT_VALUE_GEQ), "a wait");
                               },
                               30) /
                               calls});
  };
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto to_peer = [&](void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  };
  time("8 bytes to the peer", [&](int) { to_peer(peer + 64, own + 64, 8); });
  time("16 MiB to the peer", [&](int) { to_peer(peer + mib, own + mib, 16 * mib); });
  time("16 MiB inside the GPU", [&](int) { to_peer(own + 32 * mib, own + mib, 16 * mib); });
  time("2 rows of 16 MiB to the peer, 2-D", [&](int) {
    check(cudaMemcpy2DAsync(peer + mib, 64 * mib, own + mib, 32 * mib, 16 * mib, 2, cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpy2DAsync");
  });
  time("2 rows of 16 MiB inside the GPU, 2-D", [&](int) {
    check(cudaMemcpy2DAsync(own + 160 * mib, 64 * mib, own + mib, 32 * mib, 16 * mib, 2, cudaMemcpyDeviceToDevice,
                            stream),
          "cudaMemcpy2DAsync");
  });
  time("nine pieces of 1 MiB to the peer, batched", [&](int) {
    void* to[9];
    const void* from[9];
    std::size_t sizes[9];
    for (int k = 0; k < 9; ++k) {
      to[k] = peer + static_cast<std::size_t>(2 * k + 1) * mib;
      from[k] = own + static_cast<std::size_t>(2 * k + 1) * mib;
      sizes[k] = mib;
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    check(cudaMemcpyBatchAsync(to, from, sizes, 9, &attributes, &first, 1, stream), "cudaMemcpyBatchAsync");
  });
  time("a word written on the stream",
       [&](int) { check(cuStreamWriteValue64(stream, word + 128, 1, 0), "cuStreamWriteValue64"); });
  time("a wait for a word", [&](int) {
    check(cuStreamWaitValue64(stream, word + 4096, 0, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue64");
  });
  time("a batch of a wait", [&](int) {
    CUstreamBatchMemOpParams wait{};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    wait.waitValue.address = word + 4096;
    wait.waitValue.value64 = 0;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    check(cuStreamBatchMemOp(stream, 1, &wait, 0), "cuStreamBatchMemOp");
  });
  time("an event recorded",
       [&](int i) { check(cudaEventRecord(events[static_cast<std::size_t>(i)], stream), "cudaEventRecord"); });
  time("a wait for an event",
       [&](int i) { check(cudaStreamWaitEvent(stream, events[static_cast<std::size_t>(i)]), "cudaStreamWaitEvent"); });
  time("an event asked", [&](int i) { static_cast<void>(cudaEventQuery(events[static_cast<std::size_t>(i)])); });
  time("whether a stream is capturing", [&](int) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  });
  time("the current device", [&](int) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
  });
  check(cuStreamWriteValue64(rescue, word, epoch, 0), "cuStreamWriteValue64");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaFree(own), "cudaFree");
  check(cudaFree(peer), "cudaFree");
  return lines;
}

std::vector<Line> collectives(int devices) {
  std::vector<int> list;
  for (int device = 0; device < devices; ++device) list.push_back(device);
  tide::CudaCluster cluster(list);
  std::barrier meeting(devices);
  std::vector<std::vector<Line>> all(static_cast<std::size_t>(devices));
  cluster.run([&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric);
    tide::AllGather<Layout, tide::UnicastTransport> gather(fabric, pool);
    tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, tide::SingleNode,
                        tide::Ring<tide::Chunks<4>, tide::Bytes<(std::int64_t{1} << 28)>>>
        reduce(fabric);
    tide::Shards<Layout> shards(fabric);
    tide::MasterShards<Layout> masters(fabric);
    tide::Gradients<Layout> gradients(fabric);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    std::vector<Line>& lines = all[static_cast<std::size_t>(fabric.rank().value)];
    const auto time = [&](const std::string& what, const auto& call) {
      lines.push_back({what, median_us(
                                 call,
                                 [&] {
                                   stream.synchronize();
                                   meeting.arrive_and_wait();
                                 },
                                 200)});
    };
    time("gather from bf16 shards", [&] { gather.enqueue(shards, stream).release(stream); });
    time("gather from f32 masters", [&] { gather.enqueue(masters, stream).release(stream); });
    tide::ReduceTicket ticket;
    time("reduce-scatter, ring of 4 in 256 MiB", [&] {
      ticket = reduce.enqueue(gradients, masters.view(), stream);
      stream.wait(ticket.shards_ready);
    });
    fabric.close();
  });
  std::vector<Line> slowest = all.front();
  for (const std::vector<Line>& lines : all) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      slowest[i].microseconds = std::max(slowest[i].microseconds, lines[i].microseconds);
    }
  }
  return slowest;
}

constexpr const char* usage =
    R"(enqueue [--json FILE]

Times what the host pays for a gather and a reduce-scatter of a Llama-3.1-70B block on all GPUs of this machine, and for
the driver calls that they are made of.

  --json FILE  writes what was measured
)";

int run(int argc, char** argv) {
  const tide_example::Args args(argc, argv, {{"--json", tide_example::Args::value}});
  int devices = 0;
  tide::detail::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  tide_benchmark::Report report;
  tide_benchmark::describe_run(report, argc, argv, devices);
  const auto add = [&](const std::string& operation, const std::vector<Line>& lines) {
    std::printf("%s\n", operation.c_str());
    for (const Line& line : lines) {
      std::printf("%8.2f  %s\n", line.microseconds, line.what.c_str());
      tide_benchmark::Row row{};
      row.operation = operation;
      row.path = line.what;
      row.mesh = "1x" + std::to_string(devices);
      row.host_us = line.microseconds;
      report.rows.push_back(std::move(row));
    }
  };
  std::printf("on %d GPUs, host microseconds, median\n", devices);
  add("enqueue", collectives(devices));
  add("driver call behind an unmet wait", driver_calls(devices));
  if (const auto file = args.text("--json")) tide_benchmark::write_report(*file, report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tide_example::run_program(argc, argv, usage, [&] { return run(argc, argv); });
}
