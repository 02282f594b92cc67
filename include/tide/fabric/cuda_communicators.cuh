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

#include <tide/core/index.hpp>                 // Rank
#include <tide/fabric/detail/cuda_check.cuh>   // check, settled, DeviceGuard
#include <tide/fabric/detail/failure.hpp>      // seconds_text
#include <tide/fabric/detail/nccl_puts.cuh>    // NcclFindings, nccl_configuration
#include <tide/fabric/detail/nccl_window.cuh>  // require_nccl
#include <tide/fabric/duration.hpp>            // Duration

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
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
/// not moved meanwhile. Moves. Ends them without the other ranks, for which NCCL could wait without end (ncclCommAbort:
/// a fabric has nothing under way when it ends). With them (ncclCommDestroy) only over several machines, where a last
/// message may still be on its way, and only where every fabric on them was closed. Those that others were split from
/// are left to the end of the process.
class CudaCommunicators {
 public:
  /// Takes communicators over; all must have the same ranks in the same order.
  /// @param mail     for letters between machines; null where all ranks reach each other's memory, or have no puts
  /// @param meeting  made with `blocking = 0` in its configuration; where it is null NCCL waits without end for a rank
  ///                 that does not come to `CudaFabric::init`
  /// @pre for puts between nodes `numRmaSig` of the configuration of each but `meeting` is at least 2; no `meeting`
  ///      where ranks are threads of one process that split these (NVIDIA/nccl#1605)
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
    const bool ends_with_others = state_ && state_->over_machines && !state_->distrusted && state_->unclosed == 0;
    if (!ends_with_others || has_parts_) give_up();
    for (const ncclComm_t each : {mail_, reduce_, gather_, meeting_}) {
      if (each != nullptr) ncclCommDestroy(each);
    }
  }

  /// One rank per device, all in this process.
  /// @throws Error (Errc::argument) where NCCL_COMM_BLOCKING is set, (Errc::mismatch) with an NCCL older than the one
  ///         this was compiled with, (Errc::operation) when there is no such device, and with NCCL's words
  [[nodiscard]] static std::vector<CudaCommunicators> of_devices(const std::vector<int>& devices) {
    require_own_blocking();
    std::vector<CudaCommunicators> all;
    for (const int device : devices) {
      const detail::DeviceGuard there_is_one(device);
      all.emplace_back(nullptr, nullptr, device);
      all.back().state_ = all[0].state_;  // what one rank finds out
    }
    if (!all.empty()) all[0].state_->are_threads = true;
    init_all(all, &CudaCommunicators::meeting_, meeting_configuration());
    init_all(all, &CudaCommunicators::gather_, detail::nccl_configuration());
    init_all(all, &CudaCommunicators::reduce_, detail::nccl_configuration());
    return all;
  }

  /// This process's rank of `TIDE_WORLD` ranks is `TIDE_RANK`, on device `TIDE_DEVICE` (by default the rank modulo the
  /// devices there are); ranks meet at `NCCL_COMM_ID` (host:port of rank 0), so nothing else has to start them.
  /// @param deadline  for all ranks to come
  /// @throws Error (Errc::argument) when a variable is missing or malformed, or NCCL_COMM_BLOCKING is set,
  ///         (Errc::deadline) when ranks do not come, (Errc::mismatch) with an NCCL older than the one this was
  ///         compiled with, (Errc::operation) with NCCL's words, for example when nobody has listened there for about a
  ///         minute
  [[nodiscard]] static CudaCommunicators from_environment(Duration deadline = std::chrono::seconds(60)) {
    require_own_blocking();
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
  /// @throws Error (Errc::operation) with NCCL's words, (Errc::order) when these have been given up, or ranks are
  ///         threads and a fabric has failed, (Errc::deadline) when ranks do not come: then these are over, or the
  ///         part. Where all ranks are threads of one process NCCL waits for them without end
  [[nodiscard]] CudaCommunicators split(int color, int key, Duration deadline = std::chrono::seconds(60)) const {
    // Where ranks are threads all refuse: NCCL would wait without end for one that did alone.
    if (gather_ == nullptr || (state_->are_threads && state_->distrusted)) {
      raise(Errc::order,
            "tide::CudaCommunicators: communicators cannot be split when a fabric on them has failed, or was not "
            "closed.");
    }
    const detail::DeviceGuard guard(device_);
    CudaCommunicators part(nullptr, nullptr, device_);
    part.state_ = state_;
    // Threads that split communicators that do not block have crashed NCCL (NVIDIA/nccl#1605): theirs do.
    if (meeting_ != nullptr && !state_->are_threads) {
      part.meeting_ = split_off(meeting_, color, key, meeting_configuration(), deadline);
    } else {
      part.gather_ = split_off(gather_, color, key, detail::nccl_configuration(), deadline);
    }
    has_parts_ = true;
    part.split_others(0, deadline);
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

  /// A rank may be gone, or what NCCL has counted is not known: of these communicators, of those that they were split
  /// from, and of others that were.
  void distrust() const noexcept { state_->distrusted = true; }
  [[nodiscard]] bool distrusted() const noexcept { return state_ && state_->distrusted; }
  /// All ranks come to the init of a fabric on these; and have closed it.
  void open(bool over_machines) const noexcept {
    ++state_->unclosed;
    if (over_machines) state_->over_machines = true;
  }
  void close() const noexcept { --state_->unclosed; }
  /// Ends all at once, and with them what is stuck in them: first those on which ranks meet, whose kernel would keep
  /// the memory of the others from being freed.
  void give_up() const noexcept {
    // NCCL 2.32.3 was seen to wait for ever in an abort of communicators that others had been split from.
    if (has_parts_) return abandon();
    for (ncclComm_t* each : {&meeting_, &mail_, &reduce_, &gather_}) {
      if (ncclComm_t ended = std::exchange(*each, nullptr)) ncclCommAbort(ended);
    }
  }
  /// Leaves all to the end of the process.
  void abandon() const noexcept { gather_ = reduce_ = mail_ = meeting_ = nullptr; }

 private:
  // Of these, of those that are split from them, and of all ranks that are in one process.
  struct State {
    std::atomic<bool> distrusted{false};
    std::atomic<bool> over_machines{false};
    std::atomic<int> unclosed{0};  // fabrics
    bool are_threads = false;      // all ranks are in this process
  };

  // The variable overrides what a configuration says, and with it every deadline here.
  static void require_own_blocking() {
    detail::require_nccl();
    if (const char* value = std::getenv("NCCL_COMM_BLOCKING")) {
      raise(Errc::argument, detail::text({"tide::CudaCommunicators: NCCL_COMM_BLOCKING must not be set; it is ", value,
                                          ". Ranks meet where NCCL does not block, and nowhere else."}));
    }
  }

  // It makes communicators and gathers a few words.
  [[nodiscard]] static ncclConfig_t meeting_configuration() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = 1;
    return config;
  }

  [[nodiscard]] bool settles(ncclComm_t communicator, ncclResult_t begun, const char* call, Duration deadline) const {
    const bool has_begun = detail::unless_in_progress(begun) == ncclSuccess;
    const ncclResult_t state = has_begun ? detail::settled(communicator, deadline) : begun;
    if (state == ncclSuccess) return true;
    distrust();
    if (state != ncclInProgress) detail::check(state, call);
    give_up();
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
    // NCCL writes here whenever the last rank comes, also long after a deadline.
    auto part = std::make_unique<ncclComm_t>(nullptr);
    if (!settles(whole, ncclCommSplit(whole, color, key, part.get(), &config), "ncclCommSplit", deadline)) {
      static_cast<void>(part.release());
      raise_late(deadline, rank, "all ranks to split their communicators");
    }
    detail::check(*part != nullptr ? detail::settled(*part, deadline) : ncclInternalError, "ncclCommSplit");
    return *part;
  }
  [[noreturn]] static void raise_late(Duration deadline, int rank, const std::string& what) {
    raise(Errc::deadline, detail::text({"tide::CudaCommunicators: the deadline of ", detail::seconds_text(deadline),
                                        " passed: rank ", rank, " waited for ", what, "."}));
  }

  // Communicators over all devices, each its own rank.  @pre the devices are there: a group that lacks a rank hangs
  static void init_all(std::vector<CudaCommunicators>& all, ncclComm_t CudaCommunicators::*which, ncclConfig_t config) {
    ncclUniqueId id;
    detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const int ranks = static_cast<int>(all.size());
    int before = 0;
    detail::check(cudaGetDevice(&before), "cudaGetDevice");
    ncclResult_t first = ncclGroupStart();
    for (int rank = 0; rank < ranks && first == ncclSuccess; ++rank) {
      CudaCommunicators& own = all[static_cast<std::size_t>(rank)];
      cudaSetDevice(own.device_);
      first = detail::unless_in_progress(ncclCommInitRankConfig(&(own.*which), ranks, id, rank, &config));
    }
    const ncclResult_t ended = ncclGroupEnd();  // after an error, too: a group must not stay open
    cudaSetDevice(before);
    if (first == ncclSuccess) first = detail::unless_in_progress(ended);
    for (const CudaCommunicators& own : all) {
      if (first == ncclSuccess) first = detail::settled(own.*which, std::chrono::seconds(60));
    }
    detail::check(first, "ncclCommInitRankConfig");
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
