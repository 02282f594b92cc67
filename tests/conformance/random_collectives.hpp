// SPDX-License-Identifier: Apache-2.0
//
// Seeded properties as suites: any group on any mesh and nodes, with any packing, alignment and source, is gathered and
// reduced as the oracle says; `Ranks` is described in support/host_ranks.hpp.

#pragma once

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gather_rank.hpp"
#include "support/random_group.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"
#include "support/seeds.hpp"

#include <string>
#include <vector>

namespace tide_test::random_collectives {

using Layout = tide::DynamicLayout;
using Tight = tide::Ring<tide::Chunks<2>, tide::Bytes<16384>>;  // a unit for 8 peers in f64, twice
using Wide = tide::Ring<tide::Chunks<4>, tide::Bytes<(1 << 20)>>;
template <class Epilogue>
using Tree = tide::CopyEngineReducer<tide::Burst, Epilogue>;

/// A seed's collectives on some ranks.
template <class Ranks>
struct Suite {
  template <class Transport, class Inter = tide::SingleNode>
  using Gather = GatherRank<Ranks, Layout, Transport, Inter>;
  template <class Reducer, class Inbox, class Inter = tide::SingleNode>
  using Reduce = ReduceRank<Ranks, Layout, Reducer, Inbox, Inter>;

  std::uint64_t seed;
  Ranks ranks;

  template <class OneGather, class OneReduce>
  void check(const Layout& layout, Values values = Values::spread) {
    const index_t n = layout.mesh().ranks();
    const CollectiveOracle oracle(layout.view(), values);
    std::vector<std::string> wrong(static_cast<std::size_t>(n));
    ranks.ranks_per_node = layout.mesh().ranks_per_node;
    check_no_error(errors_of(ranks, n, [&](typename Ranks::Fabric& fabric) {
      tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
      Guarded<Ranks> guarded(fabric);
      OneGather gather(fabric, pool, layout, oracle);
      OneReduce reduce(fabric, layout, oracle);
      fabric.init();
      auto stream = fabric.stream();
      guarded.poison_all(pool, stream);
      Random agreed(seed);
      const Missing missing = [&](index_t rank, std::size_t parameter) {
        return mix(seed, static_cast<std::uint64_t>(rank), parameter) % 5 == 0;
      };
      for (std::uint64_t step = 1; step <= 3; ++step) {
        gather.step(pool, agreed.one_of({Source::shards, Source::masters, Source::in_place}), step, stream);
        reduce.step(agreed.one_of({From::storage, From::table}), step, stream, step == 2 ? missing : nullptr);
      }
      guarded.check(pool, stream);
      fabric.close();
      wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict() + reduce.verdict() + guarded.verdict();
    }));
    for (index_t rank = 0; rank < n; ++rank) {
      CAPTURE(rank);
      CHECK(wrong[static_cast<std::size_t>(rank)] == "");
    }
  }

  /// On one node.  @param random  the seed's
  void on_one_node(Random random) {
    const index_t n = random.between(1, 9);
    const tide::PackingRule packing = random.once_in(2) ? tide::TightPacking::rule : tide::Fsdp2Packing::rule;
    const index_t alignment = random.one_of({16, 64, 256, 256, 4096});
    const Layout layout(random_group(random, n), {1, n}, packing, alignment);
    switch (random.between(0, 3)) {
      case 0:
        check<Gather<tide::UnicastTransport>, Reduce<Tree<tide::Store>, Tight>>(layout);
        break;
      case 1:
        check<Gather<tide::MulticastTransport>, Reduce<Tree<tide::Accumulate>, Wide>>(layout);
        break;
      case 2:
        check<Gather<tide::UnicastTransport>, Reduce<Tree<tide::Accumulate>, Tight>>(layout);
        break;
      default:
        check<Gather<tide::MulticastTransport>, Reduce<Tree<tide::Store>, Wide>>(layout);
    }
  }

  /// On several nodes.
  void on_nodes(Random random) {
    using tide::MulticastTransport;
    using tide::UnicastTransport;
    using Doubling = tide::RdmaDoublingTransport<>;
    using Paced = tide::RdmaDoublingTransport<tide::Bytes<48>, tide::PutsInFlight<2>>;
    using One = tide::Ring<tide::Chunks<1>, tide::Bytes<32768>>;
    const auto mesh = random.one_of<tide::MeshShape>({{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 3}});
    const tide::PackingRule packing = random.once_in(3) ? tide::TightPacking::rule : tide::Fsdp2Packing::rule;
    const tide::DynamicGroup group = any_group(random, mesh.ranks());
    const Layout layout(group, mesh, packing);
    switch (random.between(0, 3)) {
      case 0:
        check<Gather<UnicastTransport, Paced>, Reduce<Tree<tide::Store>, One, Doubling>>(layout);
        break;
      case 1:
        check<Gather<MulticastTransport, Doubling>, Reduce<Tree<tide::Accumulate>, Wide, tide::RdmaDirectTransport>>(
            layout);
        break;
      case 2:
        check<Gather<MulticastTransport, Paced>, Reduce<tide::SwitchReducer<>, One, Doubling>>(layout, Values::whole);
        break;
      default:
        if (tide::fits_slot(group.view())) {
          check<Gather<MulticastTransport, Paced>, Reduce<Tree<tide::Store>, tide::SlotReuse, Doubling>>(layout);
        } else {
          check<Gather<UnicastTransport, Doubling>, Reduce<Tree<tide::Store>, One, tide::RdmaDirectTransport>>(layout);
        }
    }
  }
};

}  // namespace tide_test::random_collectives
