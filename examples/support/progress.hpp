// SPDX-License-Identifier: Apache-2.0
//
// Progress: one line on a terminal that says what is being done; nothing where standard error is no terminal.

#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace tide_example {

class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) == 1) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  /// Replaces the line.
  void say(const std::string& what) const {
    if (shown_) std::fprintf(stderr, "\r\033[K%s", what.c_str());
  }

  void clear() const { say(""); }

 private:
  bool shown_;
};

}  // namespace tide_example
