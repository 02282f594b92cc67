// SPDX-License-Identifier: Apache-2.0
//
// Block: a strided piece of memory and where it goes, the unit that every transfer of tide is made of.
//
//   source  |####|----|####|----|        rows = 2, width = 4, source_pitch = 8
//   target  |####|####|                                        target_pitch = 4
//
// Laws of `coalesce`, for every list of blocks:      (tests/layout/coalesce.test.cpp)
//   same bytes   the (source byte, target byte) pairs of the result are those of the list
//   fewer        never more blocks than before

#pragma once

#include <tide/core/index.hpp>  // ParameterIndex, index_t

#include <cstdint>
#include <vector>

namespace tide {

/// `rows` runs of `source_width` bytes each, `source_pitch` bytes apart, that become runs of `target_width` bytes,
/// `target_pitch` apart. The widths differ only where a cast changes the element.
struct Block {
  ParameterIndex parameter{};  ///< the first parameter that the block holds bytes of
  index_t source = 0;          ///< bytes from the start of the source buffer
  index_t target = 0;          ///< bytes from the start of the target buffer
  index_t source_width = 0;
  index_t target_width = 0;
  index_t rows = 1;
  index_t source_pitch = 0;
  index_t target_pitch = 0;
  std::uint8_t kind = 0;  ///< only blocks of one kind coalesce: the kernel that a cast or a sum needs

  [[nodiscard]] constexpr index_t source_bytes() const noexcept { return rows * source_width; }
  [[nodiscard]] constexpr index_t target_bytes() const noexcept { return rows * target_width; }
  [[nodiscard]] friend constexpr bool operator==(const Block&, const Block&) = default;
};

/// The largest distance between rows that a block may have: what 2-D copies of the CUDA driver take.
inline constexpr index_t max_pitch = (index_t{1} << 31) - 1;

/// The largest number of rows that a block may have.
inline constexpr index_t max_rows = (index_t{1} << 31) - 1;

/// Appends a block in parts of at most `most` rows.
constexpr void append_parts(std::vector<Block>& list, const Block& block, index_t most) {
  for (index_t row = 0; row < block.rows; row += most) {
    Block part = block;
    part.rows = block.rows - row < most ? block.rows - row : most;
    part.source += row * block.source_pitch;
    part.target += row * block.target_pitch;
    list.push_back(part);
  }
}

/// Appends a block in as many parts as `max_pitch` and `max_rows` ask for.
constexpr void append_within_limits(std::vector<Block>& list, const Block& block) {
  const bool wide = block.source_pitch > max_pitch || block.target_pitch > max_pitch;
  append_parts(list, block, wide ? 1 : max_rows);
}

}  // namespace tide
