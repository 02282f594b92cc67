// SPDX-License-Identifier: Apache-2.0
//
// Cutting the output of one rank into the chunks of an inbox. A chunk covers `chunk_elements` elements of the packed
// output; a piece keeps the spacing of the output, so that one number locates an element in both. In a slot, elements
// of unlike size lie back to back instead: a piece takes no more room than it has bytes.

#pragma once

#include <tide/layout/coalesce.hpp>  // coalesce, coalesce_each_parameter
#include <tide/plan/kernels.hpp>     // name_kernels

#include <algorithm>
#include <vector>

namespace tide::detail {

// The part of a gradients -> output block whose output bytes lie in [begin, end): a part of a row, whole rows, a part
// of a row. Rows touch in the packed output.
constexpr void append_range(std::vector<Block>& list, const Block& block, index_t begin, index_t end) {
  const index_t first = std::max(begin, block.target) - block.target;
  const index_t last = std::min(end, block.target + block.target_bytes()) - block.target;
  for (index_t at = first; at < last;) {
    const index_t row = at / block.target_width;
    const index_t inside = at % block.target_width;
    const bool whole = inside == 0 && last - at >= block.target_width;
    const index_t rows = whole ? (last - at) / block.target_width : 1;
    const index_t bytes = whole ? block.target_width : std::min(block.target_width - inside, last - at);
    Block part = block;
    part.rows = rows;
    part.target_width = bytes;
    part.source_width = bytes / 4 * (block.source_width / (block.target_width / 4));
    part.target = block.target + at;
    part.source =
        block.source + row * block.source_pitch + inside / 4 * (block.source_width / (block.target_width / 4));
    list.push_back(part);
    at += rows * bytes;
  }
}

// The parts of all blocks from number `first` on, which are sorted by target, whose output bytes lie in [begin, end);
// returns the first block that reaches beyond.
constexpr std::size_t append_ranges(std::vector<Block>& list, const std::vector<Block>& blocks, std::size_t first,
                                    index_t begin, index_t end) {
  std::size_t next = first;
  for (std::size_t b = first; b < blocks.size() && blocks[b].target < end; ++b) {
    append_range(list, blocks[b], begin, end);
    if (blocks[b].target + blocks[b].target_bytes() <= end) next = b + 1;
  }
  return next;
}

// Whether elements of all gradients take the same room.
[[nodiscard]] constexpr bool one_gradient_size(const Collective& collective) noexcept {
  const auto& parameters = collective.layout.group.parameters;
  return std::all_of(parameters.begin(), parameters.end(), [&](const Parameter& p) {
    return static_cast<index_t>(size_bytes(p.gradient)) == collective.inbox.element_bytes;
  });
}

// Merges blocks where elements take the same room, else leaves single rows: those of unlike size must not merge.
[[nodiscard]] constexpr std::vector<Block> merged(const std::vector<Block>& blocks, bool one_size, bool table) {
  if (one_size && table) return coalesce_each_parameter(blocks);
  if (one_size) return coalesce(blocks);
  std::vector<Block> rows;
  for (const Block& block : blocks) append_parts(rows, block, 1);
  return rows;
}

// The blocks of one owner's gradients, by chunk: as the owner sums them (`sums`), and as a peer pushes them (`pushes`,
// with targets inside the piece).
struct OwnerChunk {
  std::vector<Block> sums{};
  std::vector<Block> pushes{};
};

// The blocks of a chunk, from gradients -> output blocks.
[[nodiscard]] constexpr OwnerChunk make_chunk(const Collective& collective, const std::vector<Block>& blocks,
                                              index_t begin) {
  OwnerChunk chunk;
  const bool even = one_gradient_size(collective);
  chunk.sums = merged(blocks, even, collective.gradients == GradientSource::table);
  const bool tight = !even && collective.inbox.place == InboxPlace::slot;
  index_t next = 0;
  for (Block block : chunk.sums) {
    block.target = (block.target - begin) / 4 * collective.inbox.element_bytes;
    if (tight) {
      block.target = align_up(next, block.source_width / (block.target_width / 4));
      next = block.target + block.source_width;
    }
    block.target_pitch = block.target_pitch / 4 * collective.inbox.element_bytes;
    block.target_width = block.source_width;
    block.kind = 0;
    chunk.pushes.push_back(block);
  }
  return chunk;
}

// All chunks of one owner; a range that holds nothing but padding makes no chunk.
[[nodiscard]] constexpr std::vector<OwnerChunk> owner_chunks(const Collective& collective, Rank owner) {
  std::vector<Block> blocks = collective.layout.blocks(owner, Buffer::gradients, Buffer::output);
  name_kernels(blocks, collective);
  const index_t chunk_bytes = collective.inbox.chunk_elements * 4;
  const index_t bytes = collective.layout.bytes(Buffer::output, owner);
  std::vector<OwnerChunk> chunks;
  std::size_t next = 0;
  for (index_t begin = 0; begin < bytes; begin += chunk_bytes) {
    const index_t end = begin + chunk_bytes;
    std::vector<Block> parts;
    next = append_ranges(parts, blocks, next, begin, end);
    if (!parts.empty()) chunks.push_back(make_chunk(collective, parts, begin));
  }
  return chunks;
}

}  // namespace tide::detail
