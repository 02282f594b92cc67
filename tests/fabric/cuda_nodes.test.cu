// SPDX-License-Identifier: Apache-2.0
// timeout: 600
// ranks: 2:TIDE_NODES=2 4:TIDE_NODES=2 4:TIDE_NODES=2:TIDE_INTERLEAVED=1 6:TIDE_NODES=3 5:TIDE_NODES=5 8:TIDE_NODES=4
// nodes: 2x1 2x2 3x2 4x2 8x2 5x1 2x4 3x3
//
// Collectives over nodes on GPUs, through NCCL's puts, each rank in a process of its own: logical nodes, whose puts go
// by copy engine, or nodes of NCCL, which support/cluster starts on one host and whose puts go through its proxy.

#include <tide/reduce/node_exchange.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/cuda_node_ranks.cuh"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

namespace {

using namespace tide_test;

using tide::Element;
using Small = tide::RdmaDoublingTransport<tide::Bytes<4096>, tide::PutsInFlight<2>>;
using Few = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;

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
  check_everybody(node_ranks(), [](tide::CudaFabric& fabric) {
    std::string wrong = fabric.lacks(tide::Capability::puts);
    if (fabric.mesh() != node_mesh()) wrong += "another mesh";
    if (!fabric.has(tide::Capability::puts)) wrong += "no puts";
    // Between logical nodes NCCL would register buffers in the middle of a step; cuda_send_receive forbids it to.
    const std::string no_sends = fabric.lacks(tide::Capability::send_receive);
    if (!nodes_are_logical()) {
      wrong += no_sends;
    } else if (no_sends.find("NCCL_LOCAL_REGISTER=0") == std::string::npos) {
      wrong += "sends and receives";
    }
    fabric.init();
    const std::string said = describe(fabric);
    if (said.find("nodes of " + std::to_string(node_mesh().ranks_per_node)) == std::string::npos) wrong += said;
    if (CudaProcess::rank() == 0) std::printf("%s", said.c_str());
    fabric.close();
    return wrong;
  });
}

TEST_CASE("CudaFabric: gathers over nodes deliver every byte from every source, through few slots many times") {
  check_gathers_over_nodes<tide::UnicastTransport, Small>(node_ranks(), 20);
  check_gathers_over_nodes<tide::MulticastTransport, tide::RdmaDoublingTransport<>>(
      node_ranks(tide::CudaMulticast::emulated), 2);
}

TEST_CASE("CudaFabric: reduces over nodes give the tree's bits, doubling and direct, through rings and slots") {
  check_each_reduce_over_nodes<Small, tide::RdmaDirectTransport, Few>(100);
}

TEST_CASE("CudaFabric: sums in an emulated switch give the bits of whole numbers") {
  const CudaProcess process = node_ranks(tide::CudaMulticast::emulated);
  check_reduces_over_nodes<tide::SwitchReducer<>, Small, Few>(process, {Element::bf16}, Values::whole, 10);
  check_reduces_over_nodes<tide::SwitchReducer<tide::Burst, tide::Accumulate>, Small, Few>(process, {Element::bf16},
                                                                                           Values::whole, 4);
}

// The last: nobody can use the communicators after it.
TEST_CASE("CudaFabric: after a rank's process has ended mid-step the ranks of all nodes end within the deadline") {
  constexpr std::chrono::seconds deadline{3};
  CudaProcess process = node_ranks();
  process.options.deadline = deadline;
  const Lost lost = lose_a_rank<Small>(process);
  const std::string& error = lost.error;
  CAPTURE(error);
  CHECK(error.find("tide::CudaFabric: the deadline of 3.000 s passed") == 0);
  CHECK(error.find("gather of 'the group' (5 parameters), step 3") != std::string::npos);
  // Not everybody hears in time for whom the others wait; cuda_lost_rank is about that.
  CHECK((error.find("waits for rank ") != std::string::npos || error.find("a put to rank ") != std::string::npos));
  CHECK(lost.took < deadline + 4s);
}
