// SPDX-License-Identifier: Apache-2.0
//
// Casts of f32 masters to the gathered element, on some of the SMs.
//
//   lane    | 8 floats: two loads of 16 bytes |  x 4 in flight   ->   | 8 elements: one store |
//
// Three things decide: stores of 16 bytes a lane, the GPU's own instruction for pairs, and loads enough in flight; each
// alone gains little (docs/decisions/0005-the-sum-kernel.md, "Casts and copies"). Bits are those of `convert`.

#pragma once

#include <tide/element/bf16.hpp>                // bf16
#include <tide/element/convert.hpp>             // convert
#include <tide/element/f16.hpp>                 // f16
#include <tide/fabric/detail/cuda_kernels.cuh>  // CudaLaunch, RowCursor

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace tide::detail {

// How many CTAs cast, one on each SM. Beside a product of one wave up to 66 cost half the time for which they are
// there, and more of them all of it.
inline constexpr int cast_ctas = 56;

// Eight neighbouring elements: what a lane casts at once.
template <class T>
struct alignas(8 * sizeof(T) < 16 ? 8 * sizeof(T) : 16) Eight {
  T value[8];
};

template <class T>
__device__ inline bool aligned8(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignof(Eight<T>) == 0;
}

// Two numbers; `convert` takes some ten instructions for each.
template <class To>
__device__ inline void cast_pair(const float* in, To* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<To, bf16> || std::is_same_v<To, f16>) {
    // The instruction makes all NaNs the same one.
    if (in[0] == in[0] && in[1] == in[1]) {
      std::uint32_t both = 0;
      if constexpr (std::is_same_v<To, bf16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(in[1]), "f"(in[0]));
      } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(in[1]), "f"(in[0]));
      }
      __builtin_memcpy(out, &both, sizeof both);
      return;
    }
  }
#endif
  out[0] = convert<To>(in[0]);
  out[1] = convert<To>(in[1]);
}

// Works off the rows of a launch.
template <class To>
TIDE_HIDDEN __global__ void __launch_bounds__(cuda_threads) cast_kernel(CudaLaunch launch) {
  constexpr int flight = 4;
  const Residency residency(launch.residency);
  RowCursor cursor;
  for (std::int64_t tile = blockIdx.x; tile < launch.tiles; tile += gridDim.x) {
    cursor.seek(launch, tile);
    const CudaRow& row = cursor.row;
    const auto [begin, end] = TileRange(launch, row, tile);
    const float* in = reinterpret_cast<const float*>(launch.source) + row.source + begin;
    To* out = reinterpret_cast<To*>(launch.target) + row.target + begin;
    const std::int64_t count = end - begin;
    const std::int64_t vectors = aligned4(in) && aligned8(out) ? count / 8 : 0;
    for (std::int64_t v = threadIdx.x; v < vectors; v += flight * cuda_threads) {
      Four<float> loaded[flight][2];
#pragma unroll
      for (int u = 0; u < flight; ++u) {
        if (v + u * cuda_threads >= vectors) break;
        const float* from = in + 8 * (v + u * cuda_threads);
        loaded[u][0] = load4(from);
        loaded[u][1] = load4(from + 4);
      }
#pragma unroll
      for (int u = 0; u < flight; ++u) {
        if (v + u * cuda_threads >= vectors) break;
        Eight<To> result;
#pragma unroll
        for (int k = 0; k < 8; k += 2) cast_pair(&loaded[u][k / 4].value[k % 4], &result.value[k]);
        *reinterpret_cast<Eight<To>*>(out + 8 * (v + u * cuda_threads)) = result;
      }
    }
    for (std::int64_t e = 8 * vectors + threadIdx.x; e < count; e += cuda_threads) out[e] = convert<To>(in[e]);
  }
  residency.end(launch.residency);
}

template <class To>
TIDE_HIDDEN cudaError_t launch_cast(const CudaLaunch& launch, int ctas, cudaStream_t stream) {
  return start_kernel(&cast_kernel<To>, launch, ctas, cuda_threads, 0, stream);
}

}  // namespace tide::detail
