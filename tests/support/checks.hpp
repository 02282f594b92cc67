// SPDX-License-Identifier: Apache-2.0
//
// Checks: comparisons of a rank's memory with the oracle that are enqueued like any other work and judged at the end,
// so that a test does not wait where a user would not. Wrong bytes come out as words: rank threads assert nothing.

#pragma once

#include "support/collective_oracle.hpp"

#include <deque>
#include <string>
#include <utility>

namespace tide_test {

template <class Ranks>
class Checks {
 public:
  using Stream = typename Ranks::Stream;

  /// Reads memory in stream order.
  void expect(Stream& stream, const std::byte* at, Bytes expected, std::string what) {
    Check& check = all_.emplace_back();  // a deque: it stays where it is
    check.found.resize(expected.size());
    check.expected = std::move(expected);
    check.what = std::move(what);
    Ranks::read(stream, at, check.found);
  }

  /// What was wrong; empty when nothing was.  @pre the streams have been synchronized
  [[nodiscard]] std::string verdict() const {
    std::string text;
    for (const Check& check : all_) {
      const std::string wrong = difference(check.found, check.expected);
      if (!wrong.empty()) text += check.what + ": " + wrong + "\n";
    }
    return text;
  }

  /// What was read last.
  [[nodiscard]] const Bytes& last() const { return all_.back().found; }

 private:
  struct Check {
    Bytes expected;
    Bytes found;
    std::string what;
  };

  std::deque<Check> all_;
};

}  // namespace tide_test
