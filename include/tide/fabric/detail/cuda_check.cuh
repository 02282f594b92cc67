// SPDX-License-Identifier: Apache-2.0
//
// Errors of CUDA and NCCL as tide::Error, the current device as found, and handles that end themselves.

#pragma once

#include <tide/core/error.hpp>       // raise
#include <tide/core/text.hpp>        // text
#include <tide/fabric/duration.hpp>  // Duration, bounded

#include <cuda.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <thread>
#include <utility>

namespace tide::detail {

inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  raise(Errc::operation, text({"tide::CudaFabric: ", call, " failed: ", cudaGetErrorString(status), "."}));
}

inline void check(CUresult status, const char* call) {
  if (status == CUDA_SUCCESS) return;
  const char* words = nullptr;
  cuGetErrorString(status, &words);
  raise(Errc::operation,
        text({"tide::CudaFabric: ", call, " failed: ", words != nullptr ? words : "an unknown error", "."}));
}

inline void check(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  const char* words = ncclGetLastError(nullptr);
  const bool says_more = words != nullptr && *words != '\0';
  raise(Errc::operation, text({"tide::CudaFabric: ", call, " failed: ", ncclGetErrorString(status),
                               says_more ? "; NCCL says: " : "", says_more ? words : "", "."}));
}

// What is in progress has not failed.
[[nodiscard]] inline ncclResult_t unless_in_progress(ncclResult_t result) noexcept {
  return result == ncclInProgress ? ncclSuccess : result;
}
// Waits until all ranks have done what was begun on a communicator that does not block, or there is an error.
// @returns ncclInProgress after the deadline
[[nodiscard]] inline ncclResult_t settled(ncclComm_t communicator, Duration deadline) {
  const auto end = std::chrono::steady_clock::now() + bounded(deadline);
  for (;;) {
    ncclResult_t state = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state); asked != ncclSuccess) return asked;
    if (state != ncclInProgress || std::chrono::steady_clock::now() > end) return state;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Whether work is still to be done. "Not ready" is no error, and must not stay behind as the thread's last one, where
// the check of the next launch would find it.
[[nodiscard]] inline bool is_not_ready(cudaError_t status) noexcept {
  if (status != cudaErrorNotReady) return false;
  static_cast<void>(cudaGetLastError());
  return true;
}
[[nodiscard]] inline bool is_pending(cudaEvent_t event) noexcept { return is_not_ready(cudaEventQuery(event)); }
[[nodiscard]] inline bool is_busy(cudaStream_t stream) noexcept { return is_not_ready(cudaStreamQuery(stream)); }

// Makes a device current for a scope, and the one that was current again after it.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    if (device != before_) check(cudaSetDevice(device), "cudaSetDevice");
    changed_ = device != before_;
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

// An event without timing, on the device that is current when it is made.
class CudaEvent {
 public:
  CudaEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tide::detail
