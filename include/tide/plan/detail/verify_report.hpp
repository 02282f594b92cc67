// SPDX-License-Identifier: Apache-2.0
//
// Collects violations and writes their sentences. Every part of them comes from a file at worst: nothing is used as an
// index before it was compared.

#pragma once

#include <tide/core/text.hpp>            // printable
#include <tide/plan/collective.hpp>      // Collective
#include <tide/plan/detail/op_rows.hpp>  // target_rows
#include <tide/plan/plan.hpp>            // Plan
#include <tide/plan/violation.hpp>       // Violation

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// Names of values that may be no enumerator.
[[nodiscard]] inline std::string checked_name(OpKind kind) {
  const int number = static_cast<int>(kind);
  return number < op_kind_count ? std::string(name(kind)) : "kind " + std::to_string(number);
}
[[nodiscard]] inline std::string checked_name(Space space) {
  const int number = static_cast<int>(space);
  return number < space_count ? std::string(name(space)) : "space " + std::to_string(number);
}

class VerifyReport {
 public:
  VerifyReport(const Collective& collective, std::span<const Plan> plans) : collective_(&collective), plans_(plans) {}

  [[nodiscard]] bool full(Law law) const noexcept { return count_[static_cast<std::size_t>(law)] >= most_violations; }
  [[nodiscard]] bool empty() const noexcept { return violations_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return violations_.size(); }
  [[nodiscard]] std::vector<Violation> take() && { return std::move(violations_); }

  void add(Law law, std::string text, const Side& first = {}, const Side& second = {}) {
    if (full(law)) return;
    ++count_[static_cast<std::size_t>(law)];
    violations_.push_back({law, std::move(text), first, second});
  }

  void add_too_many_rows(index_t most) {
    add(Law::bounds, "the plans move more than " + std::to_string(most) + " rows in a run; verify follows no more");
  }

  // An op as a side, without bytes.
  [[nodiscard]] Side bare(std::size_t plan, std::size_t seq, index_t run = 0) const {
    Side side;
    side.rank = Rank{static_cast<index_t>(plan)};
    side.op = plans_[plan].ops[seq];
    side.lane = LaneIndex{side.op.lane};
    side.seq = static_cast<index_t>(seq);
    side.run = run;
    return side;
  }

  // An op as a side, with the bytes that it writes, on the first rank that it writes to; a signal writes its word, and
  // a wait reads it.  @pre the op has been found to be one that can be (detail/check_ops.hpp)
  [[nodiscard]] Side side(std::size_t plan, std::size_t seq, index_t run = 0) const {
    Side side = bare(plan, seq, run);
    const Op& op = side.op;
    const MeshShape mesh = collective_->layout.mesh;
    if (!op.moves()) {
      const Rank owner = op.kind == OpKind::signal ? Rank{op.peer} : side.rank;
      side.bytes = {owner, {Space::signals, 0, 0}, op.target_offset, op.target_offset + 8};
      return side;
    }
    const bool own = op.kind == OpKind::cast || op.kind == OpKind::reduce;
    const Rank owner = own                            ? side.rank
                       : op.kind == OpKind::multicast ? mesh.rank(mesh.node(side.rank), 0)
                                                      : Rank{op.peer};
    const OpRows rows = target_rows(op, *collective_);
    side.bytes = {owner, op.target, rows.offset, rows.end()};
    return side;
  }

  // The caller of a rank as a side.
  [[nodiscard]] static Side caller(Rank rank, index_t run) {
    Side side;
    side.rank = rank;
    side.run = run;
    return side;
  }

  // "push 1"
  [[nodiscard]] std::string lane(std::size_t plan, index_t index) const {
    if (plan < plans_.size() && index >= 0 && index < static_cast<index_t>(plans_[plan].lanes.size())) {
      const Lane& found = plans_[plan].lanes[static_cast<std::size_t>(index)];
      if (static_cast<int>(found.kind) <= static_cast<int>(LaneKind::net)) return found.name();
    }
    return "lane " + std::to_string(index);
  }

  // "rank 1, push 1, op 7 (copy)"
  [[nodiscard]] std::string who(const Side& side) const {
    if (!side.is_op()) return "the caller of rank " + std::to_string(side.rank.value);
    return "rank " + std::to_string(side.rank.value) + ", " +
           lane(static_cast<std::size_t>(side.rank.value), side.lane.value) + ", op " + std::to_string(side.seq) +
           " (" + checked_name(side.op.kind) + ")";
  }
  [[nodiscard]] std::string who(std::size_t plan, std::size_t seq) const { return who(bare(plan, seq)); }

  // The same with what it writes, if it is an op that moves: "rank 1, push 1, op 7 (copy) to slot bytes [0, 512) of 'w'
  // of rank 2"
  [[nodiscard]] std::string doing(const Side& side) const {
    return side.is_op() && side.op.moves() ? who(side) + " to " + what(side.bytes) : who(side);
  }

  // "slot bytes [0, 512) of 'w' of rank 2"
  [[nodiscard]] std::string what(const ByteRange& bytes) const {
    std::string text = checked_name(bytes.place.space);
    if (bytes.place.space == Space::inbox) {
      text += " chunk " + std::to_string(bytes.place.instance);
    } else if (collective_->space_instances(bytes.place.space) > 1) {
      text += " " + std::to_string(bytes.place.instance);
    }
    text += " bytes [" + std::to_string(bytes.begin) + ", " + std::to_string(bytes.end) + ")";
    if (bytes.place.space == Space::signals) return text + " of rank " + std::to_string(bytes.rank.value);
    const ParameterIndex parameter{bytes.place.parameter};
    if (parameter.value < collective_->layout.group.size()) {
      text += " of '" + printable(collective_->layout.group[parameter].name.str()) + "'";
    }
    return text + " of rank " + std::to_string(bytes.rank.value);
  }

  // "arrived[1] of rank 0"
  [[nodiscard]] std::string word(index_t rank, index_t word) const {
    return collective_->words().describe(word) + " of rank " + std::to_string(rank);
  }

 private:
  const Collective* collective_;
  std::span<const Plan> plans_;
  std::vector<Violation> violations_;
  std::array<index_t, law_count + 1> count_{};
};

}  // namespace tide::detail
