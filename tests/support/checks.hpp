// SPDX-License-Identifier: Apache-2.0
//
// Checks: comparisons of a rank's memory with the oracle that are enqueued like any other work and judged at the end,
// so that a test does not wait where a user would not. Wrong bytes come out as words: rank threads assert nothing.

#pragma once

#include "support/collective_oracle.hpp"

#include <algorithm>
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
    for (const std::byte byte : expected) check.found.push_back(~byte);
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

  /// The same of what has been read: after an error, what was still to be read is not. To be asked when all has
  /// settled.
  [[nodiscard]] std::string verdict_so_far() const {
    std::string text;
    for (const Check& check : all_) {
      const std::string wrong = check.is_read() ? difference(check.found, check.expected) : std::string();
      if (!wrong.empty()) text += check.what + ": " + wrong + "\n";
    }
    return text;
  }
  /// How many buffers have not been read.
  [[nodiscard]] index_t unread() const {
    return std::count_if(all_.begin(), all_.end(), [](const Check& check) { return !check.is_read(); });
  }

  /// What was read last.
  [[nodiscard]] const Bytes& last() const { return all_.back().found; }

 private:
  struct Check {
    Bytes expected;
    Bytes found;  // until it has been read, nothing of what is expected
    std::string what;

    [[nodiscard]] bool is_read() const {
      const auto unread = [](std::byte expects, std::byte finds) { return finds == ~expects; };
      return expected.empty() || !std::equal(expected.begin(), expected.end(), found.begin(), unread);
    }
  };

  std::deque<Check> all_;
};

}  // namespace tide_test
