// SPDX-License-Identifier: Apache-2.0
//
// CudaOptions: what a CudaFabric is told when it is made.
//
// Test: tests/fabric/cuda_fabric.test.cu

#pragma once

#include <tide/core/math.hpp>        // index_t
#include <tide/fabric/duration.hpp>  // Duration

#include <cstdint>

namespace tide {

/// How a multicast write, and a sum in the switch, is carried out where a policy asks for it.
enum class CudaMulticast : std::uint8_t {
  hardware,  ///< by the NVSwitch, where NCCL has a multicast address; elsewhere a policy that asks is refused
  missing,   ///< a policy that asks for either is refused
  emulated,  ///< for tests only: as one copy, or one load, per rank; nothing ever chooses this by itself
};

/// Which ranks of the communicator make a logical node.
enum class CudaGrouping : std::uint8_t {
  consecutive,  ///< of 2 nodes: 0 1 2 3 and 4 5 6 7
  interleaved,  ///< of 2 nodes: 0 2 4 6 and 1 3 5 7
};

/// Options of a `CudaFabric`; the same on every rank.
struct CudaOptions {
  Duration deadline = std::chrono::seconds(60);  ///< of every wait; in `init`, where NCCL connects ranks, at least 20 s
  CudaMulticast multicast = CudaMulticast::hardware;
  /// Sets zeros aside in `init`, as many as the largest gradient, for gradients that are missing from a table: memory
  /// cannot be allocated while ranks wait for each other.
  bool missing_gradients = false;
  /// Logical nodes: ranks of one node of NCCL in groups of equal size, between which everything is put as between
  /// machines. 0: the nodes that NCCL finds.
  index_t nodes = 0;
  CudaGrouping grouping = CudaGrouping::consecutive;
};

}  // namespace tide
