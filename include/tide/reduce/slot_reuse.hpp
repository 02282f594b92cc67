// SPDX-License-Identifier: Apache-2.0
//
// SlotReuse: the inbox is a gather slot that the layer has vacated. There is room for everything, so nobody gives
// credits, and no memory is set aside for pieces.
//
//   slot, full of parameters    |wwwwwwww|wwwwwwww|wwwwwwww|bb|
//   the same, staging           | p p p  | p p p  | p p p  |..|     a chunk: the piece of each peer
//
// Laws: those of Inbox, and                          (tests/reduce/slot_reuse.test.cpp)
//   everything fits   a place for each chunk of the largest rank, in a slot of `slot_bytes_with_reuse` bytes; that is
//                     the slot of a gather where shards are even
//   no leak           pieces overwrite what the slot held: sums see gradients only

#pragma once

#include <tide/core/text.hpp>                  // text
#include <tide/reduce/detail/node_places.hpp>  // NodePlaces, slot_shares
#include <tide/reduce/inbox.hpp>               // Inbox
#include <tide/reduce/ring.hpp>                // ring_unit, longest_output

#include <algorithm>

namespace tide {

/// Whether the gradients of a group can wait in its gather slot: none is wider than its gathered element.
[[nodiscard]] constexpr bool fits_slot(const GroupView& group) noexcept {
  for (const Parameter& parameter : group.parameters) {
    if (size_bytes(parameter.gradient) > size_bytes(parameter.gathered)) return false;
  }
  return true;
}

namespace detail {

// Bytes that the largest rank's gradients take, back to back.
[[nodiscard]] constexpr index_t largest_piece(const LayoutView& layout) {
  index_t largest = 0;
  for (index_t r = 0; r < layout.mesh.ranks(); ++r) {
    index_t end = 0;
    layout.for_each_piece(Rank{r}, [&](const Piece& piece) {
      if (piece.elements() > 0) end = align_up(end, piece.size(Buffer::gradients)) + piece.bytes(Buffer::gradients);
    });
    largest = std::max(largest, end);
  }
  return largest;
}

// Whether all gradients of a group have elements of one size.
[[nodiscard]] constexpr bool even_gradients(const GroupView& group) noexcept {
  for (const Parameter& parameter : group.parameters) {
    if (size_bytes(parameter.gradient) != size_bytes(group.parameters.front().gradient)) return false;
  }
  return true;
}

// In one node: as many chunks as fit a slot of the gather, one where none do.
[[nodiscard]] constexpr InboxShape slot_shape(const LayoutView& layout, index_t most_chunks) {
  InboxShape shape;
  shape.place = InboxPlace::slot;
  shape.pieces = layout.mesh.ranks_per_node - 1;
  for (const Parameter& parameter : layout.group.parameters) {
    if (size_bytes(parameter.gradient) > size_bytes(parameter.gathered)) {
      raise(Errc::layout,
            detail::text({"tide::SlotReuse: no gradient element may be wider than its gathered one; use Ring. '",
                          printable(parameter.name.str()), "' has ", tide::name(parameter.gradient), " gradients of ",
                          tide::name(parameter.gathered), " parameters."}));
    }
    shape.element_bytes = std::max(shape.element_bytes, static_cast<index_t>(size_bytes(parameter.gradient)));
  }
  const index_t longest = std::max<index_t>(1, layout.max_bytes(Buffer::output) / 4);
  const bool even = even_gradients(layout.group);
  const index_t slot = layout.bytes(Buffer::slot);
  for (index_t chunks = even && shape.pieces > 0 ? most_chunks : 1; chunks > 1; --chunks) {
    shape.chunk_elements = align_up(ceil_div(longest, chunks), ring_unit);
    shape.chunks = ceil_div(longest, shape.chunk_elements);
    if (shape.bytes() <= slot) return shape;
  }
  // All in one, and no wider than it has to be.
  shape.chunks = 1;
  shape.chunk_elements = align_up(longest, ring_unit);
  shape.piece_room = std::max<index_t>(16, align_up(even ? longest * shape.element_bytes : largest_piece(layout), 16));
  return shape;
}

// Over several nodes: chunks of so many units of an output of `longest` units. `inbox` says the rest.
constexpr void cut_slot(InboxShape& inbox, MeshShape mesh, index_t longest, index_t units) noexcept {
  inbox.chunk_elements = units * ring_unit;
  inbox.chunks = ceil_div(longest, units);
  inbox.piece_room = mesh.nodes * inbox.chunk_elements * inbox.element_bytes;
  inbox.slot_bytes = slot_shares(mesh, inbox).bytes();
}

inline constexpr index_t most_slot_chunks = 255;

[[nodiscard]] constexpr ReduceMemory slot_memory(const LayoutView& layout, Exchange exchange, Element wire,
                                                 index_t least_chunks, index_t network_bytes, index_t network_chunks) {
  const MeshShape mesh = layout.mesh;
  ReduceMemory memory{slot_shape(layout, least_chunks), {}};
  if (mesh.nodes == 1) return memory;
  InboxShape& inbox = memory.inbox;
  const index_t longest = longest_output(layout);
  const auto cut = [&](index_t units) {
    cut_slot(inbox, mesh, longest, units);
    const index_t places = std::min(network_chunks, inbox.chunks);
    memory.network = network_shape(mesh, exchange, wire, inbox, places);
    memory.network.partials_bytes -=
        NodePlaces(mesh, exchange, wire, inbox.element_bytes, inbox.chunk_elements).slot_takes();
  };
  cut(1);
  const index_t fitting = network_bytes / std::max<index_t>(1, memory.network.bytes());
  const index_t most = std::min(std::max<index_t>(1, fitting), ceil_div(longest, least_chunks));
  const index_t chunks = std::min(ceil_div(longest, most), most_slot_chunks);
  cut(ceil_div(longest, chunks));  // all of one length: each has a place
  return memory;
}

}  // namespace detail

/// Pieces wait in a slot of the pool. Choose it to save the inbox and to have gradients free early; `Ring` where
/// gradients are wider than parameters, or where no slot can be spared.
///
/// A pool needs one slot more than without: see `slots_needed`.
///
/// @tparam Budget  `Bytes<N>`: what may have landed from other nodes, beside the slot; nothing on one node
/// @tparam Count   `Chunks<N>`: how many chunks that is
template <class Budget = Bytes<(index_t{64} << 20)>, class Count = Chunks<4>>
struct SlotReuseWithin {
  static_assert(detail::is_tag<Bytes, Budget> && detail::is_tag<Chunks, Count>,
                "tide::SlotReuse: Budget must be Bytes<N> and Count Chunks<N>.");

  /// The fewest chunks that a long output is cut into, so that sums begin while pieces still come.
  static constexpr index_t least_chunks = 4;

  /// @throws Error (Errc::layout) when a gradient element is wider than its gathered one
  [[nodiscard]] static constexpr InboxShape shape(const LayoutView& layout) {
    return detail::slot_shape(layout, least_chunks);
  }
  /// Over several nodes gradients and sums of nodes wait in the slot, so that no wait for the network holds gradients;
  /// what lands from other nodes has a ring of its own, of `Budget`, or of a unit of each node where that is more.
  /// @throws Error (Errc::layout) as above
  [[nodiscard]] static constexpr ReduceMemory memory(const LayoutView& layout, Exchange exchange,
                                                     Element wire = Element::f32) {
    return detail::slot_memory(layout, exchange, wire, least_chunks, Budget::value, Count::value);
  }
};

/// With the default budget.
using SlotReuse = SlotReuseWithin<>;

/// Whether an inbox lies in slots of a pool.
template <class Box>
inline constexpr bool reuses_slots = false;
template <class Budget, class Count>
inline constexpr bool reuses_slots<SlotReuseWithin<Budget, Count>> = true;

/// Slots that a training step needs which gathers `prefetch` groups ahead of the one that computes: one more where
/// gradients wait in a slot while the groups before are gathered.
template <class Box>
[[nodiscard]] constexpr index_t slots_needed(index_t prefetch) noexcept {
  return prefetch + 1 + (reuses_slots<Box> ? 1 : 0);
}

namespace detail {

// `slot_bytes_with_reuse` on one node.
[[nodiscard]] constexpr index_t slot_bytes_on_node(const LayoutView& layout) {
  const index_t gather = layout.bytes(Buffer::slot);
  if (!fits_slot(layout.group)) return gather;
  return std::max(gather, align_up(SlotReuse::shape(layout).bytes(), layout.storage_alignment));
}

}  // namespace detail

/// Bytes of a slot that a group can be gathered into and, where `fits_slot`, reduced from, by any exchange, wire and
/// budget: more than the gather needs only where shards are uneven, as rows of a small parameter on many ranks are, or
/// where nodes have few ranks.
[[nodiscard]] constexpr index_t slot_bytes_with_reuse(const LayoutView& layout) {
  if (layout.mesh.nodes == 1) return detail::slot_bytes_on_node(layout);
  const index_t gather = layout.bytes(Buffer::slot);
  if (!fits_slot(layout.group)) return gather;
  // A pool does not know which budgets it will serve, and so how many chunks: it has room for any number.
  InboxShape inbox = SlotReuse::shape(layout);
  const index_t longest = detail::longest_output(layout);
  index_t reduce = 0;
  const index_t fewest = ceil_div(longest, detail::most_slot_chunks);
  for (index_t units = ceil_div(longest, SlotReuse::least_chunks); units >= fewest;) {
    detail::cut_slot(inbox, layout.mesh, longest, units);
    reduce = std::max(reduce, inbox.bytes());
    units = std::min(units - 1, ceil_div(longest, inbox.chunks + 1));
  }
  return std::max(gather, align_up(reduce, layout.storage_alignment));
}

static_assert(Inbox<SlotReuse>);

}  // namespace tide
