// SPDX-License-Identifier: Apache-2.0
//
// Which ranks of a communicator are a node.
//
//   nodes = 2            communicator   0  1  2  3        nodes = 2, interleaved       0  1  2  3
//                        rank, as n.l   0.0 0.1 1.0 1.1                                0.0 1.0 0.1 1.1

#pragma once

#include <tide/core/index.hpp>               // Rank
#include <tide/fabric/cuda_options.cuh>      // CudaOptions
#include <tide/fabric/detail/nccl_puts.cuh>  // NcclFindings
#include <tide/layout/mesh.hpp>              // MeshShape

#include <string>
#include <string_view>

namespace tide::detail {

// Why ranks cannot send and receive; empty where they can. Between ranks that reach each other's memory NCCL registers
// buffers when a step uses them for the first time, and the other rank's GPU has to be idle for that: 2.32.3 was seen
// to wait for ever.
// @param logical   whether nodes are parts of NCCL's
// @param registers NCCL_LOCAL_REGISTER, null where it is not set
[[nodiscard]] inline std::string why_no_sends(bool logical, const char* registers) {
  if (!logical || (registers != nullptr && std::string_view(registers) == "0")) return {};
  return "logical nodes send and receive only with NCCL_LOCAL_REGISTER=0 in the environment, since NCCL registers "
         "buffers in the middle of a step, which waits for the other rank's GPU";
}

// How the ranks of a communicator are ranks of the mesh.
struct CudaNodes {
  MeshShape mesh{1, 1};
  bool interleaved = false;

  CudaNodes() = default;
  CudaNodes(const NcclFindings& found, const CudaOptions& options)
      : mesh{options.nodes != 0 ? options.nodes : found.nodes, 0},
        interleaved(options.nodes != 0 && options.grouping == CudaGrouping::interleaved) {
    const auto refuse = [&](const char* why) {
      raise(Errc::argument, text({"tide::CudaOptions: nodes must be groups of equal size of ranks that reach each "
                                  "other; ",
                                  mesh.nodes, why, " ", found.ranks, " ranks on ", found.nodes, " nodes of NCCL."}));
    };
    if (options.nodes < 0 || found.ranks % mesh.nodes != 0) refuse(" do not divide");
    mesh.ranks_per_node = found.ranks / mesh.nodes;
    if (found.nodes > 1 && (interleaved || found.ranks / found.nodes % mesh.ranks_per_node != 0)) {
      refuse(interleaved ? ", interleaved, do not fit" : " do not fit");
    }
  }

  [[nodiscard]] int in_communicator(Rank rank) const noexcept {
    if (!interleaved) return rank.value;
    return static_cast<int>(mesh.local(rank) * mesh.nodes + mesh.node(rank));
  }
  [[nodiscard]] Rank in_mesh(index_t communicator_rank) const noexcept {
    if (!interleaved) return Rank{static_cast<std::int32_t>(communicator_rank)};
    return mesh.rank(communicator_rank % mesh.nodes, communicator_rank / mesh.nodes);
  }
};

}  // namespace tide::detail
