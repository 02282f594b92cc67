// SPDX-License-Identifier: Apache-2.0
//
// Stopwatch: how long something takes on all GPUs together.
//
//   host    enqueue: gate, begin, the work, end        meet        open the gate        wait for end
//   GPU     gate ----------------------------------------------->| begin  the work  end |
//
// A gate is a kernel of one thread that waits for a word on the host. So everything is enqueued when the GPUs begin,
// they begin within a few microseconds of each other, and what the hosts do is not in the time; it is told apart. A
// sample is that of the slowest rank.

#pragma once

#include "gemm.cuh"
#include "meeting.hpp"
#include "memory.cuh"

#include <chrono>
#include <functional>

namespace tide_benchmark {

using Clock = std::chrono::steady_clock;

// Opens by itself after 50 ms, for calls that block the host behind it (more of them than a queue takes); word 1 tells.
static __global__ void gate_kernel(volatile int* words, int round) {
  std::uint64_t begin = 0;
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  while (words[0] - round < 0) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - begin < 50000000ULL) continue;
    words[1] = 1;
    break;
  }
}

/// What is timed, on a rank: some calls, and what has to follow them before they can be made again.
struct Work {
  std::function<void(cudaStream_t)> enqueue{};
  std::function<void(cudaStream_t)> finish{};
};

struct Time {
  double milliseconds = 0;
  double host_microseconds = 0;
};

class Stopwatch {
 public:
  /// @param words  two, shared by all ranks
  Stopwatch(int rank, Meeting& meeting, const SharedWords& words) : rank_(rank), meeting_(meeting), words_(words) {}

  [[nodiscard]] cudaStream_t stream() const noexcept { return side_.get(); }

  /// The stream that products run on.
  [[nodiscard]] cudaStream_t compute() const noexcept { return compute_.get(); }

  /// The work alone.
  [[nodiscard]] Time alone(const Work& work) { return alone(work, side_.get()); }
  /// The same on one of the two streams.
  [[nodiscard]] Time alone(const Work& work, cudaStream_t stream) {
    hold(stream);
    begin_.record(stream);
    const double host = enqueue(work, stream);
    end_.record(stream);
    if (work.finish) work.finish(stream);
    return {go(), meeting_.largest(rank_, host)};
  }

  /// Products on one stream and, where given, the work on another: until both are done.
  [[nodiscard]] double beside(const GemmLoop& products, const Work* work) {
    hold(compute_.get());
    begin_.record(compute_.get());
    products.enqueue(compute_.get());
    if (work != nullptr) {
      must(cudaStreamWaitEvent(side_.get(), begin_.get()), "cudaStreamWaitEvent");
      static_cast<void>(enqueue(*work));
      done_.record(side_.get());
      must(cudaStreamWaitEvent(compute_.get(), done_.get()), "cudaStreamWaitEvent");
    }
    end_.record(compute_.get());
    if (work != nullptr) finish(*work);
    return go();
  }

  /// Runs the work without taking its time, as it has to be run first.
  void warm(const Work& work) {
    meeting_.wait();
    static_cast<void>(enqueue(work));
    finish(work);
    settle();
    meeting_.wait();
  }

  /// Samples that began before all was enqueued: their times may be the host's.
  [[nodiscard]] int early() const noexcept { return early_; }

  /// Blocks until the streams are idle.
  void settle() {
    wait_for(side_.get());
    wait_for(compute_.get());
  }

 private:
  static double enqueue(const Work& work, cudaStream_t stream) {
    const Clock::time_point begin = Clock::now();
    work.enqueue(stream);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
  double enqueue(const Work& work) { return enqueue(work, side_.get()); }
  void finish(const Work& work) {
    if (work.finish) work.finish(side_.get());
  }

  void hold(cudaStream_t stream) {
    meeting_.wait();
    ++round_;
    gate_kernel<<<1, 1, 0, stream>>>(words_.data(), round_);
    must_launch("gate_kernel");
  }

  // Lets the GPUs begin; milliseconds of the slowest.
  double go() {
    meeting_.wait();
    if (rank_ == 0) words_[0] = round_;
    settle();
    meeting_.wait();
    early_ += words_[1] != 0 ? 1 : 0;
    meeting_.wait();
    if (rank_ == 0) words_[1] = 0;
    return meeting_.largest(rank_, begin_.until(end_));
  }

  void wait_for(cudaStream_t stream) {
    const Clock::time_point latest = Clock::now() + std::chrono::seconds(20);
    for (int spins = 0; is_not_ready(cudaStreamQuery(stream)); ++spins) {
      if (meeting_.failed()) throw Abandoned();
      if (Clock::now() > latest) throw std::runtime_error("the GPU did not finish within 20 seconds");
      if (spins > 100) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  static int side_priority() {
    int least = 0;
    int greatest = 0;
    must(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    return std::max(greatest, -1);  // that of FSDP2's communication streams
  }

  int rank_;
  Meeting& meeting_;
  const SharedWords& words_;
  int round_ = 0;
  int early_ = 0;
  Stream compute_;
  Stream side_{side_priority()};
  TimedEvent begin_;
  TimedEvent end_;
  TimedEvent done_;
};

/// Makes a loop of products as long as it should be.
inline void calibrate(GemmLoop& loop, Stopwatch& watch) {
  Work products;
  products.enqueue = [&loop](cudaStream_t stream) { loop.enqueue(stream); };
  watch.warm(products);
  static_cast<void>(watch.alone(products));
  loop.count(loop.fitting(watch.alone(products).milliseconds));
}

}  // namespace tide_benchmark
