// SPDX-License-Identifier: Apache-2.0
//
// The plans of a pipeline as HostFabric runs them: on lanes that are threads, with words that are atomics.

#pragma once

#include <tide/fabric/detail/host_lane.hpp>   // HostLane
#include <tide/fabric/detail/host_ops.hpp>    // HostOps, HostRun
#include <tide/fabric/detail/host_state.hpp>  // HostState

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace tide::detail {

class HostProgram {
 public:
  // The lane number that stands for all lanes in issue order.
  static constexpr std::uint64_t all_lanes = ~std::uint64_t{0};

  HostProgram(HostState& state, std::vector<HostVariant> variants, SignalWords words, ArenaPlaces places,
              std::string label)
      : state_(state),
        variants_(std::move(variants)),
        words_(words),
        places_(places),
        label_(std::move(label)),
        rank_(variants_.front().plan.rank),
        ops_(state.arenas, state.mesh, rank_, places) {
    for (std::uint64_t run = 0; run < max_runs; ++run) runs_.emplace_back(variants_.front().gradient_start.size());
  }

  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] std::uint64_t runs() const noexcept { return next_run_; }
  [[nodiscard]] const HostVariant& variant(std::int32_t index) const noexcept {
    return variants_[static_cast<std::size_t>(index)];
  }

  // How many runs have finished on the caller's lane.
  [[nodiscard]] std::atomic<std::uint64_t>& caller_done() noexcept { return caller_done_; }

  // Which counter an exit raises, in whichever variant it is.
  void bind_exit(ExitKind kind, std::atomic<std::uint64_t>& counter) {
    exit_counters_[static_cast<std::size_t>(kind)] = &counter;
  }

  // Sets the words so that the first run is the one that the options say, and the memory that a switch adds.
  void prepare() {
    for (index_t word = 0; word < words_.count(); ++word) word_at(rank_, word).store(0, std::memory_order_relaxed);
    for_each_start(variants_, state_.options.first_run, [&](index_t word, std::uint64_t value) {
      word_at(rank_, word).store(value, std::memory_order_relaxed);
    });
    ops_.prepare_switch(variants_.front().network);
  }

  // Whether another run finds room.
  [[nodiscard]] bool has_room() const noexcept {
    return runs_[next_run_ % max_runs].lanes_left.load(std::memory_order_acquire) == 0;
  }

  // What keeps a call that is not made yet from being made.
  [[nodiscard]] const char* reserve_zeros(std::int32_t variant_index, const Bindings& bindings) {
    return Run::reserve_zeros(variant(variant_index), bindings, zeros_);
  }

  // Makes room for a run and says what it is bound to. Waits for the oldest run when all are in flight; false when that
  // took longer than the deadline, or after a failure.
  [[nodiscard]] bool begin(std::int32_t variant_index, const Bindings& bindings, std::uint64_t call) {
    Run& run = runs_[next_run_ % max_runs];
    const auto free = [&] { return state_.failure.failed() || has_room(); };
    if (!state_.at(rank_).bell.wait(state_.options.deadline, free) || state_.failure.failed()) return false;
    run.bind(variant(variant_index), bindings, call, zeros_);
    std::int32_t used = 0;
    for (std::size_t lane = 0; lane < run.variant->ops.size(); ++lane) used += run.variant->uses(lane) ? 1 : 0;
    run.lanes_left.store(used, std::memory_order_relaxed);
    ++next_run_;
    return true;
  }

  // Works off one lane of a run, or all in issue order; the call of a HostItem.
  static void work(void* self, std::uint64_t lane, std::uint64_t run) {
    auto& program = *static_cast<HostProgram*>(self);
    if (lane == all_lanes) {
      program.work_merged(run);
    } else {
      program.work_lane(lane, run);
    }
    program.state_.at(program.rank_).bell.ring();
  }

 private:
  struct Run : HostRun {
    using HostRun::HostRun;
    std::atomic<std::int32_t> lanes_left{0};
  };

  void work_lane(std::uint64_t lane, std::uint64_t index) {
    Run& run = runs_[index % max_runs];
    const HostVariant& variant = *run.variant;
    pass_exits(variant, lane, 0, index);
    index_t position = 0;
    for (const index_t seq : variant.ops[lane]) {
      if (!execute(run, seq, index)) return;
      pass_exits(variant, lane, ++position, index);
    }
    // Released to begin(), and to a stream that the next run comes from.
    if (variant.plan.lanes[lane].kind == LaneKind::caller) caller_done_.store(index + 1, std::memory_order_release);
    run.lanes_left.fetch_sub(1, std::memory_order_acq_rel);
  }

  void work_merged(std::uint64_t index) {
    Run& run = runs_[index % max_runs];
    const HostVariant& variant = *run.variant;
    merged_position_.assign(variant.ops.size(), 0);
    for (std::size_t lane = 0; lane < variant.ops.size(); ++lane) pass_exits(variant, lane, 0, index);
    for (std::size_t seq = 0; seq < variant.plan.ops.size(); ++seq) {
      if (!execute(run, static_cast<index_t>(seq), index)) return;
      const std::size_t lane = variant.plan.ops[seq].lane;
      pass_exits(variant, lane, ++merged_position_[lane], index);
    }
    run.lanes_left.store(0, std::memory_order_release);  // acquired by begin()
  }

  void pass_exits(const HostVariant& variant, std::size_t lane, index_t position, std::uint64_t run) {
    for (const Exit& exit : variant.plan.exits) {
      if (static_cast<std::size_t>(exit.lane.value) != lane || exit.position != position) continue;
      exit_counters_[static_cast<std::size_t>(exit.kind)]->store(run + 1, std::memory_order_release);  // acq. by passed
      state_.at(rank_).bell.ring();
    }
  }

  [[nodiscard]] std::atomic_ref<std::uint64_t> word_at(Rank rank, index_t word) const {
    std::byte* bytes = state_.arenas.at(rank) + places_.signals + 8 * word;
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(bytes));
  }

  // False when the op failed or the cluster has.
  bool execute(const Run& bound, index_t seq, std::uint64_t run) {
    bool done = false;
    const auto thrown = thrown_by([&] { done = execute_op(bound, seq, run); });
    if (!thrown) return done;
    state_.fail(Errc::operation, detail::text({"tide::HostFabric: ", where(bound, seq, run), " failed: ", *thrown}));
    return false;
  }

  bool execute_op(const Run& bound, index_t seq, std::uint64_t run) {
    const Op& op = bound.variant->plan.ops[static_cast<std::size_t>(seq)];
    if (state_.failure.failed()) return false;
    if (state_.options.hook) {
      std::optional<std::string> refusal;
      if (!ask([&](const HostHookPoint& point) { refusal = state_.options.hook(point); }, bound, seq, run))
        return false;
      if (refusal) {
        state_.fail(Errc::operation,
                    detail::text({"tide::HostFabric: ", where(bound, seq, run), " failed: ", *refusal}));
        return false;
      }
    }
    if (op.raises()) return send(op, seq, bound, run);
    if (op.kind == OpKind::wait) return wait(bound, op, seq, run);
    ops_.run(op, bound);
    return true;
  }

  // Calls a hook; false where it threw.
  template <class Hook>
  bool ask(const Hook& hook, const Run& bound, index_t seq, std::uint64_t run) const {
    const Op& op = bound.variant->plan.ops[static_cast<std::size_t>(seq)];
    const auto thrown = thrown_by([&] { hook({label_, run, rank_, bound.variant->plan.lanes[op.lane], seq, op}); });
    if (thrown) state_.fail(Errc::operation, hook_threw(where(bound, seq, run), op, *thrown));
    return !thrown;
  }

  // A put or a signal: by the network's hook where it goes to another node and there is one.
  bool send(const Op& op, index_t seq, const Run& bound, std::uint64_t run) const {
    const Rank peer{op.peer};
    const Op::Raise raise = op.raise();
    if (!state_.options.network_hook || state_.mesh.node(peer) == state_.mesh.node(rank_)) {
      ops_.run(op, bound);
      raise_word(peer, raise.word, raise.value, raise.per_run, run);
      return true;
    }
    HostDelivery delivery;
    const auto hook = [&](const HostHookPoint& point) { delivery = state_.options.network_hook(point); };
    if (!ask(hook, bound, seq, run)) return false;
    HostWires& wires = state_.at(rank_).wires;
    const HostWires::Wire wire{this, op.lane, op.peer};
    if (delivery.dropped) wires.cut(wire);
    HostOps::Parcel parcel;
    if (op.kind == OpKind::put) parcel = ops_.pack(op, bound);
    const HostWires::Limits limits{op.kind == OpKind::put ? state_.options.network_depth : 0,
                                   state_.options.network_queue};
    std::function<void()> deliver = [this, peer, raise, run, parcel = std::move(parcel),
                                     signals = !delivery.unsignalled, wakes = limits.queue > 0] {
      if (state_.failure.failed()) return;
      parcel.deliver();
      if (signals) raise_word(peer, raise.word, raise.value, raise.per_run, run);
      if (wakes) state_.at(rank_).bell.ring();  // there is room for another
    };
    for (;;) {
      switch (wires.send(wire, delivery.delay, limits, std::move(deliver))) {
        case HostWires::Sent::on_its_way:
          return true;
        case HostWires::Sent::queue_full:
          if (!wait_for_room(bound, op, seq, run)) return false;
          break;
        case HostWires::Sent::no_thread:
          state_.fail(Errc::capacity, detail::text({"tide::HostFabric: a thread for the network of a rank could not be "
                                                    "started; ",
                                                    where(bound, seq, run), "."}));
          return false;
        case HostWires::Sent::too_deep:
          state_.fail(Errc::capacity, network_is_full(limits.depth, where(bound, seq, run), op));
          return false;
      }
    }
  }

  void raise_word(Rank rank, index_t word, index_t value, index_t per_run, std::uint64_t run) const {
    word_at(rank, word).store(absolute(value, per_run, run), std::memory_order_release);  // acquired by wait()
    state_.at(rank).bell.ring();
  }

  [[nodiscard]] std::uint64_t absolute(index_t value, index_t per_run, std::uint64_t run) const noexcept {
    return epoch(state_.options.first_run + run, per_run, value);
  }

  bool wait(const Run& bound, const Op& op, index_t seq, std::uint64_t run) const {
    const std::uint64_t expected = absolute(op.value(), op.per_run(), run);
    const auto word = word_at(rank_, op.word());
    const auto reached = [&] { return has_reached(word.load(std::memory_order_acquire), expected); };
    const bool is_event = words_.kind(op.word()) == WordKind::event;
    const auto in_vain = [&] { return !is_event && state_.is_in_vain(rank_, bound.call); };
    const auto met = [&] { return reached() || state_.failure.failed() || in_vain(); };
    const auto what = [&] {
      return wait_text(where(bound, seq, run), state_.mesh, *bound.variant, op, word.load(std::memory_order_relaxed),
                       expected);
    };
    const Rank source{words_.index(op.word())};
    const bool other_node = source.value < state_.mesh.ranks() && state_.mesh.node(source) != state_.mesh.node(rank_);
    const Bell::Whom whom = is_event ? Bell::Whom::own_lane : other_node ? Bell::Whom::other_node : Bell::Whom::rank;
    if (!await(met, what, whom)) return false;
    if (reached()) return true;
    state_.fail_in_vain(what());
    return false;
  }

  // For the network to have brought something: it is full.
  bool wait_for_room(const Run& bound, const Op& op, index_t seq, std::uint64_t run) const {
    const index_t queue = state_.options.network_queue;
    const auto met = [&] { return state_.at(rank_).wires.has_room(queue) || state_.failure.failed(); };
    const auto what = [&] {
      return detail::text({where(bound, seq, run), " to rank ", op.peer, " waits for the network, which has ", queue,
                           " of this rank on their way"});
    };
    return await(met, what, Bell::Whom::other_node);
  }

  // False when the deadline passed before `met()`, or the cluster has failed; `what()` says what was waited for.
  template <class Met, class What>
  bool await(const Met& met, const What& what, Bell::Whom whom) const {
    const Bell::Reason reason{[](const void* text) { return (*static_cast<const What*>(text))(); }, &what, whom,
                              Clock::now()};
    if (!state_.at(rank_).bell.wait(state_.options.deadline, met, &reason)) {
      state_.fail_late(rank_, "", {whom, reason.since, what()});
      return false;
    }
    return !state_.failure.failed();
  }

  [[nodiscard]] std::string where(const Run& bound, index_t seq, std::uint64_t run) const {
    return place_text(label_, *bound.variant, seq, run);
  }

  HostState& state_;
  std::vector<HostVariant> variants_;
  SignalWords words_;
  ArenaPlaces places_;
  std::string label_;
  Rank rank_;
  HostOps ops_;
  std::deque<Run> runs_;  // a ring of max_runs; a deque: they stay where they are
  Zeros zeros_;           // made for the first gradient that is missing from a table
  std::vector<index_t> merged_position_;
  std::array<std::atomic<std::uint64_t>*, 3> exit_counters_{};  // by ExitKind
  std::atomic<std::uint64_t> caller_done_{0};
  std::uint64_t next_run_ = 0;
};

}  // namespace tide::detail
