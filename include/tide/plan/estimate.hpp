// SPDX-License-Identifier: Apache-2.0
//
// Estimate: how long the plans of a collective take on a machine, by list scheduling: an op starts when its lane, what
// it waits for and all the resources that it uses are free; of those that want a resource, what came first gets it.
//
//   push 1   |call|==copy, egress of 0, ingress of 1==|call| signal
//   push 2        |call|.............................|==copy, egress of 0==|      waits for the link, not for the lane
//
// The bound of bound.hpp looks at each resource alone; this looks at order, too. Their quotient says how much of a
// machine a plan leaves idle.
//
// Laws                                               (tests/plan/estimate.test.cpp)
//   no miracle      seconds >= lower_bound(...).seconds
//   deterministic   a function of collective, plans and machine
//
// Cost: about 0.2 us per op, and the memory of the plans again.

#pragma once

#include <tide/plan/detail/schedule.hpp>  // Schedule

#include <span>

namespace tide {

/// What list scheduling says of a run.
struct Estimate {
  double seconds = 0;  ///< until the last op is done; infinite where an op waits for ever
  Rank rank{};         ///< whose op that is
  Lane lane{};         ///< on which lane
};

/// Runs the plans of all ranks in virtual time: from a start at the same time everywhere, after runs that have met what
/// waits for them.
///
/// @param plans  those of all ranks of the collective, for which `verify` holds
[[nodiscard]] inline Estimate estimate(const Collective& collective, std::span<const Plan> plans,
                                       const Machine& machine) {
  detail::Schedule schedule(collective, plans, machine);
  schedule.run();
  return {schedule.seconds(), schedule.last_rank(), schedule.last_lane()};
}

}  // namespace tide
