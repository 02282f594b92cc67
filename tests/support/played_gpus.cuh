// SPDX-License-Identifier: Apache-2.0
//
// GPUs, their driver, and NCCL, played by this file on the CPU, with what no test machine has: an NVSwitch in each
// node. Ranks are threads of one process, memory is the process's, and NCCL's multicast address of a node is a range
// that nobody may touch: a copy into it is a copy into the arena of each rank of the node that has asked for it by
// then.
//
// A call does what it enqueues at once, and a wait on a stream holds the thread that enqueues it. So each rank is one
// queue in issue order, in which every plan makes progress. Kernels are functions of the test.
//
// Included by one file of a program: it defines the functions of the CUDA runtime, the driver and NCCL.

#pragma once

#include <tide/fabric/cuda_fabric.cuh>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace tide_test {

using tide::index_t;
using namespace std::chrono_literals;

/// How the machine behaves, rank by rank where ranks may differ.
struct PlayedMachine {
  /// What stands for a kernel of tide; never called for the launches that only load one.
  using Kernel = cudaError_t (*)(const void* kernel, const tide::detail::CudaLaunch& launch);

  std::vector<int> gpu_has_multicast{};    ///< the driver's attribute; -1: it does not know it
  std::vector<char> nccl_has_multimem{};   ///< what NCCL says when it can be asked
  std::vector<char> nccl_gives_address{};  ///< when it is asked for
  int nccl_teams = 1;                      ///< that NCCL finds: ranks that reach each other's memory
  Kernel kernel = nullptr;                 ///< null where a test launches none
  const char* environment = nullptr;       ///< NCCL_NVLS_ENABLE; null where it is not set
  index_t loses_writes_to = -1;            ///< a rank that the switch leaves out
  index_t spoils_width = -1;               ///< width of the rows that a switch spoils

  explicit PlayedMachine(index_t ranks)
      : gpu_has_multicast(static_cast<std::size_t>(ranks), 1),
        nccl_has_multimem(static_cast<std::size_t>(ranks), 1),
        nccl_gives_address(nccl_has_multimem) {}
};

namespace played {

// A communicator of one rank, and the signals that have come to it: by sender and index.
struct Communicator {
  int rank = 0;
  int kind = 0;
  std::vector<std::array<int, 2>> signals{};
};
inline constexpr int kinds = 3;  // of gathers, of reduces, of letters

struct State {
  PlayedMachine machine{0};
  std::array<std::vector<Communicator>, kinds> communicators;
  std::vector<std::byte*> arenas;
  std::vector<std::size_t> sizes;
  std::vector<char> has_asked;  // for the multicast address: writes reach nobody else
  std::mutex mutex;
  std::condition_variable met;
  std::vector<const void*> given;  // of a collective: what each rank brings
  std::size_t came = 0;
  std::size_t meetings = 0;
  std::atomic<int> multicast_copies{0};
  std::atomic<int> peer_copies{0};  // of more than a signal, into the arena of another rank
  std::atomic<int> address_questions{0};
};
inline State state;
inline thread_local int device = 0;

// An address that no memory has.
inline std::byte* const multicast_address = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 46);
inline constexpr std::size_t multicast_bytes = std::size_t{1} << 32;  // of each node

[[nodiscard]] inline Communicator& as_played(ncclComm_t communicator) {
  return *reinterpret_cast<Communicator*>(communicator);
}
[[nodiscard]] inline int rank_of(ncclComm_t communicator) { return as_played(communicator).rank; }
[[nodiscard]] inline std::size_t team_of(std::size_t rank) {
  return rank / (state.arenas.size() / static_cast<std::size_t>(state.machine.nccl_teams));
}
[[nodiscard]] inline bool is_multicast(const void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  return at >= multicast_address &&
         at < multicast_address + multicast_bytes * static_cast<std::size_t>(state.machine.nccl_teams);
}

// Words of 8 bytes are what other threads wait for.
inline void copy(void* to, const void* from, std::size_t bytes) {
  const bool is_word = bytes == 8 && reinterpret_cast<std::uintptr_t>(to) % 8 == 0;
  if (!is_word) {
    std::memmove(to, from, bytes);
    return;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, from, 8);
  __atomic_store_n(static_cast<std::uint64_t*>(to), word, __ATOMIC_RELEASE);  // acquired by waits
}

// A row of a copy, which may go to the multicast address.
inline cudaError_t copy_row(void* to, const void* from, std::size_t bytes) {
  if (!is_multicast(to)) {
    copy(to, from, bytes);
    return cudaSuccess;
  }
  const auto distance = static_cast<std::size_t>(static_cast<std::byte*>(to) - multicast_address);
  const std::size_t at = distance % multicast_bytes;
  for (std::size_t r = 0; r < state.arenas.size(); ++r) {
    if (team_of(r) != distance / multicast_bytes) continue;
    if (at + bytes > state.sizes[r]) return cudaErrorIllegalAddress;
    if (state.has_asked[r] == 0 || static_cast<index_t>(r) == state.machine.loses_writes_to) continue;
    copy(state.arenas[r] + at, from, bytes);
    if (static_cast<index_t>(bytes) == state.machine.spoils_width) state.arenas[r][at] ^= std::byte{1};
  }
  return cudaSuccess;
}

inline void count(const void* to, std::size_t bytes) {
  const auto* target = static_cast<const std::byte*>(to);
  if (is_multicast(to)) ++state.multicast_copies;
  for (std::size_t r = 0; r < state.arenas.size(); ++r) {
    if (static_cast<int>(r) == device || state.arenas[r] == nullptr || bytes == 8) continue;
    if (target >= state.arenas[r] && target < state.arenas[r] + state.sizes[r]) ++state.peer_copies;
  }
}

// All ranks bring something, `use(list)` sees all of it, and nobody goes before everybody has seen it.
template <class Use>
ncclResult_t meet(int rank, const void* mine, const Use& use) {
  std::unique_lock lock(state.mutex);
  const auto come = [&] {
    const std::size_t meeting = state.meetings;
    if (++state.came == state.given.size()) {
      state.came = 0;
      ++state.meetings;
      state.met.notify_all();
      return true;
    }
    return state.met.wait_for(lock, 20s, [&] { return state.meetings != meeting; });
  };
  state.given[static_cast<std::size_t>(rank)] = mine;
  if (!come()) return ncclSystemError;
  use(state.given);
  return come() ? ncclSuccess : ncclSystemError;
}

// What the kernels that ask for addresses find.
inline ncclResult_t multicast_of(int rank, void** pointer) {
  const std::lock_guard lock(state.mutex);
  ++state.address_questions;
  *pointer = nullptr;
  if (state.machine.nccl_gives_address[static_cast<std::size_t>(rank)] == 0) return ncclSystemError;
  state.has_asked[static_cast<std::size_t>(rank)] = 1;
  *pointer = multicast_address + multicast_bytes * team_of(static_cast<std::size_t>(rank));
  return ncclSuccess;
}

}  // namespace played

/// Ranks on played GPUs, for the suites (support/host_ranks.hpp).
struct PlayedRanks {
  using Fabric = tide::CudaFabric;
  using Stream = tide::CudaStream;

  class Memory {
   public:
    Memory(Fabric&, std::size_t bytes, std::size_t shift = 0)
        : bytes_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + shift + 64) / 64 * 64))), shift_(shift) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { std::free(bytes_); }
    [[nodiscard]] std::byte* data() const { return bytes_ + shift_; }

   private:
    std::byte* bytes_;
    std::size_t shift_;
  };

  PlayedMachine machine;
  tide::CudaOptions options = {.deadline = 30s};
  index_t emulating = -1;  ///< a rank whose options say so, whatever those of the others say

  [[nodiscard]] static ncclComm_t communicator(std::size_t kind, std::size_t rank) {
    return reinterpret_cast<ncclComm_t>(&played::state.communicators[kind][rank]);
  }

  template <class Program>
  void run(index_t ranks, const Program& program) const {
    const auto count = static_cast<std::size_t>(ranks);
    unsetenv("NCCL_NVLS_ENABLE");
    if (machine.environment != nullptr) setenv("NCCL_NVLS_ENABLE", machine.environment, 1);
    played::state.machine = machine;
    for (auto& of_kind : played::state.communicators) of_kind.assign(count, {});
    played::state.arenas.assign(count, nullptr);
    played::state.sizes.assign(count, 0);
    played::state.has_asked.assign(count, 0);
    played::state.given.assign(count, nullptr);
    played::state.came = 0;
    played::state.multicast_copies = 0;
    played::state.peer_copies = 0;
    played::state.address_questions = 0;
    std::vector<std::exception_ptr> thrown(count);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < count; ++r) {
      for (int kind = 0; kind < played::kinds; ++kind) {
        played::state.communicators[static_cast<std::size_t>(kind)][r] = {
            static_cast<int>(r), kind, std::vector<std::array<int, 2>>(count, std::array<int, 2>{})};
      }
      threads.emplace_back([&, r] {
        played::device = static_cast<int>(r);
        try {
          const tide::CudaCommunicators all(communicator(0, r), communicator(1, r), static_cast<int>(r),
                                            machine.nccl_teams > 1 ? communicator(2, r) : nullptr);
          tide::CudaOptions own = options;
          if (static_cast<index_t>(r) == emulating) own.multicast = tide::CudaMulticast::emulated;
          Fabric fabric(all, own);
          program(fabric);
        } catch (...) {
          thrown[r] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& each : thrown) {
      if (each) std::rethrow_exception(each);
    }
  }

  static void write(Stream& stream, std::byte* to, std::vector<std::byte> bytes) {
    if (bytes.empty()) return;
    stream.run([to, bytes = std::move(bytes)] { std::memcpy(to, bytes.data(), bytes.size()); });
  }
  static void read(Stream& stream, const std::byte* from, std::span<std::byte> into) {
    if (into.empty()) return;
    stream.run([from, into] { std::memcpy(into.data(), from, into.size()); });
  }
};

}  // namespace tide_test

// ---- the CUDA runtime ----------------------------------------------------------------------------------------------

// CUDA's headers define some of these for devices, so that nvcc takes no second definition under the same name.
#define TIDE_PLAYED(Result, name, parameters)     \
  Result played_##name parameters __asm__(#name); \
  Result played_##name parameters

extern "C" {

TIDE_PLAYED(cudaError_t, cudaGetDevice, (int* device)) {
  *device = tide_test::played::device;
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaSetDevice, (int device)) {
  tide_test::played::device = device;
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaGetLastError, ()) { return cudaSuccess; }
TIDE_PLAYED(const char*, cudaGetErrorString, (cudaError_t)) { return "as played"; }
TIDE_PLAYED(cudaError_t, cudaDeviceGetAttribute, (int* value, cudaDeviceAttr, int)) {
  *value = 9;  // a compute capability, and too little shared memory for sums with bulk loads
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaDeviceGetStreamPriorityRange, (int* least, int* greatest)) {
  *least = *greatest = 0;
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaMemGetInfo, (std::size_t * free, std::size_t* total)) {
  *free = *total = std::size_t{1} << 34;
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaPointerGetAttributes, (cudaPointerAttributes * attributes, const void* pointer)) {
  using tide_test::played::state;
  for (std::size_t r = 0; r < state.arenas.size(); ++r) {
    if (pointer == state.arenas[r]) attributes->device = static_cast<int>(r);
  }
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaMalloc, (void** pointer, std::size_t bytes)) {
  *pointer = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaFree, (void* pointer)) {
  std::free(pointer);
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaHostAlloc, (void** pointer, std::size_t bytes, unsigned)) {
  return cudaMalloc(pointer, bytes);
}
TIDE_PLAYED(cudaError_t, cudaMallocHost, (void** pointer, std::size_t bytes)) { return cudaMalloc(pointer, bytes); }
TIDE_PLAYED(cudaError_t, cudaFreeHost, (void* pointer)) { return cudaFree(pointer); }
TIDE_PLAYED(cudaError_t, cudaMemcpyAsync,
            (void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t)) {
  tide_test::played::count(to, bytes);
  return tide_test::played::copy_row(to, from, bytes);
}
TIDE_PLAYED(cudaError_t, cudaMemcpy, (void* to, const void* from, std::size_t bytes, cudaMemcpyKind)) {
  return tide_test::played::copy_row(to, from, bytes);
}
TIDE_PLAYED(cudaError_t, cudaMemcpy2DAsync,
            (void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
             std::size_t rows, cudaMemcpyKind, cudaStream_t)) {
  using namespace tide_test::played;
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  count(to, width * rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const cudaError_t status = copy_row(static_cast<std::byte*>(to) + row * to_pitch,
                                        static_cast<const std::byte*>(from) + row * from_pitch, width);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaMemsetAsync, (void* to, int value, std::size_t bytes, cudaStream_t)) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaMemset, (void* to, int value, std::size_t bytes)) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned)) {
  return cudaMalloc(reinterpret_cast<void**>(stream), 1);
}
TIDE_PLAYED(cudaError_t, cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned, int)) {
  return cudaMalloc(reinterpret_cast<void**>(stream), 1);
}
TIDE_PLAYED(cudaError_t, cudaStreamDestroy, (cudaStream_t stream)) { return cudaFree(stream); }
TIDE_PLAYED(cudaError_t, cudaStreamQuery, (cudaStream_t)) { return cudaSuccess; }
TIDE_PLAYED(cudaError_t, cudaStreamSynchronize, (cudaStream_t)) { return cudaSuccess; }
TIDE_PLAYED(cudaError_t, cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned)) { return cudaSuccess; }
TIDE_PLAYED(cudaError_t, cudaStreamIsCapturing, (cudaStream_t, cudaStreamCaptureStatus* status)) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaLaunchHostFunc, (cudaStream_t, cudaHostFn_t function, void* object)) {
  function(object);
  return cudaSuccess;
}
TIDE_PLAYED(cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned)) {
  return cudaMalloc(reinterpret_cast<void**>(event), 1);
}
TIDE_PLAYED(cudaError_t, cudaEventDestroy, (cudaEvent_t event)) { return cudaFree(event); }
TIDE_PLAYED(cudaError_t, cudaEventRecord, (cudaEvent_t, cudaStream_t)) { return cudaSuccess; }
TIDE_PLAYED(cudaError_t, cudaEventQuery, (cudaEvent_t)) { return cudaSuccess; }
TIDE_PLAYED(cudaError_t, cudaFuncSetAttribute, (const void*, cudaFuncAttribute, int)) { return cudaSuccess; }
TIDE_PLAYED(cudaError_t, cudaLaunchKernelExC, (const cudaLaunchConfig_t*, const void* kernel, void** arguments)) {
  const auto& launch = *static_cast<const tide::detail::CudaLaunch*>(arguments[0]);
  const tide_test::PlayedMachine::Kernel play = tide_test::played::state.machine.kernel;
  return launch.rows == nullptr || play == nullptr ? cudaSuccess : play(kernel, launch);
}

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
// Kernels that ask for addresses; what nvcc makes of a launch.
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
[[gnu::noipa]] cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, std::size_t,
                                                        cudaStream_t) {
  using namespace tide_test::played;
  if (kernel == reinterpret_cast<cudaKernel_t>(&tide::detail::ask_peer_pointers<void*>)) {
    void** const out = *static_cast<void***>(arguments[2]);
    for (std::size_t r = 0; r < state.arenas.size(); ++r) out[r] = state.arenas[r];
  } else if (kernel == reinterpret_cast<cudaKernel_t>(&tide::detail::ask_multicast_pointer<void*>)) {
    const auto communicator = reinterpret_cast<ncclComm_t>(*static_cast<ncclWindow_t*>(arguments[0]));
    static_cast<void>(multicast_of(rank_of(communicator), *static_cast<void***>(arguments[2])));
    --state.address_questions;  // the same one again
  }
  return cudaSuccess;
}
#endif

// ---- the driver ----------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuGetErrorString(CUresult, const char** words) {
  *words = "as played";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const auto& has = tide_test::played::state.machine.gpu_has_multicast;
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED ? has[static_cast<std::size_t>(device)] : 1;
  return *value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamWriteValue64(CUstream, CUdeviceptr address, cuuint64_t value, unsigned) {
  tide_test::played::copy(reinterpret_cast<void*>(address), &value, 8);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamBatchMemOp(CUstream, unsigned count, CUstreamBatchMemOpParams* list, unsigned) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (unsigned i = 0; i < count; ++i) {
    const auto* word = reinterpret_cast<const std::uint64_t*>(list[i].waitValue.address);
    while (static_cast<std::int64_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - list[i].waitValue.value64) < 0) {
      if (std::chrono::steady_clock::now() > end) return CUDA_ERROR_TIMEOUT;
      std::this_thread::yield();
    }
  }
  return CUDA_SUCCESS;
}

// ---- NCCL ----------------------------------------------------------------------------------------------------------

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "unhandled system error"; }
const char* ncclGetLastError(ncclComm_t) { return "as played"; }
ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int* rank) {
  *rank = tide_test::played::rank_of(communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t, int* count) {
  *count = static_cast<int>(tide_test::played::state.arenas.size());
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t, ncclComm_t communicator,
                           cudaStream_t) {
  const std::size_t bytes = 8 * count;  // of what tide gathers
  return tide_test::played::meet(tide_test::played::rank_of(communicator), from, [&](const auto& given) {
    for (std::size_t r = 0; r < given.size(); ++r) {
      std::memmove(static_cast<std::byte*>(to) + r * bytes, given[r], bytes);
    }
  });
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t) {
  int least = 0;
  const ncclResult_t status =
      tide_test::played::meet(tide_test::played::rank_of(communicator), from, [&](const auto& given) {
        least = *static_cast<const int*>(given[0]);
        for (const void* each : given) least = std::min(least, *static_cast<const int*>(each));
      });
  *static_cast<int*>(to) = least;
  return status;
}
ncclResult_t ncclMemAlloc(void** pointer, std::size_t bytes) {
  using namespace tide_test::played;
  *pointer = std::aligned_alloc(4096, bytes);
  std::memset(*pointer, 0xA5, bytes);
  const std::lock_guard lock(state.mutex);
  state.arenas[static_cast<std::size_t>(device)] = static_cast<std::byte*>(*pointer);
  state.sizes[static_cast<std::size_t>(device)] = bytes;
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* pointer) {
  std::free(pointer);
  return ncclSuccess;
}
ncclTeam_t ncclTeamLsa(ncclComm_t communicator) {
  using namespace tide_test::played;
  const int ranks = static_cast<int>(state.arenas.size()) / state.machine.nccl_teams;
  return {ranks, rank_of(communicator) % ranks, 1};
}
// Calls of fabrics that no test here makes, so that any fabric links.
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*) { return ncclInvalidUsage; }
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}
ncclResult_t ncclRecv(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclInvalidUsage; }
// A window is its communicator.
ncclResult_t ncclCommWindowRegister(ncclComm_t communicator, void*, std::size_t, ncclWindow_t* window, int) {
  *window = reinterpret_cast<ncclWindow_t>(communicator);
  return tide_test::played::meet(tide_test::played::rank_of(communicator), nullptr, [](const auto&) {});
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t, int peer, void** pointer) {
  using namespace tide_test::played;
  const auto own = static_cast<std::size_t>(rank_of(reinterpret_cast<ncclComm_t>(window)));
  const auto other = static_cast<std::size_t>(peer);
  *pointer = team_of(own) == team_of(other) ? state.arenas[other] : nullptr;
  return ncclSuccess;
}
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, std::size_t, void** pointer) {
  return tide_test::played::multicast_of(tide_test::played::rank_of(reinterpret_cast<ncclComm_t>(window)), pointer);
}
ncclResult_t ncclCommQueryProperties(ncclComm_t communicator, ncclCommProperties_t* properties) {
  using namespace tide_test::played;
  properties->multimemSupport = state.machine.nccl_has_multimem[static_cast<std::size_t>(rank_of(communicator))] != 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
  properties->nLsaTeams = state.machine.nccl_teams;
  properties->hostRmaSupport = true;
#endif
  return ncclSuccess;
}
#else
ncclResult_t ncclDevCommCreate(ncclComm_t communicator, ncclDevCommRequirements_t const* requirements, ncclDevComm_t*) {
  void* unused = nullptr;
  if (!requirements->lsaMultimem) return ncclInvalidArgument;
  return tide_test::played::multicast_of(tide_test::played::rank_of(communicator), &unused);
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, ncclDevComm_t const*) { return ncclSuccess; }
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 2)
ncclResult_t ncclPutSignal(const void* from, std::size_t bytes, ncclDataType_t, int peer, ncclWindow_t,
                           std::size_t offset, int signal, int, unsigned, ncclComm_t communicator, cudaStream_t) {
  using namespace tide_test::played;
  const Communicator& own = as_played(communicator);
  const auto to = static_cast<std::size_t>(peer);
  copy(state.arenas[to] + offset, from, bytes);
  const std::lock_guard lock(state.mutex);
  auto& signals = state.communicators[static_cast<std::size_t>(own.kind)][to].signals;
  ++signals[static_cast<std::size_t>(own.rank)][static_cast<std::size_t>(signal)];
  state.met.notify_all();
  return ncclSuccess;
}
ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* waits, ncclComm_t communicator, cudaStream_t) {
  using namespace tide_test::played;
  std::unique_lock lock(state.mutex);
  for (int i = 0; i < count; ++i) {
    int& come = as_played(communicator)
                    .signals[static_cast<std::size_t>(waits[i].peer)][static_cast<std::size_t>(waits[i].sigIdx)];
    if (!state.met.wait_for(lock, std::chrono::seconds(20), [&] { return come >= waits[i].opCnt; })) {
      return ncclSystemError;
    }
    come -= waits[i].opCnt;
  }
  return ncclSuccess;
}
#endif

}  // extern "C"

#undef TIDE_PLAYED
