// SPDX-License-Identifier: Apache-2.0
//
// verify: proves that the plans of all ranks do what their collective says, in every order that a fabric may run them
// in, for any number of runs. Nothing is moved, and nothing but the plans is read.
//
//   const tide::Verdict verdict = tide::verify(collective, plans);
//   if (!verdict.holds()) for (const tide::Violation& v : verdict.violations) std::puts(describe(v).c_str());
//
// What the caller does is part of the proof: before a run it writes the inputs, at exit `complete` it reads the slot,
// may write the inputs again, and gives the slot to another pipeline; a reduce lets it write the gradients at
// `gradients_free` and read the output at `shards_ready` of the last run; a caller that reads it between runs orders
// that read itself. Two consecutive runs stand for all: a third one meets the second as the second met the first.
//
// Laws, for every collective and every set of plans: (tests/plan/verify.test.cpp, mutations.test.cpp)
//   sound     where it holds, every schedule of the plans gives the bytes of the oracle
//   total     whatever the ops say, it ends with a verdict; a text file may have been edited
//   no idle   dropping any one op of a shipped writer's plan is a violation
//
// A later group of laws is judged where the earlier ones hold: agreement, partition, bounds, no incast; progress;
// order, reuse, and each byte written once; then what the bytes are, which means nothing where there are races.
//
// Cost: about 2 microseconds and 70 bytes per op beside the plans; rows that lie alike cost as much as one
// (benchmarks/verify.cpp, docs/laws.md).

#pragma once

#include <tide/plan/collective.hpp>    // Collective
#include <tide/plan/detail/prove.hpp>  // prove
#include <tide/plan/most_rows.hpp>     // most_rows
#include <tide/plan/plan.hpp>          // Plan
#include <tide/plan/violation.hpp>     // Violation

#include <span>
#include <vector>

namespace tide {

/// What `verify` found.
struct Verdict {
  std::vector<Violation> violations{};  ///< at most `most_violations` of each law
  index_t ops = 0;                      ///< of all plans

  [[nodiscard]] bool holds() const noexcept { return violations.empty(); }
};

/// Judges the plans of all ranks, in rank order.
[[nodiscard]] inline Verdict verify(const Collective& collective, std::span<const Plan> plans) {
  Verdict verdict;
  for (const Plan& plan : plans) verdict.ops += static_cast<index_t>(plan.ops.size());
  verdict.violations = detail::prove(collective, plans);
  return verdict;
}

}  // namespace tide
