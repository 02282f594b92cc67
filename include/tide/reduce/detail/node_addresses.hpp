// SPDX-License-Identifier: Apache-2.0
//
// The addresses of a chunk's pieces, leaves and sums on a rank of several nodes: node_places.hpp says where they lie,
// this in which space and instance, with a ring or with a slot.

#pragma once

#include <tide/reduce/detail/node_places.hpp>  // NodePlaces, SlotShares
#include <tide/reduce/detail/rail.hpp>         // RailChunk

#include <algorithm>
#include <vector>

namespace tide::detail {

class NodeAddresses {
 public:
  constexpr NodeAddresses(const Collective& collective, const std::vector<RailChunk>& chunks)
      : places_(collective.layout.mesh, collective.network.exchange, collective.network.wire,
                collective.inbox.element_bytes, collective.inbox.chunk_elements),
        shares_(slot_shares(collective.layout.mesh, collective.inbox)),
        inbox_(collective.inbox),
        ring_(collective.network.inbox_instances),
        in_slot_(collective.inbox.place == InboxPlace::slot) {
    for (const RailChunk& chunk : chunks) {
      spacing_.push_back(places_.direct ? places_.chunk_elements
                                        : std::min(places_.chunk_elements, align_up(chunk.elements, 16)));
    }
  }

  [[nodiscard]] constexpr const NodePlaces& places() const noexcept { return places_; }
  [[nodiscard]] constexpr bool in_slot() const noexcept { return in_slot_; }
  // Chunks that landings, and partials apart from a slot, have room for.
  [[nodiscard]] constexpr index_t ring() const noexcept { return ring_; }
  // Whether additions write to partials that a slot has not taken over.
  [[nodiscard]] constexpr bool adds_beside_slot() const noexcept {
    return in_slot_ && places_.sums_cross && (places_.leaf_bytes > 0 || places_.rounds());
  }
  // Whether what crosses as the sum of some nodes is the gradient of one rank.
  [[nodiscard]] constexpr bool is_leaf(NodeRange nodes) const noexcept {
    return places_.leaf_bytes > 0 && nodes.size() == 1;
  }
  // Bytes of an element of the sum of some nodes where it crosses.
  [[nodiscard]] constexpr index_t crossing_bytes(NodeRange nodes) const noexcept {
    return is_leaf(nodes) ? places_.leaf_bytes : places_.wire_bytes;
  }

  // Elements from owner to owner in a chunk; fewer where the chunk is short. Landings of direct exchange are pieces of
  // one sum, at one distance.
  [[nodiscard]] constexpr index_t spacing(index_t c) const { return spacing_[static_cast<std::size_t>(c)]; }

  // The first piece of an owner, counted in their own order.
  [[nodiscard]] constexpr Address piece(index_t c, index_t owner) const noexcept {
    const index_t offset = owner * inbox_.chunk_elements * inbox_.element_bytes;
    if (!in_slot_) return at(Space::inbox, c % inbox_.chunks, offset);
    return at(Space::inbox, 0, shares_.pieces_begin() + c * shares_.pieces_bytes + offset);
  }
  // The own gradient for an owner, as it crosses.
  [[nodiscard]] constexpr Address leaf(index_t c, index_t position) const {
    const index_t offset = position * spacing(c) * places_.leaf_bytes;
    if (!in_slot_) return at(Space::partials, c % ring_, offset);
    return at(Space::inbox, 0, c * shares_.sums_bytes + offset);
  }
  // The sum of nodes that this one holds for an owner.
  [[nodiscard]] constexpr Address sum(index_t c, index_t position) const {
    const index_t offset = position * spacing(c) * 4;
    if (in_slot_ && places_.leaf_bytes == 0) return at(Space::inbox, 0, c * shares_.sums_bytes + offset);
    return at(Space::partials, c % ring_, beside(places_.sums_begin()) + offset);
  }
  // What has landed for an owner, or the n-th landing, in f32.
  [[nodiscard]] constexpr Address widened(index_t c, index_t n) const {
    return at(Space::partials, c % ring_, beside(places_.widened_begin()) + n * spacing(c) * 4);
  }
  // The sum for an owner in the element of a narrow wire.
  [[nodiscard]] constexpr Address rounded(index_t c, index_t position) const {
    return at(Space::partials, c % ring_, beside(places_.rounded_begin()) + position * spacing(c) * places_.wire_bytes);
  }
  // Where what has `n` owners before it lands: at one place for all chunks, since each sender has credits of its own.
  [[nodiscard]] constexpr Address landing(index_t c, index_t n) const noexcept {
    return at(Space::network_inbox, c % ring_, n * places_.chunk_elements * places_.landing_element());
  }

 private:
  [[nodiscard]] static constexpr Address at(Space space, index_t instance, index_t offset) noexcept {
    return {{space, static_cast<std::uint8_t>(instance), 0}, offset};
  }
  // Among the partials, of which a slot may have taken the first over.
  [[nodiscard]] constexpr index_t beside(index_t offset) const noexcept {
    return in_slot_ ? offset - places_.slot_takes() : offset;
  }

  NodePlaces places_;
  SlotShares shares_;
  InboxShape inbox_;
  index_t ring_;
  bool in_slot_;
  std::vector<index_t> spacing_;
};

}  // namespace tide::detail
