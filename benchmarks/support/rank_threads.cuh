// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of a benchmark: what fails on one fails all, and a rank that hangs does not hang the process.

#pragma once

#include "meeting.hpp"
#include "must.cuh"

#include "../../examples/support/program.hpp"

#include <tide/fabric/cuda_cluster.cuh>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

namespace tide_benchmark {

/// Runs `body(fabric)` on every rank.  @throws std::runtime_error with the first cause
template <class Body>
void run_ranks(tide::CudaCluster& cluster, Meeting& meeting, const Body& body) {
  try {
    cluster.run([&](tide::CudaFabric& fabric) {
      try {
        body(fabric);
      } catch (const Abandoned&) {
        throw;
      } catch (const std::exception& error) {
        meeting.fail("rank " + std::to_string(fabric.rank().value) + ": " + error.what());
        throw;
      }
    });
  } catch (const std::exception&) {
    if (meeting.failed()) throw std::runtime_error(meeting.cause());
    throw;
  }
}

/// Ends the process when a rank hangs that nothing else can end: a GPU that waits for a peer, a collective call of
/// NCCL.
class Supervisor {
 public:
  /// @param seconds  how long all of it may take
  Supervisor(std::string program, Meeting& meeting, int seconds)
      : thread_([this, program = std::move(program), &meeting, seconds] { watch(program, meeting, seconds); }) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    over_.store(true);
    thread_.join();
  }

 private:
  void watch(const std::string& program, Meeting& meeting, int seconds) {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!over_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (meeting.failed_for() < 25 && std::chrono::steady_clock::now() < latest) continue;
      std::cerr << program << ": "
                << (meeting.failed() ? meeting.cause() : "not done within " + std::to_string(seconds) + " seconds")
                << "\n";
      std::_Exit(tide_example::named_error);
    }
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Lets GPUs reach each other's memory.  @throws std::runtime_error when they cannot
inline void enable_peers(const std::vector<int>& devices) {
  for (const int device : devices) {
    for (const int peer : devices) {
      if (peer == device) continue;
      must(cudaSetDevice(device), "cudaSetDevice");
      int reaches = 0;
      must(cudaDeviceCanAccessPeer(&reaches, device, peer), "cudaDeviceCanAccessPeer");
      if (reaches == 0) {
        throw std::runtime_error("GPUs " + std::to_string(device) + " and " + std::to_string(peer) +
                                 " cannot reach each other's memory");
      }
      must(cudaDeviceEnablePeerAccess(peer, 0), "cudaDeviceEnablePeerAccess");
    }
  }
}

}  // namespace tide_benchmark
