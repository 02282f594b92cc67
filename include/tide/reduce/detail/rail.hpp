// SPDX-License-Identifier: Apache-2.0
//
// The owners of one rail, one rank of each node, cut into chunks together: a chunk covers the same stretch of every
// owner's packed output.
//
//   packed output of (0, g)   |chunk 0|chunk 1|chunk 2|
//   packed output of (1, g)   |chunk 0|chunk 1|ch|
//
// Offsets of parts are relative to the chunk: an element has one number in a piece, in partial sums and in the output.

#pragma once

#include <tide/reduce/detail/chunks.hpp>  // append_ranges

#include <algorithm>
#include <span>
#include <vector>

namespace tide::detail {

// What one owner has in a chunk.
struct OwnerPart {
  std::vector<Block> blocks{};  // gradients -> bytes of f32 in the chunk; `kind` is the element
  index_t elements = 0;         // up to the last one
};

struct RailChunk {
  index_t begin = 0;  // bytes of the packed output before it
  std::vector<OwnerPart> owners{};
  index_t elements = 0;  // of the longest owner
};

// The chunks of the rail of local rank `local`; those that hold nothing but padding are left out.
[[nodiscard]] constexpr std::vector<RailChunk> rail_chunks(const Collective& collective, index_t local) {
  const LayoutView& layout = collective.layout;
  const index_t chunk_bytes = collective.inbox.chunk_elements * 4;
  std::vector<RailChunk> chunks;
  for (index_t node = 0; node < layout.mesh.nodes; ++node) {
    const Rank owner = layout.mesh.rank(node, local);
    std::vector<Block> blocks = layout.blocks(owner, Buffer::gradients, Buffer::output);
    for (Block& block : blocks) block.kind = static_cast<std::uint8_t>(layout.group[block.parameter].gradient);
    const index_t count = ceil_div(layout.bytes(Buffer::output, owner), chunk_bytes);
    for (auto c = static_cast<index_t>(chunks.size()); c < count; ++c) {
      chunks.push_back(
          {c * chunk_bytes, std::vector<OwnerPart>(static_cast<std::size_t>(layout.mesh.nodes), OwnerPart{}), 0});
    }
    std::size_t next = 0;
    for (index_t c = 0; c < count; ++c) {
      RailChunk& chunk = chunks[static_cast<std::size_t>(c)];
      OwnerPart& part = chunk.owners[static_cast<std::size_t>(node)];
      const index_t end = chunk.begin + chunk_bytes;
      next = append_ranges(part.blocks, blocks, next, chunk.begin, end);
      for (Block& block : part.blocks) {
        block.target -= chunk.begin;
        part.elements = std::max(part.elements, (block.target + block.target_bytes()) / 4);
      }
      chunk.elements = std::max(chunk.elements, part.elements);
    }
  }
  std::erase_if(chunks, [](const RailChunk& chunk) { return chunk.elements == 0; });
  return chunks;
}

// Blocks whose targets are f32 in a chunk, with targets where elements are `element_bytes` apart, from `start` on.
constexpr void retarget(std::span<Block> blocks, index_t element_bytes, index_t start) {
  for (Block& block : blocks) {
    block.target = start + block.target / 4 * element_bytes;
    block.target_pitch = block.target_pitch / 4 * element_bytes;
    block.target_width = block.source_width;
    block.kind = 0;
  }
}

}  // namespace tide::detail
