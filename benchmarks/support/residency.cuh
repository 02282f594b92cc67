// SPDX-License-Identifier: Apache-2.0
//
// Residency: how long the sums and casts of a CudaFabric were on SMs: for each SM the union of the intervals in which
// one of their CTAs was there, summed over the SMs.

#pragma once

#include "memory.cuh"

#include <tide/fabric/cuda_fabric.cuh>

#include <algorithm>
#include <map>

namespace tide_benchmark {

class Residency {
 public:
  /// From here on to `sm_milliseconds` the fabric's kernels leave records.
  Residency(tide::CudaFabric& fabric, cudaStream_t stream) : fabric_(fabric), words_(8 * (2 + 3 * room)) {
    const std::uint64_t head[2] = {0, room};
    must(cudaMemcpyAsync(words_.as<>(), head, sizeof head, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    fabric_.record_residency(words_.as<std::uint64_t>());
  }
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;
  ~Residency() { fabric_.record_residency(nullptr); }

  /// What was recorded; the work must be done.
  [[nodiscard]] double sm_milliseconds(cudaStream_t stream) const {
    fabric_.record_residency(nullptr);
    std::vector<std::uint64_t> words(2 + 3 * room);
    must(cudaMemcpyAsync(words.data(), words_.as<>(), words.size() * 8, cudaMemcpyDeviceToHost, stream),
         "cudaMemcpyAsync");
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (words[0] > room) throw std::runtime_error("more CTAs than there is room for in the record of SM time");
    std::map<std::uint64_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>> by_sm;
    for (std::uint64_t i = 0; i < words[0]; ++i) {
      const std::uint64_t* record = &words[2 + 3 * i];
      by_sm[record[0]].push_back({record[1], record[2]});
    }
    std::uint64_t sum = 0;
    for (auto& entry : by_sm) {
      auto& intervals = entry.second;
      std::sort(intervals.begin(), intervals.end());
      std::uint64_t covered = 0;  // up to where
      for (const auto& interval : intervals) {
        const std::uint64_t begin = std::max(interval.first, covered);
        if (interval.second > begin) sum += interval.second - begin;
        covered = std::max(covered, interval.second);
      }
    }
    return static_cast<double>(sum) / 1e6;
  }

 private:
  static constexpr std::uint64_t room = 32768;

  tide::CudaFabric& fabric_;
  DeviceMemory words_;
};

}  // namespace tide_benchmark
