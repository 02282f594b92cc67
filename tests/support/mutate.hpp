// SPDX-License-Identifier: Apache-2.0
//
// One-op mutations of plans: what a bug in a writer, a bad merge or an edited file would do to them.

#pragma once

#include <tide/plan/plan.hpp>

#include "support/seeds.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tide_test {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  /// Changes one op or exit of one plan; says what it did. May change nothing where chance has it so.
  std::string mutate(std::vector<tide::Plan>& plans) {
    tide::Plan& plan = plans[pick(plans.size())];
    if (plan.ops.empty() || random_.once_in(12)) return mutate_exit(plan);
    const std::size_t at = pick(plan.ops.size());
    switch (random_.between(0, 7)) {
      case 0:
        return drop(plan, at);
      case 1:
        return duplicate(plan, at);
      case 2:
        return swap(plan, at);
      case 3:
        return change_lane(plan, at);
      case 4:
        plan.ops[at].peer = static_cast<std::int32_t>(random_.between(-1, static_cast<std::int64_t>(plans.size())));
        return "peer";
      default:
        return change_field(plan, at);
    }
  }

 private:
  std::size_t pick(std::size_t count) {
    return static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(count) - 1));
  }

  /// Moves the exits of a lane that are behind its n-th op, but now and then forgets to.
  void shift_exits(tide::Plan& plan, std::int32_t lane, std::size_t before, std::int32_t by) {
    if (random_.once_in(4)) return;
    std::int32_t position = 0;
    for (std::size_t i = 0; i < before; ++i) position += plan.ops[i].lane == lane ? 1 : 0;
    for (tide::Exit& exit : plan.exits) {
      if (exit.lane.value == lane && exit.position > position) exit.position += by;
    }
  }

  std::string drop(tide::Plan& plan, std::size_t at) {
    shift_exits(plan, plan.ops[at].lane, at, -1);
    plan.ops.erase(plan.ops.begin() + static_cast<std::ptrdiff_t>(at));
    return "drop";
  }

  std::string duplicate(tide::Plan& plan, std::size_t at) {
    const tide::Op op = plan.ops[at];
    const std::size_t to = random_.once_in(2) ? at : pick(plan.ops.size() + 1);
    shift_exits(plan, op.lane, to, 1);
    plan.ops.insert(plan.ops.begin() + static_cast<std::ptrdiff_t>(to), op);
    return "duplicate";
  }

  std::string swap(tide::Plan& plan, std::size_t at) {
    std::size_t other = at + 1;
    if (random_.once_in(2)) {  // the next one on the same lane
      while (other < plan.ops.size() && plan.ops[other].lane != plan.ops[at].lane) ++other;
    }
    if (other < plan.ops.size()) std::swap(plan.ops[at], plan.ops[other]);
    return "swap";
  }

  std::string change_lane(tide::Plan& plan, std::size_t at) {
    const auto to = static_cast<std::uint16_t>(random_.between(0, static_cast<std::int64_t>(plan.lanes.size())));
    shift_exits(plan, plan.ops[at].lane, at, -1);
    plan.ops[at].lane = to;
    shift_exits(plan, to, at, 1);
    return "lane";
  }

  std::string mutate_exit(tide::Plan& plan) {
    if (plan.exits.empty()) return "nothing";
    const std::size_t at = pick(plan.exits.size());
    tide::Exit& exit = plan.exits[at];
    switch (random_.between(0, 5)) {
      case 0:
        exit.position = static_cast<std::int32_t>(random_.between(-1, exit.position + 1));
        break;
      case 1:
        --exit.position;
        break;
      case 2:
        exit.lane = tide::LaneIndex{random_.between(-1, static_cast<std::int64_t>(plan.lanes.size()))};
        if (random_.once_in(2) && exit.lane.value >= 0) exit.position = static_cast<std::int32_t>(plan.size(exit.lane));
        break;
      case 3:
        exit.kind = static_cast<tide::ExitKind>(random_.between(0, 3));
        break;
      case 4:
        plan.exits.erase(plan.exits.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default: {
        const tide::Exit copy = exit;
        plan.exits.push_back(copy);
      }
    }
    return "exit";
  }

  /// Another value for a number: a neighbour, one of the same plan, an extreme.
  template <class T>
  void change(T& number, std::int64_t other, tide::index_t step) {
    constexpr std::int64_t near[] = {-8, -4, -2, -1, 1, 2, 4, 8};
    switch (random_.between(0, 7)) {
      case 0:
        number = static_cast<T>(random_.one_of<std::int64_t>({0, 1, -1, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 40}));
        break;
      case 1:
        number = static_cast<T>(random_.between(0, 64));
        break;
      case 2:
      case 3:
        number = static_cast<T>(other);
        break;
      case 4:
        number = static_cast<T>(static_cast<std::uint64_t>(number) + static_cast<std::uint64_t>(step));
        break;
      case 5:
        number = static_cast<T>(static_cast<std::uint64_t>(number) - static_cast<std::uint64_t>(step));
        break;
      default:
        number = static_cast<T>(static_cast<std::uint64_t>(number) + static_cast<std::uint64_t>(near[pick(8)]));
    }
  }

  void change(tide::Place& place, tide::Place other) {
    switch (random_.between(0, 2)) {
      case 0:
        place.space = static_cast<tide::Space>(random_.between(0, 9));
        break;
      case 1:
        change(place.instance, other.instance, 1);
        break;
      default:
        change(place.parameter, other.parameter, 1);
    }
  }

  std::string change_field(tide::Plan& plan, std::size_t at) {
    tide::Op& op = plan.ops[at];
    const tide::Op other = plan.ops[pick(plan.ops.size())];
    const bool moves = op.moves();
    // Fields that an op uses are changed more often than those that it does not.
    constexpr int used_by_words[] = {0, 9, 9, 11, 11, 11, 7};
    const int field = moves || random_.once_in(6) ? static_cast<int>(random_.between(0, 13)) : used_by_words[pick(7)];
    switch (field) {
      case 0:
        op.kind = static_cast<tide::OpKind>(random_.between(0, 7));
        return "kind";
      case 1:
        change(op.kernel, other.kernel, 1);
        return "kernel";
      case 2:
        change(op.source, other.source);
        return "source";
      case 3:
        change(op.target, other.target);
        return "target";
      case 4:
        change(op.extra, other.extra);
        return "extra";
      case 5:
        change(op.rows, other.rows, 1);
        return "rows";
      case 6:
        change(op.source_offset, other.source_offset, op.width);
        return "source offset";
      case 7:
        change(op.rows, 2, 1);
        return "rows";
      case 8:
        change(op.target_offset, other.target_offset, op.width);
        return "target offset";
      case 9:
        change(op.target_offset, other.target_offset, 8);
        return "target offset";
      case 10:
        change(op.extra_offset, other.extra_offset, op.width);
        return "extra offset";
      case 11:
        change(op.width, other.width, 1);
        return "width";
      case 12:
        change(op.source_pitch, other.source_pitch, op.width);
        return "source pitch";
      default:
        change(op.target_pitch, other.target_pitch, op.width);
        return "target pitch";
    }
  }

  Random random_;
};

}  // namespace tide_test
