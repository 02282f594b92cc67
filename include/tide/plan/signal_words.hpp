// SPDX-License-Identifier: Apache-2.0
//
// SignalWords: which 64-bit word means what. Words belong to one plan; each has one source, and only grows.
//
//   | ready 0..ranks-1 | arrived 0..ranks-1 | credit 0..ranks-1 | event 0..ranks+3 | landed 0..ranks-1 |
//
//   ready[p]    rank p: my slot is free, you may write           at each rank that writes to p, or for p
//   arrived[p]  rank p: my block (or chunk) is in your memory    at the rank that p writes to
//   credit[p]   rank p: I have read a chunk of your pieces       at each rank that pushes to p
//   event[l]    lane l of this rank has come to a point          at the own rank; a CUDA event on GPUs
//   landed[p]   rank p: a chunk for you is in my memory          at a local rank that reads it there
//
// Test: tests/plan/signal_words.test.cpp

#pragma once

#include <tide/core/index.hpp>  // index_t

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tide {

enum class WordKind : std::uint8_t { ready, arrived, credit, event, landed };

inline constexpr int word_kind_count = 5;

[[nodiscard]] constexpr std::string_view name(WordKind kind) noexcept {
  constexpr std::string_view names[] = {"ready", "arrived", "credit", "event", "landed"};
  return names[static_cast<int>(kind)];
}

/// The words of a collective over `ranks` ranks.
struct SignalWords {
  index_t ranks = 1;

  [[nodiscard]] constexpr index_t stride() const noexcept { return ranks + 4; }
  [[nodiscard]] constexpr index_t count() const noexcept { return word_kind_count * stride(); }
  [[nodiscard]] constexpr index_t bytes() const noexcept { return 8 * count(); }
  [[nodiscard]] constexpr index_t word(WordKind kind, index_t index) const noexcept {
    return static_cast<index_t>(kind) * stride() + index;
  }
  [[nodiscard]] constexpr WordKind kind(index_t word) const noexcept { return static_cast<WordKind>(word / stride()); }
  [[nodiscard]] constexpr index_t index(index_t word) const noexcept { return word % stride(); }

  /// "arrived[3]"
  [[nodiscard]] std::string describe(index_t word) const {
    return std::string(name(kind(word))) + "[" + std::to_string(index(word)) + "]";
  }
};

}  // namespace tide
