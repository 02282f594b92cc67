// SPDX-License-Identifier: Apache-2.0
//
// Law 10: on lanes of one kind and number, the n-th targets of all ranks differ. A multicast reaches all ranks at once
// and is not asked.
//
// In rounds between nodes a rank without bytes leaves steps out. So a net lane's targets, taken as distances, are
// counted along those of the rank that has most of them, as long as they occur there in this order.

#pragma once

#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tide::detail {

// Counts the steps of a net lane along the longest one.
class NetSteps {
 public:
  explicit NetSteps(std::span<const Plan> plans) {
    for (const Plan& plan : plans) {
      std::vector<std::vector<std::int32_t>> lanes(plan.lanes.size());
      for (const Op& op : plan.ops) {
        const std::int32_t distance = distance_of(plan, op, plans.size());
        std::vector<std::int32_t>& lane = lanes[op.lane];
        if (op.kind == OpKind::put && (lane.empty() || lane.back() != distance)) lane.push_back(distance);
      }
      for (std::size_t l = 0; l < lanes.size(); ++l) {
        std::vector<std::int32_t>& longest = longest_[{plan.lanes[l].kind, plan.lanes[l].index}];
        if (lanes[l].size() > longest.size()) longest = std::move(lanes[l]);
      }
    }
  }

  // The step of an op whose target is another than that of step `last`.
  [[nodiscard]] std::int32_t next(const Plan& plan, const Op& op, std::int32_t last, std::size_t ranks) const {
    if (op.kind != OpKind::put) return last + 1;
    const Lane& lane = plan.lanes[op.lane];
    const std::vector<std::int32_t>& longest = longest_.at({lane.kind, lane.index});
    const auto from = longest.begin() + std::min<std::ptrdiff_t>(last + 1, std::ssize(longest));
    const auto found = std::find(from, longest.end(), distance_of(plan, op, ranks));
    return found == longest.end() ? last + 1 : static_cast<std::int32_t>(found - longest.begin());
  }

 private:
  [[nodiscard]] static std::int32_t distance_of(const Plan& plan, const Op& op, std::size_t ranks) noexcept {
    const auto count = static_cast<std::int32_t>(ranks);
    return (op.peer - plan.rank.value + count) % count;
  }

  std::map<std::pair<LaneKind, std::int32_t>, std::vector<std::int32_t>> longest_;
};

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
  const NetSteps steps(plans);
  for (std::size_t p = 0; p < plans.size(); ++p) {
    std::vector<std::int32_t> step(plans[p].lanes.size(), -1);
    std::vector<std::int32_t> target(plans[p].lanes.size(), -1);
    for (std::size_t s = 0; s < plans[p].ops.size(); ++s) {
      const Op& op = plans[p].ops[s];
      if ((op.kind != OpKind::copy && op.kind != OpKind::put) || op.peer == target[op.lane]) continue;
      target[op.lane] = op.peer;
      const Lane& lane = plans[p].lanes[op.lane];
      step[op.lane] = steps.next(plans[p], op, step[op.lane], plans.size());
      transfers.push_back({lane.kind, lane.index, step[op.lane], op.peer, static_cast<std::uint32_t>(p),
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
    const Side first = report.side(a.plan, a.seq);
    const Side second = report.side(b.plan, b.seq);
    report.add(Law::no_incast,
               report.doing(first) + " and " + report.doing(second) + " both go to rank " + std::to_string(a.target) +
                   " at step " + std::to_string(a.step) + " of lanes " + report.lane(a.plan, first.op.lane),
               first, second);
  }
}

}  // namespace tide::detail
