// SPDX-License-Identifier: Apache-2.0
//
// What a CudaFabric says of itself: which path each transfer takes.
//
//   CudaFabric: rank 0 of 2 on GPU 0, NCCL 2.32.3
//   to rank 1: GPU 1, copies by copy engines; 8-byte copies as signals
//   gather of 'q_proj.weight' (9 parameters), from shards:
//     to the own rank: 4 copies of 855654400 bytes
//     to rank 1: 4 copies of 855654400 bytes
//
// Test: tests/fabric/cuda_ranks.test.cu

#pragma once

#include <tide/fabric/cuda_fabric.cuh>
#include <tide/plan/collective.hpp>  // name

#include <string>
#include <vector>

namespace tide {

// How what goes to a rank goes there.
inline std::string CudaFabric::describe_way(index_t rank) const {
  if (mesh_.node(Rank{static_cast<std::int32_t>(rank)}) != mesh_.node(rank_)) {
    if (!no_puts_.empty())
      return "another node: sends and receives by NCCL, whose kernels use SMs; no puts: " + no_puts_;
    return window_.peer(rank, rank_.value) != nullptr
               ? "another node, of the same machine: puts by NCCL, through copy engines"
               : "another node: puts by NCCL, through the network";
  }
  cudaPointerAttributes attributes{};
  detail::check(cudaPointerGetAttributes(&attributes, window_.peer(rank, rank_.value)), "cudaPointerGetAttributes");
  if (rank == rank_.value) return "the same GPU: copies take SMs for a moment";
  if (attributes.device == device_) {
    return "shares GPU " + std::to_string(device_) + ": copies inside a GPU take SMs; 8-byte copies as signals";
  }
  return "GPU " + std::to_string(attributes.device) + ": copies by copy engines, no SM; 8-byte copies as signals";
}

inline std::string CudaFabric::describe_paths() {
  require_running("describe");
  const detail::DeviceGuard guard(device_);
  int nccl = 0;
  detail::check(ncclGetVersion(&nccl), "ncclGetVersion");
  std::string out = detail::text({"CudaFabric: rank ", rank_.value, " of ", mesh_.ranks(), " on GPU ", device_,
                                  ", NCCL ", detail::nccl_version_text(nccl), "\n"});
  if (mesh_.nodes > 1) {
    out += detail::text({"  ", mesh_.nodes, " nodes of ", mesh_.ranks_per_node,
                         mesh_.ranks_per_node == 1 ? " rank" : " ranks", "; rank ", rank_.value, " is on node ",
                         mesh_.node(rank_), "\n"});
  }
  for (index_t r = 0; r < mesh_.ranks(); ++r) out += detail::text({"to rank ", r, ": ", describe_way(r), "\n"});
  const bool emulated = options_.multicast == CudaMulticast::emulated;
  if (emulated) {
    out += "multicast: emulated for tests, as one copy per rank; nothing but this option chooses it\n";
  } else if (!no_multicast_.empty()) {
    out += "multicast: none, " + no_multicast_ + "; a policy that asks for it is refused\n";
  } else {
    out += multicast_trial_ < 0 ? "multicast: by the NVSwitch, as NCCL says; no policy here asks for it\n"
                                : "multicast: by the NVSwitch, one write to NCCL's multicast address; tried in init\n";
  }
  for (const auto& program : programs_) {
    for (const auto& variant : program->variants) {
      const Collective& collective = variant->collective;
      const bool gathers = collective.operation == Operation::gather;
      out += program->label + ", " +
             (gathers ? std::string(tide::name(collective.own))
                      : std::string(collective.gradients == GradientSource::table ? "from a table" : "from storage")) +
             ":\n";
      std::vector<index_t> copies(static_cast<std::size_t>(mesh_.ranks()));
      std::vector<index_t> bytes(copies.size());
      std::vector<index_t> puts(copies.size());
      std::vector<index_t> put_bytes(copies.size());
      index_t rendezvous = 0;
      index_t multicasts = 0;
      index_t multicast_bytes = 0;
      index_t sums = 0;
      index_t casts = 0;
      index_t switch_launches = 0;
      index_t bulk_sums = 0;
      index_t own_copies[2] = {0, 0};  // by the driver, and by kernels with bulk loads
      index_t own_bytes[2] = {0, 0};
      index_t own_launches = 0;
      for (const detail::CudaStep& step : variant->steps) {
        if (step.kind == detail::CudaStep::Kind::rendezvous) {
          ++rendezvous;
          continue;
        }
        const Op& op = variant->plan.ops[step.first];
        const index_t size = index_t{op.width} * op.rows;
        if (step.kind == detail::CudaStep::Kind::own_copy) {
          const int which = has_bulk_loads_ && step.bulk ? 1 : 0;
          own_launches += which;
          for (std::size_t i = step.first; i < step.last; ++i) {
            const Op& own = variant->plan.ops[i];
            ++own_copies[which];
            own_bytes[which] += index_t{own.width} * own.rows;
          }
        } else if (step.kind == detail::CudaStep::Kind::copy) {
          ++copies[static_cast<std::size_t>(op.peer)];
          bytes[static_cast<std::size_t>(op.peer)] += size;
        } else if (step.kind == detail::CudaStep::Kind::put ||
                   (step.kind == detail::CudaStep::Kind::send && op.kind == OpKind::put)) {
          ++puts[static_cast<std::size_t>(op.peer)];
          put_bytes[static_cast<std::size_t>(op.peer)] += size;
        } else if (step.kind == detail::CudaStep::Kind::multicast) {
          ++multicasts;
          multicast_bytes += size;
        } else if (step.kind == detail::CudaStep::Kind::switch_sum) {
          ++switch_launches;
        } else if (step.kind == detail::CudaStep::Kind::cast) {
          ++casts;
        } else if (step.kind == detail::CudaStep::Kind::sum) {
          ++sums;
          bulk_sums += has_bulk_loads_ && step.bulk ? 1 : 0;
        }
      }
      for (std::size_t r = 0; r < copies.size(); ++r) {
        if (copies[r] > 0) out += detail::text({"  to rank ", r, ": ", copies[r], " copies, ", bytes[r], " bytes\n"});
      }
      for (std::size_t r = 0; r < puts.size(); ++r) {
        if (puts[r] == 0) continue;
        out += detail::text(
            {"  to rank ", r, ": ", puts[r], variant->is_two_sided ? " sends, " : " puts, ", put_bytes[r], " bytes\n"});
      }
      if (rendezvous > 0) {
        out += detail::text({"  with other nodes: ", rendezvous, " rendezvous, by kernels of NCCL, which use SMs\n"});
      }
      if (multicasts > 0) {
        out += detail::text({"  to all ranks of the node: ", multicasts, " multicast writes, "});
        if (emulated) out += detail::text({"each as ", mesh_.ranks_per_node, " copies (emulated), "});
        out += detail::text({multicast_bytes, " bytes\n"});
      }
      if (own_copies[0] > 0) {
        out += detail::text({"  inside the GPU: ", own_copies[0], " copies by the driver, ", own_bytes[0], " bytes\n"});
      }
      if (own_copies[1] > 0) {
        out += detail::text({"  inside the GPU: ", own_copies[1], " copies, ", own_bytes[1], " bytes, in ",
                             own_launches, " launches of at most ", detail::bulk_copy_ctas,
                             " CTAs; by the driver where memory is not aligned to 16 bytes\n"});
      }
      if (casts > 0) {
        out +=
            detail::text({"  casts into the own slot: ", casts, " launches of at most ", detail::cast_ctas, " CTAs\n"});
      }
      if (switch_launches > 0) {
        out += detail::text({"  sums in the switch: ", switch_launches, " launches"});
        if (emulated) out += detail::text({", each as loads from ", mesh_.ranks_per_node, " ranks (emulated)"});
        out += "\n";
      }
      if (sums > 0) {
        out += detail::text({"  sums: ", sums, " launches of at most ", collective.ctas, " CTAs, ", bulk_sums,
                             " of them with bulk loads where memory is aligned to 16 bytes\n"});
      }
    }
  }
  return out;
}

}  // namespace tide
