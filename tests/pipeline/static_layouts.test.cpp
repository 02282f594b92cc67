// SPDX-License-Identifier: Apache-2.0
//
// Pipelines of layouts that the compiler knows: the interface that a user writes, typed access by name, constants.

#include <doctest/doctest.h>
#include <tide/element/bf16.hpp>
#include <tide/element/f16.hpp>
#include <tide/layout/ragged_shard.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

#include <vector>

using namespace tide_test;

namespace {

inline constexpr auto static_group = tide::group(
    tide::param<tide::bf16>("embed", {11, 4}), tide::param<tide::f16, float>("norm", {5}),
    tide::repeat<3>("experts.{}.", tide::param<tide::bf16>("up", {6, 2}), tide::param<tide::bf16>("down", {4, 3})),
    tide::param<tide::bf16>("ragged", {7, 2}, tide::ragged<4, 0, 3>()), tide::alias("head", "embed"));

using Static = tide::ShardLayout<static_group, tide::Mesh<1, 3>>;
using Dynamic = tide::ShardLayout<static_group, tide::Mesh<tide::dynamic, tide::dynamic>>;
using Packed = tide::ShardLayout<static_group, tide::Mesh<1, tide::dynamic>, tide::Fsdp2Packing,
                                 tide::DenseStorage<tide::Bytes<16>>>;
using StaticInbox = tide::Ring<tide::Chunks<4>, tide::Bytes<(1 << 20)>>;

using StaticGather = tide::AllGather<Static, tide::UnicastTransport>;
using StaticReduce = tide::ReduceScatter<Static, tide::CopyEngineReducer<>, tide::SingleNode, StaticInbox>;

static_assert(StaticGather::slot_bytes == Static::slot_bytes);
static_assert(StaticGather::driver_calls > 0 && StaticGather::driver_calls < 40);
static_assert(tide::AllGather<Static, tide::MulticastTransport>::driver_calls < StaticGather::driver_calls);
static_assert(StaticReduce::inbox_bytes > 0 && StaticReduce::inbox_bytes <= (1 << 20));
static_assert(StaticReduce::driver_calls > 0);
static_assert(tide::AllGather<Dynamic, tide::UnicastTransport>::slot_bytes == Static::slot_bytes);

namespace over_nodes {
inline constexpr auto block =
    tide::group(tide::param<tide::bf16>("weight", {1000, 64}), tide::param<tide::bf16>("bias", {1000}));
// snippet: over-nodes
using Layout = tide::ShardLayout<block, tide::Mesh<2, 4>>;  // over 2 nodes of 4 ranks
using Gather = tide::AllGather<Layout, tide::UnicastTransport, tide::RdmaDoublingTransport<>>;
using Reduce = tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, tide::RdmaDoublingTransport<>>;
// end: over-nodes
static_assert(Gather::network_bytes > 0);
static_assert(Reduce::inbox_bytes > 0);
}  // namespace over_nodes

template <class Layout, class Transport>
void check(const Layout& layout) {
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(3);
  check_no_error(errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout> pool(fabric);
    GatherRank<HostRanks, Layout, Transport> gather(fabric, pool, layout, oracle);
    ReduceRank<HostRanks, Layout, tide::CopyEngineReducer<>, StaticInbox> reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    poison_slots<HostRanks>(pool, stream);
    std::uint64_t seed = 1;
    for (const Source source : {Source::shards, Source::masters, Source::in_place}) {
      gather.step(pool, source, seed++, stream);
      reduce.step(source == Source::shards ? From::table : From::storage, seed, stream);
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict() + reduce.verdict();
  }));
  for (const std::string& text : wrong) CHECK(text == "");
}

}  // namespace

TEST_CASE("AllGather, ReduceScatter: static meshes, dynamic meshes and other packings give the oracle's bytes") {
  check<Static, tide::UnicastTransport>(Static());
  check<Dynamic, tide::MulticastTransport>(Dynamic({1, 3}));
  check<Packed, tide::UnicastTransport>(Packed({1, 3}));
}

TEST_CASE("AllGather, ReduceScatter: a step as a user writes it, with pipelines kept in a vector") {
  std::vector<std::string> wrong(3);
  check_no_error(errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Static> slots(fabric);
    std::vector<StaticGather> gathers;  // one for each layer: they move while the vector grows
    std::vector<StaticReduce> reduces;
    for (int layer = 0; layer < 3; ++layer) {
      gathers.emplace_back(fabric, slots, "layer " + std::to_string(layer));
      reduces.emplace_back(fabric, slots, "layer " + std::to_string(layer));
    }
    tide::MasterShards<Static> masters(fabric);
    tide::MasterShards<Static> sums(fabric);
    tide::Gradients<Static> gradients(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    const auto rank = static_cast<float>(fabric.rank().value);
    std::string& text = wrong[static_cast<std::size_t>(fabric.rank().value)];
    for (int layer = 0; layer < 3; ++layer) {
      for (float& value : masters.get<"embed">()) value = rank + static_cast<float>(10 * layer);
      for (float& value : masters.get<"norm">()) value = -rank;
      auto params = gathers[static_cast<std::size_t>(layer)].enqueue(masters, stream);
      stream.run([&, embed = params.get<"embed">(), norm = params.get<"norm">()] {
        // Rows 0-3 are rank 0's, 4-7 rank 1's, 8-10 rank 2's; of the norm 2, 2 and 1.
        for (index_t row = 0; row < 11; ++row) {
          if (static_cast<float>(embed(row, 3)) != static_cast<float>(row / 4 + 10 * layer)) text += "embed";
        }
        for (index_t i = 0; i < 5; ++i) {
          if (static_cast<float>(norm(i)) != -static_cast<float>(i / 2)) text += "norm";
        }
        auto w = gradients.get<"embed">();
        for (tide::bf16& value : w.elements()) value = tide::bf16(rank + 1.0F);
        for (float& value : gradients.get<"norm">().elements()) value = 0.5F;
      });
      if (params.get<"head">().data() != params.get<"embed">().data()) text += "tied";
      params.release(stream);
      gradients.missing<"experts.1.up">();
      StaticReduce& reduce = reduces[static_cast<std::size_t>(layer)];
      const tide::ReduceTicket ticket = reduce.enqueue(gradients, sums, stream);
      stream.wait(ticket.shards_ready);
      stream.wait(ticket.gradients_free);
      stream.run([&, view = sums.view()] {
        for (const float value : view.get<"embed">()) text += value == 2.0F ? "" : "sum";  // the average of 1, 2 and 3
        for (const float value : view.get<"norm">()) text += value == 0.5F ? "" : "norm sum";
        for (const float value : view.get<"experts.1.up">()) text += value == 0.0F ? "" : "missing";
      });
      stream.synchronize();
    }
    fabric.close();
  }));
  for (const std::string& text : wrong) CHECK(text == "");
}
