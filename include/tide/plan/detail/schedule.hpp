// SPDX-License-Identifier: Apache-2.0
//
// The plans of all ranks in virtual time: lanes, words and resources, and the events between them.

#pragma once

#include <tide/plan/detail/calls.hpp>  // Calls
#include <tide/plan/detail/uses.hpp>   // for_each_use
#include <tide/plan/machine.hpp>       // Machine
#include <tide/plan/plan.hpp>          // Plan
#include <tide/plan/resource.hpp>      // Resource, resource_count

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <vector>

namespace tide::detail {

class Schedule {
 public:
  Schedule(const Collective& collective, std::span<const Plan> plans, const Machine& machine)
      : collective_(collective), plans_(plans), machine_(machine), words_(collective.words()) {
    for (const Plan& plan : plans) {
      RankState& rank = ranks_.emplace_back(collective, plan);
      rank.words.assign(static_cast<std::size_t>(words_.count()), 0);
      rank.lanes.resize(plan.lanes.size());
      for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        rank.lanes[plan.ops[i].lane].ops.push_back(static_cast<std::uint32_t>(i));
      }
    }
  }

  void run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t l = 0; l < ranks_[r].lanes.size(); ++l) wake(0, r, l);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.lane == no_lane) {
        raise(event);
      } else {
        advance(event.time, event.rank, event.lane);
      }
    }
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
  static constexpr std::uint32_t no_lane = ~std::uint32_t{0};

  // A lane that may go on, or a word that rises.
  struct Event {
    double time = 0;
    std::uint64_t order = 0;  // of two at one time, the first goes first
    std::uint32_t rank = 0;
    std::uint32_t lane = no_lane;
    index_t word = 0;
    index_t value = 0;

    // Of a priority queue: the least comes first.
    [[nodiscard]] friend bool operator<(const Event& a, const Event& b) noexcept {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };

  struct LaneState {
    std::vector<std::uint32_t> ops{};  // positions in the issue order
    std::size_t next = 0;
    bool called = false;      // whether the next op's call has been made
    std::uint64_t order = 0;  // when the next op came to its resources
    index_t awaited = -1;     // the word that the next op waits for
  };

  struct RankState {
    RankState(const Collective& collective, const Plan& plan) : calls(collective, plan) {}

    std::vector<LaneState> lanes{};
    std::vector<index_t> words{};
    std::array<double, resource_count> free{};  // when each resource is
    Calls calls;
  };

  void wake(double time, std::size_t rank, std::size_t lane) {
    ranks_[rank].lanes[lane].order = next_order_;
    events_.push({time, next_order_++, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(lane), 0, 0});
  }

  void raise(const Event& event) {
    RankState& rank = ranks_[event.rank];
    index_t& word = rank.words[static_cast<std::size_t>(event.word)];
    word = std::max(word, event.value);
    for (std::size_t l = 0; l < rank.lanes.size(); ++l) {
      if (rank.lanes[l].awaited != event.word) continue;
      rank.lanes[l].awaited = -1;  // woken once, however often the word rises until it goes on
      wake(event.time, event.rank, l);
    }
  }

  // Does what a lane can do at a time: until it has to wait for a word, for a resource, or for its own op.
  void advance(double now, std::uint32_t r, std::uint32_t l) {
    RankState& rank = ranks_[r];
    LaneState& lane = rank.lanes[l];
    while (lane.next < lane.ops.size()) {
      const Op& op = plans_[r].ops[lane.ops[lane.next]];
      if (op.kind == OpKind::wait && rank.words[static_cast<std::size_t>(op.word())] < op.value()) {
        lane.awaited = op.word();
        return;
      }
      if (!lane.called) {
        lane.called = true;
        if (rank.calls.begins(op) && machine_.call_seconds > 0) return wake(now + machine_.call_seconds, r, l);
      }
      if (op.moves()) {
        const double start = start_of(now, Rank{r}, op);
        if (start > now) {
          events_.push({start, lane.order, r, l, 0, 0});  // in the order in which they came
          return;
        }
      }
      const double end = now + occupy(now, Rank{r}, op);
      if (op.raises()) {
        events_.push(
            {end, next_order_++, static_cast<std::uint32_t>(op.peer), no_lane, op.raise().word, op.raise().value});
      }
      ++lane.next;
      lane.called = false;
      if (end >= seconds_) {
        seconds_ = end;
        last_rank_ = Rank{r};
        last_lane_ = plans_[r].lanes[l];
      }
      if (end > now) return wake(end, r, l);
    }
  }

  // When all that the op uses is free.
  [[nodiscard]] double start_of(double now, Rank rank, const Op& op) const {
    double start = now;
    for_each_use(collective_, rank, op, [&](Rank owner, Resource resource, index_t bytes) {
      if (tide::detail::seconds(machine_, resource, bytes) > 0) start = std::max(start, free(owner, resource));
    });
    return start;
  }

  // Takes what an op uses from `now` on; returns how long the op takes.
  double occupy(double now, Rank rank, const Op& op) {
    double longest = 0;
    for_each_use(collective_, rank, op, [&](Rank owner, Resource resource, index_t bytes) {
      const double takes = tide::detail::seconds(machine_, resource, bytes);
      if (takes <= 0) return;
      // An op may use a resource twice: read from a memory, and write to it.
      double& until = free(owner, resource);
      until = std::max(until, now) + takes;
      longest = std::max(longest, until - now);
    });
    return longest;
  }

  [[nodiscard]] double& free(Rank rank, Resource resource) {
    return ranks_[static_cast<std::size_t>(rank.value)].free[static_cast<std::size_t>(resource)];
  }
  [[nodiscard]] double free(Rank rank, Resource resource) const {
    return ranks_[static_cast<std::size_t>(rank.value)].free[static_cast<std::size_t>(resource)];
  }

  const Collective& collective_;
  std::span<const Plan> plans_;
  const Machine& machine_;
  SignalWords words_;
  std::vector<RankState> ranks_;
  std::priority_queue<Event> events_;
  std::uint64_t next_order_ = 0;
  double seconds_ = 0;
  Rank last_rank_{};
  Lane last_lane_{};
};

}  // namespace tide::detail
