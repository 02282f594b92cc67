// SPDX-License-Identifier: Apache-2.0
//
// Law: what has to hold of the plans of all ranks together. `verify` proves the laws that plans can break; where two
// consecutive runs matter, it looks at two.
//
//    1  partition    for every parameter the pieces of all ranks are disjoint, complete and in bounds
//    2  delivery     a gather brings each byte of every parameter to its place exactly once, and no other
//    3  sum          a reduce adds each input exactly once, along the tree, and writes each output exactly once
//    4  order        ops that touch a common byte, one of them writing, are ordered by lanes and signals
//    5  progress     no waits in a circle, also with each rank's lanes merged; each wait is met by a signal
//    6  bounds       no access outside a space; alignment holds
//    7  reuse        memory is used again only when its last readers are done, in this run and in the next; an exit
//                    comes after the call
//    8  agreement    the plans belong together: same ranks, words with one source, exits, names of what is moved
//    9  memory       peak bytes are constants known before the run       (a rule for inboxes: reduce/inbox.hpp)
//   10  no incast    at no step is a rank the destination of two transfers
//
// Test: tests/plan/verify.test.cpp

#pragma once

#include <cstdint>
#include <string_view>

namespace tide {

/// The laws, by their numbers.
enum class Law : std::uint8_t {
  partition = 1,
  delivery,
  sum,
  order,
  progress,
  bounds,
  reuse,
  agreement,
  memory,
  no_incast,
};

inline constexpr int law_count = 10;

[[nodiscard]] constexpr std::string_view name(Law law) noexcept {
  constexpr std::string_view names[] = {"partition", "delivery", "sum",       "order",  "progress",
                                        "bounds",    "reuse",    "agreement", "memory", "no incast"};
  return names[static_cast<int>(law) - 1];
}

}  // namespace tide
