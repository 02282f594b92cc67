// SPDX-License-Identifier: Apache-2.0
//
// RdmaDoublingTransport: between nodes, packed shards cross by one-sided puts in rounds that double what each node has.
//
//   round   node 0      node 1      node 2      node 3      node 4           node n sends to n + 2^k what it has, up to
//           0           1           2           3           4                2^k blocks, as long as blocks are missing
//     0     4 0         0 1         1 2         2 3         3 4
//     1     2 3 4 0     3 4 0 1     4 0 1 2     0 1 2 3     1 2 3 4
//     2     all         all         all         all         all
//
//   rank (n, g) talks to ranks (m, g) only, its rail; inside the node, Intra spreads what came
//
// Shards are cut into chunks of `Chunk` bytes: a chunk is in its round k while the next is in its round k - 1 and the
// last is being placed. At most `Pace` puts of a rank are on their way to one peer.
//
// Laws: those of InterTransport, and                 (tests/transport/rdma_doubling_transport.test.cpp)
//   once      each shard crosses to each other node once, packed; no byte is placed by the network
//   rounds    ceil(log2 nodes), whatever the number of nodes; at each round targets form a permutation
//   memory    (nodes - 1) packed shards beside each slot: the slot's bytes over the ranks of a node

#pragma once

#include <tide/core/tags.hpp>                     // Bytes, PutsInFlight
#include <tide/transport/detail/rail_gather.hpp>  // RailGather
#include <tide/transport/transport.hpp>           // InterTransport

namespace tide {

/// How a gather crosses nodes, for numbers that are known at run time only.
struct RailRules {
  index_t chunk_bytes = index_t{8} << 20;
  index_t puts_in_flight = 16;
};

/// What a gather over the nodes of a layout's mesh needs of the network; nothing on one node.
[[nodiscard]] constexpr NetworkShape gather_network(const LayoutView& layout, const RailRules& rules = {}) {
  NetworkShape network;
  if (layout.mesh.nodes == 1) return network;
  network.inbox_bytes = detail::gather_network_bytes(layout);
  network.puts_in_flight = rules.puts_in_flight;
  return network;
}

/// What lies beside a gather slot where gathers cross nodes: room for what comes, and for the own packed shards where
/// the caller gives none. Nothing on one node.
struct SlotNetwork {
  index_t inbox_bytes = 0;
  index_t shards_bytes = 0;

  [[nodiscard]] constexpr index_t bytes() const noexcept { return inbox_bytes + shards_bytes; }
  [[nodiscard]] friend constexpr bool operator==(const SlotNetwork&, const SlotNetwork&) = default;
};

/// Enough for a layout; both start aligned as storage is.
[[nodiscard]] constexpr SlotNetwork slot_network(const LayoutView& layout) {
  if (layout.mesh.nodes == 1) return {};
  return {align_up(detail::gather_network_bytes(layout), layout.storage_alignment),
          align_up(layout.max_bytes(Buffer::shards), layout.storage_alignment)};
}

/// The plan of one rank of a gather over several nodes.
/// @param spreads_by  how blocks reach the ranks of a node: OpKind::copy or OpKind::multicast
/// @pre the collective's network is that of `gather_network`
[[nodiscard]] constexpr Plan gather_on_rails(const Collective& collective, Rank rank, const RailRules& rules,
                                             OpKind spreads_by) {
  return detail::RailGather(collective, rank, rules.chunk_bytes, spreads_by).write();
}

/// Puts by NICs (or copy engines), without SMs.
///
/// Choose `SendRecvDoublingTransport` where the fabric has no one-sided puts. It never falls back by itself.
/// @tparam Chunk  `Bytes<N>` of each shard that take a round together; a put costs a GPU's host about 14 us, so few
/// @tparam Pace   `PutsInFlight<N>`
template <class Chunk = Bytes<(index_t{8} << 20)>, class Pace = PutsInFlight<16>>
struct RdmaDoublingTransport {
  static_assert(detail::is_tag<Bytes, Chunk> && detail::is_tag<PutsInFlight, Pace>,
                "tide::RdmaDoublingTransport: Chunk must be Bytes<N> and Pace PutsInFlight<N>.");

  static constexpr std::string_view name = "RDMA doubling";
  static constexpr Capability capability = Capability::puts;
  static constexpr Exchange exchange = Exchange::doubling;
  static constexpr RailRules rules{Chunk::value, Pace::value};

  [[nodiscard]] static constexpr NetworkShape network(const LayoutView& layout) {
    return gather_network(layout, rules);
  }

  /// The plan of one rank of a gather; Intra's own on one node.
  template <SpreadingTransport Intra>
  [[nodiscard]] static constexpr Plan gather(const Collective& collective, Rank rank) {
    if (collective.layout.mesh.nodes == 1) return Intra::gather(collective, rank);
    return gather_on_rails(collective, rank, rules, Intra::spreads_by);
  }
};

static_assert(InterTransport<RdmaDoublingTransport<>>);

}  // namespace tide
