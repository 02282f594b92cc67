// SPDX-License-Identifier: Apache-2.0
//
// The kernels of HostFabric: casts, and sums along the tree of reduce/tree.hpp, one instantiation per element.

#pragma once

#include <tide/element/convert.hpp>  // convert
#include <tide/fabric/fabric.hpp>    // KernelCode

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tide::detail {

using HostCast = void (*)(const std::byte* source, std::byte* target, index_t elements);

// One row of a sum: the own gradient at `position` among `inputs`, the others `piece_stride` bytes apart.
struct HostSumRow {
  const std::byte* own;
  const std::byte* pieces;
  index_t piece_stride;
  std::int32_t inputs;
  std::int32_t position;
  float* output;
  index_t elements;
  float scale;
};
using HostSum = void (*)(const HostSumRow& row);

// Keeps the compiler from looking through `values`: a product must be rounded before it is added, and GCC and Clang
// would both fuse the two where the target has a fused multiply-add.
inline void keep_rounded(float* values) noexcept {
#if defined(__GNUC__)
  asm volatile("" : : "r"(values) : "memory");
#else
  volatile float* seen = values;
  *seen = *seen;
#endif
}

template <class To>
void host_cast(const std::byte* source, std::byte* target, index_t elements) {
  const auto* from = reinterpret_cast<const float*>(source);
  auto* to = reinterpret_cast<To*>(target);
  for (index_t i = 0; i < elements; ++i) to[i] = convert<To>(from[i]);
}

template <class In, bool Accumulate>
void host_sum(const HostSumRow& row) {
  // 512 elements of every level stay in the first cache; 17 levels are enough for 65536 inputs.
  constexpr index_t block = 512;
  constexpr int levels = 17;
  alignas(64) float sums[levels][block];
  for (index_t begin = 0; begin < row.elements; begin += block) {
    const index_t n = std::min(block, row.elements - begin);
    int top = 0;
    for (std::int32_t i = 0; i < row.inputs; ++i) {
      const std::int32_t piece = i < row.position ? i : i - 1;
      const std::byte* bytes = i == row.position ? row.own : row.pieces + piece * row.piece_stride;
      const In* input = reinterpret_cast<const In*>(bytes) + begin;
      // A binary counter: input i carries as often as i has trailing ones; the first carry needs no buffer.
      if ((i & 1) != 0) {
        float* left = sums[top - 1];
        for (index_t e = 0; e < n; ++e) left[e] += static_cast<float>(convert<float>(input[e]));
        for (std::int32_t carry = i >> 1; (carry & 1) != 0; carry >>= 1, --top) {
          for (index_t e = 0; e < n; ++e) sums[top - 2][e] += sums[top - 1][e];
        }
      } else {
        for (index_t e = 0; e < n; ++e) sums[top][e] = static_cast<float>(convert<float>(input[e]));
        ++top;
      }
    }
    for (; top > 1; --top) {
      for (index_t e = 0; e < n; ++e) sums[top - 2][e] += sums[top - 1][e];
    }
    for (index_t e = 0; e < n; ++e) sums[0][e] *= row.scale;
    keep_rounded(sums[0]);
    float* output = row.output + begin;
    for (index_t e = 0; e < n; ++e) output[e] = Accumulate ? output[e] + sums[0][e] : sums[0][e];
  }
}

// The kernel of one entry of a collective's table.
template <Kernel::Kind Kind, Element E, Finish End>
[[nodiscard]] KernelCode host_kernel() noexcept {
  if constexpr (Kind == Kernel::Kind::cast) {
    return reinterpret_cast<KernelCode>(&host_cast<type_of_t<E>>);
  } else {
    return reinterpret_cast<KernelCode>(&host_sum<type_of_t<E>, End == Finish::accumulate>);
  }
}

}  // namespace tide::detail
