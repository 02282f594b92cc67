// SPDX-License-Identifier: Apache-2.0
//
// The sum in the NVSwitch: one load from a multicast address brings the sum of what lies there on all GPUs of the node,
// in an order of the switch's own. Inputs are places in the network inbox, added one after the other.
//
//   input i     multimem.ld_reduce of source + offset(i)         or, emulated: node[0] + offset(i), node[1] + offset(i), ...
//
// The emulation reads each GPU's memory in turn; like that of multicast it is for tests, and nothing chooses it by
// itself. No NVSwitch has run this yet.
//
// Tests: tests/fabric/cuda_switch_sum.test.cu, tests/fabric/cuda_nodes.test.cu

#pragma once

#include <tide/fabric/detail/cuda_kernels.cuh>  // CudaLaunch, store4

namespace tide::detail {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// What was put there has been waited for on the stream, so the load need not order anything: relaxed.
__device__ inline float load_in_switch(const float* multicast) {
  float sum = 0;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(sum) : "l"(multicast) : "memory");
  return sum;
}
__device__ inline void load4_in_switch(const float* multicast, float (&sums)[4]) {
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
               : "l"(multicast)
               : "memory");
}

#else  // what is older has no loads that a switch adds: no fabric on it has the capability

__device__ inline float load_in_switch(const float*) {
  __trap();
  return 0;
}
__device__ inline void load4_in_switch(const float*, float (&)[4]) { __trap(); }

#endif

// The places of a row: what lies at one offset of all ranks, as one number.
struct SwitchInputs {
  const CudaLaunch& launch;
  const CudaRow& row;

  // Of input i, in elements.
  __device__ std::int64_t offset(int i) const {
    return i == 0 ? row.source : row.piece + (i - 1) * (launch.piece_stride / 4);
  }
  __device__ bool aligned() const {
    return row.source % 4 == 0 && (launch.inputs == 1 || (row.piece % 4 == 0 && launch.piece_stride % 16 == 0));
  }
  __device__ float load(std::int64_t at) const {
    if (launch.node == nullptr) return load_in_switch(reinterpret_cast<const float*>(launch.source) + at);
    float sum = reinterpret_cast<const float*>(launch.node[0])[at];
    for (int r = 1; r < launch.node_ranks; ++r) sum = add(sum, reinterpret_cast<const float*>(launch.node[r])[at]);
    return sum;
  }
  __device__ void load4(std::int64_t at, float (&sums)[4]) const {
    if (launch.node == nullptr) return load4_in_switch(reinterpret_cast<const float*>(launch.source) + at, sums);
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] = load(at + k);
  }
};

template <bool Accumulate>
TIDE_HIDDEN __global__ void __launch_bounds__(cuda_threads) switch_sum_kernel(CudaLaunch launch) {
  const Residency residency(launch.residency);
  RowCursor cursor;
  for (std::int64_t tile = blockIdx.x; tile < launch.tiles; tile += gridDim.x) {
    cursor.seek(launch, tile);
    const SwitchInputs in{launch, cursor.row};
    float* out = reinterpret_cast<float*>(launch.target) + cursor.row.target;
    const auto [begin, end] = TileRange(launch, cursor.row, tile);
    const std::int64_t vectors = in.aligned() && aligned4(out) ? (end - begin) / 4 : 0;
    for (std::int64_t v = threadIdx.x; v < vectors; v += cuda_threads) {
      const std::int64_t e = begin + 4 * v;
      float sums[4];
      in.load4(in.offset(0) + e, sums);
      for (int i = 1; i < launch.inputs; ++i) {
        float more[4];
        in.load4(in.offset(i) + e, more);
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[k] = add(sums[k], more[k]);
      }
      store4<Accumulate>(out + e, sums, launch.scale);
    }
    for (std::int64_t e = begin + 4 * vectors + threadIdx.x; e < end; e += cuda_threads) {
      float sum = in.load(in.offset(0) + e);
      for (int i = 1; i < launch.inputs; ++i) sum = add(sum, in.load(in.offset(i) + e));
      out[e] = finish_sum<Accumulate>(sum, launch.scale, Accumulate ? out[e] : 0.0F);
    }
  }
  residency.end(launch.residency);
}

template <bool Accumulate>
TIDE_HIDDEN cudaError_t launch_switch_sum(const CudaLaunch& launch, int ctas, cudaStream_t stream) {
  return start_kernel(&switch_sum_kernel<Accumulate>, launch, ctas, cuda_threads, 0, stream);
}

}  // namespace tide::detail
