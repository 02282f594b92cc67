// SPDX-License-Identifier: Apache-2.0
//
// CudaQueue: how many ops are queued on a stream ahead of completion. The driver blocks the host near 1,000 of them
// (measured at 1,020 behind an unmet wait), where no deadline could reach it; so tide stops at 512 and waits itself.

#pragma once

#include <tide/fabric/detail/cuda_check.cuh>  // CudaEvent

#include <cstdint>
#include <functional>
#include <vector>

namespace tide::detail {

class CudaQueue {
 public:
  using Met = std::function<bool()>;

  static constexpr std::uint64_t capacity = 512;
  static constexpr std::uint64_t stretch = 64;  // ops between two events that tell how far the stream is

  // Before `count` more calls: records how far the stream has come, and calls `poll(met)` while there is no room.
  template <class Poll>
  void admit(cudaStream_t stream, std::uint64_t count, const Poll& poll) {
    if (events_.empty()) {
      for (std::uint64_t i = 0; i < capacity / stretch; ++i) events_.emplace_back();
    }
    while (queued_ + count > (recorded_ + 1) * stretch) {
      // The event that takes this place again was recorded `capacity` ops ago: those must be done.
      const cudaEvent_t event = events_[recorded_ % events_.size()].get();
      if (recorded_ >= events_.size() && is_pending(event)) {
        poll([event] { return !is_pending(event); });
      }
      check(cudaEventRecord(event, stream), "cudaEventRecord");
      ++recorded_;
    }
    queued_ += count;
  }

 private:
  std::vector<CudaEvent> events_;
  std::uint64_t queued_ = 0;
  std::uint64_t recorded_ = 0;
};

}  // namespace tide::detail
