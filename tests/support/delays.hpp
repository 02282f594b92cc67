// SPDX-License-Identifier: Apache-2.0
//
// Hooks that delay ops: reproducible by seed as far as threads are.

#pragma once

#include <tide/fabric/host_options.hpp>

#include "support/values.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

namespace tide_test {

/// Yields before most ops and sleeps up to 200 microseconds before every `rare`-th.
inline tide::HostHook random_delays(std::uint64_t seed, std::uint64_t rare) {
  return [seed, rare](const tide::HostHookPoint& point) -> std::optional<std::string> {
    const auto place = static_cast<std::uint64_t>(point.seq) * 64 + static_cast<std::uint64_t>(point.rank.value);
    const std::uint64_t bits = mix(seed, point.run, place, point.label.size());
    if (bits % rare == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(bits / rare % 200));
    } else if (bits % 3 == 0) {
      std::this_thread::yield();
    }
    return std::nullopt;
  };
}

}  // namespace tide_test
