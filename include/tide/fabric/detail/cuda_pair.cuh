// SPDX-License-Identifier: Apache-2.0
//
// The two fabrics of one rank, where a CudaReplicas gave it two: what each knows of the other.
//
// Streams of one wait for events of the other, so an error of either has to end both, and a run of one may be late for
// the other's sake. Watchdogs of both look here, and either fabric may begin and end first: it comes and leaves under
// the lock.

#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>

namespace tide {

class CudaFabric;

namespace detail {

class CudaPair {
 public:
  CudaPair(CudaFabric& one, CudaFabric& other) noexcept : fabrics_{&one, &other} {}

  [[nodiscard]] CudaFabric& other(const CudaFabric& own) const noexcept { return *fabrics_[1 - side(own)]; }

  // From now on this one is told of what happens; and no longer.
  void come(const CudaFabric& own) { set_there(own, true); }
  void leave(const CudaFabric& own) { set_there(own, false); }
  // Calls f(the other one) if that is there.
  template <class F>
  void tell_other(const CudaFabric& own, const F& f) {
    const std::lock_guard lock(mutex_);
    if (is_there_[1 - side(own)]) f(other(own));
  }

  // What a run waits for too long; empty where none does.
  void complain(const CudaFabric& own, std::string text) {
    const std::lock_guard lock(mutex_);
    complaints_[side(own)] = std::move(text);
  }
  [[nodiscard]] std::string complaint_of_other(const CudaFabric& own) {
    const std::lock_guard lock(mutex_);
    return complaints_[1 - side(own)];
  }

 private:
  [[nodiscard]] std::size_t side(const CudaFabric& own) const noexcept { return fabrics_[0] == &own ? 0 : 1; }
  void set_there(const CudaFabric& own, bool is_there) {
    const std::lock_guard lock(mutex_);
    is_there_[side(own)] = is_there;
  }

  const std::array<CudaFabric*, 2> fabrics_;
  std::mutex mutex_;  // of what follows
  std::array<bool, 2> is_there_{};
  std::array<std::string, 2> complaints_;
};

}  // namespace detail

}  // namespace tide
