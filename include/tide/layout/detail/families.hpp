// SPDX-License-Identifier: Apache-2.0
//
// The two steps of coalesce.hpp.

#pragma once

#include <tide/layout/block.hpp>  // Block

#include <algorithm>
#include <vector>

namespace tide::detail {

// How many list positions apart two members of a family may lie: the most parameters that a repeated unit may have.
inline constexpr std::size_t max_family_period = 32;

// A block whose rows touch on both sides is one run.
[[nodiscard]] constexpr Block flattened(Block block) noexcept {
  if (block.rows > 1 && block.source_pitch == block.source_width && block.target_pitch == block.target_width) {
    block.source_width *= block.rows;
    block.target_width *= block.rows;
    block.rows = 1;
  }
  if (block.rows == 1) {
    block.source_pitch = block.source_width;
    block.target_pitch = block.target_width;
  }
  return block;
}

// Plans are written from millions of short lists: these are merged where they are.
[[nodiscard]] constexpr std::vector<Block> merge_neighbours(std::vector<Block> blocks) {
  std::size_t merged = 0;
  for (const Block& original : blocks) {
    const Block block = flattened(original);
    if (block.target_bytes() == 0) continue;
    if (merged > 0) {
      Block& last = blocks[merged - 1];
      if (last.rows == 1 && block.rows == 1 && last.kind == block.kind &&
          last.source + last.source_width == block.source && last.target + last.target_width == block.target) {
        last.source_width += block.source_width;
        last.target_width += block.target_width;
        last = flattened(last);
        continue;
      }
    }
    blocks[merged++] = block;
  }
  blocks.resize(merged);
  return blocks;
}

// How many blocks, from `first` on in steps of `period`, are equal runs at equal distances on both sides.
[[nodiscard]] constexpr index_t family_length(const std::vector<Block>& blocks, const std::vector<char>& taken,
                                              std::size_t first, std::size_t period) {
  const Block& head = blocks[first];
  if (first + period >= blocks.size()) return 1;
  const index_t source_step = blocks[first + period].source - head.source;
  const index_t target_step = blocks[first + period].target - head.target;
  if (source_step < head.source_width || target_step < head.target_width) return 1;
  if (source_step > max_pitch || target_step > max_pitch) return 1;
  index_t length = 1;
  for (std::size_t i = first + period; i < blocks.size() && length < max_rows; i += period) {
    const Block& next = blocks[i];
    if (taken[i] != 0 || next.rows != 1 || next.kind != head.kind || next.source_width != head.source_width ||
        next.target_width != head.target_width || next.source != head.source + length * source_step ||
        next.target != head.target + length * target_step) {
      break;
    }
    ++length;
  }
  return length;
}

[[nodiscard]] constexpr std::vector<Block> merge_families(std::vector<Block> blocks) {
  if (blocks.size() < 2) return blocks;
  std::vector<Block> merged;
  std::vector<char> taken(blocks.size(), 0);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (taken[i] != 0) continue;
    Block block = blocks[i];
    std::size_t best_period = 1;
    index_t best = 1;
    if (block.rows == 1) {
      for (std::size_t period = 1; period <= max_family_period && i + period < blocks.size(); ++period) {
        const index_t length = family_length(blocks, taken, i, period);
        if (length > best) {
          best = length;
          best_period = period;
        }
      }
    }
    if (best > 1) {
      block.rows = best;
      block.source_pitch = blocks[i + best_period].source - block.source;
      block.target_pitch = blocks[i + best_period].target - block.target;
      for (index_t n = 0; n < best; ++n) taken[i + static_cast<std::size_t>(n) * best_period] = 1;
    }
    merged.push_back(block);
  }
  return merged;
}

}  // namespace tide::detail
