// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/print.hpp>
#include <tide/plan/tally.hpp>
#include <tide/reduce/auto_transport.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>

#include "conformance/inter_transport.hpp"
#include "support/random_group.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"

#include <map>
#include <set>
#include <sstream>

namespace rdma_doubling_test {

using namespace tide;
using tide_test::Planned;

// Many chunks of one row or a part of it, two and three puts in flight: every handshake is needed.
using Tight = RdmaDoublingTransport<Bytes<48>, PutsInFlight<2>>;
using Odd = RdmaDoublingTransport<Bytes<100>, PutsInFlight<3>>;
using Whole = RdmaDoublingTransport<>;

TEST_CASE("RdmaDoublingTransport: keeps the laws of a way over nodes, in many small chunks and in one") {
  tide_test::check_inter_transport<Tight, UnicastTransport>();
  tide_test::check_inter_transport<Odd, MulticastTransport>();
}

TEST_CASE("RdmaDoublingTransport: keeps them for elements of all sizes, and on more nodes than chunks") {
  for (const MeshShape mesh : {MeshShape{2, 2}, {7, 1}, {6, 2}}) {
    tide_test::check_inter_transport<Odd, UnicastTransport>(tide_test::mixed_group.view(), mesh, OwnBlock::copy);
    tide_test::check_inter_transport<Whole, MulticastTransport>(tide_test::mixed_group.view(), mesh, OwnBlock::cast);
  }
}

TEST_CASE("RdmaDoublingTransport: plans of random groups, packed tightly or padded, hold and give the oracle's bytes") {
  for (const std::uint64_t seed : tide_test::seeds(tide_test::sized(60, 6))) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const MeshShape mesh{random.between(2, 7), random.between(1, 3)};
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    const PackingRule packing = random.one_of({TightPacking::rule, Fsdp2Packing::rule});
    const DynamicGroup group = tide_test::any_group(random, mesh.ranks());
    const auto check = [&](const Planned& planned) {
      CAPTURE(name(planned.collective.own));
      REQUIRE(first_violation(planned) == "");
      CHECK(tide_test::run_schedules(planned.collective, planned.plans, 2, seed) == "");
    };
    const OwnBlock own = random.one_of({OwnBlock::in_place, OwnBlock::cast});
    check(tide_test::planned_gather_on<UnicastTransport, Tight>(group.view(), mesh, OwnBlock::copy, packing));
    check(tide_test::planned_gather_on<UnicastTransport, Whole>(group.view(), mesh, own, packing));
    check(tide_test::planned_gather_on<MulticastTransport, Odd>(group.view(), mesh, OwnBlock::multicast, packing));
    check(tide_test::planned_gather_on<MulticastTransport, Whole>(group.view(), mesh, own, packing));
  }
}

TEST_CASE("RdmaDoublingTransport: padding behind what a rank owns does not cross, and has no room in an inbox") {
  // Of four ranks the first has the row, and all have room for it in their padded shards.
  for (const PackingRule packing : {TightPacking::rule, Fsdp2Packing::rule}) {
    const Planned planned = tide_test::planned_gather_on<MulticastTransport, Whole>(
        tide_test::single_row.view(), {2, 2}, OwnBlock::multicast, packing);
    CHECK(planned.collective.network.inbox_bytes == 80);
    for (const Plan& plan : planned.plans) {
      CAPTURE(plan.rank.value);
      index_t put = 0;
      for (const Op& op : plan.ops) put += op.kind == OpKind::put ? op.width : 0;
      CHECK(put == (plan.rank == Rank{0} ? 80 : 0));
    }
  }
  CHECK(LayoutView{tide_test::single_row.view(), {2, 2}, Fsdp2Packing::rule}.bytes(Buffer::shards, Rank{3}) == 80);
}

TEST_CASE("SendRecvDoublingTransport, AutoTransport, SingleNode: ways over nodes, too") {
  using SendRecv = SendRecvDoublingTransport<Bytes<48>, PutsInFlight<2>>;
  using Auto = AutoTransport<OnH200Nodes, Tight>;
  for (const MeshShape mesh : tide_test::node_meshes) {
    tide_test::check_inter_transport<SendRecv, UnicastTransport>(tide_test::odd_group.view(), mesh, OwnBlock::copy);
    tide_test::check_inter_transport<Auto, UnicastTransport>(tide_test::odd_group.view(), mesh, OwnBlock::cast);
  }
  for (const index_t ranks : {1, 2, 3, 5, 8}) {
    tide_test::check_inter_transport<SingleNode, UnicastTransport>(tide_test::odd_group.view(), {1, ranks},
                                                                   OwnBlock::copy);
    tide_test::check_inter_transport<SingleNode, MulticastTransport>(tide_test::odd_group.view(), {1, ranks},
                                                                     OwnBlock::multicast);
  }
}

TEST_CASE("RdmaDoublingTransport: on one node it is Intra's own plan") {
  const Planned one = tide_test::planned_gather_on<UnicastTransport, Whole>(tide_test::odd_group.view(), {1, 3});
  CHECK(one.plans == tide_test::planned_gather<UnicastTransport>(tide_test::odd_group.view(), 3).plans);
  CHECK(one.collective.network == NetworkShape{});
}

TEST_CASE("RdmaDoublingTransport: each shard crosses to each other node once, in rounds that double") {
  for (const MeshShape mesh : tide_test::node_meshes) {
    CAPTURE(mesh.nodes);
    const Planned planned =
        tide_test::planned_gather_on<UnicastTransport, Whole>(tide_test::awkward_group.view(), mesh);
    index_t rounds = 0;
    while ((index_t{1} << rounds) < mesh.nodes) ++rounds;
    index_t crossed = 0;
    index_t shards = 0;
    for (const Plan& plan : planned.plans) {
      shards += planned.collective.layout.bytes(Buffer::shards, plan.rank);
      std::set<index_t> distances;
      for (const Op& op : plan.ops) {
        if (op.kind != OpKind::put) continue;
        CHECK(mesh.local(Rank{op.peer}) == mesh.local(plan.rank));
        distances.insert((mesh.node(Rank{op.peer}) - mesh.node(plan.rank) + mesh.nodes) % mesh.nodes);
        crossed += op.width;
      }
      CHECK(static_cast<index_t>(distances.size()) <= rounds);
      for (const index_t distance : distances) CHECK((distance & (distance - 1)) == 0);
    }
    // Parts that are passed on together start at multiples of 16.
    CHECK(crossed >= (mesh.nodes - 1) * shards);
    CHECK(crossed < (mesh.nodes - 1) * (shards + 16 * mesh.ranks()));
  }
}

TEST_CASE("RdmaDoublingTransport: puts grow with rounds and chunks, not with parameters") {
  for (const MeshShape mesh : {MeshShape{2, 2}, {4, 2}, {8, 1}}) {
    const Planned planned =
        tide_test::planned_gather_on<UnicastTransport, Whole>(tide_test::awkward_group.view(), mesh);
    index_t rounds = 0;
    while ((index_t{1} << rounds) < mesh.nodes) ++rounds;
    for (const Plan& plan : planned.plans) {
      index_t puts = 0;
      for (const Op& op : plan.ops) puts += op.kind == OpKind::put ? 1 : 0;
      CHECK(puts <= 2 * rounds - 1);  // in the first round the own block only
    }
  }
}

TEST_CASE("RdmaDoublingTransport: credits are asked for only where more puts than the pace may be on their way") {
  const auto credits = [](const Planned& planned) {
    index_t count = 0;
    for (const Plan& plan : planned.plans) {
      for (const Op& op : plan.ops) {
        const bool word = op.kind == OpKind::wait && planned.collective.words().kind(op.word()) == WordKind::credit;
        count += word ? 1 : 0;
      }
    }
    return count;
  };
  const GroupView group = tide_test::odd_group.view();
  CHECK(credits(tide_test::planned_gather_on<UnicastTransport, Whole>(group, {3, 1})) == 0);
  CHECK(credits(tide_test::planned_gather_on<UnicastTransport, Tight>(group, {4, 1})) > 0);
  // Two nodes put to each other: what comes says that what was sent two waves before has come.
  CHECK(credits(tide_test::planned_gather_on<UnicastTransport, Tight>(group, {2, 1})) == 0);
}

TEST_CASE("RdmaDoublingTransport: memory is that of the other nodes' shards") {
  for (const MeshShape mesh : tide_test::node_meshes) {
    const LayoutView layout{tide_test::awkward_group.view(), mesh, TightPacking::rule};
    index_t largest = 0;
    for (index_t r = 0; r < mesh.ranks(); ++r) {
      index_t others = 0;
      for (index_t n = 0; n < mesh.nodes; ++n) {
        const Rank rank = mesh.rank(n, mesh.local(Rank{r}));
        if (rank.value != r) others += align_up(layout.bytes(Buffer::shards, rank), 16);
      }
      largest = std::max(largest, others);
    }
    CHECK(Tight::network(layout).inbox_bytes == largest);
    CHECK(Whole::network(layout).inbox_bytes == largest);
    CHECK(slot_network(layout).inbox_bytes >= largest);
  }
}

// snippet: printed-rail-plan
TEST_CASE("RdmaDoublingTransport: a plan reads like this") {
  constexpr auto group = tide::group(tide::param<tide::bf16>("w", {6, 4}));
  const Planned planned = tide_test::planned_gather_on<UnicastTransport, Whole>(group.view(), {3, 1});
  std::ostringstream out;
  tide::print(out, planned.collective, planned.plans[0]);
  CHECK(out.str() == R"(rank 0 of 3x1: gather of 1 parameters, 17 ops on 3 lanes
  caller
      0  signal     event[0] = 1
      1  copy       shards[0 +16] -> rank 0 slot[0]  'w'
     16  wait       event[2] >= 1
         exit       complete
  net
      2  wait       event[0] >= 1
      3  signal     rank 2 ready[0] = 1
      4  wait       ready[1] >= 1
      5  put        shards[0 +16] -> rank 1 network_inbox[16], arrived[0] = 1  'w'
      6  wait       arrived[2] >= 1
      7  signal     event[1] = 1 of 2
      8  put        shards[0 +16] -> rank 2 network_inbox[0], arrived[0] = 1  'w'
     11  wait       arrived[1] >= 1
     12  signal     event[1] = 2 of 2
  push 0
      9  wait       event[1] >= 1 of 2
     10  copy       network_inbox[16 +16] -> rank 0 slot[32]  'w'
     13  wait       event[1] >= 2 of 2
     14  copy       network_inbox[0 +16] -> rank 0 slot[16]  'w'
     15  signal     event[2] = 1
)");
}
// end: printed-rail-plan

TEST_CASE("SendRecvDoublingTransport: writes the same plans and asks for something else") {
  using SendRecv = SendRecvDoublingTransport<Bytes<48>, PutsInFlight<2>>;
  static_assert(SendRecv::capability == Capability::send_receive && Tight::capability == Capability::puts);
  CHECK(SendRecv::name.find("SMs") != std::string_view::npos);
  for (const MeshShape mesh : {MeshShape{2, 2}, {3, 1}}) {
    CHECK(tide_test::planned_gather_on<UnicastTransport, SendRecv>(tide_test::odd_group.view(), mesh).plans ==
          tide_test::planned_gather_on<UnicastTransport, Tight>(tide_test::odd_group.view(), mesh).plans);
  }
}

TEST_CASE("RdmaDoublingTransport: a plan is a constant expression for a small group on a static mesh") {
  constexpr std::size_t puts = [] {
    std::size_t count = 0;
    for (const Plan& plan :
         tide_test::planned_gather_on<UnicastTransport, Whole>(tide_test::single_row.view(), {2, 1}).plans) {
      for (const Op& op : plan.ops) count += op.kind == OpKind::put ? 1U : 0U;
    }
    return count;
  }();
  static_assert(puts == 1);  // one rank owns the row
}

}  // namespace rdma_doubling_test
