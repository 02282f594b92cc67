// SPDX-License-Identifier: Apache-2.0
//
// CudaMemory: memory for a training on a GPU, all of it made before the first step: while ranks wait for each other
// nothing may be allocated or freed.

#pragma once

#include <tide/core/math.hpp>
#include <tide/fabric/detail/cuda_check.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <exception>

namespace tide_example {

using tide::index_t;
using tide::detail::check;

enum class CudaPlace { device, pinned };

/// Zeros at first, on the current device or, where the device reads and writes it too, in pinned memory of the host.
///
/// Where an error ends the training a stream may be stuck, and freeing would wait for it: the process does it then.
template <class T, CudaPlace Place = CudaPlace::device>
class CudaMemory {
 public:
  explicit CudaMemory(index_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (Place == CudaPlace::device) {
      check(cudaMalloc(&data_, bytes), "cudaMalloc");
      check(cudaMemset(data_, 0, bytes), "cudaMemset");
      check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    } else {
      check(cudaMallocHost(&data_, bytes), "cudaMallocHost");
      std::memset(data_, 0, bytes);
    }
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() {
    if (std::uncaught_exceptions() > 0) return;
    if (Place == CudaPlace::device) {
      cudaFree(data_);
    } else {
      cudaFreeHost(data_);
    }
  }

  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  T* data_ = nullptr;
};

template <class T>
using PinnedMemory = CudaMemory<T, CudaPlace::pinned>;

}  // namespace tide_example
