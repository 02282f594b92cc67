// SPDX-License-Identifier: Apache-2.0
//
// CudaCommunicators: the NCCL communicators of one rank: one for gathers, one for reduces, since NCCL serialises all
// work on one communicator; and where ranks are on several machines, and put, one for letters, such as errors.
//
//   a thread per GPU      auto all = tide::CudaCommunicators::of_devices({0, 1});
//   a process per GPU     auto mine = tide::CudaCommunicators::from_environment();
//
// Test: tests/fabric/cuda_fabric.test.cu

#pragma once

#include <tide/core/index.hpp>                // Rank
#include <tide/fabric/detail/cuda_check.cuh>  // check, DeviceGuard
#include <tide/fabric/detail/nccl_puts.cuh>   // NcclFindings, nccl_configuration

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tide {

/// Two or three communicators over the same ranks, on one device. Moves; destroys them. Serves one CudaFabric at a
/// time, outlives it, and is not moved meanwhile.
class CudaCommunicators {
 public:
  /// Takes communicators over; all must have the same ranks in the same order.
  /// @param mail  for letters between machines; null where all ranks reach each other's memory, or have no puts
  /// @pre for puts between nodes `numRmaSig` of the configuration of each is at least 2
  CudaCommunicators(ncclComm_t gather, ncclComm_t reduce, int device, ncclComm_t mail = nullptr)
      : gather_(gather), reduce_(reduce), mail_(mail), device_(device) {}
  CudaCommunicators(CudaCommunicators&& other) noexcept
      : gather_(std::exchange(other.gather_, nullptr)),
        reduce_(std::exchange(other.reduce_, nullptr)),
        mail_(std::exchange(other.mail_, nullptr)),
        device_(other.device_),
        has_parts_(other.has_parts_),
        distrusted_(std::move(other.distrusted_)) {}
  CudaCommunicators& operator=(CudaCommunicators&&) = delete;
  ~CudaCommunicators() {
    // A driver that is shutting down, at the end of a process with static objects, has taken everything back already.
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return;
    if (distrusted()) {
      // NCCL 2.32.3 was seen to wait for ever in an abort of communicators that others had been split from.
      has_parts_ ? abandon() : abort();
    }
    if (mail_ != nullptr) ncclCommDestroy(mail_);
    if (reduce_ != nullptr) ncclCommDestroy(reduce_);
    if (gather_ != nullptr) ncclCommDestroy(gather_);
  }

  /// One rank per device, all in this process.
  /// @throws Error (Errc::operation) with NCCL's words
  [[nodiscard]] static std::vector<CudaCommunicators> of_devices(const std::vector<int>& devices) {
    std::vector<ncclComm_t> gather(devices.size());
    std::vector<ncclComm_t> reduce(devices.size());
    init_all(gather, devices);
    init_all(reduce, devices);
    std::vector<CudaCommunicators> all;
    for (std::size_t i = 0; i < devices.size(); ++i) all.emplace_back(gather[i], reduce[i], devices[i]);
    return all;
  }

  /// This process's rank of `TIDE_WORLD` ranks is `TIDE_RANK`, on device `TIDE_DEVICE` (by default the rank modulo the
  /// devices there are); ranks meet at `NCCL_COMM_ID` (host:port of rank 0), so nothing else has to start them.
  /// @throws Error (Errc::argument) when a variable is missing or malformed
  [[nodiscard]] static CudaCommunicators from_environment() {
    const int world = number("TIDE_WORLD", 1, 65535);
    const int rank = number("TIDE_RANK", 0, world - 1);
    if (std::getenv("NCCL_COMM_ID") == nullptr) {
      raise(Errc::argument, "tide::CudaCommunicators: NCCL_COMM_ID must be set to host:port of rank 0.");
    }
    int devices = 0;
    detail::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    const int device = std::getenv("TIDE_DEVICE") != nullptr ? number("TIDE_DEVICE", 0, devices - 1) : rank % devices;
    const detail::DeviceGuard guard(device);
    // With NCCL_COMM_ID every process derives the same id from the address.
    ncclUniqueId id;
    detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    ncclComm_t gather = nullptr;
    ncclConfig_t config = detail::nccl_configuration();
    detail::check(ncclCommInitRankConfig(&gather, world, id, rank, &config), "ncclCommInitRankConfig");
    return beside(gather, rank, device);
  }

  /// Communicators over the ranks that give the same `color`, in the order of their `key`. Collective over all ranks.
  /// @throws Error (Errc::operation) with NCCL's words
  [[nodiscard]] CudaCommunicators split(int color, int key) const {
    const detail::DeviceGuard guard(device_);
    CudaCommunicators part = beside(split_of(gather_, color, key), 0, device_);
    part.distrusted_ = distrusted_;
    has_parts_ = true;
    return part;
  }

  [[nodiscard]] ncclComm_t gather() const noexcept { return gather_; }
  [[nodiscard]] ncclComm_t reduce() const noexcept { return reduce_; }
  /// Null where all ranks reach each other's memory, or have no puts.
  [[nodiscard]] ncclComm_t mail() const noexcept { return mail_; }
  [[nodiscard]] int device() const noexcept { return device_; }

  /// A rank may be gone: from now on nothing that needs all ranks is done to the communicators, to those that they were
  /// split from, or to others that were, and they are ended without the others.
  void distrust() const noexcept { *distrusted_ = true; }
  [[nodiscard]] bool distrusted() const noexcept { return distrusted_ && *distrusted_; }
  /// Ends all at once, and with them what is stuck in them.
  void abort() const noexcept {
    if (ncclComm_t ended = std::exchange(mail_, nullptr)) ncclCommAbort(ended);
    if (ncclComm_t ended = std::exchange(reduce_, nullptr)) ncclCommAbort(ended);
    if (ncclComm_t ended = std::exchange(gather_, nullptr)) ncclCommAbort(ended);
  }
  /// Leaves all to the end of the process.
  void abandon() const noexcept { gather_ = reduce_ = mail_ = nullptr; }

 private:
  // A communicator, and beside it the others that a rank needs. Collective over it.
  [[nodiscard]] static CudaCommunicators beside(ncclComm_t gather, int rank, int device) {
    const ncclComm_t reduce = split_of(gather, 0, rank);
    const detail::NcclFindings found(gather);
    const bool has_letters = found.nodes > 1 && found.no_puts.empty();
    return {gather, reduce, device, has_letters ? split_of(gather, 0, rank) : nullptr};
  }
  [[nodiscard]] static ncclComm_t split_of(ncclComm_t whole, int color, int key) {
    ncclComm_t part = nullptr;
    ncclConfig_t config = detail::nccl_configuration();
    detail::check(ncclCommSplit(whole, color, key, &part, &config), "ncclCommSplit");
    return part;
  }
  // A communicator over all devices, each its own rank.
  static void init_all(std::vector<ncclComm_t>& communicators, const std::vector<int>& devices) {
    ncclUniqueId id;
    detail::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    ncclConfig_t config = detail::nccl_configuration();
    int before = 0;
    detail::check(cudaGetDevice(&before), "cudaGetDevice");
    ncclResult_t first = ncclGroupStart();
    const int ranks = static_cast<int>(devices.size());
    for (int rank = 0; rank < ranks && first == ncclSuccess; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      cudaSetDevice(devices[at]);
      first = ncclCommInitRankConfig(&communicators[at], ranks, id, rank, &config);
    }
    const ncclResult_t ended = ncclGroupEnd();  // after an error, too: a group must not stay open
    cudaSetDevice(before);
    detail::check(first == ncclSuccess ? ended : first, "ncclCommInitRankConfig");
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
  int device_;
  mutable bool has_parts_ = false;  // others have been split from these
  std::shared_ptr<std::atomic<bool>> distrusted_ = std::make_shared<std::atomic<bool>>(false);  // null once moved from
};

}  // namespace tide
