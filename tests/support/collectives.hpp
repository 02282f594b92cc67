// SPDX-License-Identifier: Apache-2.0
//
// Whole gathers and reduce-scatters of one group on host ranks, compared with the oracle: for tests about one trigger.

#pragma once

#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tide_test {

/// A group of parameters with the same elements.
inline tide::DynamicGroup group_of(const std::vector<std::vector<index_t>>& shapes, Element gathered, Element gradient,
                                   tide::Sharding sharding = {}) {
  tide::DynamicGroup group;
  for (const std::vector<index_t>& shape : shapes) {
    group.add("p" + std::to_string(group.view().size()), shape, gathered, gradient, sharding);
  }
  return group;
}

/// A gather from each source in turn, on every rank; words where a byte is wrong, of the slots or behind them.
inline std::vector<std::string> gather_on(const tide::DynamicLayout& layout, tide::HostOptions options = {},
                                          const std::vector<Source>& sources = {Source::shards, Source::masters,
                                                                                Source::in_place},
                                          std::size_t shift = 0) {
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(oracle.ranks()));
  check_no_error(errors_of(HostRanks{std::move(options)}, oracle.ranks(), [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, tide::DynamicLayout> pool(fabric, layout);
    Guarded<HostRanks> guarded(fabric);
    GatherRank<HostRanks, tide::DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout, oracle, {}, shift);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    std::uint64_t seed = 1;
    for (const Source source : sources) gather.step(pool, source, seed++, stream);
    guarded.check(pool, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict() + guarded.verdict();
  }));
  return wrong;
}

/// Three reduces, from storage, from a table, and from storage again; words where a byte of the output is wrong.
inline std::vector<std::string> reduce_on(const tide::DynamicLayout& layout, const Missing& missing = nullptr,
                                          tide::HostOptions options = {}) {
  using Inbox = tide::Ring<tide::Chunks<2>, tide::Bytes<(1 << 16)>>;
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(oracle.ranks()));
  check_no_error(errors_of(HostRanks{std::move(options)}, oracle.ranks(), [&](tide::HostFabric& fabric) {
    ReduceRank<HostRanks, tide::DynamicLayout, tide::CopyEngineReducer<>, Inbox> reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    std::uint64_t seed = 1;
    for (const From from : {From::storage, From::table, From::storage}) reduce.step(from, seed++, stream, missing);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = reduce.verdict();
  }));
  return wrong;
}

/// That nothing was wrong on any rank.
inline void check_right(const std::vector<std::string>& wrong) {
  for (std::size_t rank = 0; rank < wrong.size(); ++rank) {
    CAPTURE(rank);
    CHECK(wrong[rank] == "");
  }
}

}  // namespace tide_test
