// SPDX-License-Identifier: Apache-2.0
//
// The numbers that are moved and summed, made on the device from (content, rank, round, parameter, element), and
// kernels that count the results that are wrong. Exponents are spread over 2^-10 to 2^10, so that a wrong order of sums
// shows. Rounding and sums are CUDA's own intrinsics, not the library's.

#pragma once

#include "memory.cuh"

#include <tide/layout/layout_view.hpp>  // LayoutView

#include <cuda_bf16.h>

#include <algorithm>

namespace tide_benchmark {

using tide::index_t;

/// What a number is used for. Weights are the same on every rank.
enum class Content : int { weight = 1, gradient = 2, operand = 3 };

struct Source {
  Content content = Content::weight;
  int rank = 0;
  int round = 0;  // new ones for each check, so that what an earlier one left behind is wrong
};

/// Elements [first, first + elements) of a parameter, at `offset` bytes of a buffer.
struct Span {
  int parameter = 0;
  index_t first = 0;
  index_t elements = 0;
  index_t offset = 0;
};

/// A rank's pieces in a packed buffer, or inside a dense one.
[[nodiscard]] inline std::vector<Span> own_spans(const tide::LayoutView& layout, int rank, tide::Buffer buffer) {
  std::vector<Span> spans;
  layout.for_each_piece(tide::Rank{rank}, [&](const tide::Piece& piece) {
    if (piece.elements() == 0) return;
    if (piece.outer != 1) throw std::runtime_error("parameters must be cut along their first dimension");
    spans.push_back({piece.parameter.value, piece.first, piece.elements(), piece.offset(buffer)});
  });
  return spans;
}

/// The whole parameters in a dense buffer.
[[nodiscard]] inline std::vector<Span> whole_spans(const tide::LayoutView& layout, tide::Buffer buffer) {
  std::vector<Span> spans;
  layout.for_each_piece(tide::Rank{0}, [&](const tide::Piece& piece) {
    const index_t elements = piece.outer * piece.pitch;
    spans.push_back({piece.parameter.value, 0, elements, piece.start[static_cast<std::size_t>(buffer)]});
  });
  return spans;
}

// The bits of a float in [2^-10, 2^11), of either sign.
__device__ inline std::uint32_t number_bits(Source source, int parameter, std::int64_t element) {
  const std::uint64_t use =
      (static_cast<std::uint64_t>(source.content) * 64 + static_cast<std::uint64_t>(source.rank)) * 65536;
  const std::uint64_t key =
      (use + static_cast<std::uint64_t>(source.round)) * 4096 + static_cast<std::uint64_t>(parameter);
  std::uint64_t x = key * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(element);
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  x ^= x >> 31U;
  const std::uint32_t exponent = 117U + static_cast<std::uint32_t>((x >> 32U) & 0xffffU) % 21U;
  return static_cast<std::uint32_t>(x >> 63U) << 31U | exponent << 23U | static_cast<std::uint32_t>(x & 0x7fffffU);
}

// A number in (-largest, largest), all of them as likely.
__device__ inline float even_number(Source source, int parameter, std::int64_t element, float largest) {
  const std::uint32_t bits = number_bits(source, parameter, element);
  const float size = static_cast<float>(bits & 0x7fffffU) * 0x1p-23F * largest;
  return (bits >> 31U) != 0 ? -size : size;
}

// A weight: any float.
__device__ inline float weight(int parameter, std::int64_t element) {
  return __uint_as_float(number_bits({Content::weight, 0, 0}, parameter, element));
}
__device__ inline std::uint16_t weight_bf16(int parameter, std::int64_t element) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(weight(parameter, element)));
}

// A number that bf16 holds, as bf16 and as float.
__device__ inline std::uint16_t short_bits(Source source, int parameter, std::int64_t element) {
  return static_cast<std::uint16_t>(number_bits(source, parameter, element) >> 16U);
}
__device__ inline float short_number(Source source, int parameter, std::int64_t element) {
  return __uint_as_float(static_cast<std::uint32_t>(short_bits(source, parameter, element)) << 16U);
}

static __global__ void fill_weights_f32(float* to, int parameter, std::int64_t first, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    to[i] = weight(parameter, first + i);
  }
}

static __global__ void fill_weights_bf16(std::uint16_t* to, int parameter, std::int64_t first, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    to[i] = weight_bf16(parameter, first + i);
  }
}

static __global__ void fill_shorts(std::uint16_t* to, Source source, int parameter, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    to[i] = short_bits(source, parameter, i);
  }
}

static __global__ void count_wrong_weights(const std::uint16_t* at, int parameter, std::int64_t first,
                                           std::int64_t elements, unsigned long long* wrong) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    if (at[i] != weight_bf16(parameter, first + i)) atomicAdd(wrong, 1ULL);
  }
}

// The sum along the tree: on the left the largest power of two that is less than all.
__device__ inline float sum_of_leaves(const float* leaves, int first, int last) {
  if (last - first == 1) return leaves[first];
  int half = 1;
  while (2 * half < last - first) half *= 2;
  return __fadd_rn(sum_of_leaves(leaves, first, first + half), sum_of_leaves(leaves, first + half, last));
}

inline constexpr int most_ranks = 8;

// The average of the ranks' gradients: bit for bit that along the tree, or within a rounding for each rank.
static __global__ void count_wrong_averages(const float* at, int ranks, int parameter, std::int64_t first,
                                            std::int64_t elements, int round, bool exact, unsigned long long* wrong) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    float leaves[most_ranks];
    float sizes = 0;
    for (int r = 0; r < ranks; ++r) {
      leaves[r] = short_number({Content::gradient, r, round}, parameter, first + i);
      sizes += fabsf(leaves[r]);
    }
    const float right = __fmul_rn(sum_of_leaves(leaves, 0, ranks), 1.0F / static_cast<float>(ranks));
    const float is = at[i];
    const float bound = exact ? 0.0F : static_cast<float>(ranks) * 0x1p-23F * sizes;
    // A NaN is never within the bound.
    const bool good = exact ? __float_as_uint(is) == __float_as_uint(right) : fabsf(is - right) <= bound;
    if (!good) atomicAdd(wrong, 1ULL);
  }
}

[[nodiscard]] inline unsigned grid_for(index_t elements) {
  return static_cast<unsigned>(std::clamp<index_t>((elements + 1023) / 1024, 1, 4096));
}

inline void fill_masters(std::byte* buffer, const std::vector<Span>& spans, cudaStream_t stream) {
  for (const Span& span : spans) {
    fill_weights_f32<<<grid_for(span.elements), 256, 0, stream>>>(reinterpret_cast<float*>(buffer + span.offset),
                                                                  span.parameter, span.first, span.elements);
  }
  must_launch("fill_weights_f32");
}

inline void fill_shards(std::byte* buffer, const std::vector<Span>& spans, cudaStream_t stream) {
  for (const Span& span : spans) {
    fill_weights_bf16<<<grid_for(span.elements), 256, 0, stream>>>(
        reinterpret_cast<std::uint16_t*>(buffer + span.offset), span.parameter, span.first, span.elements);
  }
  must_launch("fill_weights_bf16");
}

/// Whole parameters of bf16 numbers.
inline void fill_whole(std::byte* buffer, Source source, const std::vector<Span>& spans, cudaStream_t stream) {
  for (const Span& span : spans) {
    fill_shorts<<<grid_for(span.elements), 256, 0, stream>>>(reinterpret_cast<std::uint16_t*>(buffer + span.offset),
                                                             source, span.parameter, span.elements);
  }
  must_launch("fill_shorts");
}

/// Counts what is wrong, on a stream; waits for it.
class Judge {
 public:
  /// @param ranks  whose gradients are reduced, `most_ranks` at most
  explicit Judge(int ranks) : ranks_(ranks) {}

  [[nodiscard]] unsigned long long gathered(const std::byte* buffer, const std::vector<Span>& spans,
                                            cudaStream_t stream) const {
    begin(stream);
    for (const Span& span : spans) {
      count_wrong_weights<<<grid_for(span.elements), 256, 0, stream>>>(
          reinterpret_cast<const std::uint16_t*>(buffer + span.offset), span.parameter, span.first, span.elements,
          wrong_.as<unsigned long long>());
    }
    return end("count_wrong_weights", stream);
  }

  [[nodiscard]] unsigned long long reduced(const std::byte* buffer, const std::vector<Span>& spans, int round,
                                           bool exact, cudaStream_t stream) const {
    begin(stream);
    for (const Span& span : spans) {
      count_wrong_averages<<<grid_for(span.elements), 256, 0, stream>>>(
          reinterpret_cast<const float*>(buffer + span.offset), ranks_, span.parameter, span.first, span.elements,
          round, exact, wrong_.as<unsigned long long>());
    }
    return end("count_wrong_averages", stream);
  }

 private:
  void begin(cudaStream_t stream) const { must(cudaMemsetAsync(wrong_.as<>(), 0, 8, stream), "cudaMemsetAsync"); }
  unsigned long long end(const char* kernel, cudaStream_t stream) const {
    must_launch(kernel);
    unsigned long long count = 0;
    must(cudaMemcpyAsync(&count, wrong_.as<>(), 8, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return count;
  }

  int ranks_;
  DeviceMemory wrong_{8};
};

}  // namespace tide_benchmark
