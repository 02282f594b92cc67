// SPDX-License-Identifier: Apache-2.0
//
// Copies inside one GPU on a few SMs: what bulk loads bring into shared memory, bulk stores take out again.
//
//   warp 0    bulk loads of 16 KiB    ->  | group 0 | group 1 | ... |    a ring in shared memory
//   warp 1    bulk stores             <-
//
// The driver's own copies inside a GPU run on SMs as well, on as many as it likes, and nothing tells it otherwise. Rows
// of a launch are in bytes. docs/decisions/0005-the-sum-kernel.md, "Casts and copies".

#pragma once

#include <tide/fabric/detail/cuda_bulk_ring.cuh>  // RingPlace, bulk_load
#include <tide/fabric/detail/cuda_kernels.cuh>    // CudaLaunch, RowCursor

namespace tide::detail {

// How many CTAs copy, one on each SM.
inline constexpr int bulk_copy_ctas = 48;

// Less than that in a launch stays with the driver: it is over in a few microseconds on any SMs, and a CTA with a ring
// finds room beside a GEMM only where one of the GEMM's has ended.
inline constexpr std::int64_t least_bulk_copy_bytes = 256 * 1024;

struct CopyRing {
  static constexpr int group_bytes = 16 * 1024;
  static constexpr int groups = 8;
  static constexpr int threads = 64;
  static constexpr int shared_bytes = bulk_shared_bytes(groups * group_bytes);
  static constexpr int reading = 2;  // stores that may still read their groups while the next ones are issued
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// What came into shared memory by a bulk load needs no fence before a bulk store takes it out.
__device__ inline void bulk_store(void* to, const void* from, unsigned bytes, std::uint64_t policy) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes), "l"(policy)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the last `Reading` stores of this thread have read shared memory.
template <int Reading>
__device__ inline void await_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Reading) : "memory");
}
// Waits until all stores of this thread are done.
__device__ inline void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

#endif

// @pre the source and target of every row are multiples of 16 bytes, and so are both buffers
template <class Ring>
TIDE_HIDDEN __global__ void __launch_bounds__(Ring::threads) bulk_copy_kernel(CudaLaunch launch) {
  const Residency residency(launch.residency);
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ std::uint64_t full[Ring::groups];
  __shared__ std::uint64_t empty[Ring::groups];
  barriers_init<Ring::groups>(full, 1, empty, 1);
  const bool loads = threadIdx.x < 32;
  const bool leads = threadIdx.x % 32 == 0;
  const std::uint64_t policy = used_once();
  RowCursor cursor;
  RingPlace<Ring::groups> place;
  RingPlace<Ring::groups> read;  // the next group to give back
  int stores = 0;                // whose groups have not been given back
  for (std::int64_t tile = blockIdx.x; tile < launch.tiles; tile += gridDim.x) {
    cursor.seek(launch, tile);
    const std::byte* in = launch.source + cursor.row.source;
    std::byte* out = launch.target + cursor.row.target;
    const auto [begin, end] = TileRange(launch, cursor.row, tile);
    const std::int64_t bulk_end = begin + (end - begin) / bulk_alignment * bulk_alignment;
    for (std::int64_t at = begin; leads && at < bulk_end; at += Ring::group_bytes) {
      unsigned char* const group = ring + place.group * Ring::group_bytes;
      const auto bytes = static_cast<unsigned>(min(bulk_end - at, std::int64_t{Ring::group_bytes}));
      if (loads) {
        barrier_wait(&empty[place.group], place.phase ^ 1);  // the first time round it is empty
        barrier_arrive_expecting(&full[place.group], bytes);
        bulk_load(group, in + at, bytes, &full[place.group], policy);
      } else {
        barrier_wait(&full[place.group], place.phase);
        bulk_store(out + at, group, bytes, policy);
        if (++stores > Ring::reading) {
          await_reads<Ring::reading>();
          barrier_arrive(&empty[read.group]);
          read.next();
          --stores;
        }
      }
      place.next();
    }
    for (std::int64_t at = bulk_end + threadIdx.x; at < end; at += Ring::threads) out[at] = in[at];
  }
  // Shared memory must outlive the stores that read it.
  if (!loads && leads) await_stores();
#else
  // Nothing chooses it there: the driver copies.
#endif
  residency.end(launch.residency);
}

TIDE_HIDDEN inline cudaError_t launch_copy(const CudaLaunch& launch, int ctas, cudaStream_t stream) {
  return start_bulk_kernel<CopyRing>(&bulk_copy_kernel<CopyRing>, launch, ctas, stream);
}

}  // namespace tide::detail
