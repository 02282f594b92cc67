// SPDX-License-Identifier: Apache-2.0
//
// A plan whose lanes meet at marks. A mark is a point on a lane; it becomes an event only where another lane waits for
// it, and a wait is left out where its lane has waited for a later mark of the same lane. A wait may mean the mark of
// the last run, which may stand behind it.

#pragma once

#include <tide/plan/plan_builder.hpp>  // PlanBuilder

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tide::detail {

class MarkedPlan {
 public:
  using Mark = std::int32_t;
  static constexpr Mark none = -1;

  constexpr MarkedPlan(const Collective& collective, Rank rank) : plan_(collective, rank), words_(collective.words()) {}

  [[nodiscard]] constexpr LaneIndex lane(LaneKind kind, index_t index = 0) { return plan_.lane(kind, index); }
  [[nodiscard]] constexpr const Collective& collective() const noexcept { return plan_.collective(); }
  [[nodiscard]] constexpr Rank rank() const noexcept { return plan_.rank(); }

  // Appends an op that `write(PlanBuilder&)` writes.
  template <class F>
  constexpr void op(F write) {
    write(plan_);
    items_.push_back({Item::Kind::op});
  }

  // A mark that will be placed later, or never: then nothing waits for it.
  [[nodiscard]] constexpr Mark declare() {
    marks_.push_back({});
    return static_cast<Mark>(marks_.size()) - 1;
  }
  constexpr void place(Mark mark, LaneIndex lane) {
    marks_[static_cast<std::size_t>(mark)].lane = lane.value;
    items_.push_back({Item::Kind::mark, lane, mark});
  }
  // Whether it has been placed by now.
  [[nodiscard]] constexpr bool placed(Mark mark) const noexcept {
    return mark != none && marks_[static_cast<std::size_t>(mark)].lane >= 0;
  }
  [[nodiscard]] constexpr Mark mark(LaneIndex lane) {
    const Mark made = declare();
    place(made, lane);
    return made;
  }

  constexpr void wait(LaneIndex lane, Mark mark) {
    if (mark != none) items_.push_back({Item::Kind::wait, lane, mark});
  }
  constexpr void wait_last_run(LaneIndex lane, Mark mark) {
    if (mark != none) items_.push_back({Item::Kind::wait_last_run, lane, mark});
  }

  constexpr void exit(ExitKind kind, LaneIndex lane) {
    items_.push_back({Item::Kind::exit, lane, static_cast<Mark>(kind)});
  }

  [[nodiscard]] constexpr Plan finish() && {
    for (const Item& item : items_) lanes_ = std::max(lanes_, static_cast<std::size_t>(item.lane.value) + 1);
    drop_waits();
    number_marks();
    Plan plan = std::move(plan_).finish();
    const std::vector<Op> ops = std::move(plan.ops);
    plan.ops = {};
    std::vector<std::int32_t> sizes(plan.lanes.size(), 0);
    const auto append = [&](const Op& op) {
      ++sizes[op.lane];
      plan.ops.push_back(op);
    };
    std::size_t next = 0;
    for (const Item& item : items_) {
      const auto lane = static_cast<std::size_t>(item.lane.value);
      switch (item.kind) {
        case Item::Kind::op:
          append(ops[next++]);
          break;
        case Item::Kind::mark:
        case Item::Kind::wait:
        case Item::Kind::wait_last_run:
          if (item.dropped || !marks_[static_cast<std::size_t>(item.mark)].used) break;
          append(event(plan.rank, item));
          break;
        case Item::Kind::exit: {
          const LaneIndex after = sizes[lane] > 0 ? item.lane : PlanBuilder::caller();  // as PlanBuilder::exit does
          plan.exits.push_back({static_cast<ExitKind>(item.mark), after, sizes[static_cast<std::size_t>(after.value)]});
          break;
        }
      }
    }
    return plan;
  }

 private:
  struct Item {
    enum class Kind : std::uint8_t { op, mark, wait, wait_last_run, exit };

    Kind kind = Kind::op;
    LaneIndex lane{};
    Mark mark = none;
    bool dropped = false;
  };
  struct MarkState {
    std::int32_t lane = -1;   // where it was placed
    std::int32_t order = -1;  // among the marks of that lane
    index_t value = 0;        // among those of them that are used
    bool used = false;
  };

  // Drops waits for what the lane knows already, and for marks that were not placed.
  constexpr void drop_waits() {
    std::vector<std::int32_t> placed(lanes_, 0);
    for (const Item& item : items_) {
      if (item.kind != Item::Kind::mark) continue;
      marks_[static_cast<std::size_t>(item.mark)].order = placed[static_cast<std::size_t>(item.lane.value)]++;
    }
    constexpr std::int32_t nothing = INT32_MIN;
    std::vector<std::int32_t> known(lanes_ * lanes_, nothing);
    for (Item& item : items_) {
      if (item.kind != Item::Kind::wait && item.kind != Item::Kind::wait_last_run) continue;
      MarkState& mark = marks_[static_cast<std::size_t>(item.mark)];
      item.dropped = mark.lane < 0 || mark.lane == item.lane.value;
      if (item.dropped) continue;
      const auto from = static_cast<std::size_t>(mark.lane);
      const std::int32_t order = item.kind == Item::Kind::wait ? mark.order : mark.order - placed[from];
      std::int32_t& last = known[static_cast<std::size_t>(item.lane.value) * lanes_ + from];
      item.dropped = last != nothing && order <= last;
      if (item.dropped) continue;
      last = order;
      mark.used = true;
    }
  }

  constexpr void number_marks() {
    raises_.assign(lanes_, 0);
    for (const Item& item : items_) {
      if (item.kind != Item::Kind::mark) continue;
      MarkState& mark = marks_[static_cast<std::size_t>(item.mark)];
      if (mark.used) mark.value = ++raises_[static_cast<std::size_t>(mark.lane)];
    }
  }

  // The signal of a mark, or a wait for it.
  [[nodiscard]] constexpr Op event(Rank rank, const Item& item) const {
    const MarkState& mark = marks_[static_cast<std::size_t>(item.mark)];
    const index_t word = words_.word(WordKind::event, mark.lane);
    const index_t per_run = raises_[static_cast<std::size_t>(mark.lane)];
    PlanBuilder one(collective(), rank);
    if (item.kind == Item::Kind::mark) {
      one.signal(item.lane, rank, word, mark.value, per_run);
    } else {
      one.wait(item.lane, word, item.kind == Item::Kind::wait ? mark.value : mark.value - per_run, per_run);
    }
    return std::move(one).finish().ops.front();
  }

  PlanBuilder plan_;
  SignalWords words_;
  std::vector<Item> items_;
  std::vector<MarkState> marks_;
  std::vector<index_t> raises_;  // of each lane, in a run
  std::size_t lanes_ = 0;
};

}  // namespace tide::detail
