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

#include <tide/fabric/cuda_fabric.cuh>         // CudaFabric
#include <tide/fabric/cuda_replicas.cuh>       // CudaReplicas
#include <tide/fabric/detail/run_threads.hpp>  // run_threads

#include <algorithm>
#include <cstddef>
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

  /// Runs `program(fabric)` for each rank with its device current, and waits for all. Throws again what the first rank
  /// threw that ended so.
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
    const auto body = [&](std::size_t r) {
      detail::check(cudaSetDevice(communicators_[r].device()), "cudaSetDevice");
      rank(communicators_[r]);
    };
    const auto name = [](std::size_t r) { return detail::text({"rank ", r}); };
    detail::run_threads(
        communicators_.size(), body, name, [](std::size_t, const char*) {}, [](std::size_t) {});
  }

  std::vector<CudaCommunicators> communicators_;
  CudaOptions options_;
};

}  // namespace tide
