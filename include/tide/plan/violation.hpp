// SPDX-License-Identifier: Apache-2.0
//
// Violation: a law that plans break: who breaks it, with which bytes, and a sentence that says so.
//
//   law 4 (order): rank 1, push 1, op 7 (copy) writes slot bytes [0, 512) of 'w' of rank 2, unordered with the caller of
//   rank 2, who reads them
//
// Test: tests/plan/broken_plans.test.cpp

#pragma once

#include <tide/plan/law.hpp>  // Law
#include <tide/plan/op.hpp>   // Op, Space

#include <string>

namespace tide {

/// Bytes in the memory of one rank.
struct ByteRange {
  Rank rank{};
  Place place{};  ///< the space, the instance, and the parameter that the first byte belongs to
  index_t begin = 0;
  index_t end = 0;

  [[nodiscard]] constexpr bool empty() const noexcept { return begin >= end; }
  [[nodiscard]] friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// One side of a violation: an op and the bytes that it touches. `seq` is -1 where it is the caller who touches them,
/// before or after a run; `rank` is -1 where there is no such side.
struct Side {
  Rank rank{-1};
  LaneIndex lane{};
  index_t seq = -1;  ///< position in the plan's ops
  index_t run = 0;   ///< of consecutive runs: 0, 1
  Op op{};
  ByteRange bytes{};

  [[nodiscard]] constexpr bool exists() const noexcept { return rank.value >= 0; }
  [[nodiscard]] constexpr bool is_op() const noexcept { return exists() && seq >= 0; }
};

/// A broken law.
struct Violation {
  Law law = Law::partition;
  std::string text{};  ///< what is wrong, as a sentence
  Side first{};
  Side second{};
};

/// How many violations of one law a verdict lists; others may hide behind them.
inline constexpr index_t most_violations = 8;

/// The law and the sentence.
[[nodiscard]] inline std::string describe(const Violation& violation) {
  return "law " + std::to_string(static_cast<int>(violation.law)) + " (" + std::string(name(violation.law)) +
         "): " + violation.text;
}

}  // namespace tide
