// SPDX-License-Identifier: Apache-2.0
//
// Bound: a time that no run of a plan on a machine can beat, and the part of the machine that sets it.
//
// Laws                                               (tests/plan/bound.test.cpp)
//   necessary   every resource is busy for at most `seconds`; the binding one for exactly as long
//   monotone    a faster machine has no larger bound; a plan with more ops no smaller one
//
// Order among ops is not looked at: a run is that much slower than its bound where its ops wait for each other.

#pragma once

#include <tide/plan/detail/calls.hpp>  // Calls
#include <tide/plan/detail/uses.hpp>   // for_each_use
#include <tide/plan/machine.hpp>       // Machine
#include <tide/plan/plan.hpp>          // Plan
#include <tide/plan/resource.hpp>      // Resource, resource_count

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tide {

/// The time that the busiest resource needs for its part of the plans.
struct Bound {
  double seconds = 0;
  Resource resource = Resource::lane;
  Rank rank{};  ///< of the resource; the first of its node where that shares its memory
  Lane lane{};  ///< where the resource is a lane

  /// The resource in words: "ingress of rank 2", "lane push 1 of rank 0".
  [[nodiscard]] std::string binding() const;
};

/// How long the busiest resource of a machine is busy: the links into and out of each rank, its NIC, its local copies,
/// its sums, its memory, and each lane, on which calls and transfers follow each other.
///
/// @param plans  those of all ranks of the collective; of some, it is the bound of what these do
[[nodiscard]] constexpr Bound lower_bound(const Collective& collective, std::span<const Plan> plans,
                                          const Machine& machine) {
  using Bytes = std::array<index_t, resource_count>;
  std::vector<Bytes> bytes(static_cast<std::size_t>(collective.ranks()), Bytes{});
  Bound bound;
  const auto raise_to = [&](double seconds, Resource resource, Rank rank, Lane lane) {
    if (seconds > bound.seconds) bound = {seconds, resource, rank, lane};
  };
  for (const Plan& plan : plans) {
    std::vector<double> lanes(plan.lanes.size(), 0.0);
    detail::Calls calls(collective, plan);
    for (const Op& op : plan.ops) {
      double& busy = lanes[op.lane];
      if (calls.begins(op)) busy += machine.call_seconds;
      busy += detail::op_seconds(collective, machine, plan.rank, op);
      detail::for_each_use(collective, plan.rank, op, [&](Rank rank, Resource resource, index_t count) {
        bytes[static_cast<std::size_t>(rank.value)][static_cast<std::size_t>(resource)] += count;
      });
    }
    for (std::size_t l = 0; l < lanes.size(); ++l) raise_to(lanes[l], Resource::lane, plan.rank, plan.lanes[l]);
  }
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    for (std::size_t i = 0; i < bytes[r].size(); ++i) {
      const auto resource = static_cast<Resource>(i);
      raise_to(detail::seconds(machine, resource, bytes[r][i]), resource, Rank{static_cast<index_t>(r)}, {});
    }
  }
  return bound;
}

inline std::string Bound::binding() const {
  constexpr std::string_view names[resource_count] = {"egress", "ingress", "NIC out of", "NIC into", "local copy",
                                                      "sum",    "memory",  "memory",     "lane"};
  std::string text{names[static_cast<int>(resource)]};
  if (resource == Resource::lane) text += " " + lane.name();
  if (resource == Resource::shared_memory) return text + " shared by the node of rank " + std::to_string(rank.value);
  const bool preposition = resource == Resource::nic_out || resource == Resource::nic_in;
  return text + (preposition ? " rank " : " of rank ") + std::to_string(rank.value);
}

}  // namespace tide
