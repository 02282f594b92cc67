// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the toy model beside its matrix products. A thread computes one number, and reads what it adds up in
// one order: the same bits whatever runs beside it.
//
// Whole parameters and gradients are bf16, everything between is f32. Rows are samples.

#pragma once

#include "toy_model.hpp"

#include <tide/core/math.hpp>
#include <tide/fabric/detail/cuda_check.cuh>

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace tide_example::layers {

using tide::bf16;
using tide::index_t;

/// Launches `kernel(count, arguments...)` with a thread for each of `count` numbers, at least one.
template <class... P>
void launch(cudaStream_t stream, void (*kernel)(index_t, P...), index_t count, std::type_identity_t<P>... arguments) {
  constexpr index_t threads = 128;
  const auto ctas = static_cast<unsigned>(count > 0 ? tide::ceil_div(count, threads) : 1);
  kernel<<<ctas, static_cast<unsigned>(threads), 0, stream>>>(count, arguments...);
  tide::detail::check(cudaGetLastError(), "a kernel");
}

[[nodiscard]] __device__ inline index_t thread_number() { return index_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// ---- elements

static __global__ void widen(index_t count, const bf16* from, float* to) {
  const index_t i = thread_number();
  if (i < count) to[i] = static_cast<float>(from[i]);
}

static __global__ void narrow(index_t count, const float* from, bf16* to) {
  const index_t i = thread_number();
  if (i < count) to[i] = bf16(from[i]);
}

/// NaN wherever a gradient was.
static __global__ void scribble(index_t count, bf16* gradients) {
  const index_t i = thread_number();
  if (i < count) gradients[i] = bf16::from_bits(0xFFFF);
}

/// toy::Adam::update, a thread for each weight.
static __global__ void adam(index_t count, toy::Adam rule, float mean_scale, float square_scale, float* weights,
                            const float* gradient, float* mean, float* square) {
  const index_t i = thread_number();
  if (i >= count) return;
  mean[i] = rule.first * mean[i] + (1 - rule.first) * gradient[i];
  square[i] = rule.second * square[i] + (1 - rule.second) * gradient[i] * gradient[i];
  weights[i] -= rule.rate * (mean[i] * mean_scale) / (sqrtf(square[i] * square_scale) + 1e-8F);
}

/// Adam on some weights, on a stream.
inline void update(cudaStream_t stream, int step, index_t count, float* weights, const float* gradient, float* mean,
                   float* square) {
  const toy::Adam rule;
  const auto power = static_cast<float>(step + 1);
  launch(stream, adam, count, rule, 1.0F / (1.0F - std::pow(rule.first, power)),
         1.0F / (1.0F - std::pow(rule.second, power)), weights, gradient, mean, square);
}

// ---- embedding

/// The tokens of a sample's context, then the one that follows them.
inline constexpr index_t sample_tokens = toy::context + 1;
static_assert(toy::vocabulary <= 256);

static __global__ void embed(index_t count, const std::uint8_t* batch, const bf16* tokens, const bf16* positions,
                             float* x) {
  const index_t i = thread_number();
  if (i >= count) return;
  const index_t k = i % toy::width;
  const index_t token = batch[i / toy::width * sample_tokens + k / toy::embedded];
  x[i] = static_cast<float>(tokens[token * toy::embedded + k % toy::embedded]) + static_cast<float>(positions[k]);
}

static __global__ void embed_back_tokens(index_t count, index_t samples, const std::uint8_t* batch, const float* d,
                                         bf16* d_tokens) {
  const index_t i = thread_number();
  if (i >= count) return;
  float sum = 0;
  for (index_t s = 0; s < samples; ++s) {
    for (index_t c = 0; c < toy::context; ++c) {
      if (batch[s * sample_tokens + c] != i / toy::embedded) continue;
      sum += d[s * toy::width + c * toy::embedded + i % toy::embedded];
    }
  }
  d_tokens[i] = bf16(sum);
}

/// The sum of each column, as a bias or a position gets it.
static __global__ void add_rows(index_t columns, index_t rows, const float* from, bf16* to) {
  const index_t k = thread_number();
  if (k >= columns) return;
  float sum = 0;
  for (index_t r = 0; r < rows; ++r) sum += from[r * columns + k];
  to[k] = bf16(sum);
}

// ---- norm

[[nodiscard]] __device__ inline float inverse_rms(const float* x) {
  float sum = 0;
  for (index_t k = 0; k < toy::width; ++k) sum += x[k] * x[k];
  return 1.0F / sqrtf(sum / static_cast<float>(toy::width) + 1e-5F);
}

static __global__ void normalize(index_t count, const float* x, const bf16* norm, float* normed) {
  const index_t i = thread_number();
  if (i >= count) return;
  const index_t k = i % toy::width;
  normed[i] = x[i] * inverse_rms(x + (i - k)) * static_cast<float>(norm[k]);
}

static __global__ void norm_back_weight(index_t columns, index_t samples, const float* x, const float* d_normed,
                                        bf16* d_norm) {
  const index_t k = thread_number();
  if (k >= columns) return;
  float sum = 0;
  for (index_t s = 0; s < samples; ++s) {
    const float* row = x + s * toy::width;
    sum += d_normed[s * toy::width + k] * row[k] * inverse_rms(row);
  }
  d_norm[k] = bf16(sum);
}

/// What comes through the norm, behind what `d` holds, or instead of it.
static __global__ void norm_back(index_t count, const float* x, const bf16* norm, const float* d_normed, bool adds,
                                 float* d) {
  const index_t i = thread_number();
  if (i >= count) return;
  const index_t k = i % toy::width;
  const float* row = x + (i - k);
  const float r = inverse_rms(row);
  float dot = 0;
  for (index_t j = 0; j < toy::width; ++j) dot += d_normed[i - k + j] * static_cast<float>(norm[j]) * row[j];
  const float back = dot * r * r * r / static_cast<float>(toy::width);
  d[i] = (adds ? d[i] : 0.0F) + d_normed[i] * static_cast<float>(norm[k]) * r - x[i] * back;
}

// ---- silu

static __global__ void silu(index_t count, const bf16* bias, float* before, float* active) {
  const index_t i = thread_number();
  if (i >= count) return;
  before[i] += static_cast<float>(bias[i % toy::hidden]);
  active[i] = before[i] / (1.0F + expf(-before[i]));
}

/// From the gradient with respect to what is active to that before.
static __global__ void silu_back(index_t count, const float* before, float* d) {
  const index_t i = thread_number();
  if (i >= count) return;
  const float s = 1.0F / (1.0F + expf(-before[i]));
  d[i] *= s * (1.0F + before[i] * (1.0F - s));
}

// ---- loss

/// The loss of each sample; logits become the gradients with respect to them.
static __global__ void cross_entropy(index_t samples, const std::uint8_t* batch, float global_batch, float* all_logits,
                                     float* losses) {
  const index_t s = thread_number();
  if (s >= samples) return;
  float* logits = all_logits + s * toy::vocabulary;
  const index_t next = batch[s * sample_tokens + toy::context];
  float largest = logits[0];
  for (index_t v = 1; v < toy::vocabulary; ++v) largest = fmaxf(largest, logits[v]);
  float sum = 0;
  for (index_t v = 0; v < toy::vocabulary; ++v) sum += expf(logits[v] - largest);
  losses[s] = (logf(sum) + largest - logits[next]) / global_batch;
  for (index_t v = 0; v < toy::vocabulary; ++v) {
    logits[v] = (expf(logits[v] - largest) / sum - (v == next ? 1.0F : 0.0F)) / global_batch;
  }
}

/// One thread adds up what a row holds.
static __global__ void add_up(index_t rows, index_t columns, const float* from, float* to) {
  const index_t r = thread_number();
  if (r >= rows) return;
  float sum = 0;
  for (index_t k = 0; k < columns; ++k) sum += from[r * columns + k];
  to[r] = sum;
}

}  // namespace tide_example::layers
