// SPDX-License-Identifier: Apache-2.0
//
// What kernels with bulk loads share: a ring of groups in shared memory, filled by bulk loads, and its barriers.
//
//   producer warps       wait until a group is empty, load into it, expect its bytes    ->  full[group]
//   consumer warps       wait until it is full, read it, give it back                   ->  empty[group]
//
// How large loads and rings must be, and what they gain: docs/decisions/0005-the-sum-kernel.md.

#pragma once

#include <tide/fabric/detail/cuda_kernels.cuh>  // CudaLaunch, start_kernel

#include <cuda_runtime.h>

#include <cstdint>

namespace tide::detail {

inline constexpr int bulk_alignment = 16;

// Rows shorter than that, on average, are no matter for bulk loads: a thread that issues them takes 90 ns for each,
// whatever its size.
inline constexpr std::int64_t least_bulk_row_bytes = 4096;

// Two CTAs on one SM would take twice as long each, beside a GEMM too: above half of its shared memory none fits.
[[nodiscard]] constexpr int bulk_shared_bytes(int ring_bytes) noexcept {
  constexpr int above_half = 116 * 1024;
  return ring_bytes < above_half ? above_half : ring_bytes;
}

// Barriers in shared memory that count arrivals and bytes.
__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // what is older has no bulk loads

__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_arrive_expecting(std::uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline void barrier_wait(std::uint64_t* barrier, unsigned parity) {
  unsigned done = 0;
  do {
    asm volatile(
        "{\n"
        " .reg .pred p;\n"
        " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        " selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}
// What is loaded is used once: it should leave the L2 cache first.
__device__ inline std::uint64_t used_once() {
  std::uint64_t policy = 0;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void bulk_load(void* to, const void* from, unsigned bytes, std::uint64_t* barrier,
                                 std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Of each group: `full` has an arrival of each producer, and the bytes; `empty` one of each consumer warp. For all
// threads of the CTA.
template <int Groups>
__device__ inline void barriers_init(std::uint64_t* full, int producers, std::uint64_t* empty, int consumers) {
  if (threadIdx.x == 0) {
    for (int g = 0; g < Groups; ++g) {
      barrier_init(&full[g], producers);
      barrier_init(&empty[g], consumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}

#endif

// A place in the ring, and which of its two phases the barriers there are in.
template <int Groups>
struct RingPlace {
  int group = 0;
  unsigned phase = 0;

  __device__ void next() {
    if (++group < Groups) return;
    group = 0;
    phase ^= 1;
  }
};

// Starts a kernel with a ring. A launch without tiles is the one that loads it.
template <class Ring>
TIDE_HIDDEN cudaError_t start_bulk_kernel(void (*kernel)(CudaLaunch), const CudaLaunch& launch, int ctas,
                                          cudaStream_t stream) {
  if (launch.tiles == 0) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring::shared_bytes);
    if (status != cudaSuccess) return status;
  }
  return start_kernel(kernel, launch, ctas, Ring::threads, Ring::shared_bytes, stream);
}

}  // namespace tide::detail
