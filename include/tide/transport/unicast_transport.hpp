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
    detail::GatherWriter writer(collective, rank);
    PlanBuilder& plan = writer.plan;
    std::vector<LaneIndex> lanes;
    writer.signal_ready();
    writer.own_block(writer.sends() && writer.ranks() > 1);
    if (writer.sends()) {
      const std::vector<Block> blocks = writer.own_blocks();
      for (index_t k = 1; k < writer.ranks(); ++k) {
        const Rank peer = writer.peer(k);
        const LaneIndex lane = plan.lane(LaneKind::push, k);
        lanes.push_back(lane);
        plan.wait(lane, writer.event(plan.caller()));
        plan.wait(lane, writer.ready(peer));
        for (const Block& block : blocks) plan.copy(lane, peer, writer.served_from(), Space::slot, block);
        plan.signal(lane, peer, writer.arrived(rank));
        plan.signal(lane, rank, writer.event(lane));
      }
    }
    return std::move(writer).complete(lanes);
  }
};

static_assert(Transport<UnicastTransport> && SpreadingTransport<UnicastTransport>);

}  // namespace tide
