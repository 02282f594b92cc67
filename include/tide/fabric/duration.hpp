// SPDX-License-Identifier: Apache-2.0
//
// Duration: how deadlines and delays are told. Apart, since <chrono> is slow to compile and pipelines need none of it.
//
// Test: tests/fabric/host_cluster.test.cpp

#pragma once

#include <algorithm>
#include <chrono>

namespace tide {

/// A duration of the host's clock; `std::chrono` literals convert to it.
using Duration = std::chrono::nanoseconds;

namespace detail {

/// So far that a clock can be set to it.
[[nodiscard]] inline Duration bounded(Duration duration) noexcept {
  return std::min<Duration>(duration, std::chrono::hours(24 * 365));
}

}  // namespace detail

}  // namespace tide
