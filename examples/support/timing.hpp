// SPDX-License-Identifier: Apache-2.0
//
// Time of work that all ranks do together, and how fast they copy.

#pragma once

#include "median.hpp"
#include "meeting.hpp"

#include <tide/fabric/host_cluster.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace tide_example {

using Clock = std::chrono::steady_clock;

/// What each rank does. Not a template parameter, so that `HostCluster::run` is compiled once.
using RankWork = std::function<void(tide::HostFabric& fabric)>;

inline void on_all_ranks(tide::HostCluster& cluster, const RankWork& work) { cluster.run(work); }

/// Milliseconds from the first rank's start of `work(fabric)` to the last one's end.
/// @throws what a rank throws, or why its thread could not start
[[nodiscard]] inline double timed(tide::HostCluster& cluster, const RankWork& work) {
  const auto ranks = static_cast<std::size_t>(cluster.mesh().ranks());
  Meeting start(cluster.mesh().ranks());
  std::vector<Clock::time_point> begin(ranks);
  std::vector<Clock::time_point> end(ranks);
  on_all_ranks(cluster, [&](tide::HostFabric& fabric) {
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    start.wait(fabric);
    begin[rank] = Clock::now();
    work(fabric);
    end[rank] = Clock::now();
  });
  const auto passed = *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
  return std::chrono::duration<double, std::milli>(passed).count();
}

/// How many bytes all ranks copy in a second, each from one part of its arena to another: more than caches hold.
class CopyRate {
 public:
  /// Reserves memory; before `init` of the fabric, on every rank.
  static tide::index_t reserve(tide::HostFabric& fabric) {
    return fabric.reserve(2 * bytes_of_rank(fabric.mesh().ranks()), 4096);
  }

  /// Copies by one thread a rank, and by as many as a rank has lanes to peers: no more than the machine runs at once.
  ///
  /// @param offset  what `reserve` returned
  /// @throws tide::Error (Errc::capacity) when a thread cannot start
  void measure(tide::HostCluster& cluster, tide::index_t offset) {
    const tide::index_t ranks = cluster.mesh().ranks();
    const tide::index_t hardware = std::thread::hardware_concurrency();  // 0 where nobody knows
    const tide::index_t many = std::clamp(hardware / ranks, tide::index_t{1}, ranks);
    for (const tide::index_t threads : {tide::index_t{1}, many}) {
      const tide::index_t part = bytes_of_rank(ranks) / threads;
      const double milliseconds = timed(cluster, [&](tide::HostFabric& fabric) {
        std::byte* from = fabric.arena() + offset;
        std::byte* to = from + bytes_of_rank(ranks);
        const auto copy = [&](tide::index_t n) {
          std::memcpy(to + n * part, from + n * part, static_cast<std::size_t>(part));
        };
        std::vector<std::jthread> others;  // which join, also when one of them cannot start
        try {
          for (tide::index_t n = 1; n < threads; ++n) others.emplace_back(copy, n);
        } catch (const std::system_error& error) {
          tide::raise(tide::Errc::capacity, "a thread that copies could not be started: " + std::string(error.what()));
        }
        copy(0);
      });
      best_ = std::max(best_, static_cast<double>(part * threads * ranks) / milliseconds * 1e3);
    }
  }

  /// The best so far: a bound must not be beaten.
  [[nodiscard]] double bytes_per_second() const noexcept { return best_; }

 private:
  [[nodiscard]] static tide::index_t bytes_of_rank(tide::index_t ranks) {
    constexpr tide::index_t together = tide::index_t{256} << 20;
    return std::max<tide::index_t>(together / ranks, 1 << 20);
  }

  double best_ = 0;
};

}  // namespace tide_example
