// SPDX-License-Identifier: Apache-2.0
//
// A lane of HostFabric: a thread with a bounded queue of items, worked off in order.

#pragma once

#include <tide/fabric/detail/host_state.hpp>  // HostState

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tide::detail {

// One entry of a lane's queue: something to call with two numbers, or a function of the user.
struct HostItem {
  using Call = void (*)(void* object, std::uint64_t a, std::uint64_t b);

  Call call = nullptr;
  void* object = nullptr;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::function<void()> function = nullptr;
};

class HostLane {
 public:
  static constexpr std::size_t capacity = 512;

  // What became of an item: in the queue; or not, for want of room until the deadline, or after stop or a failure.
  enum class Pushed : std::uint8_t { queued, full, stopped, failed };

  // @param stream  which one of the rank's it is, where functions may come
  HostLane(HostState& state, Rank rank, index_t stream)
      : state_(state), rank_(rank), stream_(stream), items_(capacity), thread_([this] { work(); }) {}
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;
  ~HostLane() { stop(); }

  // Appends an item; waits for room when the queue is full. An item that is not queued is left as it was.
  [[nodiscard]] Pushed push(HostItem&& item) {
    std::unique_lock lock(mutex_);
    const auto room = [&] { return pushed_ - done_ < capacity || state_.failure.failed(); };
    if (stopping_) return Pushed::stopped;
    while (!room()) {
      ++pushers_;
      lock.unlock();
      // A failure rings, too: whatever is in progress may go on for long.
      const bool in_time = state_.at(rank_).bell.wait(state_.options.deadline, room);
      lock.lock();
      --pushers_;
      if (!in_time) return Pushed::full;
    }
    if (state_.failure.failed()) return Pushed::failed;
    items_[pushed_ % capacity] = std::move(item);
    ++pushed_;
    lock.unlock();
    changed_.notify_all();
    return Pushed::queued;
  }

  // Whether `push` would wait.
  [[nodiscard]] bool is_full() {
    const std::lock_guard lock(mutex_);
    return pushed_ - done_ >= capacity;
  }

  // Waits, after a failure, until nothing touches memory of the user any more: what is queued will be skipped, so only
  // what is in progress matters. An op gets the deadline and a function of the user a second: one that is stuck must
  // not keep the error back.
  void settle() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, state_.options.deadline, [&] { return !in_op_; });
    changed_.wait_for(lock, std::chrono::seconds(1), [&] { return !in_function_; });
  }

  [[nodiscard]] bool is_this_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

  // Works off what is queued, then ends the thread. May be called again.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || pushed_ != done_; });
      if (pushed_ == done_) return;
      HostItem item = std::move(items_[done_ % capacity]);
      in_function_ = static_cast<bool>(item.function);
      in_op_ = !in_function_;
      lock.unlock();
      if (!state_.failure.failed()) run(item);
      item = {};
      lock.lock();
      in_op_ = in_function_ = false;
      ++done_;
      changed_.notify_all();
      if (pushers_ > 0) state_.at(rank_).bell.ring();
    }
  }

  void run(HostItem& item) {
    const std::optional<std::string> thrown = thrown_by([&] { call(item); });
    if (!thrown) return;
    state_.fail(Errc::operation, item.function
                                     ? function_threw(rank_, stream_, *thrown)
                                     : text({"tide::HostFabric: a lane failed; rank ", rank_.value, ": ", *thrown}));
  }

  static void call(HostItem& item) {
    if (item.function) {
      item.function();
    } else {
      item.call(item.object, item.a, item.b);
    }
  }

  HostState& state_;
  const Rank rank_;
  const index_t stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<HostItem> items_;
  std::atomic<std::uint64_t> pushed_{0};  // both are written under mutex_; a bell reads them without
  std::atomic<std::uint64_t> done_{0};
  int pushers_ = 0;  // that wait for room
  bool in_op_ = false;
  bool in_function_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

// @throws Error (Errc::capacity) when the system starts no more threads
[[nodiscard]] inline std::unique_ptr<HostLane> make_lane(HostState& state, Rank rank, index_t stream) {
#if TIDE_HAS_EXCEPTIONS
  try {
    return std::make_unique<HostLane>(state, rank, stream);
  } catch (const std::system_error& error) {
    raise(Errc::capacity, noted(text({"tide::HostFabric: a thread for a lane or a stream could not be started; rank ",
                                      rank.value, ": ", error.what(), "."}),
                                state.whose));
  }
#else
  return std::make_unique<HostLane>(state, rank, stream);
#endif
}

}  // namespace tide::detail
