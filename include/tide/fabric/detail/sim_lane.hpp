// SPDX-License-Identifier: Apache-2.0
//
// A lane of SimFabric: a queue of items and how far its first one has come; and the plans that items run.

#pragma once

#include <tide/fabric/detail/host_ops.hpp>  // HostOps, HostRun
#include <tide/plan/tally.hpp>              // Tally

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// What a plan costs, beside what it does.
struct SimCosts {
  Collective collective;     // without its group
  std::vector<bool> begins;  // by op: whether a driver call begins with it
  Tally tally;

  SimCosts(Collective of, const Plan& plan) : collective(std::move(of)), tally(tide::tally(collective, plan)) {
    Calls calls(collective, plan);
    for (const Op& op : plan.ops) begins.push_back(calls.begins(op));
    collective.layout.group = {};  // it is the pipeline's
  }
};

// Whether a rank's program has ended, or its fabric is closed: then it makes no more calls.
struct SimLife {
  bool ended = false;
  bool closed = false;
};

// The plans of a pipeline of one rank, its words, its runs.
struct SimProgram {
  struct Run : HostRun {
    using HostRun::HostRun;
    std::int32_t variant_index = 0;
    std::int32_t lanes_left = 0;
  };

  SimProgram(std::vector<HostVariant> all, std::vector<SimCosts> their_costs, HostOps moves, std::string name)
      : variants(std::move(all)), costs(std::move(their_costs)), ops(std::move(moves)), label(std::move(name)) {
    for (std::uint64_t run = 0; run < max_runs; ++run) runs.emplace_back(variants.front().gradient_start.size());
  }

  [[nodiscard]] Rank rank() const noexcept { return variants.front().plan.rank; }
  [[nodiscard]] Run& run(std::uint64_t index) noexcept { return runs[index % max_runs]; }
  [[nodiscard]] const Run& run(std::uint64_t index) const noexcept { return runs[index % max_runs]; }
  [[nodiscard]] bool has_room() const noexcept { return run(next_run).lanes_left == 0; }

  void begin(std::int32_t index, const Bindings& bindings, std::uint64_t call) {
    Run& own = run(next_run++);
    const HostVariant& variant = variants[static_cast<std::size_t>(index)];
    own.bind(variant, bindings, call, zeros);
    own.variant_index = index;
    own.lanes_left = 0;
    for (std::size_t lane = 0; lane < variant.ops.size(); ++lane) own.lanes_left += variant.uses(lane) ? 1 : 0;
  }

  std::vector<HostVariant> variants;
  std::vector<SimCosts> costs;  // by variant
  HostOps ops;
  std::string label;
  std::uint64_t next_run = 0;
  std::deque<Run> runs{};
  Zeros zeros{};
  std::vector<std::uint64_t> words{};
  std::array<std::int32_t, 3> exit_counters{-1, -1, -1};  // by ExitKind
  std::int32_t caller_counter = -1;                       // how many runs have finished on the caller's lane
  std::int64_t key = 0;                                   // of word 0, for lanes that await one
  index_t first_host = 0;                                 // of rank 0 of its cluster
  index_t host_stride = 1;
  const std::vector<SimProgram*>* peers = nullptr;  // of all ranks
  const SimLife* life = nullptr;
  const std::string* whose = nullptr;  // see `noted`

  [[nodiscard]] std::size_t host(Rank of) const noexcept {
    return static_cast<std::size_t>(first_host + of.value * host_stride);
  }
};

// One entry of a lane's queue.
struct SimItem {
  enum class Kind : std::uint8_t { ops, raise, await, zero, function, busy };

  static constexpr std::uint64_t all_lanes = ~std::uint64_t{0};

  Kind kind = Kind::ops;
  SimProgram* program = nullptr;
  std::uint64_t lane = 0;  // of the plan, or all of them in issue order
  std::uint64_t run = 0;
  std::int32_t counter = -1;
  std::uint64_t value = 0;
  void* target = nullptr;
  index_t bytes = 0;
  double seconds = 0;
  Rank rank{};         // of the fabric, with the next one what an error says of a function
  index_t stream = 0;  // which of the fabric's
  const std::string* whose = nullptr;
  std::function<void()> function = nullptr;
};

struct SimLane {
  static constexpr std::size_t capacity = 512;

  std::deque<SimItem> items{};
  std::size_t position = 0;       // in the ops of the first item
  std::vector<index_t> passed{};  // by lane of the plan, where the item has all of them
  bool entered = false;           // whether the first item has begun
  bool asked = false;             // whether hooks have been asked about the next op
  bool in_op = false;             // begun, and not over
  bool writes = false;            // of that op: its bytes are still to be moved
  bool stopped = false;           // by a hook, for ever
  bool active = false;            // something will make it go on
  double since = 0;               // when it began to wait

  [[nodiscard]] bool is_full() const noexcept { return items.size() >= capacity; }

  // The ops of the first item.
  [[nodiscard]] const HostVariant& variant() const { return *run().variant; }
  [[nodiscard]] SimProgram::Run& run() const { return items.front().program->run(items.front().run); }
  [[nodiscard]] bool has_op() const {
    const SimItem& item = items.front();
    return position < (item.lane == SimItem::all_lanes ? variant().plan.ops.size() : variant().ops[item.lane].size());
  }
  // The next one's place in the issue order.  @pre has_op()
  [[nodiscard]] index_t seq() const {
    const SimItem& item = items.front();
    return item.lane == SimItem::all_lanes ? static_cast<index_t>(position) : variant().ops[item.lane][position];
  }
  [[nodiscard]] const Op& op() const { return variant().plan.ops[static_cast<std::size_t>(seq())]; }
};

}  // namespace tide::detail
