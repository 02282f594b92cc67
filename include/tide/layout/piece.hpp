// SPDX-License-Identifier: Apache-2.0
//
// Piece: what one rank owns of one parameter, and where it lies in each buffer.
//
//   packed, per rank                        dense, the same on every rank
//   masters   f32        |w|b|              slot       gathered   |wwww....|bbbb....|
//   shards    gathered   |w|b|              gradients  gradient   |wwww....|bbbb....|
//   output    f32        |w|b|
//
// Test: tests/layout/layout_view.test.cpp

#pragma once

#include <tide/layout/block.hpp>  // Block

#include <array>
#include <cstddef>
#include <cstdint>

namespace tide {

/// The buffers whose inside a layout describes.
enum class Buffer : std::uint8_t {
  masters,    ///< f32 shards, packed per rank
  shards,     ///< shards in the gathered element, packed per rank
  output,     ///< reduced f32 shards, packed per rank
  slot,       ///< whole parameters in the gathered element
  gradients,  ///< whole gradients in the gradient element
};

inline constexpr int buffer_count = 5;

/// One parameter's piece on one rank: rows [begin, begin + count) of its sharded dimension.
struct Piece {
  ParameterIndex parameter{};
  index_t begin = 0;
  index_t count = 0;
  index_t outer = 1;  ///< runs of the piece inside the dense parameter: product of the dimensions before
  index_t width = 0;  ///< elements of a run
  index_t pitch = 0;  ///< elements from run to run in the dense parameter
  index_t first = 0;  ///< elements before the first run in the dense parameter
  std::array<index_t, buffer_count> start{};  ///< bytes; of the piece where packed, of the parameter where dense
  std::array<index_t, buffer_count> element_bytes{};

  [[nodiscard]] constexpr index_t elements() const noexcept { return outer * width; }
  /// Bytes from the start of `buffer` to the first element of the piece.
  [[nodiscard]] constexpr index_t offset(Buffer buffer) const noexcept;
  /// Bytes from run to run in `buffer`.
  [[nodiscard]] constexpr index_t pitch_bytes(Buffer buffer) const noexcept;
  [[nodiscard]] constexpr index_t bytes(Buffer buffer) const noexcept { return elements() * size(buffer); }
  [[nodiscard]] constexpr index_t size(Buffer buffer) const noexcept {
    return element_bytes[static_cast<std::size_t>(buffer)];
  }
  /// The strided block that carries the piece from one buffer to another.
  [[nodiscard]] constexpr Block block(Buffer source, Buffer target) const noexcept;
};

/// Whether `buffer` holds whole parameters (else one rank's shards, packed).
[[nodiscard]] constexpr bool is_dense(Buffer buffer) noexcept {
  return buffer == Buffer::slot || buffer == Buffer::gradients;
}

constexpr index_t Piece::offset(Buffer buffer) const noexcept {
  return start[static_cast<std::size_t>(buffer)] + (is_dense(buffer) ? first * size(buffer) : 0);
}

constexpr index_t Piece::pitch_bytes(Buffer buffer) const noexcept {
  return (is_dense(buffer) ? pitch : width) * size(buffer);
}

constexpr Block Piece::block(Buffer source, Buffer target) const noexcept {
  return {parameter,
          offset(source),
          offset(target),
          width * size(source),
          width * size(target),
          outer,
          pitch_bytes(source),
          pitch_bytes(target),
          0};
}

}  // namespace tide
