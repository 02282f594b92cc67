// SPDX-License-Identifier: Apache-2.0
//
// Law 10: on lanes of one kind and number, the n-th targets of all ranks differ. A multicast reaches all ranks at once
// and is not asked.

#pragma once

#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace tide::detail {

inline void check_incast(std::span<const Plan> plans, VerifyReport& report) {
  struct Transfer {
    LaneKind kind;
    std::int32_t index;
    std::int32_t step;
    std::int32_t target;
    std::uint32_t plan;
    std::uint32_t seq;

    [[nodiscard]] auto when() const noexcept { return std::tuple(kind, index, step, target); }
  };
  std::vector<Transfer> transfers;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    std::vector<std::int32_t> step(plans[p].lanes.size(), -1);
    std::vector<std::int32_t> target(plans[p].lanes.size(), -1);
    for (std::size_t s = 0; s < plans[p].ops.size(); ++s) {
      const Op& op = plans[p].ops[s];
      if ((op.kind != OpKind::copy && op.kind != OpKind::put) || op.peer == target[op.lane]) continue;
      target[op.lane] = op.peer;
      const Lane& lane = plans[p].lanes[op.lane];
      transfers.push_back({lane.kind, lane.index, ++step[op.lane], op.peer, static_cast<std::uint32_t>(p),
                           static_cast<std::uint32_t>(s)});
    }
  }
  std::sort(transfers.begin(), transfers.end(), [](const Transfer& a, const Transfer& b) {
    return std::tuple(a.when(), a.plan) < std::tuple(b.when(), b.plan);
  });
  for (std::size_t i = 1; i < transfers.size(); ++i) {
    const Transfer& a = transfers[i - 1];
    const Transfer& b = transfers[i];
    if (a.when() != b.when()) continue;
    report.add(Law::no_incast,
               report.who(a.plan, a.seq) + " and " + report.who(b.plan, b.seq) + " both go to rank " +
                   std::to_string(a.target) + " at step " + std::to_string(a.step) + " of lanes " +
                   report.lane(a.plan, plans[a.plan].ops[a.seq].lane),
               report.side(a.plan, a.seq), report.side(b.plan, b.seq));
  }
}

}  // namespace tide::detail
