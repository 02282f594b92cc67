// SPDX-License-Identifier: Apache-2.0
//
// VirtualTime: when ops of lanes run on a machine. An op starts when its lane, what it waits for and all the resources
// that it uses are free; of those that want a resource, what came first gets it. `estimate` runs plans by it, and
// SimFabric whole programs: there is one model of time.
//
//   push 1   |call|==copy, egress of 0, ingress of 1==|call| signal
//   push 2        |call|.............................|==copy, egress of 0==|      waits for the link, not for the lane
//
// Laws                                               (tests/plan/virtual_time.test.cpp)
//   monotone       time never goes back
//   exclusive      no resource serves two ops at once, and none is idle while an op waits for nothing else
//   deterministic  a function of the work and of the seed that orders what happens at one time
//
// What the lanes hold is the caller's: a `Work` has
//
//   head(now, rank, lane)         the next op, or null: then somebody wakes the lane, or it awaits a key, or it is done
//   reached(rank, lane, op)       of an op that waits: whether it need not; else the lane awaits key(rank, lane, op)
//   call_seconds(rank, lane, op)  what the driver call costs that begins with the op
//   for_each_use(rank, lane, op, f)   f(rank, Resource, bytes) for each part of the machine that the op keeps busy
//   begin(now, end, rank, lane, op)   the op runs from now to end, and is the head no more
//   land(now, landing)            a `Landing`: what comes later than its op is issued, a word, or bytes and a word

#pragma once

#include <tide/core/index.hpp>         // index_t
#include <tide/plan/detail/calls.hpp>  // Calls
#include <tide/plan/detail/uses.hpp>   // seconds
#include <tide/plan/machine.hpp>       // Machine
#include <tide/plan/resource.hpp>      // Resource, resource_count

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace tide {

namespace detail {

// The n-th number of a seed: 64 random bits (the finalizer of SplitMix64).
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t n) noexcept {
  std::uint64_t bits = seed * 0xD1342543DE82EF95U + (n + 1) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ bits >> 30U) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ bits >> 27U) * 0x94D049BB133111EBU;
  return bits ^ bits >> 31U;
}

}  // namespace detail

/// Lanes and resources of all ranks.
template <class Work, class Landing>
class VirtualTime {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  /// @param seed  0: of what happens at one time, first comes what was known first; others: any order
  VirtualTime(Work& work, const Machine& machine, std::size_t rank_count, std::uint64_t seed = 0)
      : work_(work), machine_(machine), seed_(seed), ranks_(rank_count) {}

  /// A new lane of a rank, and its number.
  std::uint32_t add_lane(std::size_t rank) {
    ranks_[rank].lanes.emplace_back();
    return static_cast<std::uint32_t>(ranks_[rank].lanes.size()) - 1;
  }

  /// Lets a lane go on at a time.
  void wake(double time, std::size_t rank, std::size_t lane) {
    const std::uint64_t order = next_order();
    ranks_[rank].lanes[lane].order = order;
    events_.push({time, order, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(lane), {}});
  }
  /// Lets something land at a time.
  void land(double time, Landing landing) { events_.push({time, next_order(), 0, no_lane, std::move(landing)}); }

  /// The lane goes on when somebody raises what the key stands for.
  void await(std::size_t rank, std::size_t lane, std::int64_t key) { ranks_[rank].lanes[lane].awaited = key; }
  /// Wakes the lanes of a rank that await a key: once, however often it is raised until they go on.
  void raised(double time, std::size_t rank, std::int64_t key) {
    std::vector<LaneClock>& lanes = ranks_[rank].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      if (lanes[l].awaited != key) continue;
      lanes[l].awaited = nothing;
      wake(time, rank, l);
    }
  }
  /// Whether a lane awaits something.
  [[nodiscard]] bool awaits(std::size_t rank, std::size_t lane) const noexcept {
    return ranks_[rank].lanes[lane].awaited != nothing;
  }

  /// When something happens next; `never` where nothing does.
  [[nodiscard]] double next() const noexcept { return events_.empty() ? never : events_.top().time; }
  /// Lets it happen.  @pre next() != never
  void step() {
    const Event event = events_.top();
    events_.pop();
    if (event.lane == no_lane) {
      work_.land(event.time, event.landing);
    } else {
      advance(event.time, event.rank, event.lane);
    }
  }

 private:
  static constexpr std::uint32_t no_lane = ~std::uint32_t{0};
  static constexpr std::int64_t nothing = -1;

  // A lane that may go on, or something that lands.
  struct Event {
    double time = 0;
    std::uint64_t order = 0;  // of two at one time, the lower goes first
    std::uint32_t rank = 0;
    std::uint32_t lane = no_lane;
    Landing landing{};

    // Of a priority queue: the least comes first.
    [[nodiscard]] friend bool operator<(const Event& a, const Event& b) noexcept {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };

  struct LaneClock {
    bool called = false;      // whether the next op's call has been made
    std::uint64_t order = 0;  // when the next op came to its resources
    std::int64_t awaited = nothing;
  };

  struct RankClocks {
    std::vector<LaneClock> lanes{};
    std::array<double, resource_count> free{};  // when each resource is
  };

  // Counted, behind random bits where there is a seed.
  [[nodiscard]] std::uint64_t next_order() noexcept {
    const std::uint64_t count = next_order_++;
    return seed_ == 0 ? count : detail::random_bits(seed_, count) << 40U | count;
  }

  // Does what a lane can do at a time: until it has to wait for a word, for a resource, or for its own op.
  void advance(double now, std::uint32_t r, std::uint32_t l) {
    while (const Op* op = work_.head(now, r, l)) {
      if (op->kind == OpKind::wait && !work_.reached(r, l, *op)) return await(r, l, work_.key(r, l, *op));
      if (!clock(r, l).called) {
        clock(r, l).called = true;
        const double call = work_.call_seconds(r, l, *op);
        if (call > 0) return wake(now + call, r, l);
      }
      if (op->moves()) {
        const double start = start_of(now, r, l, *op);
        if (start > now) return events_.push({start, clock(r, l).order, r, l, {}});  // in the order in which they came
      }
      const double end = now + occupy(now, r, l, *op);
      clock(r, l).called = false;
      work_.begin(now, end, r, l, *op);
      if (end > now) return wake(end, r, l);
    }
  }

  // When all that the op uses is free.
  [[nodiscard]] double start_of(double now, std::uint32_t r, std::uint32_t l, const Op& op) {
    double start = now;
    work_.for_each_use(r, l, op, [&](Rank owner, Resource resource, index_t bytes) {
      if (detail::seconds(machine_, resource, bytes) > 0) start = std::max(start, free(owner, resource));
    });
    return start;
  }

  // Takes what an op uses from `now` on; returns how long the op takes.
  double occupy(double now, std::uint32_t r, std::uint32_t l, const Op& op) {
    double longest = 0;
    work_.for_each_use(r, l, op, [&](Rank owner, Resource resource, index_t bytes) {
      const double takes = detail::seconds(machine_, resource, bytes);
      if (takes <= 0) return;
      // An op may use a resource twice: read from a memory, and write to it.
      double& until = free(owner, resource);
      until = std::max(until, now) + takes;
      longest = std::max(longest, until - now);
    });
    return longest;
  }

  [[nodiscard]] LaneClock& clock(std::uint32_t r, std::uint32_t l) noexcept { return ranks_[r].lanes[l]; }
  [[nodiscard]] double& free(Rank rank, Resource resource) noexcept {
    return ranks_[static_cast<std::size_t>(rank.value)].free[static_cast<std::size_t>(resource)];
  }

  Work& work_;
  const Machine& machine_;
  std::uint64_t seed_;
  std::vector<RankClocks> ranks_;
  std::priority_queue<Event> events_;
  std::uint64_t next_order_ = 0;
};

}  // namespace tide
