// SPDX-License-Identifier: Apache-2.0
//
// Gathers over several nodes on the CPU fabric: every byte, with puts that come late and out of order, lanes that are
// merged, groups that take turns in the slots; and what is said when a put does not come.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/reduce/node_exchange.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/collectives.hpp"
#include "support/delays.hpp"
#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/random_group.hpp"
#include "support/rank_errors.hpp"
#include "support/sanitizer.hpp"

#include <atomic>

namespace gather_over_nodes_test {

using namespace tide_test;
using Layout = tide::DynamicLayout;
using Small = tide::RdmaDoublingTransport<tide::Bytes<64>, tide::PutsInFlight<2>>;
using Whole = tide::RdmaDoublingTransport<>;
using SendRecv = tide::SendRecvDoublingTransport<tide::Bytes<160>, tide::PutsInFlight<4>>;

constexpr tide::MeshShape meshes[] = {{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 2}, {3, 3}};

/// Every way of sharding, uneven and empty shards, a parameter that one rank owns, one of no elements.
tide::DynamicGroup awkward_group(index_t ranks) {
  std::vector<index_t> ragged;
  index_t rows = 0;
  for (index_t r = 0; r < ranks; ++r) rows += ragged.emplace_back(r % 3);
  tide::DynamicGroup group;
  group.add("w", {13, 6}, Element::bf16, Element::bf16);
  group.add("few", {2, 5}, Element::f32, Element::f32);
  group.add("empty", {0, 4}, Element::bf16, Element::bf16);
  group.add("columns", {3, 2 * ranks, 5}, Element::f8_e4m3, Element::bf16, tide::shard(1));
  group.add("ragged", {rows, 3}, Element::bf16, Element::bf16, {}, ragged);
  group.add("ruled", {9, 2}, Element::f16, Element::f16, tide::shard_by<LastTakesRest>());
  return group;
}

/// Puts come up to 300 microseconds late, each by itself.
tide::HostNetworkHook late_puts(std::uint64_t seed) {
  return [seed](const tide::HostHookPoint& point) -> tide::HostDelivery {
    const auto place = static_cast<std::uint64_t>(point.seq) * 64 + static_cast<std::uint64_t>(point.rank.value);
    return {std::chrono::microseconds(mix(seed, point.run, place) % 300)};
  };
}

/// Two groups in turns through two slots, each from every source; words where a byte is wrong.
template <class Intra, class Inter>
void gather_in_turns(const Layout& one, const Layout& other, const tide::HostOptions& options, std::uint64_t steps) {
  const tide::MeshShape mesh = one.view().mesh;
  const CollectiveOracle first(one.view());
  const CollectiveOracle second(other.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(mesh.ranks()));
  HostRanks{options}.run(mesh, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout, Layout> pool(fabric, one, other);
    Guarded<HostRanks> guarded(fabric);
    GatherRank<HostRanks, Layout, Intra, Inter> a(fabric, pool, one, first, "a");
    GatherRank<HostRanks, Layout, Intra, Inter> b(fabric, pool, other, second, "b");
    fabric.init();
    tide::HostStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    const Source sources[] = {Source::shards, Source::masters, Source::in_place, Source::masters};
    for (std::uint64_t step = 1; step <= steps; ++step) {
      const Source source = sources[step % 4];
      auto held = a.start(pool, source, step, stream);
      b.step(pool, sources[(step + 1) % 4], step, stream);
      a.read(held, source, step, stream);
      held.release(stream);
    }
    guarded.check(pool, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = a.verdict() + b.verdict() + guarded.verdict();
  });
  for (std::size_t rank = 0; rank < wrong.size(); ++rank) {
    CAPTURE(rank);
    CHECK(wrong[rank] == "");
  }
}

template <class Intra, class Inter>
void check(tide::MeshShape mesh, const tide::HostOptions& options, std::uint64_t steps = 5,
           tide::PackingRule packing = tide::TightPacking::rule) {
  CAPTURE(mesh.nodes);
  CAPTURE(mesh.ranks_per_node);
  tide::DynamicGroup single;
  single.add("one", {1, 70}, Element::bf16, Element::bf16);
  gather_in_turns<Intra, Inter>(Layout(awkward_group(mesh.ranks()), mesh, packing), Layout(single, mesh, packing),
                                options, steps);
}

TEST_CASE(
    "AllGather, ReduceScatter: where nodes are crossed by sends and receives a fabric can ask for every rank's plan") {
  using Reducer = tide::CopyEngineReducer<>;
  using Ring = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;
  for (const tide::MeshShape mesh : meshes) {
    const Layout layout(group_of({{13, 6}, {2, 5}, {0, 4}}, Element::bf16, Element::bf16), mesh);
    for (index_t r = 0; r < mesh.ranks(); ++r) {
      const auto gather = [&](tide::Rank rank) {
        return tide::detail::gather_variant<tide::HostFabric, Layout, tide::UnicastTransport, SendRecv>(
            layout.view(), tide::OwnBlock::cast, rank);
      };
      const auto reduce = [&](tide::Rank rank) {
        return tide::detail::reduce_variant<tide::HostFabric, Layout, Reducer, tide::SendRecvDirectTransport, Ring>(
            layout.view(), tide::GradientSource::table, rank);
      };
      CHECK(gather(tide::Rank{0}).plan_of(tide::Rank{r}) == gather(tide::Rank{r}).plan);
      CHECK(reduce(tide::Rank{0}).plan_of(tide::Rank{r}) == reduce(tide::Rank{r}).plan);
    }
    CHECK_FALSE(tide::detail::gather_variant<tide::HostFabric, Layout, tide::UnicastTransport, Whole>(
                    layout.view(), tide::OwnBlock::cast, tide::Rank{0})
                    .plan_of);
    CHECK_FALSE(tide::detail::reduce_variant<tide::HostFabric, Layout, Reducer, tide::RdmaDirectTransport, Ring>(
                    layout.view(), tide::GradientSource::table, tide::Rank{0})
                    .plan_of);
  }
}

TEST_CASE("AllGather over nodes: every source arrives bit for bit, and no other byte changes") {
  for (const tide::MeshShape mesh : meshes) {
    check<tide::UnicastTransport, Small>(mesh, {});
    check<tide::MulticastTransport, Whole>(mesh, {});
    check<tide::UnicastTransport, SendRecv>(mesh, {.lanes = tide::HostLanes::merged});
  }
}

TEST_CASE("AllGather over nodes: shards that are padded, among them those of rails that own nothing else") {
  for (const tide::MeshShape mesh : meshes) {
    tide::HostOptions options;
    options.network_hook = late_puts(static_cast<std::uint64_t>(mesh.ranks()));
    check<tide::MulticastTransport, Whole>(mesh, options, 5, tide::Fsdp2Packing::rule);
    check<tide::UnicastTransport, Small>(mesh, options, 5, tide::Fsdp2Packing::rule);
  }
}

TEST_CASE("AllGather over nodes: puts that come late and out of order, and ops that are delayed, change nothing") {
  for (const std::uint64_t seed : seeds(sized(8, 2))) {
    CAPTURE(seed);
    for (const tide::MeshShape mesh : meshes) {
      tide::HostOptions options;
      options.hook = random_delays(seed, 40);
      options.network_hook = late_puts(seed);
      options.network_depth = 2;  // the pace of Small: a plan that kept more would be refused
      check<tide::UnicastTransport, Small>(mesh, options);
      options.network_depth = 0;
      options.lanes = tide::HostLanes::merged;
      check<tide::MulticastTransport, Whole>(mesh, options);
    }
  }
}

TEST_CASE("AllGather over nodes: a group of empty parameters, and ranks that own nothing") {
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 2}, {3, 1}}) {
    tide::DynamicGroup empty;
    empty.add("nothing", {0, 4}, Element::bf16, Element::bf16);
    empty.add("no columns", {4, 0}, Element::f32, Element::f32);
    const Layout none(empty, mesh);
    gather_in_turns<tide::UnicastTransport, Small>(none, none, {}, 4);
    gather_in_turns<tide::MulticastTransport, Whole>(none, Layout(awkward_group(mesh.ranks()), mesh), {}, 4);
  }
}

TEST_CASE("AllGather over nodes: random groups") {
  for (const std::uint64_t seed : seeds(sized(60, 10))) {
    CAPTURE(seed);
    Random random(seed);
    const tide::MeshShape mesh{random.between(2, 5), random.between(1, 3)};
    const tide::PackingRule packing = random.once_in(2) ? tide::TightPacking::rule : tide::Fsdp2Packing::rule;
    const tide::DynamicGroup group = any_group(random, mesh.ranks());
    const Layout one(group, mesh, packing);
    tide::HostOptions options;
    if (random.once_in(2)) options.network_hook = late_puts(seed);
    if (random.once_in(2)) {
      gather_in_turns<tide::UnicastTransport, Small>(one, one, options, 4);
    } else {
      gather_in_turns<tide::MulticastTransport, Small>(one, one, options, 4);
    }
  }
}

/// What the ranks of a mesh say of two gathers.
template <class Inter = Whole>
std::vector<std::string> errors_over_nodes(tide::MeshShape mesh, const tide::HostOptions& options) {
  const Layout layout(awkward_group(mesh.ranks()), mesh);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> texts(static_cast<std::size_t>(mesh.ranks()));
  HostRanks{options}.run(mesh, [&](tide::HostFabric& fabric) {
    try {
      tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
      GatherRank<HostRanks, Layout, tide::UnicastTransport, Inter> gather(fabric, pool, layout, oracle, "a");
      fabric.init();
      tide::HostStream stream = fabric.stream();
      for (std::uint64_t step = 1; step <= 2; ++step) gather.step(pool, Source::shards, step, stream);
      stream.synchronize();
      fabric.close();
    } catch (const tide::Error& error) {
      texts[static_cast<std::size_t>(fabric.rank().value)] = error.what();
    }
  });
  return texts;
}

/// Loses, in the second run, what one rank sends to another.
tide::HostNetworkHook lost(tide::OpKind kind, index_t from, index_t to) {
  return [=](const tide::HostHookPoint& point) -> tide::HostDelivery {
    return {0us, point.run == 1 && point.op.kind == kind && point.rank.value == from && point.op.peer == to};
  };
}

/// The ranks that raised something: a rank may be done before another's deadline.
std::vector<std::string> raised(const std::vector<std::string>& texts) {
  std::vector<std::string> some;
  for (const std::string& text : texts) {
    if (!text.empty()) some.push_back(text);
  }
  REQUIRE(!some.empty());
  return some;
}

TEST_CASE("AllGather over nodes: a put that does not come is an error that names the rail peer and the round") {
  // Nobody waits for what a rank puts behind these.
  const auto put = tide::OpKind::put;
  check_same_error(raised(errors_over_nodes({2, 1}, {.deadline = 200ms, .network_hook = lost(put, 0, 1)})),
                   {"the deadline of 0.200 s passed", "gather of 'a'", "step 1, rank 1, lane net",
                    "waits for rank 0 of node 0, round 0: arrived[0] is"});
  check_same_error(raised(errors_over_nodes({3, 2}, {.deadline = 200ms, .network_hook = lost(put, 1, 5)})),
                   {"step 1, rank 5, lane net", "waits for rank 1 of node 0, round 1: arrived[1] is"});
}

TEST_CASE("AllGather over nodes: a signal that does not come is an error that names a rail peer") {
  const auto texts = errors_over_nodes({2, 1}, {.deadline = 200ms, .network_hook = lost(tide::OpKind::signal, 1, 0)});
  check_same_error(texts, {"step 1", "lane net"});
  // Rank 0 waits for the word that its peer is ready, and the peer for what rank 0 puts when it knows.
  const bool ready = texts[0].find("waits for rank 1 of node 1, round 0: ready[1]") != std::string::npos;
  const bool arrived = texts[0].find("waits for rank 0 of node 0, round 0: arrived[0]") != std::string::npos;
  CHECK((ready || arrived));
}

TEST_CASE("AllGather over nodes: a network that takes too few puts refuses by name") {
  const auto slow = [](const tide::HostHookPoint&) -> tide::HostDelivery { return {20ms}; };
  check_same_error(errors_over_nodes<Small>({3, 2}, {.network_hook = slow, .network_depth = 1}),
                   {"the network takes 1 puts to a rank at a time", "lane net", "(put) to rank", "is one more"});
}

TEST_CASE("AllGather over nodes: a fabric that reaches no other node refuses the policy by name") {
  for (const auto& text : errors_over_nodes({2, 2}, {.network = tide::HostNetwork::missing})) {
    CHECK(text ==
          "tide::Transport: the fabric must have what the policy needs; RDMA doubling needs one-sided puts, which "
          "this HostFabric has not.");
  }
}

constexpr auto block = tide::group(tide::param<tide::bf16>("w", {64, 32}), tide::param<tide::bf16>("b", {64}));
using Static = tide::ShardLayout<block, tide::Mesh<2, 2>>;
using Gather = tide::AllGather<Static, tide::UnicastTransport, Whole>;

// What a program knows before it runs.
static_assert(Gather::slot_bytes == Static::slot_bytes);
// One other node's shard and the own one, 16 rows and 16 elements: 1,024 + 32 bytes, as storage is aligned.
static_assert(Gather::network_bytes == 2 * 1280);
static_assert(tide::AllGather<tide::ShardLayout<block, tide::Mesh<1, 4>>, tide::UnicastTransport>::network_bytes == 0);

TEST_CASE("AllGather over nodes: typed tensors of a static layout") {
  std::atomic<index_t> right{0};
  HostRanks{}.run(tide::MeshShape{2, 2}, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Static> pool(fabric);
    tide::Shards<Static> shards(fabric);
    Gather gather(fabric, pool);
    fabric.init();
    CHECK(pool.network_bytes() == Gather::network_bytes);
    CHECK(Gather::driver_calls > 0);
    CHECK(Gather::driver_calls < 40);
    const auto own = shards.get<"w">();
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = tide::bf16(static_cast<float>(fabric.rank().value));
    tide::HostStream stream = fabric.stream();
    auto params = gather.enqueue(shards, stream);
    params.complete().synchronize();
    const auto w = params.get<"w">();
    for (index_t row = 0; row < 64; ++row) {
      for (index_t column = 0; column < 32; ++column) {
        right += static_cast<float>(w(row, column)) == static_cast<float>(row / 16) ? 1 : 0;
      }
    }
    params.release(stream);
    fabric.close();
  });
  CHECK(right == 4 * 64 * 32);
}

}  // namespace gather_over_nodes_test
