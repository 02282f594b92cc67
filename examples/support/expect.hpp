// SPDX-License-Identifier: Apache-2.0
//
// expect: how an example says what must hold; main returns `verdict()`.

#pragma once

#include <atomic>
#include <cstdio>

namespace tide_example {

inline std::atomic<int> broken_expectations{0};

/// Says so on standard error where `holds` is false. Ranks call it at the same time.
inline void expect(bool holds, const char* what) {
  if (holds) return;
  ++broken_expectations;
  std::fprintf(stderr, "wrong: %s\n", what);
}

/// 0 when everything that was expected held, else 1.
[[nodiscard]] inline int verdict() {
  if (broken_expectations == 0) std::puts("right");
  return broken_expectations == 0 ? 0 : 1;
}

}  // namespace tide_example
