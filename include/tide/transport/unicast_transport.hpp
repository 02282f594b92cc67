// SPDX-License-Identifier: Apache-2.0
//
// UnicastTransport: each rank pushes its block to each peer by copies of its own, on one lane per peer.
//
//   rank 0 | push 1 -> 1   push 2 -> 2          at each lane number the targets of all ranks
//   rank 1 | push 1 -> 2   push 2 -> 0          form a permutation: no rank is the target of two
//   rank 2 | push 1 -> 0   push 2 -> 1
//
// Laws: those of Transport                           (tests/transport/unicast_transport.test.cpp)

#pragma once

#include <tide/transport/detail/gather_writer.hpp>  // GatherWriter
#include <tide/transport/transport.hpp>             // Transport

#include <vector>

namespace tide {

/// Copies to one peer at a time; needs nothing but access to the peers' memory.
///
/// Choose `MulticastTransport` where the fabric has multicast: it sends each byte once instead of once per peer.
struct UnicastTransport {
  static constexpr std::string_view name = "unicast";
  static constexpr Capability capability = Capability::none;
  static constexpr OwnBlock own_block = OwnBlock::copy;
  static constexpr OpKind spreads_by = OpKind::copy;

  /// The plan of one rank of a gather on one node.
  [[nodiscard]] static constexpr Plan gather(const Collective& collective, Rank rank) {
    detail::GatherWriter writer(collective, rank, detail::CastParts::several);
    PlanBuilder& plan = writer.plan;
    std::vector<LaneIndex> lanes;
    writer.signal_ready();
    // All at once, or while the next part of the own block is cast.
    const index_t parts = writer.cast_parts();
    const bool in_parts = writer.casts_in_parts();
    if (!in_parts) writer.own_block(writer.sends() && writer.ranks() > 1);
    for (index_t part = in_parts ? 0 : parts - 1; writer.sends() && part < parts; ++part) {
      if (in_parts) writer.cast_part(part);
      const bool is_first = lanes.empty();
      const std::vector<Block> blocks = writer.own_blocks(part);
      for (index_t k = 1; k < writer.ranks(); ++k) {
        const Rank peer = writer.peer(k);
        if (is_first) lanes.push_back(plan.lane(LaneKind::push, k));
        const LaneIndex lane = lanes[static_cast<std::size_t>(k - 1)];
        plan.wait(lane, writer.event(plan.caller()), part + 1, parts);
        if (is_first) plan.wait(lane, writer.ready(peer));
        for (const Block& block : blocks) plan.copy(lane, peer, writer.served_from(), Space::slot, block);
        if (part + 1 < parts) continue;
        plan.signal(lane, peer, writer.arrived(rank));
        plan.signal(lane, rank, writer.event(lane));
      }
    }
    return std::move(writer).complete(lanes);
  }
};

static_assert(Transport<UnicastTransport> && SpreadingTransport<UnicastTransport>);

}  // namespace tide
