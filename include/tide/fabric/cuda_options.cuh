// SPDX-License-Identifier: Apache-2.0
//
// CudaOptions: what a CudaFabric is told when it is made.
//
// Test: tests/fabric/cuda_fabric.test.cu

#pragma once

#include <tide/fabric/duration.hpp>  // Duration

#include <cstdint>

namespace tide {

/// How a multicast write, and a sum in the switch, is carried out.
enum class CudaMulticast : std::uint8_t {
  missing,   ///< a policy that asks for either is refused
  emulated,  ///< for tests only: as one copy, or one load, per rank; nothing ever chooses this by itself
};

/// Options of a `CudaFabric`.
struct CudaOptions {
  Duration deadline = std::chrono::seconds(60);  ///< of every wait
  CudaMulticast multicast = CudaMulticast::missing;
  /// Sets zeros aside in `init`, as many as the largest gradient, for gradients that are missing from a table: memory
  /// cannot be allocated while ranks wait for each other.
  bool missing_gradients = false;
};

}  // namespace tide
