// SPDX-License-Identifier: Apache-2.0
//
// For suites in which something happens at each op in turn: ranks that gather and reduce a block, and the places of
// their ops.

#pragma once

#include <tide/fabric/host_options.hpp>

#include "conformance/fabric.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace tide_test::op_places {

inline constexpr index_t world = 3;

/// What each rank raises that gathers and reduces so many times, on a stream each, and then does `end(fabric, stream,
/// other)`.
template <class Transport, class Ranks, class End>
[[nodiscard]] std::vector<std::string> errors_of_steps(const Ranks& ranks, std::uint64_t steps, const End& end) {
  using fabric_suite::Block;
  const Block layout = fabric_suite::block_on(world);
  const CollectiveOracle oracle(layout.view());
  return errors_of(ranks, world, [&](typename Ranks::Fabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Block> pool(fabric, layout);
    GatherRank<Ranks, Block, Transport> gather(fabric, pool, layout, oracle, "the block");
    fabric_suite::BlockReduce<Ranks> reduce(fabric, layout, oracle, "the block");
    fabric.init();
    auto stream = fabric.stream();
    auto other = fabric.stream();
    for (std::uint64_t step = 0; step < steps; ++step) {
      gather.step(pool, step % 2 == 0 ? Source::masters : Source::shards, step, stream);
      reduce.step(From::storage, step, other);
    }
    end(fabric, stream, other);
  });
}

/// An op of the second run of a pipeline.
struct Place {
  std::string label;
  index_t seq;
  auto operator<=>(const Place&) const = default;

  /// Whether a hook is asked about it, on that rank.
  [[nodiscard]] bool is_at(const tide::HostHookPoint& point, index_t rank) const {
    return point.rank.value == rank && point.label == label && point.run == 1 && point.seq == seq;
  }
};

}  // namespace tide_test::op_places
