// SPDX-License-Identifier: Apache-2.0
// labels: sim
//
// The time of SimFabric: a collective takes what `estimate` says of its plans, kernels of the user take theirs, and
// large worlds run without memory.

#include <doctest/doctest.h>
#include <tide/fabric/sim_cluster.hpp>
#include <tide/models/llama3_1.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/plan/bound.hpp>
#include <tide/plan/estimate.hpp>

#include "support/raised.hpp"
#include "support/small_plans.hpp"

#include <memory>
#include <string>
#include <vector>

namespace sim_time_test {

using namespace tide_test;
using namespace std::chrono_literals;
using tide::index_t;

const tide::Machine h200 = tide::machines::h200_node();
const tide::Machine slow_network{.link_rate = 1e9, .nic_rate = 1e7, .sum_rate = 1e9, .call_seconds = 1e-6};

/// The fabrics of all ranks with the plans of one collective, driven by this thread; no byte moves.
struct Launched {
  tide::SimCluster cluster;
  std::vector<tide::HostStream> streams{};

  Launched(const Planned& planned, tide::SimOptions options)
      : cluster(planned.collective.layout.mesh, counted(std::move(options))) {
    for (const tide::Plan& plan : planned.plans) {
      tide::SimFabric& fabric = cluster.fabric(plan.rank);
      std::vector<tide::KernelCode> kernels(planned.collective.kernels.size(), nullptr);
      fabric.attach({{planned.collective, plan, kernels}}, {}, "a test");
      streams.push_back(fabric.stream());
    }
    cluster.init();
  }

  /// Seconds of one run.  @param backwards  the last rank calls first
  double run(bool backwards = false) {
    const double begin = cluster.now();
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const std::size_t r = backwards ? streams.size() - 1 - i : i;
      cluster.fabric(tide::Rank{static_cast<index_t>(r)}).launch(0, 0, {}, streams[r].ref());
    }
    for (std::size_t r = 0; r < streams.size(); ++r) cluster.fabric(tide::Rank{static_cast<index_t>(r)}).close();
    return cluster.now() - begin;
  }

  static tide::SimOptions counted(tide::SimOptions options) {
    options.memory = tide::SimMemory::counted;
    return options;
  }
};

TEST_CASE("SimFabric: a collective on idle ranks takes what estimate says, and no less than its bound") {
  for (const tide::Machine& machine : {h200, slow_network, tide::machines::cpu(1e9)}) {
    for (const tide::MeshShape mesh : {tide::MeshShape{1, 1}, {1, 2}, {1, 3}, {1, 5}, {1, 8}, {2, 2}, {3, 2}, {5, 3}}) {
      CAPTURE(machine.name);
      CAPTURE(mesh.nodes);
      CAPTURE(mesh.ranks_per_node);
      const auto check = [&](const Planned& planned) {
        const double seconds = Launched(planned, {.machine = machine}).run();
        CHECK(seconds == tide::estimate(planned.collective, planned.plans, machine).seconds);
        CHECK(seconds == Launched(planned, {.machine = machine}).run(true));
        const double bound = tide::lower_bound(planned.collective, planned.plans, machine).seconds;
        CHECK(seconds >= bound * (1 - 1e-12));
        // What comes first of what comes at one time makes it slower or faster, never faster than can be.
        for (const std::uint64_t seed : {1U, 2U}) {
          CHECK(Launched(planned, {.machine = machine, .seed = seed}).run() >= bound * (1 - 1e-12));
        }
      };
      const tide::GroupView group = mixed_group.view();
      if (mesh.nodes == 1) {
        check(planned_gather<tide::UnicastTransport>(group, mesh.ranks()));
        check(planned_gather<tide::UnicastTransport>(group, mesh.ranks(), tide::OwnBlock::cast));
        check(planned_gather<tide::MulticastTransport>(group, mesh.ranks()));
        check(planned_reduce<tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>>(group, mesh.ranks()));
        continue;
      }
      check(planned_gather_on<tide::UnicastTransport>(group, mesh));
      check(planned_gather_on<tide::MulticastTransport>(group, mesh, tide::OwnBlock::cast));
      for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
        check(planned_reduce(group, mesh, exchange));
      }
      check(planned_switch_reduce(group, mesh));
    }
  }
}

inline constexpr auto sim_group =
    tide::group(tide::param<tide::bf16>("w", {64, 512}), tide::param<tide::bf16>("b", {7}));
using Layout = tide::ShardLayout<sim_group, tide::Mesh<1, 4>>;
using Gather = tide::AllGather<Layout, tide::UnicastTransport>;
using Pool = tide::SlotPool<tide::Depth<2>, Layout>;

/// Seconds from the start to the end of some program with a gather, and of that gather alone.
template <class Program>
double seconds_of(const Program& program, tide::SimOptions options = {}) {
  tide::SimCluster cluster({1, 4}, options);
  cluster.run([&](tide::SimFabric& fabric) {
    Pool pool(fabric);
    tide::Shards<Layout> shards(fabric);
    Gather gather(fabric, pool);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    program(fabric, gather, shards, stream);
    fabric.close();
  });
  return cluster.now();
}

const auto gather_once = [](tide::SimFabric&, Gather& gather, const tide::Shards<Layout>& shards,
                            tide::HostStream& stream) { gather.enqueue(shards, stream).release(stream); };

TEST_CASE("SimFabric: time is the machine's: kernels beside a gather hide it, kernels behind it do not") {
  const Planned planned = planned_gather(sim_group.view(), 4);
  const double alone = seconds_of(gather_once);
  CHECK(alone == tide::estimate(planned.collective, planned.plans, h200).seconds);
  CHECK(alone > 5e-6);
  CHECK(alone < 100e-6);
  const double beside = seconds_of([](tide::SimFabric& fabric, auto&... rest) {
    gather_once(fabric, rest...);
    fabric.busy(fabric.stream(), 200us);
  });
  CHECK(beside == doctest::Approx(200e-6));
  const double behind = seconds_of([](tide::SimFabric& fabric, auto& gather, auto& shards, auto& stream) {
    gather_once(fabric, gather, shards, stream);
    fabric.busy(stream, 200us);
  });
  CHECK(behind == doctest::Approx(200e-6 + alone));
  // A host that is late holds everybody up.
  const double late = seconds_of([](tide::SimFabric& fabric, auto&... rest) {
    if (fabric.rank() == tide::Rank{2}) fabric.sleep(70us);
    gather_once(fabric, rest...);
  });
  CHECK(late == doctest::Approx(70e-6 + alone));
}

TEST_CASE("SimFabric: functions and calls take no time, and a loop that asks for an event ends") {
  int asked = 0;
  const double polled = seconds_of([&](tide::SimFabric& fabric, Gather& gather, auto& shards, auto& stream) {
    stream.run([&fabric] { CHECK(fabric.now() == 0); });
    auto params = gather.enqueue(shards, stream);
    while (!params.complete().ready()) ++asked;
    params.release(stream);
  });
  CHECK(asked > 10);
  CHECK(polled == seconds_of(gather_once));
}

TEST_CASE("SimFabric: two launches beside each other share links, one behind the other takes as long as twice one") {
  const double alone = seconds_of(gather_once);
  const double twice = seconds_of([](auto&... all) {
    gather_once(all...);
    gather_once(all...);
  });
  CHECK(twice > 1.5 * alone);
  CHECK(twice <= 2 * alone * (1 + 1e-12));
}

TEST_CASE("SimFabric: the tally is that of all launches") {
  const Planned planned = planned_gather(sim_group.view(), 4);
  tide::Tally expected = tide::tally(planned.collective, std::span<const tide::Plan>(planned.plans));
  expected += expected;
  Launched launched(planned, {});
  CHECK(launched.cluster.tally() == tide::Tally{});
  for (int i = 0; i < 2; ++i) {
    for (index_t r = 0; r < 4; ++r) {
      launched.cluster.fabric(tide::Rank{r}).launch(0, 0, {}, launched.streams[static_cast<std::size_t>(r)].ref());
    }
  }
  CHECK(launched.cluster.tally() == expected);
}

TEST_CASE("SimFabric: a Llama-3.1-70B block is gathered and reduced over 64 ranks without memory for it") {
  using Block = tide::ShardLayout<tide::models::llama3_1_70b::block, tide::Mesh<8, 8>>;
  using Inter = tide::RdmaDoublingTransport<>;
  using BlockGather = tide::AllGather<Block, tide::MulticastTransport, Inter>;
  using BlockReduce = tide::ReduceScatter<Block, tide::CopyEngineReducer<>, Inter,
                                          tide::Ring<tide::Chunks<4>, tide::Bytes<(64 << 20)>>>;
  tide::SimCluster cluster({8, 8}, {.memory = tide::SimMemory::counted});
  struct OneRank {
    explicit OneRank(tide::SimFabric& fabric)
        : pool(fabric), shards(fabric), gradients(fabric), reduced(fabric), gather(fabric, pool), reduce(fabric) {}
    tide::SlotPool<tide::Depth<2>, Block> pool;
    tide::Shards<Block> shards;
    tide::Gradients<Block> gradients;
    tide::MasterShards<Block> reduced;
    BlockGather gather;
    BlockReduce reduce;
  };
  std::vector<std::unique_ptr<OneRank>> ranks;
  std::vector<tide::HostStream> streams;
  for (index_t r = 0; r < 64; ++r) {
    tide::SimFabric& fabric = cluster.fabric(tide::Rank{r});
    ranks.push_back(std::make_unique<OneRank>(fabric));
    streams.push_back(fabric.stream());
  }
  cluster.init();
  CHECK(cluster.fabric(tide::Rank{0}).arena() != nullptr);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r]->gather.enqueue(ranks[r]->shards, streams[r]).release(streams[r]);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) streams[r].synchronize();
  const double gathered = cluster.now();
  const index_t bytes = Block{}.view().bytes(tide::Buffer::slot);
  CHECK(bytes > index_t{1} << 30);
  CHECK(gathered > static_cast<double>(bytes) / 64 * 7 / h200.nic_rate);  // what comes to a rank from other nodes
  CHECK(gathered < 1.5 * static_cast<double>(bytes) / 64 * 7 / h200.nic_rate);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    static_cast<void>(ranks[r]->reduce.enqueue(ranks[r]->gradients, ranks[r]->reduced, streams[r]));
  }
  for (index_t r = 0; r < 64; ++r) cluster.fabric(tide::Rank{r}).close();
  CHECK(cluster.now() > 2 * gathered);  // sums cross in f32
  CHECK(cluster.tally().bytes_written > 64 * 2 * bytes);
}

TEST_CASE("SimCluster: one thread initializes all ranks, and hears what would keep several waiting") {
  tide::SimCluster cluster({1, 3});
  CHECK(text_of([&] { cluster.fabric(tide::Rank{1}).init(); }) ==
        "tide::SimFabric: nothing can go on: rank 1 waits for init of all ranks, and these have not come: 0, "
        "2.");
  tide::SimCluster other({1, 3});
  other.init();
  CHECK(text_of([&] { other.init(); }) == "tide::Fabric: init must be called once.");
  other.fabric(tide::Rank{1}).sleep(5ms);
  CHECK(other.now() == 5e-3);
}

}  // namespace sim_time_test
