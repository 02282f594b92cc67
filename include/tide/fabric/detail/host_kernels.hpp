// SPDX-License-Identifier: Apache-2.0
//
// The kernels of HostFabric: casts, sums along the tree of reduce/tree.hpp, one instantiation per element, and the sum
// of a switch, emulated.

#pragma once

#include <tide/core/math.hpp>        // power_below
#include <tide/element/convert.hpp>  // convert
#include <tide/fabric/fabric.hpp>    // KernelCode

#include <algorithm>
#include <array>
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

// One row of a sum in the switch: at each of `inputs` offsets the memories of `ranks` ranks are read.
struct HostSwitchRow {
  const std::byte* const* memories;
  std::int32_t ranks;
  std::int32_t inputs;
  index_t first;  // offset of the first input
  index_t next;   // of the second; the others are `stride` bytes apart
  index_t stride;
  float* output;
  index_t elements;
  float scale;
};
using HostSwitchSum = void (*)(const HostSwitchRow& row);

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

// The tree's sum of inputs [First, Last) at position `e`.
template <int First, int Last, class In>
[[nodiscard]] inline float tree_at(const In* const* inputs, index_t e) noexcept {
  if constexpr (Last - First == 1) {
    return convert<float>(inputs[First][e]);
  } else {
    constexpr int middle = First + static_cast<int>(power_below(Last - First));
    return tree_at<First, middle>(inputs, e) + tree_at<middle, Last>(inputs, e);
  }
}

// All of a small tree in one pass over its inputs.
template <int Count, class In>
void sum_few(const In* const* given, index_t elements, float scale, float* sums) noexcept {
  std::array<const In*, Count> inputs;  // a copy, so that the compiler sees that no store changes it
  std::copy_n(given, Count, inputs.begin());
  for (index_t e = 0; e < elements; ++e) sums[e] = tree_at<0, Count>(inputs.data(), e) * scale;
}

inline constexpr index_t sum_block = 512;  // elements; a few blocks of floats stay in the first cache

// Inputs [first, last) of `n` elements from `begin` on, summed and scaled: up to four in one pass, more by the halves
// of the tree, which meet in the first cache. `scratch` has a block for each level above four.
template <class In>
void sum_range(const HostSumRow& row, std::int32_t first, std::int32_t last, index_t begin, index_t n, float scale,
               float* sums, float* scratch) noexcept {
  constexpr std::array few{&sum_few<1, In>, &sum_few<2, In>, &sum_few<3, In>, &sum_few<4, In>};
  const auto count = static_cast<std::size_t>(last - first);
  if (count <= few.size()) {
    std::array<const In*, few.size()> inputs{};
    for (std::size_t k = 0; k < count; ++k) {
      const std::int32_t i = first + static_cast<std::int32_t>(k);
      const std::int32_t piece = i < row.position ? i : i - 1;
      const std::byte* bytes = i == row.position ? row.own : row.pieces + piece * row.piece_stride;
      inputs[k] = reinterpret_cast<const In*>(bytes) + begin;
    }
    return few[count - 1](inputs.data(), n, scale, sums);
  }
  const std::int32_t middle = first + static_cast<std::int32_t>(power_below(last - first));
  sum_range<In>(row, first, middle, begin, n, 1, sums, scratch);
  sum_range<In>(row, middle, last, begin, n, 1, scratch, scratch + sum_block);
  for (index_t e = 0; e < n; ++e) sums[e] = (sums[e] + scratch[e]) * scale;
}

template <class In, bool Accumulate>
void host_sum(const HostSumRow& row) {
  alignas(64) float scratch[16][sum_block];  // enough for 65536 inputs
  for (index_t begin = 0; begin < row.elements; begin += sum_block) {
    const index_t n = std::min(sum_block, row.elements - begin);
    float* output = row.output + begin;
    // Where the sum replaces the own input, no half of it may be stored before all is read.
    const bool in_place = row.own == reinterpret_cast<const std::byte*>(row.output);
    float* sums = Accumulate || in_place ? scratch[0] : output;
    sum_range<In>(row, 0, row.inputs, begin, n, row.scale, sums, scratch[1]);
    if constexpr (!Accumulate) {
      if (in_place) std::copy_n(sums, n, output);
    } else {
      keep_rounded(sums);
      for (index_t e = 0; e < n; ++e) output[e] += sums[e];
    }
  }
}

// A switch adds in an order of its own; this one in the order of ranks.
template <bool Accumulate>
void host_switch_sum(const HostSwitchRow& row) {
  alignas(64) float total[sum_block];
  alignas(64) float place[sum_block];
  for (index_t begin = 0; begin < row.elements; begin += sum_block) {
    const index_t n = std::min(sum_block, row.elements - begin);
    for (std::int32_t i = 0; i < row.inputs; ++i) {
      const index_t offset = (i == 0 ? row.first : row.next + (i - 1) * row.stride) + 4 * begin;
      for (std::int32_t r = 0; r < row.ranks; ++r) {
        const auto* from = reinterpret_cast<const float*>(row.memories[r] + offset);
        for (index_t e = 0; e < n; ++e) place[e] = r == 0 ? from[e] : place[e] + from[e];
      }
      for (index_t e = 0; e < n; ++e) total[e] = i == 0 ? place[e] : total[e] + place[e];
    }
    for (index_t e = 0; e < n; ++e) total[e] *= row.scale;
    keep_rounded(total);
    for (index_t e = 0; e < n; ++e) row.output[begin + e] = Accumulate ? row.output[begin + e] + total[e] : total[e];
  }
}

// The kernel of one entry of a collective's table.
template <Kernel::Kind Kind, Element E, Finish End>
[[nodiscard]] KernelCode host_kernel() noexcept {
  if constexpr (Kind == Kernel::Kind::cast) {
    return reinterpret_cast<KernelCode>(&host_cast<type_of_t<E>>);
  } else if constexpr (Kind == Kernel::Kind::switch_sum) {
    return reinterpret_cast<KernelCode>(&host_switch_sum<End == Finish::accumulate>);
  } else {
    return reinterpret_cast<KernelCode>(&host_sum<type_of_t<E>, End == Finish::accumulate>);
  }
}

}  // namespace tide::detail
