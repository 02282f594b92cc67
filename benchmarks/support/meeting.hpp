// SPDX-License-Identifier: Apache-2.0
//
// Meeting: where the threads of all ranks wait for each other, and hear of it when one has failed.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tide_benchmark {

/// What a rank gets that waits for one that failed; what happened there is `Meeting::cause`.
class Abandoned : public std::runtime_error {
 public:
  Abandoned() : std::runtime_error("another rank has failed") {}
};

class Meeting {
 public:
  explicit Meeting(int ranks)
      : ranks_(ranks), values_(static_cast<std::size_t>(ranks)), pointers_(static_cast<std::size_t>(ranks)) {}

  /// Waits for all ranks; a busy wait, so that they leave within a microsecond of each other.
  /// @throws Abandoned when one has failed
  void wait() {
    const int generation = generation_.load();
    if (present_.fetch_add(1) + 1 == ranks_) {
      present_.store(0);
      generation_.fetch_add(1);
    }
    while (generation_.load() == generation) {
      if (failed()) throw Abandoned();
      std::this_thread::yield();
    }
    if (failed()) throw Abandoned();
  }

  /// The largest of what the ranks bring, for all of them.
  [[nodiscard]] double largest(int rank, double value) {
    values_[static_cast<std::size_t>(rank)] = value;
    wait();
    const double most = *std::max_element(values_.begin(), values_.end());
    wait();
    return most;
  }

  /// Gives each rank what the others brought.
  [[nodiscard]] std::vector<void*> exchange(int rank, void* pointer) {
    pointers_[static_cast<std::size_t>(rank)] = pointer;
    wait();
    std::vector<void*> all = pointers_;
    wait();
    return all;
  }

  /// Says that this rank cannot go on. The first cause stays.
  void fail(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    if (failed_.load()) return;
    cause_ = cause;
    since_ = std::chrono::steady_clock::now();
    failed_.store(true);
  }

  [[nodiscard]] bool failed() const noexcept { return failed_.load(); }
  [[nodiscard]] std::string cause() {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  /// Seconds since the first failure.
  [[nodiscard]] double failed_for() {
    const std::lock_guard lock(mutex_);
    return failed_.load() ? std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count() : 0;
  }

 private:
  int ranks_;
  std::atomic<int> present_{0};
  std::atomic<int> generation_{0};
  std::vector<double> values_;
  std::vector<void*> pointers_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::string cause_;
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace tide_benchmark
