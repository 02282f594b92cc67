// SPDX-License-Identifier: Apache-2.0
//
// Where the sums of a chunk lie on a rank of several nodes: in one instance of the partials and of the network inbox.
//
//   partials        | leaves: own gradients, packed | sums of nodes, f32 | widened: what has landed, in f32 | rounded |
//                     nodes of one rank only                               where it is not f32                a narrow wire
//   network inbox   | landing 0 | landing 1 | ...      each for the sum of one owner
//
// Where a switch adds, sums of the own node lie in the network inbox beside those of others: each rank of the node has
// a landing for each owner of the node and each turn of the nodes, `ceil(nodes / ranks per node)` of them.
//
// In a slot there is a place for each chunk. Sums of a node follow each other from its start, and take the room of
// pieces that have been added by then:
//
//   slot            | sums 0 | sums 1 | pieces 0 ...... | pieces 1 ...... | pieces 2 ...... |
//
// Owners stand in the order of OwnerOrder with doubling, in their own with direct exchange.

#pragma once

#include <tide/plan/collective.hpp>   // InboxShape, NetworkShape
#include <tide/reduce/node_tree.hpp>  // most_landings

#include <algorithm>

namespace tide::detail {

struct NodePlaces {
  index_t nodes = 1;
  index_t leaf_bytes = 0;  // of an element of a gradient that crosses as it is; 0 where nodes have several ranks
  index_t wire_bytes = 4;  // of an element of a sum that crosses
  index_t chunk_elements = 0;
  index_t landings = 0;
  index_t sums = 0;  // of nodes, that wait among the partials
  bool direct = false;
  bool sums_cross = true;  // or leaves alone do

  constexpr NodePlaces(MeshShape mesh, Exchange exchange, Element wire, index_t element_bytes, index_t elements)
      : nodes(mesh.nodes),
        leaf_bytes(mesh.ranks_per_node == 1 && exchange != Exchange::in_switch ? element_bytes : 0),
        wire_bytes(static_cast<index_t>(size_bytes(wire))),
        chunk_elements(elements),
        landings(landings_of(mesh, exchange)),
        sums(exchange == Exchange::in_switch ? nodes - 1 : nodes),
        direct(exchange == Exchange::direct),
        sums_cross(leaf_bytes == 0 || (!direct && nodes > 2)) {}

  [[nodiscard]] static constexpr index_t landings_of(MeshShape mesh, Exchange exchange) {
    if (exchange == Exchange::direct) return mesh.nodes - 1;
    if (exchange == Exchange::in_switch) return mesh.ranks_per_node * ceil_div(mesh.nodes, mesh.ranks_per_node);
    return most_landings(mesh.nodes);
  }

  [[nodiscard]] constexpr bool rounds() const noexcept { return sums_cross && wire_bytes != 4; }
  [[nodiscard]] constexpr bool widens() const noexcept { return rounds() || (sums_cross && leaf_bytes > 0); }

  [[nodiscard]] constexpr index_t sums_begin() const noexcept {
    return align_up(nodes * chunk_elements * leaf_bytes, 16);
  }
  [[nodiscard]] constexpr index_t widened_begin() const noexcept {
    return sums_begin() + (sums_cross ? sums * chunk_elements * 4 : 0);
  }
  [[nodiscard]] constexpr index_t rounded_begin() const noexcept {
    return widened_begin() + (widens() ? nodes * chunk_elements * 4 : 0);
  }
  [[nodiscard]] constexpr index_t partials_bytes() const noexcept {
    return rounded_begin() + (rounds() ? nodes * chunk_elements * wire_bytes : 0);
  }
  // What a slot takes over: leaves of nodes of one rank, sums of other nodes.
  [[nodiscard]] constexpr index_t slot_takes() const noexcept {
    return leaf_bytes > 0 ? sums_begin() : widened_begin();
  }
  // Bytes of an element at its landing: the most that it may have there.
  [[nodiscard]] constexpr index_t landing_element() const noexcept {
    return sums_cross ? std::max(leaf_bytes, wire_bytes) : leaf_bytes;
  }
  [[nodiscard]] constexpr index_t inbox_bytes() const noexcept { return landings * chunk_elements * landing_element(); }
};

// How a slot is shared by `chunks` chunks of pieces and of the sums, or leaves, that they become.
struct SlotShares {
  index_t pieces_bytes = 0;  // of a chunk, of all peers
  index_t sums_bytes = 0;    // of a chunk, of all owners
  index_t chunks = 0;

  // Where the pieces begin, so that the sums of a chunk end before its own pieces.
  [[nodiscard]] constexpr index_t pieces_begin() const noexcept {
    return std::max({index_t{0}, sums_bytes, chunks * sums_bytes - (chunks - 1) * pieces_bytes});
  }
  [[nodiscard]] constexpr index_t bytes() const noexcept { return pieces_begin() + chunks * pieces_bytes; }
};

[[nodiscard]] constexpr SlotShares slot_shares(MeshShape mesh, const InboxShape& inbox) noexcept {
  const index_t elements = mesh.nodes * inbox.chunk_elements;
  if (mesh.ranks_per_node == 1) return {0, elements * inbox.element_bytes, inbox.chunks};
  return {(mesh.ranks_per_node - 1) * elements * inbox.element_bytes, elements * 4, inbox.chunks};
}

// The most puts that a node sends to another for one chunk.
[[nodiscard]] constexpr index_t most_puts(index_t nodes, Exchange exchange) {
  if (exchange != Exchange::doubling) return 1;
  index_t most = 0;
  for (index_t node = 0; node < nodes; ++node) {
    const std::vector<NodeMessage> messages = doubling_messages(nodes, node);
    for (const NodeMessage& one : messages) {
      index_t puts = 0;
      for (const NodeMessage& m : messages) puts += m.from == one.from && m.to == one.to ? 1 : 0;
      most = std::max(most, puts);
    }
  }
  return most;
}

// What a rank needs for a ring of `chunks` chunks of several nodes. `inbox` says what a chunk is.
[[nodiscard]] constexpr NetworkShape network_shape(MeshShape mesh, Exchange exchange, Element wire,
                                                   const InboxShape& inbox, index_t chunks) {
  const NodePlaces places(mesh, exchange, wire, inbox.element_bytes, inbox.chunk_elements);
  NetworkShape network;
  network.inbox_bytes = places.inbox_bytes();
  network.inbox_instances = chunks;
  network.partials_bytes = places.partials_bytes();
  network.partials_instances = chunks;
  network.piece_bytes = inbox.chunk_elements * (places.rounds() ? 4 : places.landing_element());
  network.puts_in_flight = chunks * most_puts(mesh.nodes, exchange);
  network.exchange = exchange;
  network.wire = wire;
  return network;
}

}  // namespace tide::detail
