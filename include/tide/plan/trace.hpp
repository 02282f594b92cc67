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

#include <ostream>
#include <span>

namespace tide {

/// When one op ran.
struct OpTime {
  std::int32_t rank = 0;
  std::int32_t lane = 0;  ///< position of the lane in the rank's plan
  std::int32_t seq = 0;   ///< position of the op in the rank's plan
  double begin_us = 0;
  double end_us = 0;
};

/// Writes a trace of `times` as Chrome trace JSON.
///
/// @param plans  those of the ranks that `times` names
/// @throws Error (Errc::argument) when a time names an op that no plan has
inline std::ostream& write_trace(std::ostream& out, const Collective& collective, std::span<const Plan> plans,
                                 std::span<const OpTime> times) {
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
    const Plan* plan = nullptr;
    for (const Plan& candidate : plans) plan = candidate.rank.value == time.rank ? &candidate : plan;
    if (plan == nullptr || time.seq < 0 || static_cast<std::size_t>(time.seq) >= plan->ops.size()) {
      raise(Errc::argument, "tide::write_trace: every time must name an op of the plans; rank " +
                                std::to_string(time.rank) + ", op " + std::to_string(time.seq) + ".");
    }
    const Op& op = plan->ops[static_cast<std::size_t>(time.seq)];
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
