// SPDX-License-Identifier: Apache-2.0
//
// MulticastTransport: each rank writes its block once, to an address that all ranks of the node receive.
//
//   rank 0 | push 0 => 0 1 2        one write per block, the own slot included
//   rank 1 | push 0 => 0 1 2
//
// Laws: those of Transport                           (tests/transport/multicast_transport.test.cpp)

#pragma once

#include <tide/transport/detail/gather_writer.hpp>  // GatherWriter
#include <tide/transport/transport.hpp>             // Transport

#include <vector>

namespace tide {

/// One write per block, replicated by the fabric; the own block needs no copy of its own.
///
/// Choose it where the fabric has multicast (NVSwitch); `UnicastTransport` elsewhere. It never falls back by itself.
struct MulticastTransport {
  static constexpr std::string_view name = "multicast";
  static constexpr Capability capability = Capability::multicast;
  static constexpr OwnBlock own_block = OwnBlock::multicast;
  static constexpr OpKind spreads_by = OpKind::multicast;

  /// The plan of one rank of a gather on one node.
  [[nodiscard]] static constexpr Plan gather(const Collective& collective, Rank rank) {
    detail::GatherWriter writer(collective, rank);
    PlanBuilder& plan = writer.plan;
    std::vector<LaneIndex> lanes;
    writer.signal_ready();
    writer.own_block(writer.sends() && writer.ranks() > 1);
    if (writer.sends() && writer.ranks() > 1) {
      const LaneIndex lane = plan.lane(LaneKind::push, 0);
      lanes.push_back(lane);
      plan.wait(lane, writer.event(plan.caller()));
      for (index_t k = 1; k < writer.ranks(); ++k) plan.wait(lane, writer.ready(writer.peer(k)));
      for (const Block& block : writer.own_blocks()) plan.multicast(lane, writer.served_from(), Space::slot, block);
      for (index_t k = 1; k < writer.ranks(); ++k) plan.signal(lane, writer.peer(k), writer.arrived(rank));
      plan.signal(lane, rank, writer.event(lane));
    }
    return std::move(writer).complete(lanes);
  }
};

static_assert(Transport<MulticastTransport> && SpreadingTransport<MulticastTransport>);

}  // namespace tide
