// SPDX-License-Identifier: Apache-2.0
//
// Plan: what one rank does in a collective: ops in issue order, each on a lane.
//
//   lane        0 caller      1 push      2 push      ...
//               signal ready  wait start  wait start       ops of one lane run in order,
//               copy own      wait ready  wait ready       lanes run at the same time
//               ...           copy        copy             and meet at signals and waits
//
// Laws: those of `verify` (plan/verify.hpp)          (tests/plan/plan.test.cpp)

#pragma once

#include <tide/plan/collective.hpp>  // Collective
#include <tide/plan/op.hpp>          // Op

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tide {

enum class LaneKind : std::uint8_t {
  caller,  ///< the stream that the caller enqueues on
  push,    ///< copies to one local peer (or to all, by multicast)
  sum,     ///< sums of a reduce-scatter; lane 1 those over nodes
  net,     ///< puts to other nodes; of a reduce-scatter one for each round
};

/// A queue of a rank. Push lane k of rank r serves local peer r + k.
struct Lane {
  LaneKind kind = LaneKind::caller;
  std::int32_t index = 0;

  /// "caller", "push 2", "sum", "net 1"
  [[nodiscard]] std::string name() const {
    constexpr std::string_view names[] = {"caller", "push", "sum", "net"};
    const std::string text{names[static_cast<int>(kind)]};
    return kind == LaneKind::push || index > 0 ? text + " " + std::to_string(index) : text;
  }
  [[nodiscard]] friend constexpr bool operator==(Lane, Lane) = default;
};

enum class ExitKind : std::uint8_t {
  complete,        ///< a gather has delivered, and its inputs may be overwritten
  gradients_free,  ///< the gradients of a reduce may be overwritten
  shards_ready,    ///< the output of a reduce may be read
};

[[nodiscard]] constexpr std::string_view name(ExitKind kind) noexcept {
  constexpr std::string_view names[] = {"complete", "gradients_free", "shards_ready"};
  return names[static_cast<int>(kind)];
}

/// A point on a lane that the caller can wait for: after the first `position` ops of that lane. It is behind the call,
/// and so behind all that the caller's stream did before.
struct Exit {
  ExitKind kind = ExitKind::complete;
  LaneIndex lane{};
  std::int32_t position = 0;

  [[nodiscard]] friend constexpr bool operator==(const Exit&, const Exit&) = default;
};

/// The plan of one rank. Lane 0 is the caller's.
struct Plan {
  Rank rank{};
  std::vector<Lane> lanes{};
  std::vector<Op> ops{};  ///< in issue order: the order of one queue that all lanes could be merged into
  std::vector<Exit> exits{};

  /// Number of ops on a lane.
  [[nodiscard]] constexpr index_t size(LaneIndex lane) const noexcept {
    index_t count = 0;
    for (const Op& op : ops) count += op.lane == lane.value ? 1 : 0;
    return count;
  }
  [[nodiscard]] friend constexpr bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace tide
