// SPDX-License-Identifier: Apache-2.0
//
// A lane of HostFabric: a thread with a bounded queue of items, worked off in order.

#pragma once

#include <tide/fabric/detail/host_state.hpp>  // HostState

#include <condition_variable>
#include <functional>
#include <mutex>
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

  explicit HostLane(HostState& state) : state_(state), items_(capacity), thread_([this] { work(); }) {}
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;
  ~HostLane() { stop(); }

  // Appends an item; waits for room when the queue is full. False when none came within the deadline.
  [[nodiscard]] bool push(HostItem item) {
    std::unique_lock lock(mutex_);
    const auto room = [&] { return pushed_ - done_ < capacity || state_.failure.failed(); };
    if (!changed_.wait_for(lock, state_.options.deadline, room)) return false;
    if (pushed_ - done_ >= capacity) return true;  // failed: what is dropped would have been skipped
    items_[pushed_ % capacity] = std::move(item);
    ++pushed_;
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  // Waits until all items are worked off; after a failure they are skipped, so this is soon.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pushed_ == done_; });
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
      lock.unlock();
      if (!state_.failure.failed()) run(item);
      item = {};
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  void run(HostItem& item) {
    if (!item.function) {
      item.call(item.object, item.a, item.b);
      return;
    }
#if TIDE_HAS_EXCEPTIONS
    try {
      item.function();
    } catch (const std::exception& error) {
      state_.fail(Errc::operation, detail::text({"tide::HostStream: a function on a stream threw: ", error.what()}));
    } catch (...) {
      state_.fail(Errc::operation, "tide::HostStream: a function on a stream threw something unknown.");
    }
#else
    item.function();
#endif
  }

  HostState& state_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<HostItem> items_;
  std::uint64_t pushed_ = 0;
  std::uint64_t done_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tide::detail
