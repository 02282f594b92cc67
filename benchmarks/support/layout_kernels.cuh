// SPDX-License-Identifier: Apache-2.0
//
// The copies between flat rank-major buffers and separate parameters that FSDP2 makes around its collectives, launched
// in PyTorch 2.11's geometry, so that they cost what they cost there (benchmarks/pytorch_fsdp2.py measures those):
//
//   Foreach    cast, copy-in    lists of tensors, cut into chunks of 65,536 elements, 320 chunks a launch, 512 threads
//   CopyOut    copy-out         one launch, 128 threads, 16 bytes a thread and iteration, as many blocks as fit twice
//   ChunkCat   widen and pack   one launch, 128 threads, 16 bytes of output a thread, one element at a time
//
// Tables are uploaded once here; PyTorch uploads them on every call.

#pragma once

#include "memory.cuh"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>

namespace tide_benchmark {

__device__ inline float converted(float from, float) { return from; }
__device__ inline __nv_bfloat16 converted(float from, __nv_bfloat16) { return __float2bfloat16_rn(from); }
__device__ inline __nv_bfloat16 converted(__nv_bfloat16 from, __nv_bfloat16) { return from; }

template <class T>
struct alignas(4 * sizeof(T)) Quad {
  T value[4];
};

template <class T>
__device__ inline bool holds_quads(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Quad<T>) == 0;
}

struct ForeachRow {
  const void* from;
  void* to;
  std::int64_t elements;
};
struct ForeachChunk {
  int row;
  int number;  // of the chunk in its row
};

inline constexpr std::int64_t foreach_chunk = 65536;
inline constexpr std::int64_t foreach_blocks = 320;

template <class To, class From>
static __global__ void __launch_bounds__(512) foreach_copy(const ForeachRow* rows, const ForeachChunk* chunks) {
  const ForeachChunk chunk = chunks[blockIdx.x];
  const ForeachRow row = rows[chunk.row];
  const std::int64_t begin = chunk.number * foreach_chunk;
  const std::int64_t count = min(foreach_chunk, row.elements - begin);
  const From* from = static_cast<const From*>(row.from) + begin;
  To* to = static_cast<To*>(row.to) + begin;
  const std::int64_t quads = holds_quads(from) && holds_quads(to) ? count / 4 : 0;
  for (std::int64_t q = threadIdx.x; q < quads; q += blockDim.x) {
    const Quad<From> in = reinterpret_cast<const Quad<From>*>(from)[q];
    Quad<To> out;
#pragma unroll
    for (int k = 0; k < 4; ++k) out.value[k] = converted(in.value[k], To{});
    reinterpret_cast<Quad<To>*>(to)[q] = out;
  }
  for (std::int64_t i = 4 * quads + threadIdx.x; i < count; i += blockDim.x) to[i] = converted(from[i], To{});
}

/// A list of tensors copied to another, converted on the way.
template <class To, class From>
class Foreach {
 public:
  explicit Foreach(const std::vector<ForeachRow>& rows) : rows_(DeviceMemory::of(rows)) {
    std::vector<ForeachChunk> chunks;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::int64_t n = 0; n * foreach_chunk < rows[r].elements; ++n) {
        chunks.push_back({static_cast<int>(r), static_cast<int>(n)});
      }
    }
    count_ = static_cast<std::int64_t>(chunks.size());
    chunks_ = DeviceMemory::of(chunks);
  }

  void enqueue(cudaStream_t stream) const {
    for (std::int64_t done = 0; done < count_; done += foreach_blocks) {
      const auto blocks = static_cast<unsigned>(std::min(foreach_blocks, count_ - done));
      foreach_copy<To, From><<<blocks, 512, 0, stream>>>(rows_.as<ForeachRow>(), chunks_.as<ForeachChunk>() + done);
    }
    must_launch("foreach_copy");
  }

  [[nodiscard]] std::int64_t launches() const noexcept { return (count_ + foreach_blocks - 1) / foreach_blocks; }

 private:
  DeviceMemory rows_;
  DeviceMemory chunks_;
  std::int64_t count_ = 0;
};

inline constexpr std::int64_t jagged_threads = 128;
inline constexpr std::int64_t jagged_bytes = 16;  // of a thread
inline constexpr std::int64_t jagged_block = jagged_threads * jagged_bytes;

// Bytes that the threads of several blocks copy together: 16 at a time where the target is aligned.
__device__ inline void copy_together(std::byte* to, const std::byte* from, std::int64_t bytes, std::int64_t thread,
                                     std::int64_t threads) {
  const std::int64_t head = min(bytes, static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % 16));
  const std::int64_t body = (bytes - head) / 16;
  const bool aligned = reinterpret_cast<std::uintptr_t>(from + head) % 16 == 0;
  for (std::int64_t v = thread; v < body; v += threads) {
    const std::byte* at = from + head + 16 * v;
    uint4 value;
    if (aligned) {
      value = __ldg(reinterpret_cast<const uint4*>(at));
    } else {
      std::uint16_t parts[8];
      for (int k = 0; k < 8; ++k) parts[k] = reinterpret_cast<const std::uint16_t*>(at)[k];
      __builtin_memcpy(&value, parts, 16);
    }
    __stcs(reinterpret_cast<uint4*>(to + head + 16 * v), value);
  }
  for (std::int64_t i = thread; i < head; i += threads) to[i] = from[i];
  for (std::int64_t i = head + 16 * body + thread; i < bytes; i += threads) to[i] = from[i];
}

struct Split {
  std::byte* to;       // the parameter
  std::int64_t from;   // bytes from the start of a rank's part of the flat buffer
  std::int64_t bytes;  // of one rank
  std::int64_t first_block;
};

static __global__ void __launch_bounds__(128)
    copy_out(const std::byte* flat, std::int64_t stride, int ranks, const Split* splits, const int* split_of_block) {
  const int index = split_of_block[blockIdx.x];
  const Split split = splits[index];
  const std::int64_t threads = (splits[index + 1].first_block - split.first_block) * jagged_threads;
  const std::int64_t thread = (blockIdx.x - split.first_block) * jagged_threads + threadIdx.x;
  for (int rank = static_cast<int>(blockIdx.y); rank < ranks; rank += static_cast<int>(gridDim.y)) {
    copy_together(split.to + rank * split.bytes, flat + rank * stride + split.from, split.bytes, thread, threads);
  }
}

/// A flat rank-major buffer copied out into separate parameters.
class CopyOut {
 public:
  /// `splits`: all but `first_block`
  CopyOut(const std::byte* flat, std::int64_t stride, int ranks, std::vector<Split> splits)
      : flat_(flat), stride_(stride), ranks_(ranks) {
    cudaDeviceProp device{};
    int current = 0;
    must(cudaGetDevice(&current), "cudaGetDevice");
    must(cudaGetDeviceProperties(&device, current), "cudaGetDeviceProperties");
    std::int64_t blocks = 0;
    for (const Split& split : splits) blocks += (split.bytes + jagged_block - 1) / jagged_block;
    const std::int64_t most = 2LL * device.multiProcessorCount * device.maxThreadsPerMultiProcessor / jagged_threads;
    const std::int64_t factor = std::max<std::int64_t>(1, (blocks * ranks + most - 1) / most);
    const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(factor))));
    const std::int64_t of_ranks = std::min<std::int64_t>(root, ranks);
    const std::int64_t iterations = (factor + of_ranks - 1) / of_ranks;
    std::vector<int> split_of_block;
    for (std::size_t s = 0; s < splits.size(); ++s) {
      splits[s].first_block = static_cast<std::int64_t>(split_of_block.size());
      const std::int64_t count = (splits[s].bytes + jagged_block * iterations - 1) / (jagged_block * iterations);
      split_of_block.insert(split_of_block.end(), static_cast<std::size_t>(count), static_cast<int>(s));
    }
    splits.push_back({nullptr, 0, 0, static_cast<std::int64_t>(split_of_block.size())});
    grid_ = dim3(static_cast<unsigned>(split_of_block.size()), static_cast<unsigned>(ranks / of_ranks));
    splits_ = DeviceMemory::of(splits);
    split_of_block_ = DeviceMemory::of(split_of_block);
  }

  void enqueue(cudaStream_t stream) const {
    copy_out<<<grid_, jagged_threads, 0, stream>>>(flat_, stride_, ranks_, splits_.as<Split>(),
                                                   split_of_block_.as<int>());
    must_launch("copy_out");
  }

 private:
  const std::byte* flat_;
  std::int64_t stride_;
  int ranks_;
  dim3 grid_;
  DeviceMemory splits_;
  DeviceMemory split_of_block_;
};

struct Tensor {
  const __nv_bfloat16* from;
  std::int64_t elements;  // of the whole tensor
  std::int64_t chunk;     // elements of a rank, padded
  std::int64_t to;        // elements from the start of a rank's part
  std::int64_t first_block;
};

static __global__ void __launch_bounds__(128)
    chunk_cat(float* flat, std::int64_t stride, const Tensor* tensors, const int* tensor_of_block) {
  const int index = tensor_of_block[blockIdx.x];
  const Tensor tensor = tensors[index];
  const std::int64_t threads = (tensors[index + 1].first_block - tensor.first_block) * jagged_threads;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * tensor.chunk;
  const std::int64_t there = max(static_cast<std::int64_t>(0), min(tensor.chunk, tensor.elements - begin));
  const __nv_bfloat16* from = tensor.from + begin;
  float* to = flat + blockIdx.y * stride + tensor.to;
  std::int64_t element = (blockIdx.x - tensor.first_block) * jagged_threads + threadIdx.x;
  for (; element < there; element += threads) to[element] = __bfloat162float(from[element]);
  for (; element < tensor.chunk; element += threads) to[element] = 0.0F;
}

/// Separate bf16 gradients widened and packed into a flat rank-major buffer, padded with zeros.
class ChunkCat {
 public:
  /// `tensors`: all but `first_block`
  ChunkCat(float* flat, std::int64_t stride, int ranks, std::vector<Tensor> tensors) : flat_(flat), stride_(stride) {
    std::vector<int> tensor_of_block;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      tensors[t].first_block = static_cast<std::int64_t>(tensor_of_block.size());
      const std::int64_t count = (tensors[t].chunk * 4 + jagged_block - 1) / jagged_block;
      tensor_of_block.insert(tensor_of_block.end(), static_cast<std::size_t>(count), static_cast<int>(t));
    }
    tensors.push_back({nullptr, 0, 0, 0, static_cast<std::int64_t>(tensor_of_block.size())});
    grid_ = dim3(static_cast<unsigned>(tensor_of_block.size()), static_cast<unsigned>(ranks));
    tensors_ = DeviceMemory::of(tensors);
    tensor_of_block_ = DeviceMemory::of(tensor_of_block);
  }

  void enqueue(cudaStream_t stream) const {
    chunk_cat<<<grid_, jagged_threads, 0, stream>>>(flat_, stride_, tensors_.as<Tensor>(), tensor_of_block_.as<int>());
    must_launch("chunk_cat");
  }

 private:
  float* flat_;
  std::int64_t stride_;
  dim3 grid_;
  DeviceMemory tensors_;
  DeviceMemory tensor_of_block_;
};

static __global__ void __launch_bounds__(128) scale_in_place(float* numbers, std::int64_t elements, float factor) {
  const std::int64_t q = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (4 * q + 4 <= elements) {
    float4 value = reinterpret_cast<float4*>(numbers)[q];
    value.x *= factor;
    value.y *= factor;
    value.z *= factor;
    value.w *= factor;
    reinterpret_cast<float4*>(numbers)[q] = value;
  } else {
    for (std::int64_t i = 4 * q; i < elements; ++i) numbers[i] *= factor;
  }
}

}  // namespace tide_benchmark
