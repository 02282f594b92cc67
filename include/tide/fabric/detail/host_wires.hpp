// SPDX-License-Identifier: Apache-2.0
//
// The network of one rank where a hook makes it one: what is sent comes later, by a thread of its own.
//
//   lane   put A to 2   put B to 3   put C to 2          sent: the source has been read, the lane goes on
//   wires               A ............ C                 to rank 2, in order
//                             B ..                       to rank 3, whenever it comes
//
// A wire that is cut brings what is on it, and nothing later: a network that kept the order and lost one in the middle
// would bring what comes behind it first.

#pragma once

#include <tide/core/config.hpp>          // TIDE_HAS_EXCEPTIONS
#include <tide/fabric/host_options.hpp>  // Duration

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tide::detail {

class HostWires {
 public:
  /// What is in order: what a lane of a program sends to a rank.
  struct Wire {
    const void* program;
    std::int32_t lane;
    std::int32_t to;

    [[nodiscard]] friend bool operator==(const Wire&, const Wire&) = default;
  };

  /// What may be on its way; 0: any number.
  struct Limits {
    index_t depth = 0;  // of what came with a depth, on one wire
    index_t queue = 0;  // on all wires
  };
  enum class Sent : std::uint8_t { on_its_way, too_deep, queue_full, no_thread };

  HostWires() = default;
  HostWires(const HostWires&) = delete;
  HostWires& operator=(const HostWires&) = delete;
  ~HostWires() {
    static_cast<void>(stop(Duration(0), [] { return true; }));
  }

  /// Has `deliver()` called after `delay`, behind what is on the wire; never where the wire is cut. What is not sent is
  /// left as it was.
  [[nodiscard]] Sent send(const Wire& wire, Duration delay, Limits limits, std::function<void()>&& deliver) {
    const std::lock_guard lock(mutex_);
    State& state = state_of(wire);
    if (state.cut) return Sent::on_its_way;
    if (!has_room(limits.queue)) return Sent::queue_full;
    const bool counts = limits.depth > 0;
    if (counts && state.on_its_way >= limits.depth) return Sent::too_deep;
    if (!start()) return Sent::no_thread;
    state.on_its_way += counts ? 1 : 0;
    on_their_way_.fetch_add(1, std::memory_order_relaxed);
    state.last = std::max(state.last, std::chrono::steady_clock::now() + bounded(delay));
    const auto later = std::find_if(due_.begin(), due_.end(), [&](const Message& m) { return m.at > state.last; });
    due_.insert(later, {state.last, &state, counts, std::move(deliver)});
    changed_.notify_one();
    return Sent::on_its_way;
  }

  /// What is sent from now on does not come.
  void cut(const Wire& wire) {
    const std::lock_guard lock(mutex_);
    state_of(wire).cut = true;
  }

  /// Whether one more may be on its way. From any thread.
  [[nodiscard]] bool has_room(index_t queue) const noexcept {
    return queue == 0 || on_their_way_.load(std::memory_order_relaxed) < queue;
  }

  /// Delivers what is on its way, then ends the thread. What is left when the deadline has passed, or `failed()`, is
  /// dropped; how much that is, is returned. May be called again.
  /// @param deadline  as `bounded` gives it
  /// @param failed    only reads atomics; `wake` is called after it has become true
  template <class Failed>
  [[nodiscard]] index_t stop(Duration deadline, const Failed& failed) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
    delivered_.wait_for(lock, deadline, [&] { return due_.empty() || failed(); });
    const auto left = static_cast<index_t>(due_.size());
    due_.clear();
    changed_.notify_one();  // the thread may wait for what has just been dropped
    lock.unlock();
    if (thread_.joinable()) thread_.join();
    return left;
  }

  /// Something has failed: `stop` looks at it.
  void wake() {
    { const std::lock_guard lock(mutex_); }  // orders the call after the check of `stop`
    delivered_.notify_one();
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct State {
    Wire wire;
    Time last{};
    index_t on_its_way = 0;
    bool cut = false;
  };
  struct Message {
    Time at;
    State* wire;
    bool counts;
    std::function<void()> deliver;
  };

  // Starts the thread when something is sent for the first time; false where the system starts no more.
  bool start() {
    if (thread_.joinable()) return true;
#if TIDE_HAS_EXCEPTIONS
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error&) {
      return false;
    }
#else
    thread_ = std::thread([this] { work(); });
#endif
    return true;
  }

  State& state_of(const Wire& wire) {
    for (State& state : wires_) {
      if (state.wire == wire) return state;
    }
    return wires_.emplace_back(State{wire});
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !due_.empty(); });
      if (due_.empty()) return;
      const Time next = due_.front().at;
      if (next > std::chrono::steady_clock::now()) {
        changed_.wait_until(lock, next);
        continue;
      }
      Message message = std::move(due_.front());
      due_.erase(due_.begin());
      // Before its word rises: then the peer may already give a credit for it.
      message.wire->on_its_way -= message.counts ? 1 : 0;
      on_their_way_.fetch_sub(1, std::memory_order_relaxed);
      lock.unlock();
      message.deliver();
      lock.lock();
      if (stopping_ && due_.empty()) delivered_.notify_one();
    }
  }

  std::mutex mutex_;
  // Each has one waiter, so that a call wakes whom it is for.
  std::condition_variable changed_;    // the thread
  std::condition_variable delivered_;  // `stop`
  std::atomic<index_t> on_their_way_{0};
  std::deque<State> wires_;   // a deque: states stay where they are
  std::vector<Message> due_;  // by time, then as they were sent
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tide::detail
