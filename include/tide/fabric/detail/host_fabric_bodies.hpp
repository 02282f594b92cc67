// SPDX-License-Identifier: Apache-2.0
//
// The member functions of HostFabric.

#pragma once

#include <tide/fabric/host_fabric.hpp>
#include <tide/plan/fingerprint.hpp>  // fingerprint

#include <algorithm>
#include <cstring>

namespace tide {

inline HostStream HostFabric::stream() {
  if (phase_ == Phase::closed) raise(Errc::order, "tide::HostFabric: a stream cannot be made after close.");
  if (state_->options.lanes == HostLanes::merged) {
    return HostStream(*this, lane(Operation::gather, {LaneKind::caller, 0}));
  }
  streams_.push_back(std::make_unique<detail::HostLane>(*state_));
  return HostStream(*this, *streams_.back());
}

inline void HostFabric::require_open(const char* call) const {
  if (state_->failure.failed()) state_->failure.raise_it();
  if (phase_ == Phase::running) return;
  raise(Errc::order,
        detail::text({"tide::HostFabric: ", call,
                      (phase_ == Phase::building ? " needs init to be called first." : " cannot follow close.")}));
}

inline index_t HostFabric::reserve(index_t bytes, index_t alignment) {
  if (phase_ != Phase::building) {
    raise(Errc::order, "tide::HostFabric: pipelines, pools and storage must be constructed before init.");
  }
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
  const bool merged = state_->options.lanes == HostLanes::merged;
  auto& slot = lanes_[merged ? std::tuple(Operation::gather, LaneKind::caller, 0)
                             : std::tuple(operation, lane.kind, lane.index)];
  if (!slot) slot = std::make_unique<detail::HostLane>(*state_);
  return *slot;
}

inline std::int32_t HostFabric::attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) {
  if (phase_ != Phase::building) {
    raise(Errc::order, "tide::HostFabric: pipelines, pools and storage must be constructed before init.");
  }
  const SignalWords words = variants.front().collective.words();
  std::uint64_t print = 0;
  std::array<bool, 3> exits{};
  std::vector<detail::HostVariant> prepared;
  for (PlanVariant& variant : variants) {
    print = print * 31 + fingerprint(variant.collective);
    for (const Exit& exit : variant.plan.exits) exits[static_cast<std::size_t>(exit.kind)] = true;
    detail::HostVariant& made = prepared.emplace_back(variant.collective, variant.kernels, std::move(variant.plan));
    for (std::size_t l = 0; l < made.lanes.size(); ++l) {
      if (made.plan.lanes[l].kind != LaneKind::caller)
        made.lanes[l] = &lane(variant.collective.operation, made.plan.lanes[l]);
    }
  }
  detail::HostRank& own = state_->at(rank_);
  own.fingerprints.push_back(print);
  own.labels.push_back(label);
  Program program;
  program.body = std::make_unique<detail::HostProgram>(*state_, std::move(prepared), words, places, std::move(label));
  for (std::size_t kind = 0; kind < exits.size(); ++kind) {
    if (!exits[kind]) continue;
    program.exit_counters[kind] = new_counter();
    program.body->bind_exit(static_cast<ExitKind>(kind), counter(program.exit_counters[kind]));
  }
  programs_.push_back(std::move(program));
  return static_cast<std::int32_t>(programs_.size()) - 1;
}

inline void HostFabric::init() {
  if (phase_ != Phase::building) raise(Errc::order, "tide::HostFabric: init must be called once.");
  state_->meet("init", [&] {
    const detail::HostRank& first = state_->ranks.front();
    for (std::size_t r = 1; r < state_->ranks.size(); ++r) {
      const detail::HostRank& other = state_->ranks[r];
      const auto differ = [&](const std::string& what) {
        state_->fail(
            Errc::mismatch,
            detail::text(
                {"tide::HostFabric: all ranks must construct the same pipelines in the same order; ranks 0 and ", r,
                 " differ in ", what, "."}));
      };
      if (other.fingerprints.size() != first.fingerprints.size()) {
        differ("how many they have: " + std::to_string(first.fingerprints.size()) + " and " +
               std::to_string(other.fingerprints.size()));
        return;
      }
      for (std::size_t p = 0; p < first.fingerprints.size(); ++p) {
        if (other.fingerprints[p] == first.fingerprints[p]) continue;
        differ("number " + std::to_string(p) + ": " + first.labels[p] + " and " + other.labels[p]);
        return;
      }
      if (other.reserved != first.reserved) {
        differ("the size of the arena: " + std::to_string(first.reserved) + " and " + std::to_string(other.reserved) +
               " bytes");
        return;
      }
    }
    const index_t has = state_->options.memory_bytes > 0 ? state_->options.memory_bytes : detail::machine_memory();
    const index_t ranks = state_->mesh.ranks();
    const auto too_large = [&] {
      state_->fail(Errc::capacity,
                   detail::text({"tide::HostFabric: the arenas must fit into memory; needs ",
                                 detail::gibibytes(first.reserved * ranks), ", has ", detail::gibibytes(has), "."}));
    };
    if (first.reserved > INT64_MAX / ranks || (has > 0 && first.reserved * ranks > has)) return too_large();
    for (detail::HostRank& rank : state_->ranks) {
      rank.arena = detail::allocate_aligned(std::max<index_t>(rank.reserved, 1));
      if (!rank.arena) return too_large();
    }
  });
  for (Program& program : programs_) program.body->reset_words();
  phase_ = Phase::running;
  state_->meet("init", [] {});  // no rank signals before all words are set
}

inline void HostFabric::raise_failure() {
  // Lanes of this rank may still read or write the caller's memory: they stop at their next op.
  for (const auto& entry : lanes_) {
    if (!entry.second->is_this_thread()) entry.second->drain();
  }
  for (const auto& stream : streams_) {
    if (!stream->is_this_thread()) stream->drain();
  }
  state_->failure.raise_it();
}

inline void HostFabric::push(detail::HostLane& lane, detail::HostItem item) {
  if (!lane.push(std::move(item))) {
    state_->fail(Errc::capacity,
                 detail::text({"tide::HostFabric: a queue of rank ", rank_.value, " stayed full until the deadline of ",
                               detail::seconds_text(state_->options.deadline), "."}));
  }
  if (state_->failure.failed()) raise_failure();
}

inline void HostFabric::launch(std::int32_t index, std::int32_t variant_index, const Bindings& bindings,
                               StreamRef stream) {
  if (state_->failure.failed()) raise_failure();
  require_open("a call");
  if (stream.port != this)
    refuse(Errc::argument, "tide::HostFabric: the stream must belong to the fabric of the pipeline.");
  state_->enter_call(rank_, index, bindings.slot);
  detail::HostProgram& body = *programs_[static_cast<std::size_t>(index)].body;
  const std::uint64_t run = body.runs();
  if (!body.begin(variant_index, bindings)) {
    state_->fail(Errc::deadline, detail::text({"tide::HostFabric: ", body.label(), ", step ", run, ", rank ",
                                               rank_.value, ": the oldest of ", detail::HostProgram::max_runs,
                                               " runs in flight was not done within the deadline."}));
  }
  if (state_->failure.failed()) raise_failure();
  auto& caller = *static_cast<detail::HostLane*>(stream.handle);
  if (state_->options.lanes == HostLanes::merged) {
    push(caller, {&detail::HostProgram::work, &body, detail::HostProgram::all_lanes, run, nullptr});
    return;
  }
  const detail::HostVariant& variant = body.variant(variant_index);
  for (std::size_t l = 0; l < variant.lanes.size(); ++l) {
    if (!variant.uses(l)) continue;
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
  auto& mark = marks_.try_emplace(stream.handle, std::pair<std::int32_t, std::uint64_t>{-1, 0}).first->second;
  if (mark.first < 0) mark.first = new_counter();
  ++mark.second;
  // Lanes get the address of a counter: finding it by number would race with new ones.
  const auto raise_counter = [](void* self, std::uint64_t which, std::uint64_t value) {
    auto& fabric = *static_cast<HostFabric*>(self);
    reinterpret_cast<std::atomic<std::uint64_t>*>(which)->store(value,
                                                                std::memory_order_release);  // acquired by passed
    fabric.state_->at(fabric.rank_).bell.ring();
  };
  push(*static_cast<detail::HostLane*>(stream.handle),
       {raise_counter, this, reinterpret_cast<std::uintptr_t>(&counter(mark.first)), mark.second, nullptr});
  return {this, mark.first, mark.second};
}

inline void HostFabric::wait(StreamRef stream, const Event& event) {
  require_open("wait");
  if (event.port != this) raise(Errc::argument, "tide::HostFabric: an event can be waited for on its own rank only.");
  const auto block = [](void* self, std::uint64_t which, std::uint64_t value) {
    auto& fabric = *static_cast<HostFabric*>(self);
    const auto& awaited = *reinterpret_cast<const std::atomic<std::uint64_t>*>(which);
    const auto met = [&] {
      return awaited.load(std::memory_order_acquire) >= value || fabric.state_->failure.failed();
    };
    if (!fabric.state_->at(fabric.rank_).bell.wait(fabric.state_->options.deadline, met)) {
      fabric.state_->fail(Errc::deadline, detail::text({"tide::HostFabric: a stream of rank ", fabric.rank_.value,
                                                        " waited for an event until the deadline of ",
                                                        detail::seconds_text(fabric.state_->options.deadline), "."}));
    }
  };
  push(*static_cast<detail::HostLane*>(stream.handle),
       {block, this, reinterpret_cast<std::uintptr_t>(&counter(event.counter)), event.value, nullptr});
}

inline void HostFabric::zero(StreamRef stream, void* target, index_t bytes) {
  const auto clear = [](void* to, std::uint64_t count, std::uint64_t) { std::memset(to, 0, count); };
  push(*static_cast<detail::HostLane*>(stream.handle), {clear, target, static_cast<std::uint64_t>(bytes), 0, nullptr});
}

inline bool HostFabric::passed(std::int32_t index, std::uint64_t value) {
  if (counter(index).load(std::memory_order_acquire) >= value) return true;
  if (state_->failure.failed()) raise_failure();
  return false;
}

inline void HostFabric::synchronize(std::int32_t index, std::uint64_t value) {
  const auto& awaited = counter(index);
  const auto met = [&] { return awaited.load(std::memory_order_acquire) >= value || state_->failure.failed(); };
  if (!state_->at(rank_).bell.wait(state_->options.deadline, met)) {
    state_->fail(Errc::deadline,
                 detail::text({"tide::HostFabric: rank ", rank_.value, " waited for an event until the deadline of ",
                               detail::seconds_text(state_->options.deadline), "."}));
  }
  if (state_->failure.failed()) raise_failure();
}

inline void HostFabric::stop() noexcept {
  for (const auto& stream : streams_) stream->stop();
  for (const auto& entry : lanes_) entry.second->stop();
  phase_ = Phase::closed;
}

inline void HostFabric::close() {
  stop();
  if (state_->failure.failed()) state_->failure.raise_it();
}

}  // namespace tide
