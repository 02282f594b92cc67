// SPDX-License-Identifier: Apache-2.0
//
// CudaProcess: what the suites need of a fabric (support/host_ranks.hpp), where this process is one rank on a GPU and
// the others are processes like it, started by tests/support/ranks. A suite's `run(n, program)` runs the program of the
// own rank; `everybody` tells all processes what each of them has to say, and is where they meet.

#pragma once

#include <tide/fabric/cuda_communicators.cuh>
#include <tide/fabric/cuda_fabric.cuh>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tide_test {

using tide::index_t;
using namespace std::chrono_literals;

/// Holds one SM for a while: a slow kernel.
template <class Nanoseconds>
TIDE_HIDDEN __global__ void spin(Nanoseconds duration) {
  unsigned long long begin = 0;
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < duration);
}

/// Pinned memory through which bytes come and go, so that no copy blocks the host behind a wait for a peer.
class Staging {
 public:
  [[nodiscard]] static Staging& of_process() {
    static auto* one = new Staging;  // outlives whatever is still under way when the process ends
    return *one;
  }

  /// Memory that stays as it is until the stream has come as far as `used`.
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    const std::size_t wanted = tide::align_up(bytes, std::size_t{64});
    REQUIRE(wanted < capacity);
    if (next_ + wanted > capacity) next_ = 0;
    while (!parts_.empty() && overlaps(parts_.front(), next_, next_ + wanted)) pop();
    last_ = {next_, next_ + wanted, nullptr};
    next_ += wanted;
    return memory_ + last_.begin;
  }
  void used(cudaStream_t stream) {
    if (free_.empty()) pop();
    last_.event = free_.back();
    free_.pop_back();
    tide::detail::check(cudaEventRecord(last_.event, stream), "cudaEventRecord");
    parts_.push_back(last_);
  }

 private:
  static constexpr std::size_t capacity = std::size_t{96} << 20;

  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
    cudaEvent_t event = nullptr;
  };

  Staging() {
    tide::detail::check(cudaMallocHost(&memory_, capacity), "cudaMallocHost");
    for (int i = 0; i < 512; ++i) {
      cudaEvent_t event = nullptr;
      tide::detail::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
      free_.push_back(event);
    }
  }

  [[nodiscard]] static bool overlaps(const Part& part, std::size_t begin, std::size_t end) {
    return part.begin < end && begin < part.end;
  }
  void pop() {
    tide::detail::check(cudaEventSynchronize(parts_.front().event), "cudaEventSynchronize");
    free_.push_back(parts_.front().event);
    parts_.pop_front();
  }

  std::byte* memory_ = nullptr;
  std::size_t next_ = 0;
  Part last_;
  std::deque<Part> parts_;
  std::vector<cudaEvent_t> free_;
};

struct CudaProcess {
  using Fabric = tide::CudaFabric;
  using Stream = tide::CudaStream;

  class Memory {
   public:
    Memory(Fabric& fabric, std::size_t bytes, std::size_t shift = 0) : fabric_(&fabric), shift_(shift) {
      tide::detail::check(cudaMalloc(&bytes_, bytes + shift + 1), "cudaMalloc");
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    /// After all work; left to the process where a stream may be stuck.
    ~Memory() {
      try {
        fabric_->close();
        cudaFree(bytes_);
      } catch (const tide::Error&) {
      }
    }
    [[nodiscard]] std::byte* data() const { return bytes_ + shift_; }

   private:
    Fabric* fabric_;
    std::byte* bytes_ = nullptr;
    std::size_t shift_;
  };

  tide::CudaOptions options = {.deadline = 60s, .missing_gradients = true};

  [[nodiscard]] static index_t world() { return number("TIDE_WORLD"); }
  [[nodiscard]] static index_t rank() { return number("TIDE_RANK"); }

  /// This process's, made once.
  [[nodiscard]] static const tide::CudaCommunicators& communicators() {
    static const tide::CudaCommunicators all = tide::CudaCommunicators::from_environment();
    return all;
  }

  /// Ends the process as one that was skipped, and says why.
  [[noreturn]] static void skip(const std::string& why) {
    std::printf("skipped: %s\n", why.c_str());
    std::fflush(stdout);
    std::_Exit(77);
  }

  /// Skips where so many ranks find no place: before NCCL 2.32 each needs a GPU of its own, as far as NCCL sees that
  /// they are on one machine.
  static void skip_unless_ranks_fit(int devices) {
    int nccl = 0;
    REQUIRE(ncclGetVersion(&nccl) == ncclSuccess);
    const index_t ranks = std::getenv("NCCL_HOSTID") != nullptr ? world() / number("TIDE_NODES") : world();
    if (ranks <= devices || nccl >= NCCL_VERSION(2, 32, 0)) return;
    skip(std::to_string(ranks) + " ranks need as many GPUs, or NCCL 2.32 for several on one; there are " +
         std::to_string(devices) + ", with NCCL " + tide::detail::nccl_version_text(nccl));
  }

  /// The same, where there has to be a GPU.
  static void skip_unless_ranks_fit() {
    int devices = 0;
    REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
    skip_unless_ranks_fit(devices);
  }

  template <class Program>
  void run(index_t ranks, const Program& program) const {
    REQUIRE(ranks == world());
    const tide::CudaCommunicators& all = communicators();
    tide::detail::check(cudaSetDevice(all.device()), "cudaSetDevice");
    static_cast<void>(Staging::of_process());
    spin<unsigned long long><<<1, 1>>>(1);  // loads it: a first launch behind a wait would hang the host
    tide::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Fabric fabric(all, options);
    program(fabric);
  }

  static void write(Stream& stream, std::byte* to, const std::vector<std::byte>& bytes) {
    if (bytes.empty()) return;
    std::byte* from = Staging::of_process().take(bytes.size());
    std::memcpy(from, bytes.data(), bytes.size());
    tide::detail::check(cudaMemcpyAsync(to, from, bytes.size(), cudaMemcpyHostToDevice, stream.get()),
                        "cudaMemcpyAsync");
    Staging::of_process().used(stream.get());
  }

  static void read(Stream& stream, const std::byte* from, std::span<std::byte> into) {
    if (into.empty()) return;
    std::byte* to = Staging::of_process().take(into.size());
    tide::detail::check(cudaMemcpyAsync(to, from, into.size(), cudaMemcpyDeviceToHost, stream.get()),
                        "cudaMemcpyAsync");
    stream.run([to, into] { std::memcpy(into.data(), to, into.size()); });
    Staging::of_process().used(stream.get());
  }

  static void occupy(Stream& stream, std::chrono::microseconds duration) {
    static_cast<void>(stream.record());  // raises what the fabric raises, as a call of it would
    spin<unsigned long long><<<1, 1, 0, stream.get()>>>(static_cast<unsigned long long>(duration.count()) * 1000);
    tide::detail::check(cudaGetLastError(), "spin");
  }

  /// What every process says, by rank; also where they wait for each other. Through files, so that it works when the
  /// GPU does not.
  [[nodiscard]] static std::vector<std::string> everybody(const std::string& text) {
    static int meetings = 0;
    const std::filesystem::path folder = std::getenv("TIDE_RANKS_DIR");
    const auto place = [&](index_t r) { return folder / (std::to_string(meetings) + "." + std::to_string(r)); };
    {
      std::ofstream file(place(rank()).string() + ".part", std::ios::binary);
      file << text;
    }
    std::filesystem::rename(place(rank()).string() + ".part", place(rank()));
    std::vector<std::string> all;
    for (index_t r = 0; r < world(); ++r) {
      const auto end = std::chrono::steady_clock::now() + 120s;
      while (!std::filesystem::exists(place(r))) {
        if (std::chrono::steady_clock::now() > end) {
          std::fprintf(stderr, "rank %d: rank %d did not come to meeting %d\n", static_cast<int>(rank()),
                       static_cast<int>(r), meetings);
          std::_Exit(3);
        }
        std::this_thread::sleep_for(1ms);
      }
      std::ifstream file(place(r), std::ios::binary);
      all.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    ++meetings;
    return all;
  }

 private:
  [[nodiscard]] static index_t number(const char* variable) {
    const char* text = std::getenv(variable);
    return text != nullptr ? std::atoll(text) : 1;
  }
};

}  // namespace tide_test
