// SPDX-License-Identifier: Apache-2.0
//
// Which ops begin a driver call of a CUDA fabric, and which join the call of the op before them on their lane.

#pragma once

#include <tide/plan/plan.hpp>  // Plan, Op

#include <cstddef>
#include <vector>

namespace tide::detail {

// Walks the ops of one plan in issue order.
class Calls {
 public:
  constexpr Calls(const Collective& collective, const Plan& plan)
      : words_(collective.words()), mesh_(collective.layout.mesh), rank_(plan.rank), last_(plan.lanes.size()) {}

  // Whether the next op costs a call: waits for words of local peers join one batch, so do waits for other nodes, and
  // casts and reduces of one kernel join one launch. Copies inside a GPU may join one, too, but count as the driver's,
  // which they are where memory is not aligned.
  constexpr bool begins(const Op& op) {
    const auto lane = static_cast<std::size_t>(op.lane);
    if (lane >= last_.size()) last_.resize(lane + 1);
    const Joinable now = joinable(op);
    const bool joins = now.any && now == last_[lane];
    last_[lane] = now;
    return !joins;
  }

 private:
  struct Joinable {
    bool any = false;
    OpKind kind = OpKind::copy;
    std::uint8_t kernel = 0;

    [[nodiscard]] friend constexpr bool operator==(const Joinable&, const Joinable&) = default;
  };

  [[nodiscard]] constexpr Joinable joinable(const Op& op) const noexcept {
    switch (op.kind) {
      case OpKind::cast:
      case OpKind::reduce:
        return {true, op.kind, op.kernel};
      case OpKind::wait:
        return {words_.kind(op.word()) != WordKind::event, op.kind,
                static_cast<std::uint8_t>(from_other_node(op) ? 1 : 0)};
      case OpKind::copy:
      case OpKind::multicast:
      case OpKind::put:
      case OpKind::signal:
        break;
    }
    return {};
  }

  [[nodiscard]] constexpr bool from_other_node(const Op& op) const noexcept {
    const index_t source = words_.index(op.word());
    return mesh_.nodes > 1 && source < mesh_.ranks() && mesh_.node(Rank{source}) != mesh_.node(rank_);
  }

  SignalWords words_;
  MeshShape mesh_;
  Rank rank_;
  std::vector<Joinable> last_;
};

}  // namespace tide::detail
