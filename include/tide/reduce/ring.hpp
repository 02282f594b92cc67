// SPDX-License-Identifier: Apache-2.0
//
// Ring: an inbox of a fixed number of chunks that are used again and again, each after a credit from its reader.
//
//   chunk   0     1     2     3        pushes of chunk 4 wait until chunk 0 has been summed
//          | p p | p p | p p | p p |   p: the piece of one peer
//
// Laws: those of Inbox, and                          (tests/reduce/ring.test.cpp)
//   bounded   shape(layout).bytes() <= Budget::value
//   longest   no longer chunk of whole units would fit

#pragma once

#include <tide/core/tags.hpp>                  // Chunks, Bytes
#include <tide/core/text.hpp>                  // text
#include <tide/reduce/detail/node_places.hpp>  // network_shape
#include <tide/reduce/inbox.hpp>               // Inbox, ReduceMemory

#include <algorithm>
#include <string>

namespace tide {

/// Chunks of a ring are cut at multiples of this many elements of the output, so that every piece starts aligned.
inline constexpr index_t ring_unit = 64;

/// The ring of `chunks` chunks within `bytes` bytes, for budgets that are known at run time only.
/// @throws Error (Errc::capacity) when the budget cannot hold a unit of each peer in each chunk
[[nodiscard]] constexpr InboxShape ring_shape(const LayoutView& layout, index_t chunks, index_t bytes) {
  InboxShape shape;
  const index_t pieces = layout.mesh.ranks_per_node - 1;
  const index_t longest = std::max<index_t>(1, ceil_div(layout.max_bytes(Buffer::output) / 4, ring_unit));
  for (const Parameter& parameter : layout.group.parameters) {
    shape.element_bytes = std::max(shape.element_bytes, static_cast<index_t>(size_bytes(parameter.gradient)));
  }
  shape.pieces = pieces;
  const index_t unit_bytes = std::max<index_t>(1, pieces) * ring_unit * shape.element_bytes;
  const index_t fitting = bytes / (chunks * unit_bytes);
  if (fitting == 0) {
    raise(Errc::capacity, "tide::Ring: Bytes must hold one unit of 64 elements from each peer in every chunk; needs " +
                              std::to_string(chunks * unit_bytes) + " bytes, has " + std::to_string(bytes) + ".");
  }
  const index_t units = std::min(fitting, longest);
  shape.chunk_elements = units * ring_unit;
  shape.chunks = std::min(chunks, ceil_div(longest, units));
  return shape;
}

/// The same over several nodes: the budget bounds the inbox, what lands from other nodes, and sums on their way.
/// @throws Error (Errc::capacity) as above
[[nodiscard]] constexpr ReduceMemory ring_memory(const LayoutView& layout, index_t chunks, index_t bytes,
                                                 Exchange exchange) {
  const MeshShape mesh = layout.mesh;
  if (mesh.nodes == 1) return {ring_shape(layout, chunks, bytes), {}};
  ReduceMemory memory;
  InboxShape& inbox = memory.inbox;
  for (const Parameter& parameter : layout.group.parameters) {
    inbox.element_bytes = std::max(inbox.element_bytes, static_cast<index_t>(size_bytes(parameter.gradient)));
  }
  const index_t longest = std::max<index_t>(1, ceil_div(layout.max_bytes(Buffer::output) / 4, ring_unit));
  const auto shape = [&](index_t units, index_t places) {
    inbox.chunks = places;
    inbox.pieces = mesh.ranks_per_node - 1;
    inbox.chunk_elements = units * ring_unit;
    inbox.piece_room = mesh.nodes * inbox.chunk_elements * inbox.element_bytes;
    memory.network = detail::network_shape(mesh, exchange, inbox, places);
  };
  shape(1, chunks);  // all places grow with the length of a chunk
  const index_t fitting = bytes / memory.bytes();
  if (fitting == 0) {
    raise(Errc::capacity, "tide::Ring: Bytes must hold one unit of 64 elements from each peer in every chunk; needs " +
                              std::to_string(memory.bytes()) + " bytes, has " + std::to_string(bytes) + ".");
  }
  const index_t units = std::min(fitting, longest);
  shape(units, std::min(chunks, ceil_div(longest, units)));
  return memory;
}

/// `Count` chunks within `Budget` bytes for all peers together; the chunk is the longest that fits, so memory does not
/// grow with the mesh.
template <class Count, class Budget>
struct Ring {
  static constexpr index_t unit = ring_unit;

  /// @throws Error (Errc::capacity) when the budget cannot hold a unit of each peer in each chunk
  [[nodiscard]] static constexpr InboxShape shape(const LayoutView& layout) {
    return ring_shape(layout, Count::value, Budget::value);
  }
  /// @throws Error (Errc::capacity) when the budget cannot hold a unit of each peer in each chunk
  [[nodiscard]] static constexpr ReduceMemory memory(const LayoutView& layout, Exchange exchange) {
    return ring_memory(layout, Count::value, Budget::value, exchange);
  }
};

static_assert(Inbox<Ring<Chunks<4>, Bytes<(64 << 20)>>>);

}  // namespace tide
