// SPDX-License-Identifier: Apache-2.0
//
// CudaCommunicators: the NCCL communicators of one rank: one for gathers, one for reduces, since NCCL serialises all
// work on one communicator; where ranks are on several machines, and put, one for letters, such as errors; and one that
// does not block, on which ranks meet, since all others wait for a rank that does not come without end.
//
//   a thread per GPU      auto all = tide::CudaCommunicators::of_devices({0, 1});
//   a process per GPU     auto mine = tide::CudaCommunicators::from_environment();
//
// Test: tests/fabric/cuda_fabric.test.cu, cuda_absent_rank.test.cu

#pragma once

#include <tide/core/index.hpp>                // Rank
#include <tide/fabric/detail/cuda_check.cuh>  // check, DeviceGuard
#include <tide/fabric/detail/failure.hpp>     // seconds_text
#include <tide/fabric/detail/nccl_puts.cuh>   // NcclFindings, nccl_configuration
#include <tide/fabric/duration.hpp>           // Duration

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tide {

namespace detail {

// How long ranks get to meet: NCCL has taken seconds to connect them, where many share a GPU.
[[nodiscard]] constexpr Duration meeting_deadline(Duration deadline) noexcept {
  return std::max(deadline, Duration(std::chrono::seconds(20)));
}

}  // namespace detail

/// Two to four communicators over the same ranks, on one device. Serves one CudaFabric at a time, outlives it, and is
/// not moved meanwhile. Moves. Destroys them with the other ranks where a fabric on them has been closed, which all
/// ranks do; otherwise ends this rank's alone, since NCCL would wait for the others without end.
class CudaCommunicators {
 public:
  /// Takes communicators over; all must have the same ranks in the same order.
  /// @param mail     for letters between machines; null where all ranks reach each other's memory, or have no puts
  /// @param meeting  made with `blocking = 0` in its configuration; where it is null NCCL waits without end for a rank
  ///                 that does not come to `CudaFabric::init`
  /// @pre for puts between nodes `numRmaSig` of the configuration of each but `meeting` is at least 2
  CudaCommunicators(ncclComm_t gather, ncclComm_t reduce, int device, ncclComm_t mail = nullptr,
                    ncclComm_t meeting = nullptr)
      : gather_(gather), reduce_(reduce), mail_(mail), meeting_(meeting), device_(device) {}
  CudaCommunicators(CudaCommunicators&& other) noexcept
      : gather_(std::exchange(other.gather_, nullptr)),
        reduce_(std::exchange(other.reduce_, nullptr)),
        mail_(std::exchange(other.mail_, nullptr)),
        meeting_(std::exchange(other.meeting_, nullptr)),
        device_(other.device_),
        has_parts_(other.has_parts_),
        state_(std::move(other.state_)) {}
  CudaCommunicators& operator=(CudaCommunicators&&) = delete;
  ~CudaCommunicators() {
    // A driver that is shutting down, at the end of a process with static objects, has taken everything back already.
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return;
    if (state_ && (state_->distrusted || !state_->closed)) {
      // NCCL 2.32.3 was seen to wait for ever in an abort of communicators that others had been split from.
      has_parts_ ? abandon() : abort();
    }
    if (mail_ != nullptr) ncclCommDestroy(mail_);
    if (reduce_ != nullptr) ncclCommDestroy(reduce_);
    if (gather_ != nullptr) ncclCommDestroy(gather_);
    if (meeting_ != nullptr) ncclCommDestroy(meeting_);
  }

  /// One rank per device, all in this process.
  /// @throws Error (Errc::operation) with NCCL's words
  [[nodiscard]] static std::vector<CudaCommunicators> of_devices(const std::vector<int>& devices) {
    const std::vector<ncclComm_t> meeting = init_all(devices, meeting_configuration());
    const std::vector<ncclComm_t> gather = init_all(devices, detail::nccl_configuration());
    const std::vector<ncclComm_t> reduce = init_all(devices, detail::nccl_configuration());
    std::vector<CudaCommunicators> all;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      all.emplace_back(gather[i], reduce[i], devices[i], nullptr, meeting[i]);
      all[i].state_ = all[0].state_;  // what one rank finds out
    }
    if (!all.empty()) all[0].state_->are_threads = true;
    return all;
  }

  /// This process's rank of `TIDE_WORLD` ranks is `TIDE_RANK`, on device `TIDE_DEVICE` (by default the rank modulo the
  /// devices there are); ranks meet at `NCCL_COMM_ID` (host:port of rank 0), so nothing else has to start them.
  /// @param deadline  for all ranks to come
  /// @throws Error (Errc::argument) when a variable is missing or malformed, (Errc::deadline) when ranks do not come,
  ///         (Errc::operation) with NCCL's words, for example when nobody has listened there for about a minute
  [[nodiscard]] static CudaCommunicators from_environment(Duration deadline = std::chrono::seconds(60)) {
    const int world = number("TIDE_WORLD", 1, 65535);
    const int rank = number("TIDE_RANK", 0, world - 1);
    const char* const place = std::getenv("NCCL_COMM_ID");
    if (place == nullptr) {
      raise(Errc::argument, "tide::CudaCommunicators: NCCL_COMM_ID must be set to host:port of rank 0.");
    }
    int devices = 0;
    detail::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    const int device = std::getenv("TIDE_DEVICE") != nullptr ? number("TIDE_DEVICE", 0, devices - 1) : rank % devices;
    const detail::DeviceGuard guard(device);
    // With NCCL_COMM_ID every process derives the same id from the address.
    ncclUniqueId id;
    detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    CudaCommunicators all(nullptr, nullptr, device);
    ncclConfig_t config = meeting_configuration();
    const ncclResult_t begun = ncclCommInitRankConfig(&all.meeting_, world, id, rank, &config);
    if (!all.settles(begun, "ncclCommInitRankConfig", deadline)) {
      raise_late(deadline, rank, detail::text({"all ", world, " ranks to come to ", place}));
    }
    all.split_others(rank, detail::meeting_deadline(deadline));
    return all;
  }

  /// Communicators over the ranks that give the same `color`, in the order of their `key`. Collective over all ranks.
  /// @param deadline  for all ranks to come, and for NCCL to connect them
  /// @throws Error (Errc::operation) with NCCL's words, (Errc::deadline) when ranks do not come: then these are over
  [[nodiscard]] CudaCommunicators split(int color, int key, Duration deadline = std::chrono::seconds(60)) const {
    const detail::DeviceGuard guard(device_);
    CudaCommunicators part(nullptr, nullptr, device_);
    part.state_ = state_;
    // Threads that split communicators that do not block have crashed NCCL (NVIDIA/nccl#1605): theirs do.
    if (meeting_ != nullptr && !state_->are_threads) {
      part.meeting_ = split_off(meeting_, color, key, meeting_configuration(), deadline);
    } else {
      part.gather_ = split_off(gather_, color, key, detail::nccl_configuration(), deadline);
    }
    part.split_others(0, deadline);
    has_parts_ = true;
    return part;
  }

  [[nodiscard]] ncclComm_t gather() const noexcept { return gather_; }
  [[nodiscard]] ncclComm_t reduce() const noexcept { return reduce_; }
  /// Null where all ranks reach each other's memory, or have no puts.
  [[nodiscard]] ncclComm_t mail() const noexcept { return mail_; }
  /// On which ranks meet; that of gathers where there is none of its own.
  [[nodiscard]] ncclComm_t meeting() const noexcept { return meeting_ != nullptr ? meeting_ : gather_; }
  [[nodiscard]] int device() const noexcept { return device_; }

  /// Waits on the host until all ranks have begun the same on `meeting()`, as far as NCCL needs them for it.
  /// @param begun  what the call of NCCL that began it returned
  /// @param call   its name
  /// @returns whether they have in time; where not, all of these communicators are over
  /// @throws Error (Errc::operation) with NCCL's words
  [[nodiscard]] bool settles(ncclResult_t begun, const char* call, Duration deadline) const {
    return settles(meeting(), begun, call, deadline);
  }

  /// A rank may be gone: from now on nothing that needs all ranks is done to the communicators, to those that they were
  /// split from, or to others that were, and they are ended without the others.
  void distrust() const noexcept { state_->distrusted = true; }
  [[nodiscard]] bool distrusted() const noexcept { return state_ && state_->distrusted; }
  /// All ranks have closed a fabric on these, or on some that were split from them.
  void close() const noexcept { state_->closed = true; }
  /// Ends all at once, and with them what is stuck in them.
  void abort() const noexcept {
    if (ncclComm_t ended = std::exchange(mail_, nullptr)) ncclCommAbort(ended);
    if (ncclComm_t ended = std::exchange(reduce_, nullptr)) ncclCommAbort(ended);
    if (ncclComm_t ended = std::exchange(gather_, nullptr)) ncclCommAbort(ended);
    if (ncclComm_t ended = std::exchange(meeting_, nullptr)) ncclCommAbort(ended);
  }
  /// Leaves all to the end of the process.
  void abandon() const noexcept { gather_ = reduce_ = mail_ = meeting_ = nullptr; }

 private:
  // Of these, of those that are split from them, and of all ranks that are in one process.
  struct State {
    std::atomic<bool> distrusted{false};
    std::atomic<bool> closed{false};
    bool are_threads = false;  // all ranks are in this process
  };

  // It makes communicators and gathers a few words.
  [[nodiscard]] static ncclConfig_t meeting_configuration() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = 1;
    return config;
  }

  // Waits until all ranks have done what was begun on a communicator that does not block, or there is an error.
  [[nodiscard]] static ncclResult_t settled(ncclComm_t communicator, Duration deadline) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    for (;;) {
      ncclResult_t state = ncclSuccess;
      if (const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state); asked != ncclSuccess) return asked;
      if (state != ncclInProgress || std::chrono::steady_clock::now() > end) return state;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  [[nodiscard]] bool settles(ncclComm_t communicator, ncclResult_t begun, const char* call, Duration deadline) const {
    const bool has_begun = begun == ncclSuccess || begun == ncclInProgress;
    const ncclResult_t state = has_begun ? settled(communicator, deadline) : begun;
    if (state == ncclSuccess) return true;
    distrust();
    if (state != ncclInProgress) detail::check(state, call);
    has_parts_ ? abandon() : abort();
    return false;
  }

  // The communicators that are not there yet, of all ranks.
  void split_others(int key, Duration deadline) {
    const auto one = [&] { return split_off(meeting(), 0, key, detail::nccl_configuration(), deadline); };
    if (gather_ == nullptr) gather_ = one();
    reduce_ = one();
    const detail::NcclFindings found(gather_);
    if (found.nodes > 1 && found.no_puts.empty()) mail_ = one();
  }
  [[nodiscard]] ncclComm_t split_off(ncclComm_t whole, int color, int key, ncclConfig_t config,
                                     Duration deadline) const {
    int rank = 0;
    detail::check(ncclCommUserRank(whole, &rank), "ncclCommUserRank");
    ncclComm_t part = nullptr;
    if (!settles(whole, ncclCommSplit(whole, color, key, &part, &config), "ncclCommSplit", deadline)) {
      raise_late(deadline, rank, "all ranks to split their communicators");
    }
    detail::check(part != nullptr ? settled(part, deadline) : ncclInternalError, "ncclCommSplit");
    return part;
  }
  [[noreturn]] static void raise_late(Duration deadline, int rank, const std::string& what) {
    raise(Errc::deadline, detail::text({"tide::CudaCommunicators: the deadline of ", detail::seconds_text(deadline),
                                        " passed: rank ", rank, " waited for ", what, "."}));
  }

  // Communicators over all devices, each its own rank.
  [[nodiscard]] static std::vector<ncclComm_t> init_all(const std::vector<int>& devices, ncclConfig_t config) {
    ncclUniqueId id;
    detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::vector<ncclComm_t> communicators(devices.size());
    int before = 0;
    detail::check(cudaGetDevice(&before), "cudaGetDevice");
    const auto is_good = [](ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; };
    ncclResult_t first = ncclGroupStart();
    const int ranks = static_cast<int>(devices.size());
    for (int rank = 0; rank < ranks && is_good(first); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      cudaSetDevice(devices[at]);
      first = ncclCommInitRankConfig(&communicators[at], ranks, id, rank, &config);
    }
    const ncclResult_t ended = ncclGroupEnd();  // after an error, too: a group must not stay open
    cudaSetDevice(before);
    if (is_good(first)) first = ended;
    for (std::size_t i = 0; i < communicators.size() && is_good(first); ++i) {
      first = settled(communicators[i], std::chrono::seconds(60));
    }
    detail::check(first, "ncclCommInitRankConfig");
    return communicators;
  }

  [[nodiscard]] static int number(const char* variable, int least, int most) {
    const char* words = std::getenv(variable);
    char* end = nullptr;
    const long value = words != nullptr ? std::strtol(words, &end, 10) : 0;
    if (words == nullptr || end == words || *end != '\0' || value < least || value > most) {
      raise(Errc::argument, detail::text({"tide::CudaCommunicators: ", variable, " must be a number from ", least,
                                          " to ", most, "; it is ", words != nullptr ? words : "not set", "."}));
    }
    return static_cast<int>(value);
  }

  mutable ncclComm_t gather_;  // null once aborted
  mutable ncclComm_t reduce_;
  mutable ncclComm_t mail_;
  mutable ncclComm_t meeting_;
  int device_;
  mutable bool has_parts_ = false;                            // others have been split from these
  std::shared_ptr<State> state_ = std::make_shared<State>();  // null once moved from
};

}  // namespace tide
