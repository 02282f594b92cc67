// SPDX-License-Identifier: Apache-2.0
//
// Traces: when each op of a run began and ended, for chrome://tracing and ui.perfetto.dev: a process per rank, a thread
// per lane, times in microseconds.
//
// Test: tests/plan/trace.test.cpp

#pragma once

#include <tide/core/error.hpp>             // raise
#include <tide/plan/detail/json_text.hpp>  // json_text, json_microseconds
#include <tide/plan/plan.hpp>              // Plan
#include <tide/plan/print.hpp>             // describe

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace tide {

/// When one op ran.
struct OpTime {
  std::int32_t rank = 0;
  std::int32_t lane = 0;  ///< position of the op's lane in the rank's plan
  std::int32_t seq = 0;   ///< position of the op in the rank's plan
  double begin_us = 0;
  double end_us = 0;
};

namespace detail {

// The plan of each rank of a collective; null where none is given.
[[nodiscard]] inline std::vector<const Plan*> plans_by_rank(const Collective& collective, std::span<const Plan> plans) {
  std::vector<const Plan*> of_rank(static_cast<std::size_t>(collective.ranks()), nullptr);
  for (const Plan& plan : plans) {
    const auto rank = static_cast<std::size_t>(plan.rank.value);  // a negative one is beyond them all
    if (rank >= of_rank.size() || of_rank[rank] != nullptr) {
      raise(Errc::argument, "tide::write_trace: plans must be of different ranks of the collective; rank " +
                                std::to_string(plan.rank.value) + ".");
    }
    of_rank[rank] = &plan;
  }
  return of_rank;
}

// The op that a time is of.
[[nodiscard]] inline const Op& timed_op(const std::vector<const Plan*>& of_rank, const OpTime& time) {
  const auto rank = static_cast<std::size_t>(time.rank);
  const auto seq = static_cast<std::size_t>(time.seq);
  const Plan* plan = rank < of_rank.size() ? of_rank[rank] : nullptr;
  if (plan == nullptr || seq >= plan->ops.size() || plan->ops[seq].lane != time.lane) {
    raise(Errc::argument, "tide::write_trace: every time must name an op of the plans, and its lane; rank " +
                              std::to_string(time.rank) + ", lane " + std::to_string(time.lane) + ", op " +
                              std::to_string(time.seq) + ".");
  }
  return plan->ops[seq];
}

}  // namespace detail

/// Writes a trace of `times` as Chrome trace JSON. Nothing is written where it throws.
///
/// @param plans  those of the ranks that `times` names, in any order
/// @throws Error (Errc::argument) when a time names an op that no plan has, or another lane than the op's, and when two
///         plans are of one rank
inline std::ostream& write_trace(std::ostream& out, const Collective& collective, std::span<const Plan> plans,
                                 std::span<const OpTime> times) {
  const std::vector<const Plan*> of_rank = detail::plans_by_rank(collective, plans);
  for (const OpTime& time : times) static_cast<void>(detail::timed_op(of_rank, time));
  out << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  const char* separator = "\n";
  for (const Plan& plan : plans) {
    const std::string process = "\"ph\": \"M\", \"pid\": " + std::to_string(plan.rank.value);
    out << separator << "{\"name\": \"process_name\", " << process << ", \"args\": {\"name\": \"rank "
        << plan.rank.value << "\"}}";
    separator = ",\n";
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      out << separator << "{\"name\": \"thread_name\", " << process << ", \"tid\": " << l
          << ", \"args\": {\"name\": " << detail::json_text(plan.lanes[l].name()) << "}}";
    }
  }
  for (const OpTime& time : times) {
    const Op& op = detail::timed_op(of_rank, time);
    out << separator << "{\"name\": " << detail::json_text(describe(collective, op)) << ", \"cat\": \"" << name(op.kind)
        << "\", \"ph\": \"X\", \"pid\": " << time.rank << ", \"tid\": " << time.lane
        << ", \"ts\": " << detail::json_microseconds(time.begin_us)
        << ", \"dur\": " << detail::json_microseconds(time.end_us - time.begin_us)
        << ", \"args\": {\"seq\": " << time.seq << ", \"bytes\": " << (op.moves() ? op.bytes() : 0) << "}}";
    separator = ",\n";
  }
  return out << "\n]}\n";
}

}  // namespace tide
