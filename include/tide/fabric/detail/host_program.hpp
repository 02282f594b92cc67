// SPDX-License-Identifier: Apache-2.0
//
// A plan as HostFabric runs it: ops by lane, kernels looked up once, runs that are in flight.

#pragma once

#include <tide/fabric/detail/host_kernels.hpp>  // HostCast, HostSum
#include <tide/fabric/detail/host_lane.hpp>     // HostLane
#include <tide/fabric/detail/host_state.hpp>    // HostState
#include <tide/fabric/detail/zeros.hpp>         // Zeros
#include <tide/plan/print.hpp>                  // describe_source

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace tide::detail {

// An entry of a kernel table, looked up.
struct HostKernel {
  HostCast cast = nullptr;  // or a sum
  HostSum sum = nullptr;
  HostSwitchSum switch_sum = nullptr;
  index_t input_bytes = 0;  // of an element
  std::int32_t inputs = 0;
  bool scaled = false;
};

// One plan of a pipeline, prepared: ops by lane, kernels looked up.
struct HostVariant {
  Plan plan;
  InboxShape inbox;
  NetworkShape network;
  Operation operation;
  std::vector<std::vector<index_t>> ops;  // by lane, positions in the issue order
  std::vector<HostLane*> lanes;           // by lane of the plan; null for the caller's
  std::vector<HostKernel> kernels;
  std::vector<index_t> gradient_start;  // by parameter
  index_t largest_gradient = 0;         // bytes, where each gradient has a pointer

  HostVariant(const Collective& collective, const std::vector<KernelCode>& code, Plan written)
      : plan(std::move(written)),
        inbox(collective.inbox),
        network(collective.network),
        operation(collective.operation),
        ops(plan.lanes.size()),
        lanes(plan.lanes.size(), nullptr) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i) ops[plan.ops[i].lane].push_back(static_cast<index_t>(i));
    for (std::size_t k = 0; k < collective.kernels.size(); ++k) {
      const Kernel& kernel = collective.kernels[k];
      // A sum of one input that comes out in another element than f32 is a cast.
      const bool casts_it = kernel.kind == Kernel::Kind::cast || kernel.output != Element::f32;
      HostKernel& made = kernels.emplace_back();
      if (casts_it) {
        made.cast = reinterpret_cast<HostCast>(code[k]);
      } else if (kernel.kind == Kernel::Kind::switch_sum) {
        made.switch_sum = reinterpret_cast<HostSwitchSum>(code[k]);
      } else {
        made.sum = reinterpret_cast<HostSum>(code[k]);
      }
      made.input_bytes = static_cast<index_t>(size_bytes(kernel.input));
      made.inputs = kernel.inputs;
      made.scaled = kernel.finish != Finish::partial;
    }
    collective.layout.for_each_piece(plan.rank, [&](const Piece& piece) {
      gradient_start.push_back(piece.start[static_cast<std::size_t>(Buffer::gradients)]);
    });
    if (collective.gradients == GradientSource::table) largest_gradient = largest_gradient_bytes(collective.layout);
  }

  // Whether a lane has anything to do in a run.
  [[nodiscard]] bool uses(std::size_t lane) const noexcept {
    bool exits = false;
    for (const Exit& exit : plan.exits) exits = exits || static_cast<std::size_t>(exit.lane.value) == lane;
    return exits || !ops[lane].empty();
  }
};

class HostProgram {
 public:
  // Runs that may be queued before `begin` waits for the oldest.
  static constexpr std::uint64_t max_runs = 64;
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
        runs_(std::make_unique<Run[]>(max_runs)) {
    for (std::uint64_t run = 0; run < max_runs; ++run) runs_[run].table.resize(variants_.front().gradient_start.size());
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

  // Sets the words so that the first run is the one that the options say.
  void reset_words() {
    for (index_t word = 0; word < words_.count(); ++word) word_at(rank_, word).store(0, std::memory_order_relaxed);
    for (const HostVariant& variant : variants_) {
      for (const Op& op : variant.plan.ops) {
        if (op.kind != OpKind::wait) continue;
        const std::uint64_t start = state_.options.first_run * static_cast<std::uint64_t>(op.per_run());
        word_at(rank_, op.word()).store(start, std::memory_order_relaxed);
      }
    }
  }

  // Writes the zeros that a switch adds where nothing is put, and finds the memories that it reads.
  void prepare_switch() {
    const NetworkShape& network = variants_.front().network;
    if (!network.starts_as_zeros()) return;
    std::memset(state_.at(rank_).arena.get() + places_.network_inbox, 0,
                static_cast<std::size_t>(network.inbox_instances * network.inbox_bytes));
    for (index_t local = 0; local < state_.mesh.ranks_per_node; ++local) {
      node_.push_back(state_.at(state_.mesh.rank(state_.mesh.node(rank_), local)).arena.get());
    }
  }

  // Whether another run finds room.
  [[nodiscard]] bool has_room() const noexcept {
    return runs_[next_run_ % max_runs].lanes_left.load(std::memory_order_acquire) == 0;
  }

  // Makes room for a run and says what it is bound to. Waits for the oldest run when all are in flight; false when that
  // took longer than the deadline, or after a failure.
  [[nodiscard]] bool begin(std::int32_t variant_index, const Bindings& bindings, std::uint64_t call) {
    Run& run = runs_[next_run_ % max_runs];
    const auto free = [&] { return state_.failure.failed() || has_room(); };
    if (!state_.at(rank_).bell.wait(state_.options.deadline, free) || state_.failure.failed()) return false;
    run.bindings = bindings;
    run.call = call;
    run.variant = &variant(variant_index);
    if (bindings.gradient_table != nullptr) {
      std::copy_n(bindings.gradient_table, run.table.size(), run.table.begin());
      if (std::count(run.table.begin(), run.table.end(), missing_gradient()) > 0) {
        if (!zeros_) zeros_.emplace(run.variant->largest_gradient);
        std::replace(run.table.begin(), run.table.end(), missing_gradient(), zeros_->data());
      }
      run.bindings.gradient_table = run.table.data();
    }
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
  struct Run {
    Bindings bindings{};
    const HostVariant* variant = nullptr;
    std::uint64_t call = 0;  // of the rank's calls
    std::vector<const void*> table{};
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
    std::byte* bytes = state_.at(rank).arena.get() + places_.signals + 8 * word;
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(bytes));
  }

  // False when the op failed or the cluster has.
  bool execute(const Run& bound, index_t seq, std::uint64_t run) {
    const Op& op = bound.variant->plan.ops[static_cast<std::size_t>(seq)];
    if (state_.failure.failed()) return false;
    if (state_.options.hook) {
      const auto refusal = state_.options.hook({label_, run, rank_, bound.variant->plan.lanes[op.lane], seq, op});
      if (refusal) {
        state_.fail(Errc::operation,
                    detail::text({"tide::HostFabric: ", where(bound, op, seq, run), " failed: ", *refusal}));
        return false;
      }
    }
    switch (op.kind) {
      case OpKind::copy:
        copy(op, Rank{op.peer}, bound);
        break;
      case OpKind::multicast:
        for (index_t local = 0; local < state_.mesh.ranks_per_node; ++local) {
          copy(op, state_.mesh.rank(state_.mesh.node(rank_), local), bound);
        }
        break;
      case OpKind::put:
      case OpKind::signal:
        return send(op, seq, bound, run);
      case OpKind::wait:
        return wait(bound, op, seq, run);
      case OpKind::reduce:
        reduce(op, bound);
        break;
      case OpKind::cast:
        cast(op, bound);
        break;
    }
    return true;
  }

  [[nodiscard]] std::byte* locate(Rank rank, Place place, index_t offset, const Run& run) const {
    std::byte* arena = state_.at(rank).arena.get();
    switch (place.space) {
      case Space::slot:
        return arena + run.bindings.slot_offset + offset;
      case Space::inbox:
        return arena + inbox_offset(run) + place.instance * run.variant->inbox.chunk_bytes() + offset;
      case Space::network_inbox:
        return arena + run.bindings.network_inbox + place.instance * run.variant->network.inbox_bytes + offset;
      case Space::partials:
        return arena + run.bindings.partials + place.instance * run.variant->network.partials_bytes + offset;
      case Space::shards:  // which the plan writes where the caller gives none: then they lie in the arena
        return static_cast<std::byte*>(const_cast<void*>(run.bindings.shards)) + offset;
      case Space::output:
        return static_cast<std::byte*>(run.bindings.output) + offset;
      default:
        return nullptr;
    }
  }

  [[nodiscard]] index_t inbox_offset(const Run& run) const noexcept {
    return run.variant->inbox.place == InboxPlace::slot ? run.bindings.slot_offset : places_.inbox;
  }

  [[nodiscard]] const std::byte* source(const Op& op, const Run& run) const {
    const Bindings& b = run.bindings;
    const index_t offset = op.source_offset;
    switch (op.source.space) {
      case Space::master:
        return static_cast<const std::byte*>(b.master) + offset;
      case Space::shards:
        return static_cast<const std::byte*>(b.shards) + offset;
      case Space::gradients:
        if (b.gradient_table == nullptr) return static_cast<const std::byte*>(b.gradients) + offset;
        return static_cast<const std::byte*>(b.gradient_table[op.source.parameter]) + offset -
               run.variant->gradient_start[op.source.parameter];
      default:
        return locate(rank_, op.source, offset, run);
    }
  }

  void copy(const Op& op, Rank to, const Run& run) const {
    const std::byte* from = source(op, run);
    std::byte* target = locate(to, op.target, op.target_offset, run);
    if (from == target) return;  // a multicast from the own slot covers itself
    for (std::uint32_t row = 0; row < op.rows; ++row) {
      std::memcpy(target + row * std::size_t{op.target_pitch}, from + row * std::size_t{op.source_pitch},
                  static_cast<std::size_t>(op.width));
    }
  }

  void cast(const Op& op, const Run& run) const {
    const std::byte* from = source(op, run);
    std::byte* to = locate(rank_, op.target, op.target_offset, run);
    for (std::uint32_t row = 0; row < op.rows; ++row) {
      run.variant->kernels[op.kernel].cast(from + row * std::size_t{op.source_pitch},
                                           to + row * std::size_t{op.target_pitch}, op.width / 4);
    }
  }

  void reduce(const Op& op, const Run& run) const {
    const HostKernel& kernel = run.variant->kernels[op.kernel];
    if (kernel.switch_sum != nullptr) return reduce_in_switch(op, kernel, run);
    if (kernel.sum == nullptr) return cast(op, run);
    const bool local = op.extra.space == Space::inbox;
    const index_t input_bytes = kernel.input_bytes;
    const index_t element_bytes = local ? run.variant->inbox.element_bytes : input_bytes;
    HostSumRow row{};
    row.own = source(op, run);
    row.pieces = locate(rank_, op.extra, op.extra_offset, run);
    row.piece_stride = local ? run.variant->inbox.piece_bytes() : run.variant->network.piece_bytes;
    row.inputs = kernel.inputs;
    row.position = op.peer;
    row.output = reinterpret_cast<float*>(locate(rank_, op.target, op.target_offset, run));
    row.elements = op.width / input_bytes;
    row.scale = kernel.scaled ? run.bindings.scale : 1.0F;
    for (std::uint32_t r = 0; r < op.rows; ++r) {
      kernel.sum(row);
      row.own += op.source_pitch;
      row.output += op.target_pitch / 4;
      row.pieces += op.target_pitch / 4 * element_bytes;
    }
  }

  void reduce_in_switch(const Op& op, const HostKernel& kernel, const Run& run) const {
    const NetworkShape& network = run.variant->network;
    const auto offset = [&](Place place, index_t inside) {
      return run.bindings.network_inbox + place.instance * network.inbox_bytes + inside;
    };
    HostSwitchRow row{};
    row.memories = node_.data();
    row.ranks = static_cast<std::int32_t>(node_.size());
    row.inputs = kernel.inputs;
    row.first = offset(op.source, op.source_offset);
    row.next = offset(op.extra, op.extra_offset);
    row.stride = network.piece_bytes;
    row.output = reinterpret_cast<float*>(locate(rank_, op.target, op.target_offset, run));
    row.elements = op.width / 4;
    row.scale = run.bindings.scale;
    for (std::uint32_t r = 0; r < op.rows; ++r) {
      kernel.switch_sum(row);
      row.first += op.source_pitch;
      row.next += op.target_pitch;
      row.output += op.target_pitch / 4;
    }
  }

  // A put or a signal: by the network's hook where it goes to another node and there is one.
  bool send(const Op& op, index_t seq, const Run& bound, std::uint64_t run) const {
    const Rank peer{op.peer};
    const Op::Raise raise = op.raise();
    if (!state_.options.network_hook || state_.mesh.node(peer) == state_.mesh.node(rank_)) {
      if (op.kind == OpKind::put) copy(op, peer, bound);
      raise_word(peer, raise.word, raise.value, raise.per_run, run);
      return true;
    }
    const HostDelivery delivery =
        state_.options.network_hook({label_, run, rank_, bound.variant->plan.lanes[op.lane], seq, op});
    HostWires& wires = state_.at(rank_).wires;
    const HostWires::Wire wire{this, op.lane, op.peer};
    if (delivery.dropped) wires.cut(wire);
    std::vector<std::byte> bytes;
    std::byte* target = nullptr;
    if (op.kind == OpKind::put) {
      const std::byte* from = source(op, bound);
      bytes.assign(from, from + op.width);
      target = locate(peer, op.target, op.target_offset, bound);
    }
    const HostWires::Limits limits{op.kind == OpKind::put ? state_.options.network_depth : 0,
                                   state_.options.network_queue};
    std::function<void()> deliver = [this, peer, raise, run, target, bytes = std::move(bytes),
                                     signals = !delivery.unsignalled, wakes = limits.queue > 0] {
      if (state_.failure.failed()) return;
      if (!bytes.empty()) std::memcpy(target, bytes.data(), bytes.size());
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
        case HostWires::Sent::too_deep:
          state_.fail(Errc::capacity,
                      detail::text({"tide::HostFabric: the network takes ", limits.depth, " puts to a rank at a time; ",
                                    where(bound, op, seq, run), " to rank ", op.peer, " is one more."}));
          return false;
      }
    }
  }

  void raise_word(Rank rank, index_t word, index_t value, index_t per_run, std::uint64_t run) const {
    word_at(rank, word).store(absolute(value, per_run, run), std::memory_order_release);  // acquired by wait()
    state_.at(rank).bell.ring();
  }

  // Epochs are 64 bits and only grow.
  [[nodiscard]] std::uint64_t absolute(index_t value, index_t per_run, std::uint64_t run) const noexcept {
    const std::uint64_t base = (state_.options.first_run + run) * static_cast<std::uint64_t>(per_run);
    return base + static_cast<std::uint64_t>(value);
  }

  bool wait(const Run& bound, const Op& op, index_t seq, std::uint64_t run) const {
    const std::uint64_t expected = absolute(op.value(), op.per_run(), run);
    const auto word = word_at(rank_, op.word());
    // The difference, not the values: what an earlier run than the first would have raised counts as there.
    const auto reached = [&] {
      return static_cast<std::int64_t>(word.load(std::memory_order_acquire) - expected) >= 0;
    };
    const bool is_event = words_.kind(op.word()) == WordKind::event;
    const auto in_vain = [&] { return !is_event && state_.is_in_vain(rank_, bound.call); };
    const auto met = [&] { return reached() || state_.failure.failed() || in_vain(); };
    const auto what = [&] {
      return detail::text({where(bound, op, seq, run), " waits for ",
                           describe_source(state_.mesh, bound.variant->operation, bound.variant->plan, op.word()), ": ",
                           words_.describe(op.word()), " is ", word.load(std::memory_order_relaxed), ", expected ",
                           expected});
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
      return detail::text({where(bound, op, seq, run), " to rank ", op.peer, " waits for the network, which has ",
                           queue, " of this rank on their way"});
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

  [[nodiscard]] std::string where(const Run& bound, const Op& op, index_t seq, std::uint64_t run) const {
    return label_ + ", step " + std::to_string(run) + ", rank " + std::to_string(rank_.value) + ", lane " +
           bound.variant->plan.lanes[op.lane].name() + ", op " + std::to_string(seq) + " (" +
           std::string(name(op.kind)) + ")";
  }

  HostState& state_;
  std::vector<HostVariant> variants_;
  SignalWords words_;
  ArenaPlaces places_;
  std::string label_;
  Rank rank_;
  std::unique_ptr<Run[]> runs_;
  std::optional<Zeros> zeros_;  // made for the first gradient that is missing from a table
  std::vector<index_t> merged_position_;
  std::vector<const std::byte*> node_;  // the arenas of the node's ranks, where a switch adds what lies in them
  std::array<std::atomic<std::uint64_t>*, 3> exit_counters_{};  // by ExitKind
  std::atomic<std::uint64_t> caller_done_{0};
  std::uint64_t next_run_ = 0;
};

}  // namespace tide::detail
