// SPDX-License-Identifier: Apache-2.0
//
// How much memory a program may still take.

#pragma once

#include <tide/core/error.hpp>
#include <tide/core/math.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <new>
#include <string>

namespace tide_example {

/// Memory that programs may still take, in bytes; 0 where the system does not say.
[[nodiscard]] inline tide::index_t available_memory() {
  std::ifstream lines("/proc/meminfo");
  std::string name;
  tide::index_t kibibytes = 0;
  for (std::string unit; lines >> name >> kibibytes; std::getline(lines, unit)) {
    if (name == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

/// Memory that this program may still take, in bytes: no more than its address space may grow (`ulimit -v`).
[[nodiscard]] inline tide::index_t memory_left() {
  const tide::index_t page = sysconf(_SC_PAGESIZE);
  tide::index_t left = available_memory();
  if (left == 0) left = sysconf(_SC_PHYS_PAGES) * page;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return left;
  tide::index_t pages = 0;  // of the address space so far
  std::ifstream("/proc/self/statm") >> pages;
  const auto most = static_cast<tide::index_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
  return std::clamp<tide::index_t>(most - pages * page, 0, left);
}

/// Calls `work()`; where memory runs out, the error says for what.  @throws tide::Error (Errc::capacity)
template <class Work>
auto naming_memory(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    tide::raise(tide::Errc::capacity, "not enough memory " + what);
  }
}

}  // namespace tide_example
