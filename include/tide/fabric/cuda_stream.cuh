// SPDX-License-Identifier: Apache-2.0
//
// CudaStream: a CUDA stream as pipelines take it; the user's own, or one that the fabric made.
//
//   auto mine = fabric.stream(my_cuda_stream);
//   auto params = gather.enqueue(shards, mine);
//   my_kernel<<<grid, block, 0, mine.get()>>>(params.get<"q_proj.weight">().data());
//
// Test: tests/fabric/cuda_fabric.test.cu

#pragma once

#include <tide/fabric/detail/cuda_check.cuh>  // check
#include <tide/fabric/fabric.hpp>             // StreamRef, Event

#include <functional>
#include <memory>

namespace tide {

/// A handle of a stream on the fabric's device; copies name the same one.
class CudaStream {
 public:
  CudaStream(FabricPort& port, cudaStream_t stream) : port_(&port), stream_(stream) {}

  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

  /// Enqueues a function of the host, which must not call CUDA. For tests; kernels are launched on `get()`.
  void run(std::function<void()> function) {
    auto* kept = new std::function<void()>(std::move(function));
    const auto call = [](void* object) {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(object));
      (*owned)();
    };
    detail::check(cudaLaunchHostFunc(stream_, call, kept), "cudaLaunchHostFunc");
  }

  /// A point after everything enqueued so far.
  [[nodiscard]] Event record() { return port_->record(ref()); }

  /// Makes what is enqueued later wait for `event`, without blocking the host.
  void wait(const Event& event) {
    if (event.valid()) port_->wait(ref(), event);
  }

  /// Blocks the host until everything enqueued so far is done.
  /// @throws Error (Errc::deadline) after the fabric's deadline; the fabric's error when it has failed
  void synchronize() { record().synchronize(); }

  [[nodiscard]] StreamRef ref() const noexcept { return {port_, stream_}; }

 private:
  FabricPort* port_;
  cudaStream_t stream_;
};

}  // namespace tide
