// SPDX-License-Identifier: Apache-2.0
// timeout: 600
// ranks: 2:TIDE_NODES=2 2:TIDE_NODES=2:CUDA_DEVICE_MAX_CONNECTIONS=1 4:TIDE_NODES=2:TIDE_INTERLEAVED=1 5:TIDE_NODES=5
// nodes: 2x1 2x2 3x2
// nodes_without_puts: 2x1 2x2 3x2 4x2 8x2 5x1 2x4 3x3
//
// Collectives over nodes on GPUs through sends and receives of NCCL, each rank in a process of its own: where there are
// puts, too, and where there are none, so that a node's arena is a window of that node alone.

#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/node_exchange.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/cuda_node_ranks.cuh"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <string>

namespace {

using namespace tide_test;

using tide::Element;
using Small = tide::SendRecvDoublingTransport<tide::Bytes<4096>, tide::PutsInFlight<2>>;
using Few = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;

// Logical nodes need it; NCCL reads it once, later than this.
const int no_registration = setenv("NCCL_LOCAL_REGISTER", "0", 0);

bool has_no_puts() { return std::getenv("TIDE_NO_PUTS") != nullptr; }

}  // namespace

// First of all: what every other case needs.
TEST_CASE("CudaFabric: sends and receives need no puts, and describe says what they cost") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) CudaProcess::skip("no GPU");
  CudaProcess::skip_unless_ranks_fit(devices);
  check_everybody(node_ranks(), [](tide::CudaFabric& fabric) {
    std::string wrong;
    if (fabric.mesh() != node_mesh()) wrong += "another mesh";
    if (!fabric.has(tide::Capability::send_receive)) wrong += "no sends and receives";
    if (has_no_puts() && fabric.has(tide::Capability::puts)) wrong += "puts";
    const tide::DynamicLayout layout = awkward_node_layout();
    tide::SlotPool<tide::Depth<1>, tide::DynamicLayout> pool(fabric, layout);
    tide::AllGather<tide::DynamicLayout, tide::UnicastTransport, Small> gather(fabric, pool, layout);
    fabric.init();
    const std::string said = describe(fabric);
    if (said.find(" rendezvous, by kernels of NCCL, which use SMs") == std::string::npos) wrong += said;
    if (CudaProcess::rank() == 0) std::printf("%s", said.c_str());
    fabric.close();
    return wrong;
  });
}

TEST_CASE(
    "CudaFabric: gathers by sends and receives deliver every byte from every source, through few slots many times") {
  check_gathers_over_nodes<tide::UnicastTransport, Small>(node_ranks(), 15);
  check_gathers_over_nodes<tide::MulticastTransport, tide::SendRecvDoublingTransport<>>(
      node_ranks(tide::CudaMulticast::emulated), 2);
}

TEST_CASE(
    "CudaFabric: reduces by sends and receives give the tree's bits, doubling and direct, through rings and slots") {
  check_each_reduce_over_nodes<Small, tide::SendRecvDirectTransport, Few>(60);
}

TEST_CASE("CudaFabric: sums in an emulated switch take what was sent and received") {
  const CudaProcess process = node_ranks(tide::CudaMulticast::emulated);
  check_reduces_over_nodes<tide::SwitchReducer<>, Small, Few>(process, {Element::bf16}, Values::whole, 10);
}

TEST_CASE("CudaFabric: gathers and reduces send and receive at once, each in an order of its own") {
  const tide::DynamicLayout layout(node_group({Element::bf16}, CudaProcess::world()), node_mesh());
  const CollectiveOracle oracle(layout.view(), Values::spread);
  check_everybody(node_ranks(), [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, tide::DynamicLayout> pool(fabric, layout);
    GatherRank<CudaProcess, tide::DynamicLayout, tide::UnicastTransport, Small> gather(fabric, pool, layout, oracle);
    ReduceRank<CudaProcess, tide::DynamicLayout, tide::CopyEngineReducer<>, Few, Small> reduce(fabric, layout, oracle);
    fabric.init();
    tide::CudaStream gathers = fabric.stream();
    tide::CudaStream reduces = fabric.stream();
    poison_slots<CudaProcess>(pool, gathers);
    for (std::uint64_t step = 1; step <= 30; ++step) {
      if (static_cast<index_t>(step) % 5 == fabric.rank().value % 5) CudaProcess::occupy(gathers, 500us);
      if (static_cast<index_t>(step) % 7 == fabric.rank().value % 7) CudaProcess::occupy(reduces, 500us);
      gather.step(pool, Source::shards, step, gathers);
      reduce.step(From::storage, step, reduces);
    }
    fabric.close();
    return gather.verdict() + reduce.verdict();
  });
}

TEST_CASE("CudaFabric: one pipeline puts and another sends, in turn") {
  const tide::DynamicLayout layout = awkward_node_layout();
  const CollectiveOracle oracle(layout.view());
  using Puts = tide::RdmaDoublingTransport<tide::Bytes<4096>, tide::PutsInFlight<2>>;
  check_everybody(node_ranks(), [&](tide::CudaFabric& fabric) -> std::string {
    if (!fabric.has(tide::Capability::puts)) {
      MESSAGE("not run: no puts, ", fabric.lacks(tide::Capability::puts));
      return {};
    }
    tide::SlotPool<tide::Depth<2>, tide::DynamicLayout> pool(fabric, layout);
    GatherRank<CudaProcess, tide::DynamicLayout, tide::UnicastTransport, Puts> puts(fabric, pool, layout, oracle);
    GatherRank<CudaProcess, tide::DynamicLayout, tide::UnicastTransport, Small> sends(fabric, pool, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<CudaProcess>(pool, stream);
    for (std::uint64_t step = 1; step <= 10; ++step) {
      puts.step(pool, Source::shards, 2 * step, stream);
      sends.step(pool, Source::shards, 2 * step + 1, stream);
    }
    fabric.close();
    return puts.verdict() + sends.verdict();
  });
}

// The last: nobody can use the communicators after it.
TEST_CASE("CudaFabric: after a rank's process has ended mid-step the ranks of all nodes end within the deadline") {
  constexpr std::chrono::seconds deadline{3};
  CudaProcess process = node_ranks();
  process.options.deadline = deadline;
  const Lost lost = lose_a_rank<Small>(process);
  const std::string& error = lost.error;
  CAPTURE(error);
  // Or NCCL finds out first, where there is a connection to lose.
  const bool is_late = error.find("tide::CudaFabric: the deadline of 3.000 s passed") == 0;
  const bool is_told = error.find("tide::CudaFabric: a rendezvous with rank ") == 0;
  CHECK((is_late || is_told));
  CHECK(error.find("gather of 'the group' (5 parameters), step 3") != std::string::npos);
  if (std::getenv("CUDA_DEVICE_MAX_CONNECTIONS") == nullptr) {
    CHECK((error.find(" a rendezvous with rank ") != std::string::npos ||
           error.find("waits for rank ") != std::string::npos));
  }
  CHECK(lost.took < deadline + 4s);
}
