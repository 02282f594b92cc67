// SPDX-License-Identifier: Apache-2.0
//
// The cast of f32 masters for rows that are aligned to 16 bytes: they come through shared memory by bulk loads.
//
//   producer warp        bulk loads of 16 KiB           ->  | group 0 | group 1 | ... |    a ring in shared memory
//   consumer warps       convert, store whole lines     <-
//
// A few SMs then read and write as fast as each of them can (docs/decisions/0005-the-sum-kernel.md, "Casts and
// copies"), where plain loads want the whole GPU. Bits are those of the other kernel: the same `convert`.

#pragma once

#include <tide/element/convert.hpp>               // convert
#include <tide/fabric/detail/cuda_bulk_ring.cuh>  // RingPlace, bulk_load
#include <tide/fabric/detail/cuda_kernels.cuh>    // CudaLaunch, cast_rows

namespace tide::detail {

// How many CTAs cast, one on each SM. Whatever the launch policy of sums: a gather has none.
inline constexpr int bulk_cast_ctas = 32;

// Whether a cast to elements of so many bytes has a kernel with bulk loads: not that to f64, whose 16 bytes are less
// than four floats.
[[nodiscard]] constexpr bool has_bulk_cast(std::size_t bytes) noexcept { return bytes <= 4; }

// The shape of the ring. One issuing thread takes 90 ns for a load: with 16 KiB it keeps up with what an SM can read.
struct CastRing {
  static constexpr int consumers = 8;  // warps
  static constexpr int group_bytes = 16 * 1024;
  static constexpr int groups = 8;
  static constexpr int elements = group_bytes / 4;  // of a group
  static constexpr int threads = 32 * (consumers + 1);
  static constexpr int shared_bytes = bulk_shared_bytes(groups * group_bytes);
};

// What a thread stores at once, 16 bytes: so many elements, and the reads of four floats that they are made of.
template <class To>
struct CastVector {
  static constexpr int elements = 16 / static_cast<int>(sizeof(To));
  static constexpr int reads = elements / 4;

  Four<float> loaded[reads];

  // Threads whose vectors lie in the same banks begin at different reads of theirs: 8 threads read 128 bytes in one go,
  // which must be all 32 banks.
  __device__ static int first_read() { return static_cast<int>(threadIdx.x) / (8 / reads) % reads; }

  __device__ void load(const unsigned char* group, int vector) {
    const auto* from = reinterpret_cast<const Four<float>*>(group) + vector * reads;
    const int first = first_read();
#pragma unroll
    for (int j = 0; j < reads; ++j) loaded[j] = from[j ^ first];
  }
  __device__ void store(To* to) const {
    constexpr int words = static_cast<int>(sizeof(To));  // of four bytes, that a read becomes
    unsigned out[reads][words];
#pragma unroll
    for (int j = 0; j < reads; ++j) {
      Four<To> four;
#pragma unroll
      for (int k = 0; k < 4; ++k) four.value[k] = convert<To>(loaded[j].value[k]);
      __builtin_memcpy(out[j], &four, sizeof four);
    }
    // Back in order: read j is at place j ^ first. Exchanges, since registers have no index.
    const int first = first_read();
#pragma unroll
    for (int bit = 1; bit < reads; bit *= 2) {
#pragma unroll
      for (int j = 0; j < reads; ++j) {
        if ((j & bit) != 0) continue;
#pragma unroll
        for (int w = 0; w < words; ++w) {
          const unsigned low = out[j][w];
          const unsigned high = out[j | bit][w];
          out[j][w] = (first & bit) != 0 ? high : low;
          out[j | bit][w] = (first & bit) != 0 ? low : high;
        }
      }
    }
    const unsigned* const flat = out[0];
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(flat[0], flat[1], flat[2], flat[3]));
  }
};

// @pre the source and target of every row are multiples of 16 bytes, and so are both buffers
template <class To>
TIDE_HIDDEN __global__ void __launch_bounds__(CastRing::threads) bulk_cast_kernel(CudaLaunch launch) {
  const Residency residency(launch.residency);
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ std::uint64_t full[CastRing::groups];
  __shared__ std::uint64_t empty[CastRing::groups];
  barriers_init<CastRing::groups>(full, 1, empty, CastRing::consumers);
  using Vector = CastVector<To>;
  constexpr int consumers = 32 * CastRing::consumers;
  constexpr int flight = CastRing::elements / (consumers * Vector::elements);  // vectors of a thread in a group
  static_assert(flight * consumers * Vector::elements == CastRing::elements);
  const int thread = static_cast<int>(threadIdx.x);
  const bool leads = thread % 32 == 0;
  const bool produces = thread >= consumers;
  const std::uint64_t policy = used_once();
  RowCursor cursor;
  RingPlace<CastRing::groups> place;
  for (std::int64_t tile = blockIdx.x; tile < launch.tiles; tile += gridDim.x) {
    cursor.seek(launch, tile);
    const CudaRow& row = cursor.row;
    const float* in = reinterpret_cast<const float*>(launch.source) + row.source;
    To* out = reinterpret_cast<To*>(launch.target) + row.target;
    const auto [begin, end] = TileRange(launch, row, tile);
    const std::int64_t bulk_end = begin + (end - begin) / Vector::elements * Vector::elements;
    int left = static_cast<int>(bulk_end - begin);
    if (produces) {
      if (!leads) continue;
      const float* from = in + begin;
      for (; left > 0; left -= CastRing::elements, from += CastRing::elements) {
        const unsigned bytes = 4 * static_cast<unsigned>(left < CastRing::elements ? left : CastRing::elements);
        barrier_wait(&empty[place.group], place.phase ^ 1);  // the first time round it is empty
        barrier_arrive_expecting(&full[place.group], bytes);
        bulk_load(ring + place.group * CastRing::group_bytes, from, bytes, &full[place.group], policy);
        place.next();
      }
      continue;
    }
    To* to = out + begin + Vector::elements * thread;
    for (; left > 0; left -= CastRing::elements, to += CastRing::elements) {
      const unsigned char* group = ring + place.group * CastRing::group_bytes;
      const int vectors = left < CastRing::elements ? left / Vector::elements : flight * consumers;
      barrier_wait(&full[place.group], place.phase);
      // All vectors of the group at once, so that it is given back before anything is converted.
      Vector loaded[flight];
#pragma unroll
      for (int u = 0; u < flight; ++u) {
        if (thread + u * consumers < vectors) loaded[u].load(group, thread + u * consumers);
      }
      __syncwarp();
      if (leads) barrier_arrive(&empty[place.group]);
      place.next();
#pragma unroll
      for (int u = 0; u < flight; ++u) {
        if (thread + u * consumers < vectors) loaded[u].store(to + u * consumers * Vector::elements);
      }
    }
    for (std::int64_t e = bulk_end + thread; e < end; e += consumers) out[e] = convert<To>(in[e]);
  }
#else
  cast_rows<To, CastRing::threads>(launch);
#endif
  residency.end(launch.residency);
}

template <class To>
TIDE_HIDDEN cudaError_t launch_cast(const CudaLaunch& launch, int ctas, cudaStream_t stream) {
  if constexpr (has_bulk_cast(sizeof(To))) {
    if (launch.bulk) return start_bulk_kernel<CastRing>(&bulk_cast_kernel<To>, launch, ctas, stream);
  }
  return launch_plain_cast<To>(launch, ctas, stream);
}

}  // namespace tide::detail
