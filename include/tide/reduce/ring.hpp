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

// A ring of so many chunks of so many units, on one node.
[[nodiscard]] constexpr InboxShape ring_on_node(const LayoutView& layout, index_t chunks, index_t units) {
  InboxShape inbox;
  for (const Parameter& parameter : layout.group.parameters) {
    inbox.element_bytes = std::max(inbox.element_bytes, static_cast<index_t>(size_bytes(parameter.gradient)));
  }
  inbox.chunks = chunks;
  inbox.pieces = layout.mesh.ranks_per_node - 1;
  inbox.chunk_elements = units * ring_unit;
  return inbox;
}

// The memory of a ring of so many chunks of so many units.
[[nodiscard]] constexpr ReduceMemory ring_over_nodes(const LayoutView& layout, index_t chunks, index_t units,
                                                     Exchange exchange, Element wire) {
  ReduceMemory memory{ring_on_node(layout, chunks, units), {}};
  if (layout.mesh.nodes == 1) return memory;
  InboxShape& inbox = memory.inbox;
  inbox.piece_room = layout.mesh.nodes * inbox.chunk_elements * inbox.element_bytes;
  memory.network = network_shape(layout.mesh, exchange, wire, inbox, chunks);
  return memory;
}

// The bytes of the smallest ring, whose memory is given.
[[nodiscard]] constexpr index_t least_ring_bytes(const InboxShape& inbox, index_t all_bytes) noexcept {
  return std::max(all_bytes, inbox.chunks * ring_unit * inbox.element_bytes);
}

// Units of the largest rank's output.
[[nodiscard]] constexpr index_t longest_output(const LayoutView& layout) {
  return std::max<index_t>(1, ceil_div(layout.max_bytes(Buffer::output) / 4, ring_unit));
}

// How a ring is cut: the longest chunks that fit.
struct RingCut {
  index_t chunks;
  index_t units;  // of a chunk
};

// @throws Error as `ring_memory`
[[nodiscard]] constexpr RingCut cut_ring(const LayoutView& layout, index_t chunks, index_t bytes, index_t least) {
  if (chunks < 1 || chunks > 255) raise(Errc::argument, "tide::Chunks: the number of chunks must be 1 to 255.");
  if (bytes < least) {
    raise(Errc::capacity, detail::text({"tide::Ring: Bytes must hold one unit of 64 elements from each peer in every "
                                        "chunk; needs ",
                                        least, " bytes, has ", bytes, "."}));
  }
  const index_t longest = longest_output(layout);
  const index_t units = std::min(bytes / least, longest);
  return {std::min(chunks, ceil_div(longest, units)), units};
}

}  // namespace detail

/// The ring of `chunks` chunks within `bytes` bytes: over several nodes the budget bounds the inbox, what lands from
/// other nodes, and sums on their way. For budgets that are known at run time only.
/// @throws Error (Errc::argument) when `chunks` is not 1 to 255, (Errc::capacity) when the budget cannot hold a unit of
///         each peer in each chunk
[[nodiscard]] constexpr ReduceMemory ring_memory(const LayoutView& layout, index_t chunks, index_t bytes,
                                                 Exchange exchange, Element wire = Element::f32) {
  const ReduceMemory smallest = detail::ring_over_nodes(layout, chunks, 1, exchange, wire);
  const detail::RingCut cut =
      detail::cut_ring(layout, chunks, bytes, detail::least_ring_bytes(smallest.inbox, smallest.bytes()));
  return detail::ring_over_nodes(layout, cut.chunks, cut.units, exchange, wire);
}

/// The same on one node.
[[nodiscard]] constexpr InboxShape ring_shape(const LayoutView& layout, index_t chunks, index_t bytes) {
  const InboxShape smallest = detail::ring_on_node(layout, chunks, 1);
  const detail::RingCut cut =
      detail::cut_ring(layout, chunks, bytes, detail::least_ring_bytes(smallest, smallest.bytes()));
  return detail::ring_on_node(layout, cut.chunks, cut.units);
}

/// `Count` chunks within `Budget` bytes for all peers together; the chunk is the longest that fits, so memory does not
/// grow with the mesh.
template <class Count, class Budget>
struct Ring {
  static_assert(detail::is_tag<Chunks, Count> && detail::is_tag<Bytes, Budget>,
                "tide::Ring: Count must be Chunks<N> and Budget Bytes<N>.");

  static constexpr index_t unit = ring_unit;

  /// Whether the budget holds a unit of each peer in each chunk.
  [[nodiscard]] static constexpr bool fits(const LayoutView& layout, Exchange exchange, Element wire = Element::f32) {
    const ReduceMemory smallest = detail::ring_over_nodes(layout, Count::value, 1, exchange, wire);
    return Budget::value >= detail::least_ring_bytes(smallest.inbox, smallest.bytes());
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
