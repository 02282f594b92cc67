// SPDX-License-Identifier: Apache-2.0
//
// What ShardedStep knows of a step without knowing types: which group is due, which are gathered, what waits for what.
//
// A pass is a row of turns: the groups in order, then, unless it is an evaluation, in the opposite order. At each turn
// the groups of this turn and of the next ones are gathered, as far as Prefetch says.

#pragma once

#include <tide/pipeline/detail/port_stream.hpp>  // PortStream
#include <tide/pipeline/pass.hpp>                // Pass

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tide::detail {

// The groups of a part, as the core sees them.
class StepGroups {
 public:
  // Starts a gather of group `index` into a slot; the event of its completion.
  virtual Event gather(index_t index, PortStream& stream) = 0;
  // Gives the slot back after what is enqueued on `stream`.
  virtual void release(index_t index, PortStream& stream) = 0;

 protected:
  ~StepGroups() = default;
};

struct StepGroupState {
  StepGroups* part = nullptr;
  index_t index = 0;  // in the part
  std::string_view name{};
  bool kept = false;
  bool gathered = false;  // it has a slot
  bool used = false;      // a handle of it lives
  bool adds = false;      // the next reduce adds to the one before
  Event complete{};       // of its latest gather
  Event read{};           // what read the parameters of a forward that keeps its slot
  Event ready{};          // its reduced gradients
  Event settled{};        // what used its shards outside a pass, an optimizer say
};

class StepCore {
 public:
  // @param replicas  the rank's other fabric, or null
  // @param groups    of the model, which the parts fill in
  // @param slots     that groups may be gathered into
  StepCore(FabricPort& port, FabricPort* replicas, StreamRef gathers, StreamRef reduces, index_t groups, index_t ahead,
           index_t slots)
      : port_(&port),
        replicas_(replicas),
        gathers_(gathers),
        reduces_(reduces),
        ahead_(ahead),
        slots_(slots),
        groups_(static_cast<std::size_t>(groups)) {}

  [[nodiscard]] index_t count() const noexcept { return static_cast<index_t>(groups_.size()); }
  [[nodiscard]] StepGroupState& at(index_t group) noexcept { return groups_[static_cast<std::size_t>(group)]; }
  [[nodiscard]] FabricPort& port() const noexcept { return *port_; }
  [[nodiscard]] PortStream& reduces() noexcept { return reduces_; }
  [[nodiscard]] Pass pass() const noexcept { return pass_; }

  // A stream of the caller, which must be this rank's.
  [[nodiscard]] PortStream own_stream(StreamRef stream) {
    if (stream.port != port_ && (replicas_ == nullptr || stream.port != replicas_)) {
      port_->refuse(Errc::argument,
                    text({"tide::ShardedStep: a stream must be of the rank's own fabric; the call on rank ",
                          port_->rank().value, " got another one's."}));
    }
    return PortStream(stream);
  }

  // Begins a pass and gathers its first groups.
  void start(Pass pass) {
    require_idle("start");
    pass_ = pass;
    gather_ahead();
    started_ = true;
  }

  // The turn of a group: its parameters are there for what is enqueued on `stream` from now on.
  void enter(bool backward, index_t group, PortStream stream) {
    require_sound();
    const index_t turn = backward ? 2 * count() - 1 - group : group;
    if (!started_) pass_ = Pass::last;
    if (turn != turn_ || turn >= turns()) refuse_turn(backward, group);
    if (at(group).used) {
      port_->refuse(Errc::order, text({"tide::ShardedStep: a group must be released before its backward; ",
                                       describe(group), " was not."}));
    }
    gather_ahead();
    started_ = true;
    ++turn_;
    StepGroupState& state = at(group);
    state.used = true;
    stream.wait(state.complete);
    if (backward) stream.wait(state.read);
  }

  // The readers of a forward have been enqueued.
  void leave_forward(index_t group, PortStream stream) {
    StepGroupState& state = at(group);
    state.used = false;
    // The turn that comes next will ask for this group's backward, or it has a slot of its own.
    const bool soon = 2 * count() - 1 - group <= turn_ + ahead_;
    if (pass_ != Pass::evaluate && (state.kept || soon)) {
      state.read = stream.record();
    } else {
      state.part->release(state.index, stream);
      state.gathered = false;
    }
    end_turn(pass_ == Pass::evaluate ? count() : 2 * count());
  }

  // The readers of a backward have been enqueued, and its reduce where it has one.
  void leave_backward(index_t group, PortStream stream) {
    StepGroupState& state = at(group);
    state.used = false;
    state.gathered = false;
    state.part->release(state.index, stream);
    reduced_ = false;
    end_turn(2 * count());
  }

  void dropped(index_t group) noexcept {
    if (dropped_ < 0) dropped_ = group;
  }

  void require_sound() {
    if (visited_ >= 0) {
      port_->refuse(Errc::order, text({"tide::ShardedStep: a function that load, save, inspect or update calls must "
                                       "not call the step; it was called for ",
                                       describe(visited_), "."}));
    }
    if (dropped_ >= 0) {
      port_->refuse(Errc::order, text({"tide::ShardedStep: a group must be released or reduced before its handle is "
                                       "destroyed; ",
                                       describe(dropped_), " was not."}));
    }
  }

  // Between passes.
  void require_idle(const char* call) {
    require_sound();
    if (!started_) return;
    port_->refuse(Errc::order, text({"tide::ShardedStep: a pass must be ended before another thing is done; ", call,
                                     " was called where ", due(), " is due."}));
  }

  // After a whole backward of a last micro-batch.
  void require_reduced(const char* call) {
    require_idle(call);
    if (reduced_) return;
    port_->refuse(Errc::order, text({"tide::ShardedStep: gradients must be complete before they are used; ", call,
                                     " was called before a pass with Pass::last has ended."}));
  }

  // The shards of a group are used on `stream`, after its gathers, and its reduces where `reduced`.
  void begin_use(index_t group, PortStream stream, bool reduced) {
    stream.wait(at(group).complete);
    if (reduced) stream.wait(at(group).ready);
    stream.wait(at(group).settled);
  }
  void end_use(index_t group, PortStream stream) { at(group).settled = stream.record(); }
  // Which group a function of the caller is called for now, -1 for none: what it enqueues is not known yet, so a gather
  // that began there would not wait for it.
  void visit(index_t group) noexcept { visited_ = group; }
  void consume() noexcept {
    reduced_ = false;
    ++updates_;
  }

  [[nodiscard]] std::string describe(index_t group) {
    return text({"group ", at(group).index, " of '", std::string(at(group).name), "'"});
  }

  void refuse_group(std::string_view part, index_t i, index_t repeat) {
    port_->refuse(Errc::argument, text({"tide::ShardedStep: a part has groups 0 to Repeat - 1; '", part, "' has ",
                                        repeat, ", number ", i, " was asked for."}));
  }

 private:
  [[nodiscard]] index_t turns() const noexcept { return pass_ == Pass::evaluate ? count() : 2 * count(); }
  [[nodiscard]] index_t group_of(index_t turn) const noexcept { return turn < count() ? turn : 2 * count() - 1 - turn; }

  void gather_ahead() {
    const index_t end = std::min(turn_ + ahead_ + 1, turns());
    const auto held = std::count_if(groups_.begin(), groups_.end(), [](const auto& group) { return group.gathered; });
    index_t needed = held;
    for (index_t turn = turn_; turn < end; ++turn) {
      bool seen = at(group_of(turn)).gathered;
      for (index_t before = turn_; before < turn; ++before) seen = seen || group_of(before) == group_of(turn);
      needed += seen ? 0 : 1;
    }
    if (needed > slots_) {
      port_->refuse(Errc::capacity,
                    text({"tide::ShardedStep: a group must be released before another is gathered; ", due(), " needs ",
                          needed, " slots with those that are held, there are ", slots_, held_by()}));
    }
    const CallNote note{pass_names[static_cast<std::size_t>(pass_)], updates_};
    port_->note(note);
    if (replicas_ != nullptr) replicas_->note(note);
    for (index_t turn = turn_; turn < end; ++turn) {
      StepGroupState& state = at(group_of(turn));
      if (state.gathered) continue;
      gathers_.wait(state.settled);
      state.complete = state.part->gather(state.index, gathers_);
      state.gathered = true;
      state.read = {};
    }
  }

  void end_turn(index_t turns) {
    if (turn_ < turns) return;
    if (std::any_of(groups_.begin(), groups_.end(), [](const auto& group) { return group.used; })) return;
    turn_ = 0;
    started_ = false;
    if (pass_ == Pass::last) reduced_ = true;
  }

  [[nodiscard]] std::string due() {
    return turn_ == turns() ? "the release of a group" : describe_turn(turn_ >= count(), group_of(turn_));
  }
  [[nodiscard]] std::string describe_turn(bool backward, index_t group) {
    return text({backward ? "backward of " : "forward of ", describe(group)});
  }
  void refuse_turn(bool backward, index_t group) {
    const bool evaluates = backward && pass_ == Pass::evaluate;
    port_->refuse(Errc::order,
                  text({"tide::ShardedStep: groups must be asked for in the order of the model, and backwards; ",
                        describe_turn(backward, group), " was called on rank ", port_->rank().value,
                        evaluates ? " in or after a pass that only evaluates, where " : " where ", due(), " is due."}));
  }
  // One handle that lives.
  [[nodiscard]] std::string held_by() {
    for (index_t group = 0; group < count(); ++group) {
      if (at(group).used) return "; the handle of " + describe(group) + " lives.";
    }
    return ".";
  }

  // By `Pass`, as a message says it.
  static constexpr std::string_view pass_names[] = {"in Pass::last after update", "in Pass::accumulate after update",
                                                    "in Pass::evaluate after update"};
  static_assert(static_cast<int>(Pass::last) == 0 && static_cast<int>(Pass::accumulate) == 1 &&
                static_cast<int>(Pass::evaluate) == 2);

  FabricPort* port_;
  FabricPort* replicas_;
  PortStream gathers_;
  PortStream reduces_;
  index_t ahead_;
  index_t slots_;
  std::vector<StepGroupState> groups_;
  Pass pass_ = Pass::last;
  index_t turn_ = 0;      // the one that is due
  bool started_ = false;  // a pass has begun
  bool reduced_ = false;  // a step's gradients are complete
  index_t dropped_ = -1;
  index_t visited_ = -1;
  std::uint64_t updates_ = 0;
};

}  // namespace tide::detail
