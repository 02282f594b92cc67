// SPDX-License-Identifier: Apache-2.0
//
// Seeded properties: any group on any mesh and nodes, with any packing, alignment, source, lanes and delays, is
// gathered and reduced as the oracle says.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/delays.hpp"
#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/random_group.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"
#include "support/sanitizer.hpp"

namespace random_collectives_test {

using namespace tide_test;

namespace {

using Layout = tide::DynamicLayout;
using Tight = tide::Ring<tide::Chunks<2>, tide::Bytes<16384>>;  // a unit for 8 peers in f64, twice
using Wide = tide::Ring<tide::Chunks<4>, tide::Bytes<(1 << 20)>>;

template <class Transport, class Inter = tide::SingleNode>
using Gather = GatherRank<HostRanks, Layout, Transport, Inter>;
template <class Reducer, class Inbox, class Inter = tide::SingleNode>
using Reduce = ReduceRank<HostRanks, Layout, Reducer, Inbox, Inter>;
template <class Epilogue>
using Tree = tide::CopyEngineReducer<tide::Burst, Epilogue>;

template <class Gather, class Reduce>
void check(const Layout& layout, std::uint64_t seed, const tide::HostOptions& options, Values values = Values::spread) {
  const index_t ranks = layout.mesh().ranks();
  const CollectiveOracle oracle(layout.view(), values);
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  const HostRanks all{options, layout.mesh().ranks_per_node};
  check_no_error(errors_of(all, ranks, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
    Guarded<HostRanks> guarded(fabric);
    Gather gather(fabric, pool, layout, oracle);
    Reduce reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
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
  for (index_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[static_cast<std::size_t>(rank)] == "");
  }
}

}  // namespace

TEST_CASE("Pipelines: random groups on random meshes give the oracle's bytes") {
  for (const std::uint64_t seed : seeds(static_cast<std::uint64_t>(sized(150, 20)))) {
    CAPTURE(seed);
    Random random(seed);
    const index_t ranks = random.between(1, 9);
    const tide::PackingRule packing = random.once_in(2) ? tide::TightPacking::rule : tide::Fsdp2Packing::rule;
    const index_t alignment = random.one_of({16, 64, 256, 256, 4096});
    const Layout layout(random_group(random, ranks), {1, ranks}, packing, alignment);
    tide::HostOptions options;
    if (random.once_in(4)) options.lanes = tide::HostLanes::merged;
    if (random.once_in(3)) options.hook = random_delays(seed, 60);
    switch (random.between(0, 3)) {
      case 0:
        check<Gather<tide::UnicastTransport>, Reduce<Tree<tide::Store>, Tight>>(layout, seed, options);
        break;
      case 1:
        check<Gather<tide::MulticastTransport>, Reduce<Tree<tide::Accumulate>, Wide>>(layout, seed, options);
        break;
      case 2:
        check<Gather<tide::UnicastTransport>, Reduce<Tree<tide::Accumulate>, Tight>>(layout, seed, options);
        break;
      default:
        check<Gather<tide::MulticastTransport>, Reduce<Tree<tide::Store>, Wide>>(layout, seed, options);
    }
  }
}

TEST_CASE("Pipelines: random groups on random nodes give the oracle's bytes, packed tightly or padded") {
  using tide::MulticastTransport;
  using tide::UnicastTransport;
  using Doubling = tide::RdmaDoublingTransport<>;
  using Paced = tide::RdmaDoublingTransport<tide::Bytes<48>, tide::PutsInFlight<2>>;
  using One = tide::Ring<tide::Chunks<1>, tide::Bytes<32768>>;
  for (const std::uint64_t seed : seeds(static_cast<std::uint64_t>(sized(80, 10)))) {
    CAPTURE(seed);
    Random random(seed);
    const auto mesh = random.one_of<tide::MeshShape>({{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 3}});
    const tide::PackingRule packing = random.once_in(3) ? tide::TightPacking::rule : tide::Fsdp2Packing::rule;
    const tide::DynamicGroup group = any_group(random, mesh.ranks());
    const Layout layout(group, mesh, packing);
    tide::HostOptions options;
    if (random.once_in(4)) options.lanes = tide::HostLanes::merged;
    if (random.once_in(2)) options.hook = random_delays(seed, 60);
    options.network_hook = [seed](const tide::HostHookPoint& point) {
      return tide::HostDelivery{
          std::chrono::microseconds(mix(seed, point.run, static_cast<std::uint64_t>(point.seq)) % 300)};
    };
    switch (random.between(0, 3)) {
      case 0:
        check<Gather<UnicastTransport, Paced>, Reduce<Tree<tide::Store>, One, Doubling>>(layout, seed, options);
        break;
      case 1:
        check<Gather<MulticastTransport, Doubling>, Reduce<Tree<tide::Accumulate>, Wide, tide::RdmaDirectTransport>>(
            layout, seed, options);
        break;
      case 2:
        check<Gather<MulticastTransport, Paced>, Reduce<tide::SwitchReducer<>, One, Doubling>>(layout, seed, options,
                                                                                               Values::whole);
        break;
      default:
        if (tide::fits_slot(group.view())) {
          check<Gather<MulticastTransport, Paced>, Reduce<Tree<tide::Store>, tide::SlotReuse, Doubling>>(layout, seed,
                                                                                                         options);
        } else {
          check<Gather<UnicastTransport, Doubling>, Reduce<Tree<tide::Store>, One, tide::RdmaDirectTransport>>(
              layout, seed, options);
        }
    }
  }
}

}  // namespace random_collectives_test
