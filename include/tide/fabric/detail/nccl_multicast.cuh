// SPDX-License-Identifier: Apache-2.0
//
// The multicast address of the arena: whether NCCL has one, and how it is asked for. What depends on NCCL's version is
// here. tide makes no multicast object of its own (docs/decisions/0012-multicast-on-gpus.md).
//
//   arena of rank 0   |--------x----|
//   arena of rank 1   |--------x----|      x = address + offset: one write there is a write to each
//   arena of rank 2   |--------x----|
//
// Test: tests/fabric/cuda_multicast.test.cu

#pragma once

#include <tide/core/index.hpp>                 // index_t
#include <tide/fabric/detail/cuda_check.cuh>   // check
#include <tide/fabric/detail/nccl_window.cuh>  // nccl_device.h, nccl_properties

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace tide::detail {

// What decides whether a rank has a multicast address.
struct MulticastFacts {
  bool gpu = false;                   // the driver's attribute of the GPU
  const char* environment = nullptr;  // NCCL_NVLS_ENABLE; null where it is not set
  index_t team = 1;                   // ranks that reach each other's memory: NCCL's address spans them all
  index_t node = 1;                   // ranks of a node of the mesh
  std::optional<bool> nccl{};         // what NCCL says of the communicator; nothing where it cannot be asked
};

// Why there is no multicast address; empty where there is one, as far as can be known before it is asked for.
[[nodiscard]] inline std::string why_no_multicast(const MulticastFacts& facts) {
  const auto is_off = [](const char* value) {
    char* end = nullptr;
    return value != nullptr && std::strtoll(value, &end, 0) == 0 && end != value;
  };
  if (!facts.gpu) return "the GPU or its driver has none (CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED is 0)";
  if (is_off(facts.environment)) return text({"NCCL_NVLS_ENABLE=", facts.environment, " switches it off"});
  // NCCL itself uses the address of a larger team only.
  if (facts.team <= 2) {
    return text({"it needs more than 2 ranks that reach each other's memory, each on a GPU of its own; here ",
                 facts.team == 1 ? "is 1" : "are 2"});
  }
  if (facts.node != facts.team) {
    return text({"NCCL's address spans all ", facts.team, " ranks that reach each other's memory; a logical node of ",
                 facts.node, " has none of its own"});
  }
  if (facts.nccl == false) {
    return "NCCL says that this communicator has no multimem; it needs an NVSwitch whose fabric manager runs, each "
           "rank on a GPU of its own, and a driver that allows multicast";
  }
  return {};
}

// What NCCL says; from 2.29.2 on it can be asked before there is a window.
[[nodiscard]] inline std::optional<bool> nccl_has_multimem(ncclComm_t communicator) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
  return nccl_properties(communicator).multimemSupport;
#else
  static_cast<void>(communicator);
  return std::nullopt;
#endif
}

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
// A template, so that several translation units may hold it.
template <class Pointer>
TIDE_HIDDEN __global__ void ask_multicast_pointer(ncclWindow_t window, ncclDevComm device_communicator, Pointer* out) {
  *out = ncclGetLsaMultimemPointer(window, 0, device_communicator);
}
#endif

// The address, and what must live as long as it.
class NcclMulticast {
 public:
  NcclMulticast() = default;
  NcclMulticast(const NcclMulticast&) = delete;
  NcclMulticast& operator=(const NcclMulticast&) = delete;
  ~NcclMulticast() { release(); }

  // Collective over all ranks that reach each other's memory, on the device that is current; says why there is no
  // address instead of raising it, so that all ranks can hear of it. What is written there before all ranks have come
  // back may be lost on some of them: they must meet first.
  //
  // @pre why_no_multicast() has nothing to say on any of these ranks
  [[nodiscard]] std::string ask(ncclWindow_t window, ncclComm_t communicator, cudaStream_t stream) {
    const auto failed = [](ncclResult_t status, const char* call) {
      if (status == ncclSuccess) return std::string();
      const char* words = ncclGetLastError(nullptr);
      return text({call, " failed: ", ncclGetErrorString(status), "; ", words != nullptr ? words : ""});
    };
    void* found = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
    static_cast<void>(communicator);
    static_cast<void>(stream);
    std::string why = failed(ncclGetLsaMultimemDevicePointer(window, 0, &found), "ncclGetLsaMultimemDevicePointer");
    if (!why.empty()) return why;
#else
    // Host getters came with 2.29.2; before, a communicator of the device tells, in a kernel.
    ncclDevCommRequirements requirements{};
    requirements.lsaMultimem = true;
    std::string why = failed(ncclDevCommCreate(communicator, &requirements, &device_communicator_),
                             "ncclDevCommCreate with lsaMultimem");
    if (!why.empty()) return why;
    communicator_ = communicator;
    void** on_device = nullptr;
    check(cudaMalloc(&on_device, sizeof(void*)), "cudaMalloc");
    ask_multicast_pointer<void*><<<1, 1, 0, stream>>>(window, device_communicator_, on_device);
    check(cudaGetLastError(), "ask_multicast_pointer");
    check(cudaMemcpyAsync(&found, on_device, sizeof(void*), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check(cudaFree(on_device), "cudaFree");
#endif
    address_ = static_cast<std::byte*>(found);
    return address_ != nullptr ? std::string() : "NCCL gives no multicast address";
  }

  // Where the arenas of all ranks begin as one; null before `ask`, and where it found none.
  [[nodiscard]] std::byte* address() const noexcept { return address_; }

  // Leaves everything to the end of the process.
  void abandon() noexcept { communicator_ = nullptr; }

  // Before the window. Needs the communicator alive.
  void release() noexcept {
    address_ = nullptr;
    [[maybe_unused]] const ncclComm_t communicator = std::exchange(communicator_, nullptr);
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
    if (communicator != nullptr) ncclDevCommDestroy(communicator, &device_communicator_);
#endif
  }

 private:
  std::byte* address_ = nullptr;
  ncclComm_t communicator_ = nullptr;  // of the device communicator
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
  ncclDevComm device_communicator_{};
#endif
};

}  // namespace tide::detail
