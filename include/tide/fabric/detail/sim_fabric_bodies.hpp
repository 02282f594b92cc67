// SPDX-License-Identifier: Apache-2.0
//
// The member functions of SimFabric.

#pragma once

#include <tide/fabric/sim_fabric.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace tide {

inline SimFabric::SimFabric(std::shared_ptr<detail::SimState> state, Rank rank)
    : state_(std::move(state)), rank_(rank), host_(state_->host(rank)), life_(state_->turns->failure) {
  state_->at(rank).fabric = this;
  state_->turns->add(host_, this);
}

inline HostStream SimFabric::stream() {
  life_.require_stream();
  const auto make = [&] { return new_lane(); };
  const bool merged = state_->options().lanes == HostLanes::merged;
  streams_.push_back(merged ? lanes_.at(HostLanes::merged, Operation::gather, {}, make) : make());
  return HostStream(*this, &streams_.back());
}

inline void SimFabric::require_open(const char* call) {
  state_->turns->failure.raise_if_failed();
  life_.require_open(call);
}

inline void SimFabric::raise_if_failed() {
  state_->turns->pause(host_);
  state_->turns->failure.raise_if_failed();
}

inline void SimFabric::sleep(Duration duration) {
  state_->turns->sleep(host_, std::chrono::duration<double>(duration).count());
  state_->turns->failure.raise_if_failed();
}

inline void SimFabric::refuse(Errc code, const std::string& text) {
  require_open("a call");
  const detail::CallLedger::Refused refused = state_->ledger.refuse(rank_, {code, detail::noted(text, state_->whose)});
  if (refused.begun) state_->turns->fail(refused.said.code, refused.said.text);
  state_->turns->failure.raise_if_failed();
  raise_refusal(refused.said);
}

inline void SimFabric::raise_refusal(const detail::Refusal& refusal) {
  const auto idle = [&] {
    const auto& lanes = state_->machine().lanes(host_);
    return std::all_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.items.empty(); });
  };
  state_->turns->wait(host_, idle, [] { return detail::SimWait{"its work, for a call is refused"}; });
  state_->turns->failure.raise_if_failed();
  raise(refusal.code, refusal.text);
}

inline index_t SimFabric::reserve(index_t bytes, index_t alignment) {
  life_.require_building();
  return state_->at(rank_).declared.reserve(bytes, alignment);
}

inline std::int32_t SimFabric::own_lane(StreamRef stream) {
  if (stream.port != this) refuse(Errc::argument, detail::foreign_stream(rank_));
  return *static_cast<const std::int32_t*>(stream.handle);
}

inline std::int32_t SimFabric::attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) {
  life_.require_building();
  const std::array<bool, 3> exits = state_->at(rank_).declared.attach(variants, places, label);
  Program& program = programs_.emplace_back();
  const SignalWords words = variants.front().collective.words();
  std::vector<detail::HostVariant> prepared;
  std::vector<detail::SimCosts> costs;
  for (PlanVariant& variant : variants) {
    const Operation operation = variant.collective.operation;
    costs.emplace_back(variant.collective, variant.plan);
    prepared.emplace_back(variant.collective, variant.kernels, std::move(variant.plan));
    std::vector<std::int32_t>& lanes = program.lanes.emplace_back();
    for (const Lane& one : prepared.back().plan.lanes) {
      const auto shared = [&] {
        return lanes_.at(state_->options().lanes, operation, one, [&] { return new_lane(); });
      };
      lanes.push_back(one.kind == LaneKind::caller ? -1 : shared());
    }
  }
  detail::HostOps ops(state_->arenas, state_->mesh, rank_, places);
  program.body =
      std::make_unique<detail::SimProgram>(std::move(prepared), std::move(costs), std::move(ops), std::move(label));
  detail::SimProgram& body = *program.body;
  for (std::size_t kind = 0; kind < exits.size(); ++kind) {
    if (exits[kind]) body.exit_counters[kind] = state_->machine().add_counter(host_);
  }
  body.caller_counter = state_->machine().add_counter(host_);
  body.first_host = state_->first_host;
  body.host_stride = state_->host_stride;
  body.life = &state_->at(rank_).life;
  body.whose = &state_->whose;
  state_->machine().add_program(host_, body, words);
  return static_cast<std::int32_t>(programs_.size()) - 1;
}

namespace detail {

inline void SimState::compare() {
  const auto declared = [&](Rank rank) -> const Declared& { return at(rank).declared; };
  if (std::string wrong = disagreement_of(mesh.ranks(), declared); !wrong.empty()) {
    return turns->fail(Errc::mismatch, noted(std::move(wrong), whose));
  }
  const index_t bytes = declared(Rank{0}).reserved;
  std::string wrong = machine().moves_bytes() ? arenas.allocate(bytes, options().memory_bytes) : arenas.pretend(bytes);
  if (!wrong.empty()) turns->fail(Errc::capacity, noted(std::move(wrong), whose));
}

}  // namespace detail

// When there are arenas, and all ranks have their programs.
inline void SimFabric::make_ready() {
  for (std::size_t p = 0; p < programs_.size(); ++p) {
    detail::SimProgram& body = *programs_[p].body;
    body.peers = &state_->programs[p];
    if (state_->machine().moves_bytes()) body.ops.prepare_switch(body.variants.front().network);
  }
  life_.begin();
}

// For all ranks: they have come, and none has gone on.
inline void SimFabric::init_all() {
  state_->compare();
  if (state_->turns->failure.failed()) return;
  for (std::size_t p = 0; p < programs_.size(); ++p) {
    std::vector<detail::SimProgram*>& all = state_->programs.emplace_back();
    for (const detail::SimRank& rank : state_->ranks) all.push_back(rank.fabric->programs_[p].body.get());
  }
  for (const detail::SimRank& rank : state_->ranks) rank.fabric->make_ready();
}

inline void SimFabric::init() {
  life_.require_new();
  state_->meet(rank_, "init", [&] { init_all(); });
  state_->turns->failure.raise_if_failed();
}

inline void SimFabric::push(std::int32_t lane, detail::SimItem item) {
  const auto index = static_cast<std::size_t>(lane);
  state_->turns->wait(
      host_, [&] { return !state_->machine().lanes(host_)[index].is_full(); },
      [] { return detail::SimWait{"room in a queue"}; });
  state_->turns->failure.raise_if_failed();
  state_->machine().push(host_, index, std::move(item));
}

inline void SimFabric::launch(std::int32_t index, std::int32_t variant_index, const Bindings& bindings,
                              StreamRef stream) {
  require_open("a call");
  const std::int32_t caller = own_lane(stream);
  Program& program = programs_[static_cast<std::size_t>(index)];
  detail::SimProgram& body = *program.body;
  // Before the others count on the call.
  const detail::HostVariant& variant = body.variants[static_cast<std::size_t>(variant_index)];
  if (const char* wrong = detail::HostRun::reserve_zeros(variant, bindings, body.zeros)) refuse(Errc::capacity, wrong);
  const detail::CallLedger::Entered entered =
      state_->ledger.enter(rank_, index, bindings.slot, noted(), [&](Rank of, std::int32_t which) {
        return state_->at(of).declared.attached[static_cast<std::size_t>(which)].label;
      });
  if (!entered.differs.empty()) state_->turns->fail(Errc::order, detail::noted(entered.differs, state_->whose));
  state_->turns->failure.raise_if_failed();
  if (entered.refused) raise_refusal(*entered.refused);
  state_->turns->wait(
      host_, [&] { return body.has_room(); }, [&] { return detail::SimWait{detail::oldest_run(body.label)}; });
  state_->turns->failure.raise_if_failed();
  const std::uint64_t run = body.next_run;
  body.begin(variant_index, bindings, state_->ledger.made(rank_) - 1);
  state_->machine().count(body.costs[static_cast<std::size_t>(variant_index)].tally);
  detail::SimItem item;
  item.program = &body;
  item.run = run;
  item.lane = detail::SimItem::all_lanes;
  if (state_->options().lanes == HostLanes::merged) return push(caller, std::move(item));
  const std::vector<std::int32_t>& lanes = program.lanes[static_cast<std::size_t>(variant_index)];
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    if (!variant.uses(l)) continue;
    if (lanes[l] < 0) {
      if (program.stream >= 0 && program.stream != caller) {
        detail::SimItem before;
        before.kind = detail::SimItem::Kind::await;
        before.counter = body.caller_counter;
        before.value = program.caller_runs;
        push(caller, std::move(before));
      }
      program.stream = caller;
      program.caller_runs = run + 1;
    }
    item.lane = l;
    push(lanes[l] < 0 ? caller : lanes[l], item);
  }
}

inline Event SimFabric::exit_event(std::int32_t index, ExitKind kind) {
  const detail::SimProgram& body = *programs_[static_cast<std::size_t>(index)].body;
  return {this, body.exit_counters[static_cast<std::size_t>(kind)], body.next_run};
}

inline Event SimFabric::record(StreamRef stream) {
  require_open("record");
  const std::int32_t lane = own_lane(stream);
  const detail::StreamMark mark = marks_.record(lane, [&] { return state_->machine().add_counter(host_); });
  detail::SimItem item;
  item.kind = detail::SimItem::Kind::raise;
  item.counter = mark.counter;
  item.value = mark.recorded;
  push(lane, std::move(item));
  return {this, mark.counter, mark.recorded};
}

inline void SimFabric::wait(StreamRef stream, const Event& event) {
  require_open("wait");
  const std::int32_t lane = own_lane(stream);
  if (!state_->turns->has(host_, event.port)) raise(Errc::argument, detail::foreign_event());
  detail::SimItem item;
  item.kind = detail::SimItem::Kind::await;
  item.counter = event.counter;
  item.value = event.value;
  push(lane, std::move(item));
}

inline void SimFabric::zero(StreamRef stream, void* target, index_t bytes) {
  require_open("a call");
  detail::SimItem item;
  item.kind = detail::SimItem::Kind::zero;
  item.target = target;
  item.bytes = bytes;
  push(own_lane(stream), std::move(item));
}

inline void SimFabric::run(StreamRef stream, std::function<void()> function) {
  state_->turns->failure.raise_if_failed();
  if (life_.closed()) detail::FabricLife::refuse_function();
  detail::SimItem item;
  item.kind = detail::SimItem::Kind::function;
  item.function = std::move(function);
  const std::int32_t lane = *static_cast<const std::int32_t*>(stream.handle);
  item.rank = rank_;
  item.whose = &state_->whose;
  item.stream = std::find(streams_.begin(), streams_.end(), lane) - streams_.begin();
  push(lane, std::move(item));
}

inline void SimFabric::busy(const HostStream& stream, Duration duration) {
  state_->turns->failure.raise_if_failed();
  if (life_.closed()) detail::FabricLife::refuse_function();
  detail::SimItem item;
  item.kind = detail::SimItem::Kind::busy;
  item.seconds = std::chrono::duration<double>(duration).count();
  push(own_lane(stream.ref()), std::move(item));
}

inline bool SimFabric::passed(std::int32_t index, std::uint64_t value) {
  if (state_->machine().counter(host_, index) >= value) return true;
  raise_if_failed();
  return state_->machine().counter(host_, index) >= value;
}

inline void SimFabric::synchronize(std::int32_t index, std::uint64_t value) {
  state_->turns->wait(
      host_, [&] { return state_->machine().counter(host_, index) >= value; },
      [] { return detail::SimWait{"an event"}; });
  state_->turns->failure.raise_if_failed();
}

inline void SimFabric::close() {
  const auto idle = [&] {
    bool all = true;
    const auto look_at = [&](std::int32_t lane) {
      all = all && state_->machine().lanes(host_)[static_cast<std::size_t>(lane)].items.empty();
    };
    for (const std::int32_t stream : streams_) look_at(stream);
    lanes_.for_each(look_at);
    return all;
  };
  if (!life_.closed()) {
    state_->turns->wait(host_, idle, [] { return detail::SimWait{"its work, to close"}; });
    life_.end();
  }
  state_->turns->failure.raise_if_failed();
  // Where an exception closes it, that is what the others are to hear of.
  if (std::uncaught_exceptions() == 0) state_->end(rank_, true);
}

}  // namespace tide
