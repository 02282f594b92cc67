// SPDX-License-Identifier: Apache-2.0
//
// The member functions of HostFabric.

#pragma once

#include <tide/fabric/host_fabric.hpp>

#include <algorithm>
#include <cstring>
#include <exception>

namespace tide {

inline HostFabric::HostFabric(std::shared_ptr<detail::HostState> state, Rank rank)
    : state_(std::move(state)), rank_(rank), life_(state_->failure) {}

inline HostFabric::~HostFabric() { static_cast<void>(stop()); }

inline HostStream HostFabric::stream() {
  life_.require_stream();
  if (state_->options.lanes == HostLanes::merged) {
    return HostStream(*this, &lane(Operation::gather, {LaneKind::caller, 0}));
  }
  streams_.push_back(detail::make_lane(*state_, rank_, static_cast<index_t>(streams_.size())));
  return HostStream(*this, streams_.back().get());
}

inline void HostFabric::require_open(const char* call) {
  raise_if_failed();
  life_.require_open(call);
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
  lanes_.for_each([](const auto& lane) {
    if (!lane->is_this_thread()) lane->settle();
  });
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
  raise_refusal(refusal);
}

inline void HostFabric::raise_refusal(const detail::Refusal& refusal) {
  finish_streams();
  if (partner_ != nullptr && partner_->life_.running()) partner_->finish_streams();
  raise(refusal.code, refusal.text);
}

inline void HostFabric::finish_streams() {
  std::vector<Event> ends;
  const auto add = [&](const auto& lane) {
    if (!lane->is_this_thread()) ends.push_back(record({this, lane.get()}));
  };
  if (state_->options.lanes == HostLanes::merged) lanes_.for_each(add);
  std::for_each(streams_.begin(), streams_.end(), add);
  for (const Event& end : ends) await(end.counter, end.value, "its streams, for a call is refused");
}

inline index_t HostFabric::reserve(index_t bytes, index_t alignment) {
  life_.require_building();
  return state_->at(rank_).declared.reserve(bytes, alignment);
}

inline std::int32_t HostFabric::new_counter() {
  state_->at(rank_).counters.emplace_back(0);
  return static_cast<std::int32_t>(state_->at(rank_).counters.size()) - 1;
}

inline detail::HostLane& HostFabric::lane(Operation operation, Lane lane) {
  return *lanes_.at(state_->options.lanes, operation, lane, [&] { return detail::make_lane(*state_, rank_, 0); });
}

inline detail::HostLane& HostFabric::own_lane(StreamRef stream) {
  if (stream.port != this) refuse(Errc::argument, detail::foreign_stream(rank_));
  return *static_cast<detail::HostLane*>(stream.handle);
}

inline std::int32_t HostFabric::attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) {
  life_.require_building();
  const SignalWords words = variants.front().collective.words();
  const auto program_index = static_cast<std::int32_t>(programs_.size());
  const std::array<bool, 3> exits = state_->at(rank_).declared.attach(variants, places, label);
  Program program;
  std::vector<detail::HostVariant> prepared;
  for (PlanVariant& variant : variants) {
    const Operation operation = variant.collective.operation;
    const detail::HostVariant& made =
        prepared.emplace_back(variant.collective, variant.kernels, std::move(variant.plan));
    std::vector<detail::HostLane*>& lanes = program.lanes.emplace_back();
    for (const Lane& one : made.plan.lanes) {
      lanes.push_back(one.kind == LaneKind::caller ? nullptr : &lane(operation, one));
    }
  }
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
  const auto declared = [&](Rank rank) -> const detail::Declared& { return state_->at(rank).declared; };
  if (const std::string wrong = detail::disagreement_of(state_->mesh.ranks(), declared); !wrong.empty()) {
    state_->failure.set(Errc::mismatch, detail::noted(wrong, state_->whose));
    return;
  }
  const std::string wrong = state_->arenas.allocate(declared(Rank{0}).reserved, state_->options.memory_bytes);
  if (!wrong.empty()) state_->failure.set(Errc::capacity, detail::noted(wrong, state_->whose));
}

inline void HostFabric::init() {
  life_.require_new();
  state_->meet(rank_, "init", [&] { compare(); });
  state_->failure.raise_if_failed();
  for (Program& program : programs_) program.body->prepare();
  state_->meet(rank_, "init", [] {});  // no rank signals, or puts, before all words and zeros are set
  state_->failure.raise_if_failed();
  life_.begin();
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
  Program& program = programs_[static_cast<std::size_t>(index)];
  detail::HostProgram& body = *program.body;
  // Before the others count on the call.
  if (const char* wrong = body.reserve_zeros(variant_index, bindings)) refuse(Errc::capacity, wrong);
  const std::optional<detail::Refusal> refusal = state_->enter_call(rank_, index, bindings.slot, noted());
  if (state_->failure.failed()) raise_failure();
  if (refusal) raise_refusal(*refusal);
  const std::uint64_t run = body.runs();
  const std::uint64_t call = state_->calls(rank_) - 1;
  if (!while_waiting(!body.has_room(), [&] { return body.begin(variant_index, bindings, call); })) {
    fail_late(detail::oldest_run(body.label()));
    raise_failure();
  }
  if (state_->options.lanes == HostLanes::merged) {
    push(caller, {&detail::HostProgram::work, &body, detail::HostProgram::all_lanes, run, nullptr});
    return;
  }
  const detail::HostVariant& variant = body.variant(variant_index);
  const std::vector<detail::HostLane*>& lanes = program.lanes[static_cast<std::size_t>(variant_index)];
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    if (!variant.uses(l)) continue;
    if (lanes[l] == nullptr) {
      if (program.stream != nullptr && program.stream != &caller)
        push_wait(caller, *this, body.caller_done(), program.caller_runs);
      program.stream = &caller;
      program.caller_runs = run + 1;
    }
    push(lanes[l] == nullptr ? caller : *lanes[l], {&detail::HostProgram::work, &body, l, run, nullptr});
  }
}

inline Event HostFabric::exit_event(std::int32_t index, ExitKind kind) {
  const Program& program = programs_[static_cast<std::size_t>(index)];
  return {this, program.exit_counters[static_cast<std::size_t>(kind)], program.body->runs()};
}

inline Event HostFabric::record(StreamRef stream) {
  require_open("record");
  detail::HostLane& lane = own_lane(stream);
  const detail::StreamMark mark = marks_.record(&lane, [&] { return new_counter(); });
  const auto raise_counter = [](void* self, std::uint64_t which, std::uint64_t value) {
    auto& fabric = *static_cast<HostFabric*>(self);
    reinterpret_cast<std::atomic<std::uint64_t>*>(which)->store(value,
                                                                std::memory_order_release);  // acquired by passed
    fabric.state_->at(fabric.rank_).bell.ring();
  };
  push(lane, {raise_counter, this, reinterpret_cast<std::uintptr_t>(&counter(mark.counter)), mark.recorded, nullptr});
  return {this, mark.counter, mark.recorded};
}

inline void HostFabric::wait(StreamRef stream, const Event& event) {
  require_open("wait");
  detail::HostLane& lane = own_lane(stream);
  HostFabric* const owner = event.port == this ? this : partner_;
  if (owner == nullptr || event.port != owner) raise(Errc::argument, detail::foreign_event());
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
        life_.refuse_function();
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

inline void HostFabric::synchronize(std::int32_t index, std::uint64_t value) { await(index, value, "an event"); }

inline void HostFabric::await(std::int32_t index, std::uint64_t value, const char* what) {
  const auto& awaited = counter(index);
  const auto met = [&] { return awaited.load(std::memory_order_acquire) >= value || state_->failure.failed(); };
  const auto wait = [&] { return state_->at(rank_).bell.wait(state_->options.deadline, met); };
  if (!while_waiting(!met(), wait)) fail_late(what);
  if (state_->failure.failed()) raise_failure();
}

inline index_t HostFabric::stop() noexcept {
  for (const auto& stream : streams_) stream->stop();
  lanes_.for_each([](const auto& lane) { lane->stop(); });
  const index_t left =
      state_->at(rank_).wires.stop(state_->options.deadline, [this] { return state_->failure.failed(); });
  life_.end();
  return left;
}

inline void HostFabric::close() {
  bool inside = false;
  for (const auto& stream : streams_) inside = inside || stream->is_this_thread();
  lanes_.for_each([&](const auto& lane) { inside = inside || lane->is_this_thread(); });
  if (inside) raise(Errc::order, "tide::HostFabric: close must not be called by a function on a stream.");
  const auto since = detail::Clock::now();
  const index_t left = while_waiting(true, [this] { return stop(); });
  if (left > 0) {
    state_->fail_late(rank_, "",
                      {detail::Bell::Whom::other_node, since,
                       detail::text({"rank ", rank_.value, " waits, to close, for the network, which has ", left,
                                     " of this rank on their way"})});
  }
  if (state_->failure.failed()) raise_failure();
  // Where an exception closes it, that is what the others are to hear of.
  if (std::uncaught_exceptions() == 0) state_->end(rank_, true);
}

}  // namespace tide
