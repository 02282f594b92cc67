// SPDX-License-Identifier: Apache-2.0
//
// The plans of all ranks in virtual time, once.

#pragma once

#include <tide/plan/detail/uses.hpp>   // for_each_use
#include <tide/plan/machine.hpp>       // Machine
#include <tide/plan/plan.hpp>          // Plan
#include <tide/plan/virtual_time.hpp>  // VirtualTime

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tide::detail {

// A word of a rank that rises.
struct RisingWord {
  std::int32_t rank = 0;
  index_t word = 0;
  index_t value = 0;
};

class Schedule {
 public:
  Schedule(const Collective& collective, std::span<const Plan> plans, const Machine& machine)
      : collective_(collective), plans_(plans), machine_(machine), time_(*this, machine, plans.size()) {
    for (const Plan& plan : plans) {
      const std::size_t r = ranks_.size();
      RankState& rank = ranks_.emplace_back(collective, plan);
      rank.words.assign(static_cast<std::size_t>(collective.words().count()), 0);
      rank.lanes.resize(plan.lanes.size());
      for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        rank.lanes[plan.ops[i].lane].ops.push_back(static_cast<std::uint32_t>(i));
      }
      for (std::size_t l = 0; l < plan.lanes.size(); ++l) time_.add_lane(r);
    }
  }
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  void run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t l = 0; l < ranks_[r].lanes.size(); ++l) time_.wake(0, r, l);
    }
    while (time_.next() != Time::never) time_.step();
    for (const RankState& rank : ranks_) {
      for (const LaneState& lane : rank.lanes) {
        if (lane.next < lane.ops.size()) seconds_ = std::numeric_limits<double>::infinity();
      }
    }
  }

  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] Rank last_rank() const noexcept { return last_rank_; }
  [[nodiscard]] Lane last_lane() const noexcept { return last_lane_; }

 private:
  using Time = VirtualTime<Schedule, RisingWord>;
  friend Time;

  struct LaneState {
    std::vector<std::uint32_t> ops{};  // positions in the issue order
    std::size_t next = 0;
  };

  struct RankState {
    RankState(const Collective& collective, const Plan& plan) : calls(collective, plan) {}

    std::vector<LaneState> lanes{};
    std::vector<index_t> words{};
    Calls calls;
  };

  [[nodiscard]] const Op* head(double, std::uint32_t r, std::uint32_t l) const {
    const LaneState& lane = ranks_[r].lanes[l];
    return lane.next < lane.ops.size() ? &plans_[r].ops[lane.ops[lane.next]] : nullptr;
  }
  [[nodiscard]] bool reached(std::uint32_t r, std::uint32_t, const Op& op) const {
    return ranks_[r].words[static_cast<std::size_t>(op.word())] >= op.value();
  }
  [[nodiscard]] static std::int64_t key(std::uint32_t, std::uint32_t, const Op& op) { return op.word(); }
  [[nodiscard]] double call_seconds(std::uint32_t r, std::uint32_t, const Op& op) {
    return ranks_[r].calls.begins(op) ? machine_.call_seconds : 0;
  }
  template <class F>
  void for_each_use(std::uint32_t r, std::uint32_t, const Op& op, const F& f) const {
    detail::for_each_use(collective_, Rank{r}, op, f);
  }

  void begin(double, double end, std::uint32_t r, std::uint32_t l, const Op& op) {
    if (op.raises()) time_.land(end, {op.peer, op.raise().word, op.raise().value});
    ++ranks_[r].lanes[l].next;
    if (end < seconds_) return;
    seconds_ = end;
    last_rank_ = Rank{r};
    last_lane_ = plans_[r].lanes[l];
  }

  void land(double now, const RisingWord& rising) {
    const auto rank = static_cast<std::size_t>(rising.rank);
    index_t& word = ranks_[rank].words[static_cast<std::size_t>(rising.word)];
    word = std::max(word, rising.value);
    time_.raised(now, rank, rising.word);
  }

  const Collective& collective_;
  std::span<const Plan> plans_;
  const Machine& machine_;
  std::vector<RankState> ranks_;
  Time time_;
  double seconds_ = 0;
  Rank last_rank_{};
  Lane last_lane_{};
};

}  // namespace tide::detail
