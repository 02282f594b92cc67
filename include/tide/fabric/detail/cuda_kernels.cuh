// SPDX-License-Identifier: Apache-2.0
//
// The kernels of CudaFabric: sums along the tree of reduce/tree.hpp. Sums of aligned memory are in cuda_bulk_sum.cuh,
// casts in cuda_cast.cuh, copies in cuda_bulk_copy.cuh, and the sum in the switch in cuda_switch_sum.cuh.
//
// A launch works off a table of rows, cut into tiles: of 16384 elements, or more where that leaves enough for every
// CTA, since what a CTA does once in a tile takes issue slots of all its warps. A lane takes 4 elements at a time: 8
// bytes of each bf16 input, 16 bytes of output, so that each warp writes whole contiguous 512-byte lines; wider or
// strided stores cost up to twice the SM time (docs/decisions, "The sum kernel"). Every operation rounds on its own:
// products and sums are the _rn intrinsics, which nvcc never fuses.

#pragma once

#include <tide/element/convert.hpp>  // convert
#include <tide/fabric/fabric.hpp>    // KernelCode
#include <tide/reduce/tree.hpp>      // tree_sum

#include <cuda_runtime.h>

#include <cstdint>

namespace tide::detail {

// One row of a cast, a sum or a copy (then bytes), in elements from the starts of its buffers, and where its tiles
// begin in the launch.
struct CudaRow {
  std::int64_t source;
  std::int64_t piece;
  std::int64_t target;
  std::int64_t elements;
  std::int64_t first_tile;
  std::int64_t parameter;
};
static_assert(std::is_trivially_copyable_v<CudaRow>);

// Elements of a tile: a power of two.
inline constexpr int smallest_tile_log2 = 14;
inline constexpr int largest_tile_log2 = 17;
inline constexpr int cuda_threads = 1024;

// What a launch needs: the rows of one stretch of ops, and what their spaces are bound to in this run.
struct CudaLaunch {
  const CudaRow* rows = nullptr;
  int row_count = 0;
  std::int64_t tiles = 0;
  int tile_log2 = smallest_tile_log2;
  const std::byte* source = nullptr;   // masters or gradients; of a sum in the switch, its multicast address
  const void* const* table = nullptr;  // of gradients: a pointer per parameter instead of `source`
  const std::byte* pieces = nullptr;
  std::int64_t piece_stride = 0;  // bytes
  int inputs = 1;
  int position = 0;
  const std::byte* const* node = nullptr;  // of a sum in the switch that is emulated: the memory of each rank
  int node_ranks = 0;
  std::byte* target = nullptr;
  float scale = 1.0F;
  bool bulk = false;                   // all of it is aligned to 16 bytes
  std::uint64_t* residency = nullptr;  // for measurements: see Residency
};
static_assert(std::is_trivially_copyable_v<CudaLaunch>);

[[nodiscard]] TIDE_HOST_DEVICE constexpr std::int64_t tiles_of(std::int64_t elements, int tile_log2) noexcept {
  return (elements + (std::int64_t{1} << tile_log2) - 1) >> tile_log2;
}

using CudaKernel = cudaError_t (*)(const CudaLaunch& launch, int ctas, cudaStream_t stream);

// Where and when a CTA was there, written only if a buffer is given: word 0 counts the CTAs, word 1 says how many there
// is room for, then come three words of each: the SM, begin and end in nanoseconds.
class Residency {
 public:
  __device__ explicit Residency(std::uint64_t* words) {
    if (words == nullptr || threadIdx.x != 0) return;
    const std::uint64_t at = atomicAdd(reinterpret_cast<unsigned long long*>(words), 1ULL);
    record() = at < words[1] ? words + 2 + 3 * at : nullptr;
    if (record() == nullptr) return;
    unsigned sm = 0;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    record()[0] = sm;
    record()[1] = now();
  }
  __device__ static void end(const std::uint64_t* words) {
    if (words == nullptr) return;
    __syncthreads();
    if (threadIdx.x == 0 && record() != nullptr) record()[2] = now();
  }

 private:
  // Shared, so that no thread holds a register for it.
  __device__ static std::uint64_t*& record() {
    __shared__ std::uint64_t* place;
    return place;
  }
  __device__ static std::uint64_t now() {
    std::uint64_t time = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  }
};

// The row that a tile belongs to.
__device__ inline int row_of(const CudaLaunch& launch, std::int64_t tile) {
  int low = 0;
  int high = launch.row_count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (launch.rows[middle].first_tile <= tile ? low : high) = middle;
  }
  return low;
}

// The row of the tile that a CTA is at. Tiles come in order, so the search, a chain of loads that each wait for the
// last, is made only where a row ends.
struct RowCursor {
  CudaRow row{};
  std::int64_t end = 0;  // the first tile behind the row

  __device__ void seek(const CudaLaunch& launch, std::int64_t tile) {
    if (tile < end) return;
    row = launch.rows[row_of(launch, tile)];
    end = row.first_tile + tiles_of(row.elements, launch.tile_log2);
  }
};

// The elements of its row that a tile covers.
struct TileRange {
  std::int64_t begin;
  std::int64_t end;

  __device__ TileRange(const CudaLaunch& launch, const CudaRow& row, std::int64_t tile) {
    begin = (tile - row.first_tile) << launch.tile_log2;
    const std::int64_t tile_end = begin + (std::int64_t{1} << launch.tile_log2);
    end = tile_end < row.elements ? tile_end : row.elements;
  }
};

// Four elements that lie together, read with one access where they are aligned to their size.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T value[4];
};

template <class T>
__device__ inline bool aligned4(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % (4 * sizeof(T)) == 0;
}

// Sums are read once and written once: they pass the caches by.
template <class T>
__device__ inline Four<T> load4(const T* from) {
  Four<T> out;
  if constexpr (sizeof(Four<T>) == 8) {
    const auto raw = __ldcs(reinterpret_cast<const uint2*>(from));
    __builtin_memcpy(&out, &raw, 8);
  } else if constexpr (sizeof(Four<T>) == 16) {
    const auto raw = __ldcs(reinterpret_cast<const uint4*>(from));
    __builtin_memcpy(&out, &raw, 16);
  } else {
    out = *reinterpret_cast<const Four<T>*>(from);
  }
  return out;
}

// The address of input i of an element: the own gradient, or a piece.
template <class In>
struct SumInputs {
  const In* own;
  const std::byte* pieces;
  std::int64_t stride;
  int position;

  __device__ const In* at(int i) const {
    return i == position ? own : reinterpret_cast<const In*>(pieces + (i < position ? i : i - 1) * stride);
  }
};

// The inputs of a row, from its first element on.
template <class In>
__device__ inline SumInputs<In> inputs_of(const CudaLaunch& launch, const CudaRow& row) {
  const void* base = launch.table != nullptr ? launch.table[row.parameter] : launch.source;
  return {static_cast<const In*>(base) + row.source, launch.pieces + row.piece * static_cast<std::int64_t>(sizeof(In)),
          launch.piece_stride, launch.position};
}

__device__ inline float add(float a, float b) { return __fadd_rn(a, b); }

// The tree over N leaves, unrolled; N = 0 walks it as a binary counter.
template <int First, int Last, class Leaf>
__device__ inline float unrolled_tree(const Leaf& leaf) {
  if constexpr (Last - First == 1) {
    return leaf(First);
  } else {
    constexpr int middle = First + static_cast<int>(power_below(Last - First));
    return add(unrolled_tree<First, middle>(leaf), unrolled_tree<middle, Last>(leaf));
  }
}

template <int N, class Leaf>
__device__ inline float device_tree(int inputs, const Leaf& leaf) {
  if constexpr (N > 0) {
    return unrolled_tree<0, N>(leaf);
  } else {
    float sums[17];
    int top = 0;
    for (int i = 0; i < inputs; ++i) {
      float value = leaf(i);
      for (int carry = i; (carry & 1) != 0; carry >>= 1) value = add(sums[--top], value);
      sums[top++] = value;
    }
    while (top > 1) {
      --top;
      sums[top - 1] = add(sums[top - 1], sums[top]);
    }
    return sums[0];
  }
}

template <bool Accumulate>
__device__ inline float finish_sum(float sum, float scale, float before) {
  const float scaled = __fmul_rn(sum, scale);
  return Accumulate ? add(before, scaled) : scaled;
}

template <bool Accumulate>
__device__ inline void store4(float* to, const float (&sums)[4], float scale) {
  float4 before{};
  if constexpr (Accumulate) before = *reinterpret_cast<const float4*>(to);
  float4 after;
  after.x = finish_sum<Accumulate>(sums[0], scale, before.x);
  after.y = finish_sum<Accumulate>(sums[1], scale, before.y);
  after.z = finish_sum<Accumulate>(sums[2], scale, before.z);
  after.w = finish_sum<Accumulate>(sums[3], scale, before.w);
  __stcs(reinterpret_cast<float4*>(to), after);
}

// Works off the rows of a launch, with plain loads.
template <class In, int N, bool Accumulate, int Threads>
__device__ inline void sum_rows(const CudaLaunch& launch) {
  RowCursor cursor;
  for (std::int64_t tile = blockIdx.x; tile < launch.tiles; tile += gridDim.x) {
    cursor.seek(launch, tile);
    const CudaRow& row = cursor.row;
    const SumInputs<In> in = inputs_of<In>(launch, row);
    float* out = reinterpret_cast<float*>(launch.target) + row.target;
    const auto [begin, end] = TileRange(launch, row, tile);
    const int inputs = N > 0 ? N : launch.inputs;
    bool wide = aligned4(out) && aligned4(in.own);
    if (inputs > 1)
      wide = wide && aligned4(reinterpret_cast<const In*>(in.pieces)) && in.stride % (4 * sizeof(In)) == 0;
    const std::int64_t vectors = wide ? (end - begin) / 4 : 0;
    if constexpr (N > 0) {
      // Loads of several vectors are in flight before the first store: the compiler may not move a load over a store.
      constexpr int flight = N * sizeof(In) <= 4 ? 4 : N * sizeof(In) <= 16 ? 2 : 1;
      for (std::int64_t v = threadIdx.x; v < vectors; v += flight * Threads) {
        Four<In> loaded[flight][N];
#pragma unroll
        for (int u = 0; u < flight; ++u) {
          if (v + u * Threads >= vectors) break;
#pragma unroll
          for (int i = 0; i < N; ++i) loaded[u][i] = load4(in.at(i) + begin + 4 * (v + u * Threads));
        }
#pragma unroll
        for (int u = 0; u < flight; ++u) {
          if (v + u * Threads >= vectors) break;
          float sums[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            sums[k] = unrolled_tree<0, N>([&](int i) { return convert<float>(loaded[u][i].value[k]); });
          }
          store4<Accumulate>(out + begin + 4 * (v + u * Threads), sums, launch.scale);
        }
      }
    } else {
      for (std::int64_t v = threadIdx.x; v < vectors; v += Threads) {
        const std::int64_t e = begin + 4 * v;
        float sums[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          sums[k] = device_tree<0>(inputs, [&](int i) { return convert<float>(in.at(i)[e + k]); });
        }
        store4<Accumulate>(out + e, sums, launch.scale);
      }
    }
    for (std::int64_t e = begin + 4 * vectors + threadIdx.x; e < end; e += Threads) {
      const float sum = device_tree<N>(inputs, [&](int i) { return convert<float>(in.at(i)[e]); });
      out[e] = finish_sum<Accumulate>(sum, launch.scale, Accumulate ? out[e] : 0.0F);
    }
  }
}

template <class In, int N, bool Accumulate>
TIDE_HIDDEN __global__ void __launch_bounds__(cuda_threads) sum_kernel(CudaLaunch launch) {
  const Residency residency(launch.residency);
  sum_rows<In, N, Accumulate, cuda_threads>(launch);
  residency.end(launch.residency);
}

// Starts a kernel; what it returns is of this launch alone, not what an earlier call of the thread left behind.
TIDE_HIDDEN inline cudaError_t start_kernel(void (*kernel)(CudaLaunch), const CudaLaunch& launch, int ctas, int threads,
                                            int shared_bytes, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, launch);
}

template <class In, int N, bool Accumulate>
TIDE_HIDDEN cudaError_t launch_sum_of(const CudaLaunch& launch, int ctas, cudaStream_t stream) {
  return start_kernel(&sum_kernel<In, N, Accumulate>, launch, ctas, cuda_threads, 0, stream);
}

}  // namespace tide::detail
