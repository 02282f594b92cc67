// SPDX-License-Identifier: Apache-2.0
//
// What GPU tests share: values by (parameter, element, rank, step), memory to and from a device, the devices there are.

#pragma once

#include <tide/layout/layout_view.hpp>

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace gpu {

// How many devices a test may use; 0 on a machine without any.
inline int devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// A scrambled number that depends on every argument.
inline std::uint32_t hash(std::uint32_t parameter, std::uint32_t element, std::uint32_t rank, std::uint32_t step) {
  std::uint32_t h = parameter * 0x9E3779B1u ^ element * 0x85EBCA77u ^ rank * 0xC2B2AE3Du ^ step * 0x27D4EB2Fu;
  h ^= h >> 15;
  h *= 0x2C1B3C6Du;
  h ^= h >> 12;
  h *= 0x297A2D39u;
  return h ^ h >> 15;
}

// A number with an exponent spread over 2^-20 .. 2^20: sums in another order than the tree's differ.
inline float spread(std::uint32_t parameter, std::uint32_t element, std::uint32_t rank, std::uint32_t step) {
  const std::uint32_t h = hash(parameter, element, rank, step);
  const float mantissa = 1.0F + static_cast<float>(h & 0x7FFFFF) / 8388608.0F;
  const int exponent = static_cast<int>(h >> 23 & 0xFF) % 41 - 20;
  return ((h >> 31) != 0 ? -mantissa : mantissa) * __builtin_ldexpf(1.0F, exponent);
}

inline std::vector<unsigned char> download(const void* from, std::size_t bytes) {
  std::vector<unsigned char> out(bytes);
  if (bytes > 0) cudaMemcpy(out.data(), from, bytes, cudaMemcpyDeviceToHost);
  return out;
}

// When it returns the bytes are there: a copy from pageable memory alone may be on its way yet.
inline void upload(void* to, const std::vector<unsigned char>& bytes) {
  if (bytes.empty()) return;
  cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
  cudaStreamSynchronize(nullptr);
}

// A rank's packed or dense buffer with the bytes that `value(parameter, element)` gives; `Bytes` writes one element.
template <class Write>
std::vector<unsigned char> fill(const tide::LayoutView& view, tide::Buffer buffer, tide::Rank rank,
                                const Write& write) {
  std::vector<unsigned char> out(static_cast<std::size_t>(view.bytes(buffer, rank)), 0xEE);
  view.for_each_piece(rank, [&](const tide::Piece& piece) {
    const bool dense = tide::is_dense(buffer);
    const tide::index_t size = piece.size(buffer);
    if (dense) {
      const tide::index_t elements = view.group[piece.parameter].shape.elements();
      for (tide::index_t e = 0; e < elements; ++e) {
        write(piece.parameter.value, e, out.data() + piece.start[static_cast<std::size_t>(buffer)] + e * size);
      }
      return;
    }
    for (tide::index_t row = 0; row < piece.outer; ++row) {
      for (tide::index_t i = 0; i < piece.width; ++i) {
        write(piece.parameter.value, row * piece.pitch + piece.first + i,
              out.data() + piece.offset(buffer) + (row * piece.width + i) * size);
      }
    }
  });
  return out;
}

}  // namespace gpu
