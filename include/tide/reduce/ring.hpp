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

namespace tide {

/// Chunks of a ring are cut at multiples of this many elements of the output, so that every piece starts aligned.
inline constexpr index_t ring_unit = 64;

namespace detail {

// The memory of a ring of so many chunks of so many units.
[[nodiscard]] constexpr ReduceMemory ring_of_units(const LayoutView& layout, index_t chunks, index_t units,
                                                   Exchange exchange, Element wire) {
  const MeshShape mesh = layout.mesh;
  ReduceMemory memory;
  InboxShape& inbox = memory.inbox;
  for (const Parameter& parameter : layout.group.parameters) {
    inbox.element_bytes = std::max(inbox.element_bytes, static_cast<index_t>(size_bytes(parameter.gradient)));
  }
  inbox.chunks = chunks;
  inbox.pieces = mesh.ranks_per_node - 1;
  inbox.chunk_elements = units * ring_unit;
  if (mesh.nodes == 1) return memory;
  inbox.piece_room = mesh.nodes * inbox.chunk_elements * inbox.element_bytes;
  memory.network = network_shape(mesh, exchange, wire, inbox, chunks);
  return memory;
}

// The bytes of the smallest ring.
[[nodiscard]] constexpr index_t least_ring_bytes(const LayoutView& layout, index_t chunks, Exchange exchange,
                                                 Element wire) {
  const ReduceMemory memory = ring_of_units(layout, chunks, 1, exchange, wire);
  return std::max(memory.bytes(), chunks * ring_unit * memory.inbox.element_bytes);
}

}  // namespace detail

/// The ring of `chunks` chunks within `bytes` bytes: over several nodes the budget bounds the inbox, what lands from
/// other nodes, and sums on their way. For budgets that are known at run time only.
/// @throws Error (Errc::capacity) when the budget cannot hold a unit of each peer in each chunk
[[nodiscard]] constexpr ReduceMemory ring_memory(const LayoutView& layout, index_t chunks, index_t bytes,
                                                 Exchange exchange, Element wire = Element::f32) {
  const index_t least = detail::least_ring_bytes(layout, chunks, exchange, wire);
  if (bytes < least) {
    raise(Errc::capacity, detail::text({"tide::Ring: Bytes must hold one unit of 64 elements from each peer in every "
                                        "chunk; needs ",
                                        least, " bytes, has ", bytes, "."}));
  }
  const index_t longest = std::max<index_t>(1, ceil_div(layout.max_bytes(Buffer::output) / 4, ring_unit));
  const index_t units = std::min(bytes / least, longest);
  return detail::ring_of_units(layout, std::min(chunks, ceil_div(longest, units)), units, exchange, wire);
}

/// The same on one node.
[[nodiscard]] constexpr InboxShape ring_shape(const LayoutView& layout, index_t chunks, index_t bytes) {
  return ring_memory(layout, chunks, bytes, Exchange::direct).inbox;
}

/// `Count` chunks within `Budget` bytes for all peers together; the chunk is the longest that fits, so memory does not
/// grow with the mesh.
template <class Count, class Budget>
struct Ring {
  static_assert(
      requires { Count::value; } && requires { Budget::value; },
      "tide::Ring: Count must be Chunks<N> and Budget Bytes<N>.");

  static constexpr index_t unit = ring_unit;

  /// Whether the budget holds a unit of each peer in each chunk.
  [[nodiscard]] static constexpr bool fits(const LayoutView& layout, Exchange exchange, Element wire = Element::f32) {
    return Budget::value >= detail::least_ring_bytes(layout, Count::value, exchange, wire);
  }
  /// @throws Error (Errc::capacity) when the budget cannot hold a unit of each peer in each chunk
  [[nodiscard]] static constexpr InboxShape shape(const LayoutView& layout) {
    return ring_shape(layout, Count::value, Budget::value);
  }
  /// @throws Error (Errc::capacity) when the budget cannot hold a unit of each peer in each chunk
  [[nodiscard]] static constexpr ReduceMemory memory(const LayoutView& layout, Exchange exchange,
                                                     Element wire = Element::f32) {
    return ring_memory(layout, Count::value, Budget::value, exchange, wire);
  }
};

static_assert(Inbox<Ring<Chunks<4>, Bytes<(64 << 20)>>>);

}  // namespace tide
