// SPDX-License-Identifier: Apache-2.0
//
// PlanBuilder: how a transport or a reducer writes the plan of one rank, op by op in issue order.
//
//   tide::PlanBuilder plan{collective, rank};
//   const auto lane = plan.lane(tide::LaneKind::push, 1);
//   plan.wait(lane, words.word(tide::WordKind::ready, peer), 1);
//   plan.copy(lane, peer, tide::Space::shards, tide::Space::slot, block);
//
// Test: tests/plan/plan_builder.test.cpp

#pragma once

#include <tide/core/error.hpp>    // raise
#include <tide/layout/block.hpp>  // Block
#include <tide/plan/plan.hpp>     // Plan, Op

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace tide {

/// Appends ops to a plan. Allocates; plans are written once, in constructors.
///
/// Blocks have at most `max_rows` rows, `max_pitch` bytes apart, as those of `LayoutView::blocks` and `coalesce` do. An
/// op has room for less than `index_t` of most numbers: any function here throws Error (Errc::argument) for one that
/// does not fit, with the op's kind and place, and has appended nothing.
class PlanBuilder {
 public:
  /// @pre the collective outlives the builder
  constexpr PlanBuilder(const Collective& collective, Rank rank) : collective_(&collective) {
    plan_.rank = rank;
    plan_.lanes.push_back({LaneKind::caller, 0});
  }
  template <class Temporary>
  requires std::same_as<std::remove_const_t<Temporary>, Collective>
  constexpr PlanBuilder(Temporary&& collective, Rank rank) : PlanBuilder(collective, rank) {
    static_assert(std::is_void_v<Temporary>, "tide::PlanBuilder: the collective must outlive it; give it a name.");
  }

  /// The caller's lane.
  [[nodiscard]] static constexpr LaneIndex caller() noexcept { return LaneIndex{0}; }

  /// A lane, made when first asked for.
  constexpr LaneIndex lane(LaneKind kind, index_t index = 0) {
    require(index, most_i32, "tide::PlanBuilder: the index of a lane must be 0 to 2147483647", "lane",
            plan_.lanes.size());
    const Lane wanted{kind, static_cast<std::int32_t>(index)};
    for (std::size_t i = 0; i < plan_.lanes.size(); ++i) {
      if (plan_.lanes[i] == wanted) return LaneIndex{static_cast<index_t>(i)};
    }
    plan_.lanes.push_back(wanted);
    return LaneIndex{static_cast<index_t>(plan_.lanes.size()) - 1};
  }

  /// A block from the own `source` to the `target` of `peer` (which may be the own rank).
  constexpr void copy(LaneIndex lane, Rank peer, Space source, Space target, const Block& block, index_t instance = 0) {
    plan_.ops.push_back(move(OpKind::copy, lane, peer, source, target, block, instance));
  }

  /// `bytes` bytes from the own `source` to the `target` of `peer`, a rank of another node; behind them a word there
  /// rises to `value` of `per_run`. Places name the parameter.
  constexpr void put(LaneIndex lane, Rank peer, const Address& source, const Address& target, index_t bytes,
                     index_t word, index_t value, index_t per_run) {
    Op op;
    op.kind = OpKind::put;
    op.lane = checked_lane(OpKind::put, lane);
    check_word(OpKind::put, word, per_run);
    require(value, most_u32, "tide::PlanBuilder: the value of a put must be 0 to 4294967295", OpKind::put);
    op.peer = peer.value;
    op.source = source.place;
    op.target = target.place;
    op.extra = {Space::signals, 0, 0};
    op.source_offset = source.offset;
    op.target_offset = target.offset;
    op.extra_offset = 8 * word;
    op.width = bytes;
    op.source_pitch = static_cast<std::uint32_t>(value);
    op.target_pitch = static_cast<std::uint32_t>(per_run);
    plan_.ops.push_back(op);
  }

  /// A block from the own `source` to the `target` of every rank of the node.
  constexpr void multicast(LaneIndex lane, Space source, Space target, const Block& block) {
    plan_.ops.push_back(move(OpKind::multicast, lane, plan_.rank, source, target, block, 0));
  }

  /// A block from the own f32 masters to the own slot; `block.kind` names the kernel.
  constexpr void cast(LaneIndex lane, const Block& block) {
    plan_.ops.push_back(move(OpKind::cast, lane, plan_.rank, Space::master, Space::slot, block, 0));
  }

  /// A block of the own gradient, and the pieces at `inbox_offset` of chunk `chunk`, summed into the own output.
  /// `position` is that of the own gradient among the inputs; `block.kind` names the kernel.
  constexpr void reduce(LaneIndex lane, index_t position, const Block& block, index_t chunk, index_t inbox_offset) {
    const std::uint16_t parameter = checked_parameter(OpKind::reduce, block);
    reduce(lane, position, block, {Space::gradients, 0, parameter}, {Space::output, 0, parameter},
           {{Space::inbox, checked_instance(OpKind::reduce, chunk), parameter}, inbox_offset});
  }

  /// The same from any own input and pieces to any target: sums over nodes, and sums that go to other nodes.
  constexpr void reduce(LaneIndex lane, index_t position, const Block& block, Place source, Place target,
                        const Address& pieces) {
    require(position, most_i32, "tide::PlanBuilder: the position of an input must be 0 to 2147483647", OpKind::reduce);
    Op op = move(OpKind::reduce, lane, Rank{position}, source.space, target.space, block, target.instance);
    op.source.instance = source.instance;
    op.extra = pieces.place;
    op.extra_offset = pieces.offset;
    plan_.ops.push_back(op);
  }

  /// Raises a word of `peer` to `value`, counted from the start of the run, of `per_run` that the word grows in a run.
  constexpr void signal(LaneIndex lane, Rank peer, index_t word, index_t value = 1, index_t per_run = 1) {
    plan_.ops.push_back(synchronise(OpKind::signal, lane, peer, word, value, per_run));
  }

  /// Waits until a word of the own rank has reached `value`; 0 or less means a raise of an earlier run.
  constexpr void wait(LaneIndex lane, index_t word, index_t value = 1, index_t per_run = 1) {
    plan_.ops.push_back(synchronise(OpKind::wait, lane, plan_.rank, word, value, per_run));
  }

  /// Declares that `kind` has come when the ops of `lane` so far are done; those of the caller's lane where `lane` has
  /// none yet, since an exit comes after the call.
  constexpr void exit(ExitKind kind, LaneIndex lane) {
    if (plan_.size(lane) == 0) lane = caller();
    const index_t position = plan_.size(lane);
    require(position, most_i32, "tide::PlanBuilder: an exit must be behind at most 2147483647 ops of its lane", "exit",
            plan_.exits.size());
    plan_.exits.push_back({kind, lane, static_cast<std::int32_t>(position)});
  }

  [[nodiscard]] constexpr const Collective& collective() const noexcept { return *collective_; }
  [[nodiscard]] constexpr Rank rank() const noexcept { return plan_.rank; }
  [[nodiscard]] constexpr Plan finish() && { return std::move(plan_); }

 private:
  static constexpr index_t most_u8 = UINT8_MAX;
  static constexpr index_t most_u16 = UINT16_MAX;
  static constexpr index_t most_i32 = INT32_MAX;
  static constexpr index_t most_u32 = UINT32_MAX;
  static constexpr index_t most_word = INT64_MAX / 8;

  // Not constexpr: a constant expression that comes here does not compile.
  [[noreturn]] void refuse(const char* rule, const char* what, std::size_t place, index_t number) const {
    raise(Errc::argument, std::string(rule) + "; " + what + " " + std::to_string(place) + " of rank " +
                              std::to_string(plan_.rank.value) + " has " + std::to_string(number) + ".");
  }
  [[noreturn]] void refuse(const char* rule, OpKind kind, index_t number) const {
    refuse(rule, (std::string(name(kind)) + ", op").c_str(), plan_.ops.size(), number);
  }

  constexpr void require(index_t number, index_t most, const char* rule, OpKind kind) const {
    if (number < 0 || number > most) refuse(rule, kind, number);
  }
  constexpr void require(index_t number, index_t most, const char* rule, const char* what, std::size_t place) const {
    if (number < 0 || number > most) refuse(rule, what, place, number);
  }

  [[nodiscard]] constexpr std::uint16_t checked_lane(OpKind kind, LaneIndex lane) const {
    require(lane.value, most_u16, "tide::PlanBuilder: the lane of an op must be 0 to 65535", kind);
    return static_cast<std::uint16_t>(lane.value);
  }
  [[nodiscard]] constexpr std::uint8_t checked_instance(OpKind kind, index_t instance) const {
    require(instance, most_u8, "tide::PlanBuilder: an instance of a space, or a chunk, must be 0 to 255", kind);
    return static_cast<std::uint8_t>(instance);
  }
  [[nodiscard]] constexpr std::uint16_t checked_parameter(OpKind kind, const Block& block) const {
    require(block.parameter.value, most_u16, "tide::PlanBuilder: the parameter of a block must be 0 to 65535", kind);
    return static_cast<std::uint16_t>(block.parameter.value);
  }
  constexpr void check_word(OpKind kind, index_t word, index_t per_run) const {
    require(word, most_word, "tide::PlanBuilder: a word must be 0 to 1152921504606846975", kind);
    require(per_run, most_u32, "tide::PlanBuilder: the raises of a word in a run must be 0 to 4294967295", kind);
  }

  [[nodiscard]] constexpr Op move(OpKind kind, LaneIndex lane, Rank peer, Space source, Space target,
                                  const Block& block, index_t instance) const {
    const std::uint16_t parameter = checked_parameter(kind, block);
    require(block.rows, max_rows, "tide::PlanBuilder: the rows of a block must be 0 to 2147483647", kind);
    if (block.rows > 1) {
      constexpr const char* rule = "tide::PlanBuilder: the rows of a block must be 0 to 2147483647 bytes apart";
      require(block.source_pitch, max_pitch, rule, kind);
      require(block.target_pitch, max_pitch, rule, kind);
    }
    Op op;
    op.kind = kind;
    op.kernel = block.kind;
    op.lane = checked_lane(kind, lane);
    op.peer = peer.value;
    op.source = {source, 0, parameter};
    op.target = {target, checked_instance(kind, instance), parameter};
    op.rows = static_cast<std::uint32_t>(block.rows);
    op.source_offset = block.source;
    op.target_offset = block.target;
    op.width = block.source_width;
    op.source_pitch = static_cast<std::uint32_t>(block.rows > 1 ? block.source_pitch : 0);
    op.target_pitch = static_cast<std::uint32_t>(block.rows > 1 ? block.target_pitch : 0);
    return op;
  }

  [[nodiscard]] constexpr Op synchronise(OpKind kind, LaneIndex lane, Rank peer, index_t word, index_t value,
                                         index_t per_run) const {
    check_word(kind, word, per_run);
    Op op;
    op.kind = kind;
    op.lane = checked_lane(kind, lane);
    op.peer = peer.value;
    op.source = {Space::signals, 0, 0};
    op.target = {Space::signals, 0, 0};
    op.target_offset = 8 * word;
    op.width = value;
    op.rows = static_cast<std::uint32_t>(per_run);
    return op;
  }

  const Collective* collective_;
  Plan plan_;
};

}  // namespace tide
