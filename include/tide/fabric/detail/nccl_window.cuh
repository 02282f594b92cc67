// SPDX-License-Identifier: Apache-2.0
//
// The arena on GPUs: one ncclMemAlloc, one window at offset 0 on each communicator that needs one, and the peers'
// addresses in it.
//
// Host getters of peer addresses came with NCCL 2.29.2; before, only device code can ask, so a one-thread kernel does.
// Both need a library that is not older than the header that was compiled against.

#pragma once

#include <tide/core/config.hpp>               // TIDE_HIDDEN
#include <tide/core/index.hpp>                // index_t
#include <tide/fabric/detail/cuda_check.cuh>  // check

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"  // NCCL 2.28 to 2.32
#endif
#include <nccl_device.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 3)
#error "tide: NCCL 2.28.3 or newer is required; nccl.h is older."
#endif

namespace tide::detail {

// "2.28.9"
[[nodiscard]] inline std::string nccl_version_text(int code) {
  return text({code / 10000, ".", code / 100 % 100, ".", code % 100});
}

// Refuses a library that lacks what the header promised.
inline void require_nccl() {
  int loaded = 0;
  check(ncclGetVersion(&loaded), "ncclGetVersion");
  if (loaded >= NCCL_VERSION_CODE) return;
  raise(Errc::mismatch, text({"tide::CudaFabric: the NCCL library must not be older than its header; compiled with ",
                              nccl_version_text(NCCL_VERSION_CODE), ", loaded ", nccl_version_text(loaded), "."}));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
// What NCCL says of a communicator.
[[nodiscard]] inline ncclCommProperties_t nccl_properties(ncclComm_t communicator) {
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"  // of NCCL's macro
#endif
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
  check(ncclCommQueryProperties(communicator, &properties), "ncclCommQueryProperties");
  return properties;
}
#else
// A template, so that several translation units may hold it.
template <class Pointer>
TIDE_HIDDEN __global__ void ask_peer_pointers(ncclWindow_t window, int ranks, Pointer* out) {
  for (int rank = 0; rank < ranks; ++rank) out[rank] = ncclGetPeerPointer(window, 0, rank);
}
#endif

class NcclWindow {
 public:
  NcclWindow() = default;
  NcclWindow(const NcclWindow&) = delete;
  NcclWindow& operator=(const NcclWindow&) = delete;
  ~NcclWindow() { release(); }

  // Local. False when there is no memory: all ranks must hear of it before any registers.
  [[nodiscard]] bool allocate(index_t bytes) {
    bytes_ = static_cast<std::size_t>(align_up(std::max<index_t>(bytes, 1), index_t{1} << 21));
    if (ncclMemAlloc(&memory_, bytes_) == ncclSuccess) return true;
    memory_ = nullptr;
    static_cast<void>(cudaGetLastError());
    return false;
  }

  // The same memory as a window of one communicator more, for puts through it. Collective over the communicator.
  [[nodiscard]] ncclWindow_t register_on(ncclComm_t communicator) {
    ncclWindow_t window = nullptr;
    check(ncclCommWindowRegister(communicator, memory_, bytes_, &window, NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
    if (window == nullptr) {
      raise(
          Errc::operation,
          "tide::CudaFabric: NCCL gives no symmetric window on this communicator; all ranks of a node must reach each "
          "other, NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE must not be 0.");
    }
    windows_.emplace_back(communicator, window);
    return window;
  }

  // Collective over the communicator; raises when windows are not to be had. Peers count as the communicator's ranks.
  void register_memory(ncclComm_t communicator, index_t ranks, cudaStream_t stream) {
    register_memory(communicator, ranks, stream, 0, ranks);
  }
  // The same on a communicator of `ranks` ranks that are ranks `first` and on of `world`; the others are out of reach.
  // A rank that is alone needs no window.
  void register_memory(ncclComm_t communicator, index_t ranks, cudaStream_t stream, index_t first, index_t world) {
    peers_.assign(static_cast<std::size_t>(world), nullptr);
    if (ranks == 1 && world > 1) return;
    const ncclWindow_t window = register_on(communicator);
    void** const peers = peers_.data() + first;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
    static_cast<void>(stream);
    for (index_t r = 0; r < ranks; ++r) {
      check(ncclGetPeerDevicePointer(window, 0, static_cast<int>(r), &peers[r]), "ncclGetPeerDevicePointer");
    }
#else
    void** on_device = nullptr;
    const std::size_t size = sizeof(void*) * static_cast<std::size_t>(ranks);
    check(cudaMalloc(&on_device, size), "cudaMalloc");
    ask_peer_pointers<void*><<<1, 1, 0, stream>>>(window, static_cast<int>(ranks), on_device);
    check(cudaGetLastError(), "ask_peer_pointers");
    check(cudaMemcpyAsync(peers, on_device, size, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check(cudaFree(on_device), "cudaFree");
#endif
  }

  [[nodiscard]] std::byte* memory() const noexcept { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] bool holds(const void* pointer) const noexcept {
    return pointer >= memory_ && pointer < memory() + bytes_;
  }

  // @pre it was registered on the communicator
  [[nodiscard]] ncclWindow_t window_of(ncclComm_t communicator) const noexcept {
    const auto is_of = [&](const auto& entry) { return entry.first == communicator; };
    return std::find_if(windows_.begin(), windows_.end(), is_of)->second;
  }

  // The communicator on which it was registered first, whose ranks are the peers, and the window there.  @pre it was
  [[nodiscard]] const std::pair<ncclComm_t, ncclWindow_t>& first() const noexcept { return windows_.front(); }

  // Gives peers other numbers: number i is the communicator's rank `ranks[i]` from now on.
  void renumber(const std::vector<int>& ranks) {
    std::vector<void*> renumbered;
    for (const int rank : ranks) renumbered.push_back(peers_[static_cast<std::size_t>(rank)]);
    peers_ = std::move(renumbered);
  }

  // The start of a rank's arena as this process sees it; null for a rank that it cannot reach.
  [[nodiscard]] std::byte* peer(index_t rank, index_t own) const noexcept {
    return static_cast<std::byte*>(rank == own ? memory_ : peers_[static_cast<std::size_t>(rank)]);
  }

  // Leaves everything to the end of the process: for memory that a stuck stream still uses.
  void abandon() noexcept {
    windows_.clear();
    memory_ = nullptr;
  }

  // Windows before their communicators, memory last. Needs the communicators alive.
  void release() noexcept {
    for (const auto& [communicator, window] : windows_) ncclCommWindowDeregister(communicator, window);
    windows_.clear();
    if (memory_ != nullptr) ncclMemFree(std::exchange(memory_, nullptr));
  }

 private:
  std::vector<std::pair<ncclComm_t, ncclWindow_t>> windows_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<void*> peers_;
};

}  // namespace tide::detail
