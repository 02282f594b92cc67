// SPDX-License-Identifier: Apache-2.0
//
// CudaModel: the toy model on a GPU: what toy::Activations computes, with matrix products of cuBLAS and the kernels of
// cuda_layers.cuh. Bits repeat: f32 products without TF32, on one stream, in a workspace that stays the same, of
// operands that lie in memory of their own, wherever whole parameters happen to lie.

#pragma once

#include "cuda_layers.cuh"
#include "cuda_memory.cuh"
#include "trainer.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tide_example {

using tide::bf16;

inline void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  tide::raise(tide::Errc::operation, std::string(call) + " failed: " + cublasGetStatusString(status));
}

/// cuBLAS on one stream of the current device.
class Blas {
 public:
  /// A matrix, row by row, as it lies or transposed.
  struct Matrix {
    const float* data;
    index_t rows;
    index_t columns;
    bool transposed = false;
  };

  explicit Blas(cudaStream_t stream) : workspace_(workspace_bytes) {
    check(cublasCreate(&handle_), "cublasCreate");
    check(cublasSetStream(handle_, stream), "cublasSetStream");  // before the workspace: it resets that
    check(cublasSetWorkspace(handle_, workspace_.data(), workspace_bytes), "cublasSetWorkspace");
    check(cublasSetMathMode(handle_, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
    check(cublasSetAtomicsMode(handle_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() {
    if (std::uncaught_exceptions() > 0) return;  // as CudaMemory
    cublasSetStream(handle_, nullptr);           // the fabric has closed, and its streams with it
    cublasDestroy(handle_);
  }

  /// c = a b, or c + a b where `adds`.
  void multiply(const Matrix& a, const Matrix& b, float* c, bool adds = false) {
    const index_t m = a.transposed ? a.columns : a.rows;
    const index_t k = a.transposed ? a.rows : a.columns;
    const index_t n = b.transposed ? b.rows : b.columns;
    const float one = 1;
    const float beta = adds ? 1 : 0;
    // To cuBLAS, which reads columns, every matrix here is its transpose: c' = b' a'.
    check(cublasSgemm(handle_, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                      static_cast<int>(n), static_cast<int>(m), static_cast<int>(k), &one, b.data,
                      static_cast<int>(b.columns), a.data, static_cast<int>(a.columns), &beta, c, static_cast<int>(n)),
          "cublasSgemm");
  }

 private:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what cuBLAS advises for Hopper

  CudaMemory<std::byte> workspace_;
  cublasHandle_t handle_ = nullptr;
};

/// Activations on the current device, and the gradient with respect to them, from group to group. Everything is
/// enqueued on one stream; nothing is allocated after the constructor.
class CudaModel {
 public:
  /// @param first, ranks  whose samples it computes with: all of them lie on the device before the first step
  CudaModel(const Training& training, index_t first, index_t ranks, cudaStream_t stream)
      : stream_(stream),
        samples_(training.samples),
        steps_(training.steps),
        first_(first),
        global_batch_(static_cast<float>(training.global_batch())),
        blas_(stream),
        batches_(ranks * training.steps * samples_ * layers::sample_tokens) {
    std::vector<std::uint8_t> tokens;
    for (index_t rank = first; rank < first + ranks; ++rank) {
      for (int step = 0; step < training.steps; ++step) {
        const toy::Batch batch = training.batch(rank, step);
        for (std::size_t s = 0; s < batch.size(); ++s) {
          for (const index_t token : batch.tokens[s]) tokens.push_back(static_cast<std::uint8_t>(token));
          tokens.push_back(static_cast<std::uint8_t>(batch.next[s]));
        }
      }
    }
    check(cudaMemcpy(batches_.data(), tokens.data(), tokens.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // such a copy may return before it has arrived
    rehearse();
  }

  /// The samples that come next: those of a rank in a step.
  void begin(index_t rank, int step) {
    batch_ = batches_.data() + ((rank - first_) * steps_ + step) * samples_ * layers::sample_tokens;
  }

  void embed(const bf16* tokens, const bf16* positions) {
    layers::launch(stream_, layers::embed, samples_ * toy::width, batch_, tokens, positions, inputs(0));
  }

  void embed_back(bf16* d_tokens, bf16* d_positions) {
    layers::launch(stream_, layers::embed_back_tokens, toy::vocabulary * toy::embedded, samples_, batch_, d_.data(),
                   d_tokens);
    layers::launch(stream_, layers::add_rows, toy::width, samples_, d_.data(), d_positions);
  }

  void block(index_t number, const bf16* norm, const bf16* up, const bf16* bias, const bf16* down) {
    inside(number, norm, up, bias, down);
    const std::size_t bytes = static_cast<std::size_t>(samples_ * toy::width) * sizeof(float);
    check(cudaMemcpyAsync(inputs(number + 1), inputs(number), bytes, cudaMemcpyDeviceToDevice, stream_),
          "cudaMemcpyAsync");
    blas_.multiply({active_.data(), samples_, toy::hidden}, {down_.data(), toy::width, toy::hidden, true},
                   inputs(number + 1), true);
  }

  void block_back(index_t number, const bf16* norm, const bf16* up, const bf16* bias, const bf16* down, bf16* d_norm,
                  bf16* d_up, bf16* d_bias, bf16* d_down) {
    inside(number, norm, up, bias, down);
    blas_.multiply({d_.data(), samples_, toy::width, true}, {active_.data(), samples_, toy::hidden}, whole_.data());
    layers::launch(stream_, layers::narrow, toy::width * toy::hidden, whole_.data(), d_down);
    blas_.multiply({d_.data(), samples_, toy::width}, {down_.data(), toy::width, toy::hidden}, d_before_.data());
    layers::launch(stream_, layers::silu_back, samples_ * toy::hidden, before_.data(), d_before_.data());
    layers::launch(stream_, layers::add_rows, toy::hidden, samples_, d_before_.data(), d_bias);
    blas_.multiply({d_before_.data(), samples_, toy::hidden, true}, {normed_.data(), samples_, toy::width},
                   whole_.data());
    layers::launch(stream_, layers::narrow, toy::hidden * toy::width, whole_.data(), d_up);
    blas_.multiply({d_before_.data(), samples_, toy::hidden}, {up_.data(), toy::hidden, toy::width}, d_normed_.data());
    norm_back(number, norm, d_norm, true);
  }

  /// Leaves the sum of the samples' losses over the size of the global batch in `loss`.
  void head(const bf16* norm, const bf16* output, float* loss) {
    layers::launch(stream_, layers::normalize, samples_ * toy::width, inputs(toy::blocks), norm, normed_.data());
    layers::launch(stream_, layers::widen, toy::vocabulary * toy::width, output, output_.data());
    blas_.multiply({normed_.data(), samples_, toy::width}, {output_.data(), toy::vocabulary, toy::width, true},
                   logits_.data());
    layers::launch(stream_, layers::cross_entropy, samples_, batch_, global_batch_, logits_.data(), losses_.data());
    layers::launch(stream_, layers::add_up, 1, samples_, losses_.data(), loss);
  }

  void head_back(const bf16* norm, const bf16* output, bf16* d_norm, bf16* d_output) {
    layers::launch(stream_, layers::normalize, samples_ * toy::width, inputs(toy::blocks), norm, normed_.data());
    layers::launch(stream_, layers::widen, toy::vocabulary * toy::width, output, output_.data());
    blas_.multiply({logits_.data(), samples_, toy::vocabulary, true}, {normed_.data(), samples_, toy::width},
                   whole_.data());
    layers::launch(stream_, layers::narrow, toy::vocabulary * toy::width, whole_.data(), d_output);
    blas_.multiply({logits_.data(), samples_, toy::vocabulary}, {output_.data(), toy::vocabulary, toy::width},
                   d_normed_.data());
    norm_back(toy::blocks, norm, d_norm, false);
  }

 private:
  static constexpr index_t largest = std::max(toy::width * toy::hidden, toy::vocabulary* toy::width);

  // A kernel's first launch loads its code, which blocks the host behind the waits for other ranks; so do the kernels
  // of cuBLAS, one for each kind of product. So all of them run once, before there is anything to wait for; on what
  // does not matter.
  void rehearse() {
    bf16* const g = reinterpret_cast<bf16*>(whole_.data());
    const bf16* const p = g;
    begin(first_, 0);
    embed(p, p);
    block(0, p, p, p, p);
    head(p, p, losses_.data());
    head_back(p, p, g, g);
    block_back(0, p, p, p, p, g, g, g, g);
    embed_back(g, g);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  [[nodiscard]] float* inputs(index_t block) const { return inputs_.data() + block * samples_ * toy::width; }

  // What a block computes on the way, once more in its backward.
  void inside(index_t number, const bf16* norm, const bf16* up, const bf16* bias, const bf16* down) {
    layers::launch(stream_, layers::normalize, samples_ * toy::width, inputs(number), norm, normed_.data());
    layers::launch(stream_, layers::widen, toy::hidden * toy::width, up, up_.data());
    layers::launch(stream_, layers::widen, toy::width * toy::hidden, down, down_.data());
    blas_.multiply({normed_.data(), samples_, toy::width}, {up_.data(), toy::hidden, toy::width, true}, before_.data());
    layers::launch(stream_, layers::silu, samples_ * toy::hidden, bias, before_.data(), active_.data());
  }

  void norm_back(index_t number, const bf16* norm, bf16* d_norm, bool adds) {
    layers::launch(stream_, layers::norm_back_weight, toy::width, samples_, inputs(number), d_normed_.data(), d_norm);
    layers::launch(stream_, layers::norm_back, samples_ * toy::width, inputs(number), norm, d_normed_.data(), adds,
                   d_.data());
  }

  cudaStream_t stream_;
  index_t samples_;
  index_t steps_;
  index_t first_;
  float global_batch_;
  Blas blas_;
  CudaMemory<std::uint8_t> batches_;
  const std::uint8_t* batch_ = nullptr;
  CudaMemory<float> inputs_{(toy::blocks + 1) * samples_ * toy::width};  // of each block, and of the head
  CudaMemory<float> d_{samples_ * toy::width};
  CudaMemory<float> normed_{samples_ * toy::width};
  CudaMemory<float> d_normed_{samples_ * toy::width};
  CudaMemory<float> before_{samples_ * toy::hidden};
  CudaMemory<float> active_{samples_ * toy::hidden};
  CudaMemory<float> d_before_{samples_ * toy::hidden};
  CudaMemory<float> logits_{samples_ * toy::vocabulary};
  CudaMemory<float> losses_{samples_};
  CudaMemory<float> up_{toy::hidden * toy::width};  // parameters as the products read them
  CudaMemory<float> down_{toy::width * toy::hidden};
  CudaMemory<float> output_{toy::vocabulary * toy::width};
  CudaMemory<float> whole_{largest};  // a gradient before it is narrowed
};

}  // namespace tide_example
