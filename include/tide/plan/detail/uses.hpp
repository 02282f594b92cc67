// SPDX-License-Identifier: Apache-2.0
//
// Which parts of a machine an op keeps busy, and for how long. The bound adds this up; a schedule would lay it out.

#pragma once

#include <tide/plan/detail/op_rows.hpp>  // adds_in_switch
#include <tide/plan/machine.hpp>         // Machine
#include <tide/plan/plan.hpp>            // Plan
#include <tide/plan/resource.hpp>        // Resource
#include <tide/plan/traffic.hpp>         // traffic

#include <algorithm>

namespace tide::detail {

// Bytes per second; 0 where the machine is not bounded by the resource.
[[nodiscard]] constexpr double rate(const Machine& machine, Resource resource) noexcept {
  switch (resource) {
    case Resource::egress:
    case Resource::ingress:
      return machine.link_rate;
    case Resource::nic_out:
    case Resource::nic_in:
      return machine.nic_rate;
    case Resource::copy:
      return machine.copy_rate;
    case Resource::sum:
      return machine.sum_rate;
    case Resource::memory:
      return machine.memory_rate;
    case Resource::shared_memory:
      return machine.shared_memory_rate;
    case Resource::lane:
      break;
  }
  return 0;
}

[[nodiscard]] constexpr double seconds(const Machine& machine, Resource resource, index_t bytes) noexcept {
  const double per_second = rate(machine, resource);
  return per_second > 0 ? static_cast<double>(bytes) / per_second : 0;
}

// Calls f(Rank, Resource, bytes) for each part that an op of `rank` uses; that of a node is named by its first rank.
template <class F>
constexpr void for_each_use(const Collective& collective, Rank rank, const Op& op, F f) {
  const MeshShape mesh = collective.layout.mesh;
  const Traffic moved = traffic(collective, op);
  const auto in_memory = [&](Rank owner, index_t bytes) {
    f(owner, Resource::memory, bytes);
    f(mesh.rank(mesh.node(owner), 0), Resource::shared_memory, bytes);
  };
  if (moved.targets == 0) return;
  const Rank peer{op.peer};
  if (adds_in_switch(op, collective)) {  // every rank sends its part to the switch, and one sum comes back
    const index_t part = op.bytes() * index_t{kernel_of(op, collective).inputs};
    for (index_t local = 0; local < mesh.ranks_per_node; ++local) {
      const Rank source = mesh.rank(mesh.node(rank), local);
      if (mesh.ranks_per_node > 1) f(source, Resource::egress, part);
      if (source != rank) in_memory(source, part);
    }
    if (mesh.ranks_per_node > 1) f(rank, Resource::ingress, part);
  }
  in_memory(rank, moved.read_bytes);
  switch (op.kind) {
    case OpKind::copy:
      in_memory(peer, moved.written_bytes);
      if (peer == rank) {
        f(rank, Resource::copy, moved.read_bytes + moved.written_bytes);
      } else {
        f(rank, Resource::egress, moved.read_bytes);
        f(peer, Resource::ingress, moved.written_bytes);
      }
      return;
    case OpKind::multicast:  // the switch sends the own copy back, too
      f(rank, Resource::egress, moved.read_bytes);
      for (index_t local = 0; local < mesh.ranks_per_node; ++local) {
        const Rank target = mesh.rank(mesh.node(rank), local);
        f(target, Resource::ingress, moved.written_bytes);
        in_memory(target, moved.written_bytes);
      }
      return;
    case OpKind::put:
      f(rank, Resource::nic_out, moved.read_bytes);
      f(peer, Resource::nic_in, moved.written_bytes);
      in_memory(peer, moved.written_bytes);
      return;
    case OpKind::reduce:
    case OpKind::cast:
      f(rank, Resource::sum, moved.read_bytes + moved.written_bytes);
      in_memory(rank, moved.written_bytes);
      return;
    case OpKind::signal:
    case OpKind::wait:
      return;
  }
}

// The shortest time in which an op that has its resources to itself can be done, calls left out.
[[nodiscard]] constexpr double op_seconds(const Collective& collective, const Machine& machine, Rank rank,
                                          const Op& op) {
  double longest = 0;
  for_each_use(collective, rank, op, [&](Rank, Resource resource, index_t bytes) {
    longest = std::max(longest, seconds(machine, resource, bytes));
  });
  return longest;
}

}  // namespace tide::detail
