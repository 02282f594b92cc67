// SPDX-License-Identifier: Apache-2.0
// timeout: 600
// ranks: 2:TIDE_NODES=2 4:TIDE_NODES=2 4:TIDE_NODES=2:TIDE_INTERLEAVED=1 6:TIDE_NODES=3 5:TIDE_NODES=5 8:TIDE_NODES=4
// nodes: 2x1 2x2 3x2 4x2 8x2 5x1 2x4 3x3
//
// Collectives over nodes on GPUs, through NCCL's puts, each rank in a process of its own: logical nodes, whose puts go
// by copy engine, or nodes of NCCL, which support/cluster starts on one host and whose puts go through its proxy.

#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/node_exchange.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/cuda_process.cuh"
#include "support/gather_rank.hpp"
#include "support/node_reduces.hpp"
#include "support/reduce_rank.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

namespace {

using namespace tide_test;

using Layout = tide::DynamicLayout;
using tide::Element;
using Small = tide::RdmaDoublingTransport<tide::Bytes<4096>, tide::PutsInFlight<2>>;
using Few = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;

tide::MeshShape mesh() {
  const char* nodes = std::getenv("TIDE_NODES");
  const index_t count = nodes != nullptr ? std::atoll(nodes) : 1;
  return {count, CudaProcess::world() / count};
}

CudaProcess ranks(tide::CudaMulticast multicast = tide::CudaMulticast::missing) {
  CudaProcess process;
  process.options.multicast = multicast;
  if (std::getenv("NCCL_HOSTID") == nullptr) process.options.nodes = mesh().nodes;
  if (std::getenv("TIDE_INTERLEAVED") != nullptr) process.options.grouping = tide::CudaGrouping::interleaved;
  return process;
}

// Runs the program of the own rank; then all ranks tell each other what they raised and what was wrong.
template <class Program>
void check(const CudaProcess& process, const Program& program) {
  std::string wrong;
  try {
    process.run(CudaProcess::world(), [&](tide::CudaFabric& fabric) { wrong = program(fabric); });
  } catch (const tide::Error& error) {
    wrong = error.what();
  }
  for (const std::string& text : CudaProcess::everybody(wrong)) CHECK(text == "");
}

// Odd rows, nothing at all, another dimension, several elements, and a parameter of many chunks.
Layout awkward_layout() {
  const index_t n = CudaProcess::world();
  tide::DynamicGroup group;
  group.add("odd", {7, 13}, Element::bf16, Element::bf16);
  group.add("none", {0, 4}, Element::bf16, Element::bf16);
  group.add("columns", {5, 2 * n}, Element::bf16, Element::bf16, tide::shard(1));
  group.add("large", {1000, 96}, Element::bf16, Element::bf16);
  group.add("single", {33, 3}, Element::f32, Element::f32);
  return {group, mesh()};
}

template <class Intra, class Inter>
void gathers(const CudaProcess& process, int turns) {
  const Layout layout = awkward_layout();
  const CollectiveOracle oracle(layout.view());
  check(process, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout> pool(fabric, layout);
    Guarded<CudaProcess> guarded(fabric);
    GatherRank<CudaProcess, Layout, Intra, Inter> gather(fabric, pool, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    std::uint64_t seed = 1;
    for (int turn = 0; turn < turns; ++turn) {
      for (const Source source : {Source::shards, Source::masters, Source::in_place}) {
        if (turn % 3 == fabric.rank().value % 3) CudaProcess::occupy(stream, 500us);
        gather.step(pool, source, seed++, stream);
      }
    }
    guarded.check(pool, stream);
    fabric.close();
    return gather.verdict() + guarded.verdict();
  });
}

template <class Reducer, class Inter, class Inbox>
void reduces(const CudaProcess& process, const std::vector<Element>& elements, Values values, int steps) {
  const Layout layout(node_group(elements, CudaProcess::world()), mesh());
  const CollectiveOracle oracle(layout.view(), values);
  check(process, [&](tide::CudaFabric& fabric) {
    ReduceRank<CudaProcess, Layout, Reducer, Inbox, Inter> reduce(fabric, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    tide::CudaStream reader = fabric.stream();
    for (int step = 0; step < steps; ++step) {
      const auto seed = static_cast<std::uint64_t>(step);
      if (step % 5 == fabric.rank().value % 5) CudaProcess::occupy(stream, 500us);
      // The gradients are written over the moment that they are free.
      reduce.read(reduce.start(step % 2 == 0 ? From::storage : From::table, seed, stream), seed, reader);
    }
    fabric.close();
    return reduce.verdict();
  });
}

}  // namespace

// First of all: what every other case needs.
TEST_CASE("CudaFabric: nodes are those that were asked for, or that NCCL finds") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) CudaProcess::skip("no GPU");
  int nccl = 0;
  REQUIRE(ncclGetVersion(&nccl) == ncclSuccess);
  if (nccl < NCCL_VERSION(2, 32, 0) || NCCL_VERSION_CODE < NCCL_VERSION(2, 32, 0)) {
    CudaProcess::skip("several ranks on a GPU, and puts on one host, need NCCL 2.32; compiled with " +
                      tide::detail::nccl_version_text(NCCL_VERSION_CODE) + ", loaded " +
                      tide::detail::nccl_version_text(nccl));
  }
  check(ranks(), [](tide::CudaFabric& fabric) {
    std::string wrong = fabric.lacks(tide::Capability::puts);
    if (fabric.mesh() != mesh()) wrong += "another mesh";
    if (!fabric.has(tide::Capability::puts)) wrong += "no puts";
    if (fabric.lacks(tide::Capability::send_receive).empty()) wrong += "sends and receives";
    fabric.init();
    const std::string said = describe(fabric);
    if (said.find("nodes of " + std::to_string(mesh().ranks_per_node)) == std::string::npos) wrong += said;
    if (CudaProcess::rank() == 0) std::printf("%s", said.c_str());
    fabric.close();
    return wrong;
  });
}

TEST_CASE("CudaFabric: gathers over nodes deliver every byte from every source, through few slots many times") {
  gathers<tide::UnicastTransport, Small>(ranks(), 20);
  gathers<tide::MulticastTransport, tide::RdmaDoublingTransport<>>(ranks(tide::CudaMulticast::emulated), 2);
}

TEST_CASE("CudaFabric: reduces over nodes give the tree's bits, doubling and direct, through rings and slots") {
  using Reducer = tide::CopyEngineReducer<>;
  using Add = tide::CopyEngineReducer<tide::Burst, tide::Accumulate>;
  reduces<Reducer, Small, Few>(ranks(), {Element::bf16}, Values::spread, 100);
  reduces<Add, Small, tide::SlotReuse>(ranks(), {Element::bf16, Element::f16}, Values::spread, 10);
  reduces<Add, tide::RdmaDirectTransport, Few>(ranks(), {Element::bf16, Element::f32}, Values::spread, 10);
  reduces<Reducer, tide::RdmaDirectTransport, tide::SlotReuse>(ranks(), {Element::f16}, Values::spread, 10);
}

TEST_CASE("CudaFabric: sums in an emulated switch give the bits of whole numbers") {
  const CudaProcess process = ranks(tide::CudaMulticast::emulated);
  reduces<tide::SwitchReducer<>, Small, Few>(process, {Element::bf16}, Values::whole, 10);
  reduces<tide::SwitchReducer<tide::Burst, tide::Accumulate>, Small, Few>(process, {Element::bf16}, Values::whole, 4);
}

// The last: nobody can use the communicators after it.
TEST_CASE("CudaFabric: after a rank's process has ended mid-step the ranks of all nodes end within the deadline") {
  constexpr std::chrono::seconds deadline{3};
  const index_t lost = CudaProcess::world() - 1;
  const Layout layout = awkward_layout();
  const CollectiveOracle oracle(layout.view());
  CudaProcess process = ranks();
  process.options.deadline = deadline;
  std::string error;
  std::chrono::steady_clock::duration took{};
  process.run(CudaProcess::world(), [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout> pool(fabric, layout);
    GatherRank<CudaProcess, Layout, tide::UnicastTransport, Small> gather(fabric, pool, layout, oracle, "the group");
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<CudaProcess>(pool, stream);
    for (std::uint64_t step = 1; step <= 3; ++step) gather.step(pool, Source::shards, step, stream);
    stream.synchronize();
    static_cast<void>(CudaProcess::everybody(""));
    if (fabric.rank().value == lost) std::_Exit(0);
    const auto begun = std::chrono::steady_clock::now();
    try {
      gather.step(pool, Source::shards, 4, stream);
      stream.synchronize();
    } catch (const tide::Error& thrown) {
      error = thrown.what();
    }
    took = std::chrono::steady_clock::now() - begun;
  });
  CAPTURE(error);
  CHECK(error.find("tide::CudaFabric: the deadline of 3.000 s passed") == 0);
  CHECK(error.find("gather of 'the group' (5 parameters), step 3") != std::string::npos);
  // Not everybody hears in time for whom the others wait; cuda_lost_rank is about that.
  CHECK((error.find("waits for rank ") != std::string::npos || error.find("a put to rank ") != std::string::npos));
  CHECK(took < deadline + 4s);
}
