// SPDX-License-Identifier: Apache-2.0
//
// GemmLoop: bf16 matrix products, one after the other, as the compute that a collective runs beside.
//
//   wave   1408 x 1536 x 8192, one wave of 132 tiles       big   8192 x 8192 x 8192, many waves

#pragma once

#include "values.cuh"

#include <algorithm>
#include <cmath>
#include <string>

namespace tide_benchmark {

/// A handle of cuBLAS on the current device.
class Blas {
 public:
  Blas() { must(cublasCreate(&handle_), "cublasCreate"); }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() { cublasDestroy(handle_); }

  [[nodiscard]] cublasHandle_t get() const noexcept { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

class GemmLoop {
 public:
  GemmLoop(std::string name, const Blas& blas, int m, int n, int k, double target_ms)
      : name_(std::move(name)),
        blas_(blas),
        m_(m),
        n_(n),
        k_(k),
        target_ms_(target_ms),
        a_(2LL * m * k),
        b_(2LL * k * n),
        c_(2LL * m * n) {
    fill_whole(a_.as<>(), {Content::operand, 0, 0}, {{0, 0, static_cast<index_t>(m) * k, 0}}, nullptr);
    fill_whole(b_.as<>(), {Content::operand, 1, 0}, {{0, 0, static_cast<index_t>(k) * n, 0}}, nullptr);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Products of one loop.
  void count(int products) noexcept { count_ = products; }
  [[nodiscard]] int count() const noexcept { return count_; }
  /// How many make a loop as long as it should be, when `count()` of them take `milliseconds`.
  [[nodiscard]] int fitting(double milliseconds) const {
    return std::clamp(static_cast<int>(std::lround(target_ms_ * count_ / milliseconds)), 1, 400);
  }

  void enqueue(cudaStream_t stream) const {
    must(cublasSetStream(blas_.get(), stream), "cublasSetStream");
    // Memory of its own, so that no call allocates; setting the stream forgets what was set before.
    must(cublasSetWorkspace(blas_.get(), workspace_.as<>(), static_cast<std::size_t>(workspace_.bytes())),
         "cublasSetWorkspace");
    const float one = 1;
    const float zero = 0;
    for (int i = 0; i < count_; ++i) {
      must(cublasGemmEx(blas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, m_, n_, k_, &one, a_.as<>(), CUDA_R_16BF, k_, b_.as<>(),
                        CUDA_R_16BF, k_, &zero, c_.as<>(), CUDA_R_16BF, m_, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
           "cublasGemmEx");
    }
  }

 private:
  std::string name_;
  const Blas& blas_;
  int m_;
  int n_;
  int k_;
  double target_ms_;
  int count_ = 10;
  DeviceMemory workspace_{std::int64_t{32} << 20};
  DeviceMemory a_;
  DeviceMemory b_;
  DeviceMemory c_;
};

}  // namespace tide_benchmark
