// SPDX-License-Identifier: Apache-2.0
//
// run_program: what the mains of all programs have in common: `--help`, and what an exit code means.
//
//   0  right          1  a law or a result is violated          2  bad usage          3  a named error
//
// What went wrong, and where, is on standard error.

#pragma once

#include "args.hpp"

#include <tide/core/text.hpp>

#include <algorithm>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tide_example {

inline constexpr int right = 0;
inline constexpr int violated = 1;
inline constexpr int bad_usage = 2;
inline constexpr int named_error = 3;

/// Lines of text as they can be shown: names in them may come from anywhere.
[[nodiscard]] inline std::string shown(std::string_view text) {
  std::string out;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    out += tide::detail::printable(text.substr(0, end)) + '\n';
    text.remove_prefix(end + 1);
  }
  return out + tide::detail::printable(text);
}

/// Runs `body()`, which returns an exit code.
///
/// @param usage  what `--help` prints; its first word is the program's name
template <class Body>
int run_program(int argc, char** argv, std::string_view usage, Body body) {
  const std::string name(usage.substr(0, usage.find_first_of(" \n")));
  const auto is_help = [](const char* word) { return std::string_view(word) == "--help"; };
  try {
    int code = right;
    if (std::any_of(argv + std::min(argc, 1), argv + argc, is_help)) {
      std::cout << "usage: " << usage;
    } else {
      code = body();
    }
    if (!std::cout.flush()) throw std::runtime_error("cannot write to standard output");
    return code;
  } catch (const UsageError& error) {
    std::cerr << name << ": " << shown(error.what()) << "\nTry '" << name << " --help'.\n";
    return bad_usage;
  } catch (const std::bad_alloc&) {
    std::cerr << name << ": not enough memory\n";
  } catch (const std::exception& error) {  // tide::Error among them
    std::cerr << name << ": " << shown(error.what()) << "\n";
  } catch (...) {
    std::cerr << name << ": an unknown error\n";
  }
  return named_error;
}

}  // namespace tide_example
