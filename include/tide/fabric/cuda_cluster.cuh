// SPDX-License-Identifier: Apache-2.0
//
// CudaCluster: a rank per GPU, all in this process, each with a CudaFabric on a thread of its own.
//
//   tide::CudaCluster cluster{{0, 1}};
//   cluster.run([](tide::CudaFabric& fabric) { /* the program of one rank */ });
//
// Or two, over replicas: cluster.run(2, [](tide::CudaFabric& fabric, tide::CudaFabric& replicas) { ... }).
//
// Test: tests/fabric/cuda_fabric.test.cu

#pragma once

#include <tide/fabric/cuda_fabric.cuh>    // CudaFabric
#include <tide/fabric/cuda_replicas.cuh>  // CudaReplicas

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace tide {

/// Ranks as threads, each on a device.
class CudaCluster {
 public:
  explicit CudaCluster(const std::vector<int>& devices, CudaOptions options = {})
      : communicators_(CudaCommunicators::of_devices(devices)), options_(options) {}

  [[nodiscard]] MeshShape mesh() const noexcept {
    const index_t nodes = std::max<index_t>(options_.nodes, 1);
    return {nodes, static_cast<index_t>(communicators_.size()) / nodes};
  }

  /// Runs `program(fabric)` for each rank with its device current, and waits for all. The first error is thrown again.
  template <class F>
  void run(const F& program) {
    start([&](const CudaCommunicators& communicators) {
      CudaFabric fabric(communicators, options_);
      program(fabric);
    });
  }

  /// The same for ranks with two fabrics: `program(fabric, replicas)`, as CudaReplicas makes them.
  /// @param across  options of the fabrics over replicas; those of the cluster are for the fabrics inside
  template <class F>
  void run(index_t replicas, const F& program, CudaOptions across = {}) {
    start([&](const CudaCommunicators& communicators) {
      CudaReplicas both(communicators, replicas, options_, across);
      program(both.fabric(), both.replicas());
    });
  }

 private:
  // Calls `rank(communicators)` on a thread for each device.
  template <class F>
  void start(const F& rank) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> thrown(communicators_.size());
    for (std::size_t r = 0; r < communicators_.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          detail::check(cudaSetDevice(communicators_[r].device()), "cudaSetDevice");
          rank(communicators_[r]);
        } catch (...) {
          thrown[r] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& exception : thrown) {
      if (exception) std::rethrow_exception(exception);
    }
  }

  std::vector<CudaCommunicators> communicators_;
  CudaOptions options_;
};

}  // namespace tide
