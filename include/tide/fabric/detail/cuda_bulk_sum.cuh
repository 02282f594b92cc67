// SPDX-License-Identifier: Apache-2.0
//
// The sum kernel for inputs and outputs that are aligned to 16 bytes: inputs come through shared memory by bulk loads.
//
//   producer warp i      bulk loads of input i          ->  | group 0 | group 1 | ... |    a ring in shared memory
//   consumer warps       sum, scale, store whole lines  <-
//
// One SM then reads and writes at once as fast as it can write alone: 34 SM*ms for 427.8 million pairs of bf16, where
// plain loads take 43 (docs/decisions/0005-the-sum-kernel.md). Bits are those of the other kernel: the same tree, the
// same operations.

#pragma once

#include <tide/fabric/detail/cuda_bulk_ring.cuh>   // RingPlace, bulk_load
#include <tide/fabric/detail/cuda_cast.cuh>        // launch_cast
#include <tide/fabric/detail/cuda_kernels.cuh>     // CudaLaunch, unrolled_tree, store4
#include <tide/fabric/detail/cuda_switch_sum.cuh>  // launch_switch_sum

namespace tide::detail {

inline constexpr int bulk_consumers = 8;  // warps that add

// Whether a sum of so many inputs has a kernel with bulk loads.
[[nodiscard]] constexpr bool has_bulk_sum(int inputs) noexcept {
  return inputs == 2 || inputs == 3 || inputs == 4 || inputs == 8;
}

// The shape of the ring for N inputs of an element.
template <class In, int N, int Consumers>
struct BulkRing {
  static constexpr int load_bytes = N <= 3 ? 8192 : 4096;
  static constexpr int elements = load_bytes / static_cast<int>(sizeof(In));  // of each input in a group
  static constexpr int group_bytes = N * load_bytes;
  static constexpr int groups = N <= 4 ? 96 * 1024 / group_bytes : 6;
  static constexpr int threads = 32 * (Consumers + N);
  static constexpr int shared_bytes = bulk_shared_bytes(groups * group_bytes);
};

// What the largest of the rings takes, that of eight inputs.
inline constexpr int most_bulk_shared_bytes = BulkRing<float, 8, 1>::shared_bytes;

// Sums and stores what a thread has loaded of a group: vectors that lie a warp's consumers apart.
template <class In, int N, bool Accumulate, int Consumers, int Flight>
__device__ inline void store_group(float* out, const Four<In> (&loaded)[Flight][N], float scale) {
  constexpr int apart = 4 * 32 * Consumers;
  float before[Flight][4] = {};
  if constexpr (Accumulate) {
#pragma unroll
    for (int u = 0; u < Flight; ++u) {
      const float4 there = *reinterpret_cast<const float4*>(out + u * apart);
      before[u][0] = there.x;
      before[u][1] = there.y;
      before[u][2] = there.z;
      before[u][3] = there.w;
    }
  }
  float after[Flight][4];
#pragma unroll
  for (int u = 0; u < Flight; ++u) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float sum = unrolled_tree<0, N>([&](int i) { return convert<float>(loaded[u][i].value[k]); });
      after[u][k] = finish_sum<Accumulate>(sum, scale, before[u][k]);
    }
  }
#pragma unroll
  for (int u = 0; u < Flight; ++u) {
    __stcs(reinterpret_cast<float4*>(out + u * apart), make_float4(after[u][0], after[u][1], after[u][2], after[u][3]));
  }
}

// @pre every row's source, piece and target are multiples of 16 bytes, and so are all buffers and the piece stride
template <class In, int N, bool Accumulate, int Consumers>
TIDE_HIDDEN __global__ void __launch_bounds__(BulkRing<In, N, Consumers>::threads) bulk_sum_kernel(CudaLaunch launch) {
#if __CUDA_ARCH__ >= 900
  using Ring = BulkRing<In, N, Consumers>;
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ std::uint64_t full[Ring::groups];   // one arrival of each producer, and the bytes
  __shared__ std::uint64_t empty[Ring::groups];  // one of each consumer warp
  const Residency residency(launch.residency);
  barriers_init<Ring::groups>(full, N, empty, Consumers);
  constexpr int consumers = 32 * Consumers;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const bool leads = threadIdx.x % 32 == 0;
  const std::uint64_t policy = used_once();
  RowCursor cursor;
  RingPlace<Ring::groups> place;
  for (std::int64_t tile = blockIdx.x; tile < launch.tiles; tile += gridDim.x) {
    cursor.seek(launch, tile);
    const CudaRow& row = cursor.row;
    const SumInputs<In> in = inputs_of<In>(launch, row);
    float* out = reinterpret_cast<float*>(launch.target) + row.target;
    const auto [begin, end] = TileRange(launch, row, tile);
    constexpr std::int64_t unit = bulk_alignment / static_cast<std::int64_t>(sizeof(In));
    const std::int64_t bulk_end = begin + (end - begin) / unit * unit;
    if (warp >= Consumers) {
      if (!leads) continue;
      const int input = warp - Consumers;
      const In* from = in.at(input) + begin;
      for (int left = static_cast<int>(bulk_end - begin); left > 0; left -= Ring::elements, from += Ring::elements) {
        const unsigned bytes =
            static_cast<unsigned>(left < Ring::elements ? left : Ring::elements) * static_cast<unsigned>(sizeof(In));
        barrier_wait(&empty[place.group], place.phase ^ 1);  // the first time round it is empty
        barrier_arrive_expecting(&full[place.group], bytes);
        bulk_load(ring + place.group * Ring::group_bytes + input * Ring::load_bytes, from, bytes, &full[place.group],
                  policy);
        place.next();
      }
      continue;
    }
    float* to = out + begin + 4 * thread;
    int left = static_cast<int>(bulk_end - begin);
    if constexpr (Ring::elements >= 4 * consumers) {
      for (; left >= Ring::elements; left -= Ring::elements, to += Ring::elements) {
        const auto* group = reinterpret_cast<const Four<In>*>(ring + place.group * Ring::group_bytes) + thread;
        barrier_wait(&full[place.group], place.phase);
        // All vectors of the group at once, so that it is given back before anything is added.
        constexpr int flight = Ring::elements / (4 * consumers);
        Four<In> loaded[flight][N];
#pragma unroll
        for (int u = 0; u < flight; ++u) {
#pragma unroll
          for (int i = 0; i < N; ++i) loaded[u][i] = group[i * (Ring::elements / 4) + u * consumers];
        }
        __syncwarp();
        if (leads) barrier_arrive(&empty[place.group]);
        place.next();
        store_group<In, N, Accumulate, Consumers>(to, loaded, launch.scale);
      }
    }
    for (; left > 0; left -= Ring::elements, to += Ring::elements) {
      const unsigned char* group = ring + place.group * Ring::group_bytes;
      const int count = left < Ring::elements ? left : Ring::elements;
      float* first = to - 4 * thread;
      barrier_wait(&full[place.group], place.phase);
      for (int e = thread; e < count; e += consumers) {
        const float sum = device_tree<N>(
            N, [&](int i) { return convert<float>(reinterpret_cast<const In*>(group + i * Ring::load_bytes)[e]); });
        first[e] = finish_sum<Accumulate>(sum, launch.scale, Accumulate ? first[e] : 0.0F);
      }
      __syncwarp();
      if (leads) barrier_arrive(&empty[place.group]);
      place.next();
    }
    for (std::int64_t e = bulk_end + thread; e < end; e += consumers) {
      const float sum = device_tree<N>(N, [&](int i) { return convert<float>(in.at(i)[e]); });
      out[e] = finish_sum<Accumulate>(sum, launch.scale, Accumulate ? out[e] : 0.0F);
    }
  }
  residency.end(launch.residency);
#else
  const Residency residency(launch.residency);
  sum_rows<In, N, Accumulate, BulkRing<In, N, Consumers>::threads>(launch);
  residency.end(launch.residency);
#endif
}

template <class In, int N, bool Accumulate, int Consumers = bulk_consumers>
TIDE_HIDDEN cudaError_t launch_bulk_sum(const CudaLaunch& launch, int ctas, cudaStream_t stream) {
  using Ring = BulkRing<In, N, Consumers>;
  return start_bulk_kernel<Ring>(&bulk_sum_kernel<In, N, Accumulate, Consumers>, launch, ctas, stream);
}

// Worlds up to 8 get a tree of their own; larger ones walk it.
template <class In, bool Accumulate>
TIDE_HIDDEN cudaError_t launch_sum(const CudaLaunch& launch, int ctas, cudaStream_t stream) {
  const auto either = [&]<int N>(std::integral_constant<int, N>) {
    if constexpr (N > 1) {
      if (launch.bulk) return launch_bulk_sum<In, N, Accumulate>(launch, ctas, stream);
    }
    return launch_sum_of<In, N, Accumulate>(launch, ctas, stream);
  };
  switch (launch.inputs) {
    case 1:
      return either(std::integral_constant<int, 1>{});
    case 2:
      return either(std::integral_constant<int, 2>{});
    case 3:
      return either(std::integral_constant<int, 3>{});
    case 4:
      return either(std::integral_constant<int, 4>{});
    case 8:
      return either(std::integral_constant<int, 8>{});
    default:
      return launch_sum_of<In, 0, Accumulate>(launch, ctas, stream);
  }
}

template <Kernel::Kind Kind, Element E, Finish End>
[[nodiscard]] TIDE_HIDDEN KernelCode cuda_kernel() noexcept {
  if constexpr (Kind == Kernel::Kind::cast) {
    return reinterpret_cast<KernelCode>(&launch_cast<type_of_t<E>>);
  } else if constexpr (Kind == Kernel::Kind::switch_sum) {
    return reinterpret_cast<KernelCode>(&launch_switch_sum<End == Finish::accumulate>);
  } else {
    return reinterpret_cast<KernelCode>(&launch_sum<type_of_t<E>, End == Finish::accumulate>);
  }
}

}  // namespace tide::detail
