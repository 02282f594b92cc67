// SPDX-License-Identifier: Apache-2.0
//
// The member functions of HostFabric.

#pragma once

#include <tide/fabric/detail/variants.hpp>  // require_one_handshake, fingerprint_of
#include <tide/fabric/host_fabric.hpp>

#include <algorithm>
#include <cstring>
#include <exception>

namespace tide {

inline HostFabric::HostFabric(std::shared_ptr<detail::HostState> state, Rank rank)
    : state_(std::move(state)), rank_(rank) {
  const std::lock_guard lock(state_->kin->mutex);
  state_->kin->fabrics.push_back(this);
}

inline HostFabric::~HostFabric() {
  stop();
  const std::lock_guard lock(state_->kin->mutex);
  std::erase(state_->kin->fabrics, this);
}

inline HostStream HostFabric::stream() {
  if (state_->failure.failed()) state_->failure.raise_it();
  if (phase_ == Phase::closed) raise(Errc::order, "tide::HostFabric: a stream cannot be made after close.");
  if (state_->options.lanes == HostLanes::merged) {
    return HostStream(*this, &lane(Operation::gather, {LaneKind::caller, 0}));
  }
  streams_.push_back(detail::make_lane(*state_));
  return HostStream(*this, streams_.back().get());
}

inline void HostFabric::require_building() const {
  if (state_->failure.failed()) state_->failure.raise_it();
  if (phase_ != Phase::building) {
    raise(Errc::order, "tide::HostFabric: pipelines, pools and storage must be constructed before init.");
  }
}

inline void HostFabric::require_open(const char* call) {
  if (state_->failure.failed()) raise_failure();
  if (phase_ == Phase::running) return;
  raise(Errc::order,
        detail::text({"tide::HostFabric: ", call,
                      (phase_ == Phase::building ? " needs init to be called first." : " cannot follow close.")}));
}

inline void HostFabric::raise_failure() {
  // Lanes of this rank may still read or write the caller's memory: they stop after the op that they are at.
  settle();
  if (partner_ != nullptr) partner_->settle();
  state_->failure.raise_it();
}

inline void HostFabric::raise_if_failed() {
  if (state_->failure.failed()) raise_failure();
}

inline void HostFabric::settle() {
  for (const SharedLane& shared : lanes_) {
    if (!shared.body->is_this_thread()) shared.body->settle();
  }
  for (const auto& stream : streams_) {
    if (!stream->is_this_thread()) stream->settle();
  }
}

inline void HostFabric::fail_late(const std::string& what) {
  state_->fail_late(rank_, detail::text({"rank ", rank_.value, " waits for ", what, "; "}),
                    state_->at(rank_).bell.reason(detail::Bell::Whom::own_lane));
}

inline void HostFabric::refuse(Errc code, const std::string& text) {
  require_open("a call");
  const detail::Refusal refusal = state_->refuse_call(rank_, {code, text});
  if (state_->failure.failed()) raise_failure();
  raise(refusal.code, refusal.text);
}

inline index_t HostFabric::reserve(index_t bytes, index_t alignment) {
  require_building();
  detail::HostRank& own = state_->at(rank_);
  const index_t offset = align_up(own.reserved, alignment);
  own.reserved = offset + bytes;
  return offset;
}

inline std::int32_t HostFabric::new_counter() {
  state_->at(rank_).counters.emplace_back(0);
  return static_cast<std::int32_t>(state_->at(rank_).counters.size()) - 1;
}

inline detail::HostLane& HostFabric::lane(Operation operation, Lane lane) {
  if (state_->options.lanes == HostLanes::merged) {
    operation = Operation::gather;
    lane = {LaneKind::caller, 0};
  }
  for (const SharedLane& shared : lanes_) {
    if (shared.operation == operation && shared.lane == lane) return *shared.body;
  }
  return *lanes_.emplace_back(SharedLane{operation, lane, detail::make_lane(*state_)}).body;
}

inline detail::HostLane& HostFabric::own_lane(StreamRef stream) {
  if (stream.port != this) {
    refuse(Errc::argument,
           detail::text({"tide::HostFabric: the stream must belong to the fabric of the pipeline; the call on rank ",
                         rank_.value, " got another one's."}));
  }
  return *static_cast<detail::HostLane*>(stream.handle);
}

inline std::int32_t HostFabric::attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) {
  require_building();
  detail::require_one_handshake(variants, label);
  const SignalWords words = variants.front().collective.words();
  const std::uint64_t print = detail::fingerprint_of(variants);
  const auto program_index = static_cast<std::int32_t>(programs_.size());
  std::vector<detail::WordUse> uses = detail::word_uses(variants.front(), program_index);
  std::array<bool, 3> exits{};
  std::vector<detail::HostVariant> prepared;
  for (PlanVariant& variant : variants) {
    for (const Exit& exit : variant.plan.exits) exits[static_cast<std::size_t>(exit.kind)] = true;
    detail::HostVariant& made = prepared.emplace_back(variant.collective, variant.kernels, std::move(variant.plan));
    for (std::size_t l = 0; l < made.lanes.size(); ++l) {
      if (made.plan.lanes[l].kind != LaneKind::caller)
        made.lanes[l] = &lane(variant.collective.operation, made.plan.lanes[l]);
    }
  }
  state_->at(rank_).attached.push_back({print, places, label, std::move(uses)});
  Program program;
  program.body = std::make_unique<detail::HostProgram>(*state_, std::move(prepared), words, places, std::move(label));
  for (std::size_t kind = 0; kind < exits.size(); ++kind) {
    if (!exits[kind]) continue;
    program.exit_counters[kind] = new_counter();
    program.body->bind_exit(static_cast<ExitKind>(kind), counter(program.exit_counters[kind]));
  }
  programs_.push_back(std::move(program));
  return program_index;
}

// Runs at the barrier of init: all ranks are there, and none has gone on.
inline void HostFabric::compare() {
  const detail::HostRank& first = state_->ranks.front();
  for (std::size_t r = 1; r < state_->ranks.size(); ++r) {
    const detail::HostRank& other = state_->ranks[r];
    const auto differ = [&](const std::string& what) {
      state_->failure.set(
          Errc::mismatch,
          detail::text({"tide::HostFabric: all ranks must construct the same pipelines in the same order; ranks 0 and ",
                        r, " differ in ", what, "."}));
    };
    if (other.attached.size() != first.attached.size()) {
      return differ("how many they have: " + std::to_string(first.attached.size()) + " and " +
                    std::to_string(other.attached.size()));
    }
    for (std::size_t p = 0; p < first.attached.size(); ++p) {
      const detail::Attached& one = first.attached[p];
      const detail::Attached& two = other.attached[p];
      if (one.fingerprint != two.fingerprint) {
        return differ("number " + std::to_string(p) + ": " + one.label + " and " + two.label);
      }
      if (one.places != two.places)
        return differ("what they constructed before number " + std::to_string(p) + ": " + one.label);
    }
    if (other.reserved != first.reserved) {
      return differ("the size of the arena: " + std::to_string(first.reserved) + " and " +
                    std::to_string(other.reserved) + " bytes");
    }
  }
  std::vector<detail::WordUse> uses;
  for (const detail::HostRank& rank : state_->ranks) {
    for (const detail::Attached& each : rank.attached) uses.insert(uses.end(), each.words.begin(), each.words.end());
  }
  const std::string wrong = detail::disagreement(
      std::move(uses), SignalWords{state_->mesh.ranks()},
      [&](std::int32_t program) { return std::string_view(first.attached[static_cast<std::size_t>(program)].label); });
  if (!wrong.empty()) {
    state_->failure.set(Errc::mismatch, wrong);
    return;
  }
  const index_t has = state_->options.memory_bytes > 0 ? state_->options.memory_bytes : detail::machine_memory();
  const index_t ranks = state_->mesh.ranks();
  const index_t needed = first.reserved > INT64_MAX / ranks ? INT64_MAX : first.reserved * ranks;
  const auto too_large = [&] {
    state_->failure.set(Errc::capacity,
                        detail::text({"tide::HostFabric: the arenas must fit into memory; needs ",
                                      detail::gibibytes(needed), ", has ", detail::gibibytes(has), "."}));
  };
  if (needed == INT64_MAX || (has > 0 && needed > has)) return too_large();
  for (detail::HostRank& rank : state_->ranks) {
    rank.arena = detail::allocate_aligned(std::max<index_t>(rank.reserved, 1));
    if (!rank.arena) return too_large();
  }
}

inline void HostFabric::init() {
  if (state_->failure.failed()) state_->failure.raise_it();
  if (phase_ == Phase::running) raise(Errc::order, "tide::HostFabric: init must be called once.");
  if (phase_ == Phase::closed) raise(Errc::order, "tide::HostFabric: init cannot follow close.");
  state_->meet(rank_, "init", [&] { compare(); });
  if (state_->failure.failed()) state_->failure.raise_it();
  for (Program& program : programs_) {
    program.body->reset_words();
    program.body->prepare_switch();
  }
  state_->meet(rank_, "init", [] {});  // no rank signals, or puts, before all words and zeros are set
  if (state_->failure.failed()) state_->failure.raise_it();
  phase_ = Phase::running;
}

// While the host thread waits, an op that waits in vain says so: until then the programs may still end, and others
// follow.
template <class Call>
auto HostFabric::while_waiting(bool waits, const Call& call) {
  struct Waiting {
    const HostFabric* fabrics[2];

    explicit Waiting(const HostFabric& fabric) : fabrics{&fabric, fabric.partner_} { say(true); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() { say(false); }
    void say(bool waiting) const {
      for (const HostFabric* fabric : fabrics) {
        if (fabric == nullptr) continue;
        fabric->state_->at(fabric->rank_).waits = waiting;
        if (waiting) fabric->state_->look_again(fabric->rank_);
      }
    }
  };
  if (!waits) return call();
  const Waiting waiting(*this);
  return call();
}

inline void HostFabric::push(detail::HostLane& lane, detail::HostItem item) {
  const auto pushed = while_waiting(lane.is_full(), [&] { return lane.push(std::move(item)); });
  if (pushed == detail::HostLane::Pushed::full) fail_late("room in a queue");
  if (state_->failure.failed()) raise_failure();
}

inline void HostFabric::push_wait(detail::HostLane& lane, HostFabric& owner, std::atomic<std::uint64_t>& counter,
                                  std::uint64_t value) {
  const auto block = [](void* self, std::uint64_t which, std::uint64_t wanted) {
    auto& fabric = *static_cast<HostFabric*>(self);
    const auto& awaited = *reinterpret_cast<const std::atomic<std::uint64_t>*>(which);
    const auto met = [&] {
      return awaited.load(std::memory_order_acquire) >= wanted || fabric.state_->failure.failed();
    };
    if (!fabric.state_->at(fabric.rank_).bell.wait(fabric.state_->options.deadline, met)) {
      fabric.fail_late("an event on a stream");
    }
  };
  // Lanes get the address of a counter: finding it by number would race with new ones.
  push(lane, {block, &owner, reinterpret_cast<std::uintptr_t>(&counter), value, nullptr});
}

inline void HostFabric::launch(std::int32_t index, std::int32_t variant_index, const Bindings& bindings,
                               StreamRef stream) {
  require_open("a call");
  detail::HostLane& caller = own_lane(stream);
  const std::optional<detail::Refusal> refusal = state_->enter_call(rank_, index, bindings.slot);
  if (state_->failure.failed()) raise_failure();
  if (refusal) raise(refusal->code, refusal->text);
  Program& program = programs_[static_cast<std::size_t>(index)];
  detail::HostProgram& body = *program.body;
  const std::uint64_t run = body.runs();
  const std::uint64_t call = state_->at(rank_).calls - 1;
  if (!while_waiting(!body.has_room(), [&] { return body.begin(variant_index, bindings, call); })) {
    fail_late(detail::text({"the oldest of ", detail::HostProgram::max_runs, " runs in flight of ", body.label()}));
    raise_failure();
  }
  if (state_->options.lanes == HostLanes::merged) {
    push(caller, {&detail::HostProgram::work, &body, detail::HostProgram::all_lanes, run, nullptr});
    return;
  }
  const detail::HostVariant& variant = body.variant(variant_index);
  for (std::size_t l = 0; l < variant.lanes.size(); ++l) {
    if (!variant.uses(l)) continue;
    if (variant.lanes[l] == nullptr) {
      if (program.stream != nullptr && program.stream != &caller)
        push_wait(caller, *this, body.caller_done(), program.caller_runs);
      program.stream = &caller;
      program.caller_runs = run + 1;
    }
    push(variant.lanes[l] == nullptr ? caller : *variant.lanes[l],
         {&detail::HostProgram::work, &body, l, run, nullptr});
  }
}

inline Event HostFabric::exit_event(std::int32_t index, ExitKind kind) {
  const Program& program = programs_[static_cast<std::size_t>(index)];
  return {this, program.exit_counters[static_cast<std::size_t>(kind)], program.body->runs()};
}

inline Event HostFabric::record(StreamRef stream) {
  require_open("record");
  detail::HostLane& lane = own_lane(stream);
  auto mark = std::find_if(marks_.begin(), marks_.end(), [&](const Mark& m) { return m.stream == &lane; });
  if (mark == marks_.end()) mark = marks_.insert(mark, Mark{&lane, new_counter(), 0});
  ++mark->recorded;
  const auto raise_counter = [](void* self, std::uint64_t which, std::uint64_t value) {
    auto& fabric = *static_cast<HostFabric*>(self);
    reinterpret_cast<std::atomic<std::uint64_t>*>(which)->store(value,
                                                                std::memory_order_release);  // acquired by passed
    fabric.state_->at(fabric.rank_).bell.ring();
  };
  push(lane, {raise_counter, this, reinterpret_cast<std::uintptr_t>(&counter(mark->counter)), mark->recorded, nullptr});
  return {this, mark->counter, mark->recorded};
}

inline void HostFabric::wait(StreamRef stream, const Event& event) {
  require_open("wait");
  detail::HostLane& lane = own_lane(stream);
  HostFabric* owner = this;
  if (event.port != this) {
    owner = state_->kin->has(event.port) ? static_cast<HostFabric*>(event.port) : nullptr;
    if (owner == nullptr || owner->state_ == state_) {
      raise(Errc::argument, "tide::HostFabric: an event can be waited for on its own rank only.");
    }
  }
  push_wait(lane, *owner, owner->counter(event.counter), event.value);
}

inline void HostFabric::zero(StreamRef stream, void* target, index_t bytes) {
  require_open("a call");
  const auto clear = [](void* to, std::uint64_t count, std::uint64_t) { std::memset(to, 0, count); };
  push(own_lane(stream), {clear, target, static_cast<std::uint64_t>(bytes), 0, nullptr});
}

inline void HostFabric::run(StreamRef stream, std::function<void()> function) {
  auto& lane = *static_cast<detail::HostLane*>(stream.handle);
  detail::HostItem item;
  item.function = std::move(function);
  for (;;) {
    switch (while_waiting(lane.is_full(), [&] { return lane.push(std::move(item)); })) {
      case detail::HostLane::Pushed::queued:
        return;
      case detail::HostLane::Pushed::full:
        static_cast<void>(record(stream));  // raises, unless there is room now
        break;
      case detail::HostLane::Pushed::stopped:
        raise(Errc::order, "tide::HostStream: a function cannot be enqueued after close.");
      case detail::HostLane::Pushed::failed:
        raise_failure();  // when no lane touches the caller's memory any more
    }
  }
}

inline bool HostFabric::passed(std::int32_t index, std::uint64_t value) {
  if (counter(index).load(std::memory_order_acquire) >= value) return true;
  if (state_->failure.failed()) raise_failure();
  return false;
}

inline void HostFabric::synchronize(std::int32_t index, std::uint64_t value) {
  const auto& awaited = counter(index);
  const auto met = [&] { return awaited.load(std::memory_order_acquire) >= value || state_->failure.failed(); };
  const auto wait = [&] { return state_->at(rank_).bell.wait(state_->options.deadline, met); };
  if (!while_waiting(!met(), wait)) fail_late("an event");
  if (state_->failure.failed()) raise_failure();
}

inline void HostFabric::stop() noexcept {
  for (const auto& stream : streams_) stream->stop();
  for (const SharedLane& shared : lanes_) shared.body->stop();
  state_->at(rank_).wires.stop(state_->failure.failed());
  phase_ = Phase::closed;
}

inline void HostFabric::close() {
  bool inside = false;
  for (const auto& stream : streams_) inside = inside || stream->is_this_thread();
  for (const SharedLane& shared : lanes_) inside = inside || shared.body->is_this_thread();
  if (inside) raise(Errc::order, "tide::HostFabric: close must not be called by a function on a stream.");
  while_waiting(true, [this] { stop(); });
  if (state_->failure.failed()) raise_failure();
  // Where an exception closes it, that is what the others are to hear of.
  if (std::uncaught_exceptions() == 0) state_->end(rank_, true);
}

}  // namespace tide
