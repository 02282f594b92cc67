// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a program raised, to be compared: an error that changes control flow is the same on every rank.

#pragma once

#include <doctest/doctest.h>
#include <tide/core/error.hpp>

#include "support/values.hpp"

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tide_test {

/// Runs `program(fabric)` on `n` ranks and returns the text of the tide::Error that each raised; empty for none.
template <class Ranks, class Program>
std::vector<std::string> errors_of(const Ranks& ranks, index_t n, const Program& program) {
  std::vector<std::string> texts(static_cast<std::size_t>(n));
  ranks.run(n, [&](typename Ranks::Fabric& fabric) {
    try {
      program(fabric);
    } catch (const tide::Error& error) {
      texts[static_cast<std::size_t>(fabric.rank().value)] = error.what();
    }
  });
  // Where each rank is a process, they tell each other.
  if constexpr (requires { Ranks::everybody(std::string()); }) {
    texts = Ranks::everybody(texts[static_cast<std::size_t>(Ranks::rank())]);
  }
  return texts;
}

/// That all ranks raised the same sentence of ours, and that it holds all of `words`.
inline void check_same_error(const std::vector<std::string>& texts, const std::vector<std::string>& words) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    CAPTURE(rank);
    CHECK(texts[rank] == texts[0]);
  }
  CHECK(texts[0].rfind("tide::", 0) == 0);
  for (const std::string& word : words)
    CHECK_MESSAGE(texts[0].find(word) != std::string::npos, texts[0], " [", word, "]");
}

/// That no rank raised anything.
inline void check_no_error(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    CAPTURE(rank);
    CHECK(texts[rank] == "");
  }
}

}  // namespace tide_test
