// SPDX-License-Identifier: Apache-2.0
//
// must: errors of CUDA, NCCL and cuBLAS as exceptions that name the call.

#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <stdexcept>
#include <string>

namespace tide_benchmark {

inline void must(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + " failed: " + cudaGetErrorString(status));
}

inline void must(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) throw std::runtime_error(std::string(call) + " failed: " + ncclGetErrorString(status));
}

inline void must(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(call) + " failed: " + cublasGetStatusString(status));
  }
}

/// The status of the launch just made.
inline void must_launch(const char* kernel) { must(cudaGetLastError(), kernel); }

/// Whether work is still to be done. "Not ready" must not stay behind as the thread's last error.
[[nodiscard]] inline bool is_not_ready(cudaError_t status) {
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return true;
  }
  must(status, "a query");
  return false;
}

}  // namespace tide_benchmark
