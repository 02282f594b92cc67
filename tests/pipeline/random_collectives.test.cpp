// SPDX-License-Identifier: Apache-2.0
//
// Seeded properties: any group on any mesh, with any packing, alignment, source, lanes and delays, is gathered and
// reduced as the oracle says.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/delays.hpp"
#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/random_group.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"
#include "support/sanitizer.hpp"

using namespace tide_test;

namespace {

using Layout = tide::DynamicLayout;
using Tight = tide::Ring<tide::Chunks<2>, tide::Bytes<16384>>;  // a unit for 8 peers in f64, twice
using Wide = tide::Ring<tide::Chunks<4>, tide::Bytes<(1 << 20)>>;

template <class Transport, class Inbox, class Epilogue>
void check(const Layout& layout, std::uint64_t seed, const tide::HostOptions& options) {
  const index_t ranks = layout.mesh().ranks();
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  check_no_error(errors_of(HostRanks{options}, ranks, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
    Guarded<HostRanks> guarded(fabric);
    GatherRank<HostRanks, Layout, Transport> gather(fabric, pool, layout, oracle);
    ReduceRank<HostRanks, Layout, tide::CopyEngineReducer<tide::Burst, Epilogue>, Inbox> reduce(fabric, layout, oracle);
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
        check<tide::UnicastTransport, Tight, tide::Store>(layout, seed, options);
        break;
      case 1:
        check<tide::MulticastTransport, Wide, tide::Accumulate>(layout, seed, options);
        break;
      case 2:
        check<tide::UnicastTransport, Tight, tide::Accumulate>(layout, seed, options);
        break;
      default:
        check<tide::MulticastTransport, Wide, tide::Store>(layout, seed, options);
    }
  }
}
