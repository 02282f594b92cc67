// SPDX-License-Identifier: Apache-2.0
// labels: threads

#include <tide/fabric/host_port.hpp>

#include <tide/fabric/host_cluster.hpp>
#include <tide/fabric/sim_cluster.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace tide {
namespace {

static_assert(Fabric<HostPort> && Fabric<HostFabric>);
static_assert(std::is_same_v<HostPort::Stream, HostFabric::Stream>);

constexpr auto ported = group(param<float>("weight", {7, 3}), param<bf16>("bias", {5}));
using Ported = ShardLayout<ported, Mesh<1, 3>>;

// What a trainer does in a file of its own.
void average_of_ranks(HostPort& fabric, std::vector<float>& gathered) {
  Shards<Ported> shards{fabric};
  Gradients<Ported> gradients{fabric};
  MasterShards<Ported> averages{fabric};
  SlotPool<Depth<1>, Ported> slots{fabric};
  AllGather<Ported, UnicastTransport> gather{fabric, slots};
  ReduceScatter<Ported, CopyEngineReducer<>> reduce{fabric};
  fabric.init();
  HostStream stream = fabric.stream();
  stream.run([&] {
    const auto weight = gradients.get<"weight">();
    std::fill(weight.data(), weight.data() + weight.size(), static_cast<float>(fabric.rank().value));
    const auto bias = gradients.get<"bias">();
    std::fill(bias.data(), bias.data() + bias.size(), bf16{2.0F});
  });
  stream.wait(reduce.enqueue(gradients, averages, stream).shards_ready);
  // The average of ranks 0, 1 and 2 is 1: gathered, everybody has it.
  stream.run([&] {
    const auto average = averages.get<"weight">();
    std::copy_n(average.data(), average.size(), shards.get<"weight">().data());
    const auto bias = shards.get<"bias">();
    std::fill(bias.data(), bias.data() + bias.size(), bf16{-1.0F});
  });
  auto params = gather.enqueue(shards, stream);
  params.complete().synchronize();
  const auto weight = params.get<"weight">();
  gathered.assign(weight.data(), weight.data() + weight.size());
  params.release(stream);
  fabric.close();
}

TEST_CASE("HostPort: pipelines, pools, storage and streams need no more of a rank") {
  std::vector<std::vector<float>> gathered(3);
  HostCluster cluster{{1, 3}};
  cluster.run(
      [&](HostFabric& fabric) { average_of_ranks(fabric, gathered[static_cast<std::size_t>(fabric.rank().value)]); });
  for (const std::vector<float>& weight : gathered) CHECK(weight == std::vector<float>(21, 1.0F));
}

TEST_CASE("HostPort: the same source runs in virtual time") {
  std::vector<std::vector<float>> gathered(3);
  SimCluster cluster{{1, 3}};
  cluster.run(
      [&](HostPort& fabric) { average_of_ranks(fabric, gathered[static_cast<std::size_t>(fabric.rank().value)]); });
  for (const std::vector<float>& weight : gathered) CHECK(weight == std::vector<float>(21, 1.0F));
  CHECK(cluster.now() > 0);
}

}  // namespace
}  // namespace tide
