// SPDX-License-Identifier: Apache-2.0
//
// Memory that frees itself: of a device, pinned on the host, and as a symmetric window of NCCL.

#pragma once

#include "must.cuh"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tide_benchmark {

/// Memory of the device that is current when it is made.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::int64_t bytes) : bytes_(bytes) {
    must(cudaMalloc(&memory_, static_cast<std::size_t>(bytes > 0 ? bytes : 1)), "cudaMalloc");
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (memory_ != nullptr) cudaFree(memory_);
  }

  /// Memory that holds a copy of `list`.
  template <class T>
  [[nodiscard]] static DeviceMemory of(const std::vector<T>& list) {
    const std::size_t bytes = list.size() * sizeof(T);
    DeviceMemory made(static_cast<std::int64_t>(bytes));
    must(cudaMemcpy(made.memory_, list.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return made;
  }

  template <class T = std::byte>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(memory_);
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Memory of all ranks that is a symmetric window of a communicator. Made and destroyed by all ranks in the same order.
class WindowMemory {
 public:
  WindowMemory(ncclComm_t communicator, std::int64_t bytes) : communicator_(communicator) {
    constexpr std::int64_t unit = std::int64_t{2} << 20;
    const auto size = static_cast<std::size_t>((bytes + unit - 1) / unit * unit);
    must(ncclMemAlloc(&memory_, size), "ncclMemAlloc");
    must(ncclCommWindowRegister(communicator, memory_, size, &window_, NCCL_WIN_COLL_SYMMETRIC),
         "ncclCommWindowRegister");
    if (window_ == nullptr) throw std::runtime_error("NCCL gives no symmetric window on this machine");
  }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;
  ~WindowMemory() {
    if (window_ != nullptr) ncclCommWindowDeregister(communicator_, window_);
    if (memory_ != nullptr) ncclMemFree(memory_);
  }

  template <class T = std::byte>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(memory_);
  }

 private:
  ncclComm_t communicator_;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

/// Words on the host that every device of the process reads and writes.
class SharedWords {
 public:
  explicit SharedWords(std::size_t count) {
    must(cudaHostAlloc(&words_, count * sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    for (std::size_t i = 0; i < count; ++i) (*this)[i] = 0;
  }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;
  ~SharedWords() { cudaFreeHost(words_); }

  [[nodiscard]] volatile int& operator[](std::size_t i) const noexcept { return static_cast<volatile int*>(words_)[i]; }
  [[nodiscard]] volatile int* data() const noexcept { return static_cast<volatile int*>(words_); }

 private:
  void* words_ = nullptr;
};

/// A stream that work of other streams does not wait for.
class Stream {
 public:
  explicit Stream(int priority = 0) {
    must(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "cudaStreamCreateWithPriority");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }

  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An event that other streams wait for.
class Mark {
 public:
  Mark() { must(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() { cudaEventDestroy(event_); }

  void record(cudaStream_t stream) const { must(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Lets a stream wait for what was recorded last; for nothing where nothing was.
  void hold(cudaStream_t stream) const { must(cudaStreamWaitEvent(stream, event_), "cudaStreamWaitEvent"); }

 private:
  cudaEvent_t event_ = nullptr;
};

/// An event that takes the time.
class TimedEvent {
 public:
  TimedEvent() { must(cudaEventCreate(&event_), "cudaEventCreate"); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  ~TimedEvent() { cudaEventDestroy(event_); }

  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t stream) const { must(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Milliseconds to a later event.  @pre both have come
  [[nodiscard]] double until(const TimedEvent& later) const {
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, event_, later.event_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tide_benchmark
