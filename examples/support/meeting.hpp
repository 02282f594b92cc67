// SPDX-License-Identifier: Apache-2.0
//
// Meeting: where the ranks of a cluster wait for each other, time and again. Unlike a std::barrier it does not wait for
// a rank that has thrown, or whose thread could not start.
//
// Test: tests/programs/meeting.test.cpp

#pragma once

#include <tide/fabric/host_fabric.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tide_example {

class Meeting {
 public:
  explicit Meeting(tide::index_t ranks) : ranks_(ranks) {}

  /// Waits until all ranks have called it; called by each with its own fabric.
  /// @throws tide::Error the error of the cluster when that has failed
  void wait(tide::HostFabric& fabric) {
    constexpr std::chrono::milliseconds between_looks(10);
    std::unique_lock lock(mutex_);
    if (++present_ == ranks_) {
      present_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    const auto over = [this, round = round_] { return round_ != round; };
    while (!changed_.wait_for(lock, between_looks, over)) fabric.raise_if_failed();
  }

 private:
  const tide::index_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  tide::index_t present_ = 0;
  std::uint64_t round_ = 0;
};

}  // namespace tide_example
