// SPDX-License-Identifier: Apache-2.0
//
// Tally: what a plan costs, counted op by op.
//
// Laws, for W ranks on one node, a rank that owns S bytes of the gathered elements, N elements, and G bytes of
// gradients of all ranks' G_all:                     (tests/plan/tally.test.cpp)
//   gather, unicast    bytes written   W * S;  own block in place: (W - 1) * S
//   gather, multicast  bytes written   W * S;  own block by copy or cast: (W + 1) * S
//   reduce             bytes written   G_all - G + 4 * N
//
// Driver calls are those of a CUDA fabric: one for each copy, multicast and put, for each signal and each exit (an
// 8-byte copy to a peer; an event on the own rank), for each wait for an own event, each batch of waits for words of
// peers that follow each other on a lane, and each launch: casts, or reduces, of one kernel that do.

#pragma once

#include <tide/plan/detail/calls.hpp>  // Calls
#include <tide/plan/plan.hpp>          // Plan
#include <tide/plan/traffic.hpp>       // traffic

#include <algorithm>
#include <span>

namespace tide {

/// What one rank's plan costs.
struct Tally {
  index_t copies = 0;         ///< copies, multicasts and puts
  index_t bytes_read = 0;     ///< from memory of the own rank
  index_t bytes_written = 0;  ///< on all ranks, signal words left out
  index_t signals = 0;
  index_t waits = 0;
  index_t casts = 0;
  index_t reduces = 0;
  index_t launches = 0;      ///< of kernels
  index_t driver_calls = 0;  ///< at most: copies, memory operations, launches and events of a CUDA fabric

  /// The sum of two plans' costs.
  constexpr Tally& operator+=(const Tally& other) noexcept;
  [[nodiscard]] friend constexpr bool operator==(const Tally&, const Tally&) = default;
};

/// What a plan costs.
/// @pre the kernels that its ops name are in the collective's table
[[nodiscard]] constexpr Tally tally(const Collective& collective, const Plan& plan) {
  Tally sum;
  detail::Calls calls(collective, plan);
  for (const Op& op : plan.ops) {
    const Traffic moved = traffic(collective, op);
    const bool begins = calls.begins(op);
    sum.bytes_read += moved.read_bytes;
    sum.bytes_written += moved.written_bytes * moved.targets;
    sum.driver_calls += begins ? 1 : 0;
    switch (op.kind) {
      case OpKind::copy:
      case OpKind::multicast:
      case OpKind::put:
        ++sum.copies;
        break;
      case OpKind::signal:
        ++sum.signals;
        break;
      case OpKind::wait:
        ++sum.waits;
        break;
      case OpKind::cast:
        ++sum.casts;
        break;
      case OpKind::reduce:
        ++sum.reduces;
        break;
    }
    sum.launches += begins && (op.kind == OpKind::cast || op.kind == OpKind::reduce) ? 1 : 0;
  }
  sum.driver_calls += static_cast<index_t>(plan.exits.size());
  return sum;
}

/// What the plans of all ranks cost together.
[[nodiscard]] constexpr Tally tally(const Collective& collective, std::span<const Plan> plans) {
  Tally sum;
  for (const Plan& plan : plans) sum += tally(collective, plan);
  return sum;
}

/// Driver calls of the rank that makes the most.
[[nodiscard]] constexpr index_t driver_calls(const Collective& collective, std::span<const Plan> plans) {
  index_t most = 0;
  for (const Plan& plan : plans) most = std::max(most, tally(collective, plan).driver_calls);
  return most;
}

constexpr Tally& Tally::operator+=(const Tally& other) noexcept {
  copies += other.copies;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  signals += other.signals;
  waits += other.waits;
  casts += other.casts;
  reduces += other.reduces;
  launches += other.launches;
  driver_calls += other.driver_calls;
  return *this;
}

}  // namespace tide
