// SPDX-License-Identifier: Apache-2.0
//
// libgdrapi.so as NCCL 2.32 calls it, without GDRCopy, its kernel module and a network card: NCCL's socket transport
// then puts from process to process of one machine as it would from node to node. tests/support/cluster builds it and
// puts it in NCCL's way.
//
// It shows that calls are right: which there are, in which order, on which memory. It does not show how fast a network
// is, nor what a NIC may do to the order of writes: here one thread of the CPU writes data and then its signal.
//
// GDRCopy lets the CPU load and store the memory of a GPU. NCCL does so with two kinds of memory, and neither needs it:
//
//   pinned                       why                     here
//   part of an allocation        flags, queues, signals  host memory takes its place at the same address, and the old
//                                of NCCL's own           contents move there: CPU and GPU load and store it
//   the whole of an allocation   a window                stays on the GPU: NCCL touches it through the two copy calls
//                                                        only, and the copy engine makes these copies
//
// NCCL rounds its own memory up, by a page of GDRCopy and to whole allocations, and registers a window with all of the
// memory behind it. A pin that is neither is refused.
//
// Tests: tests/cmake/check_gdr_stand_in.sh says what is exported; what it does, tests with label `nodes`.

#include <cuda.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// What NCCL looks up, as GDRCopy's gdrapi.h has it.

struct gdr;

struct Handle {
  unsigned long number;
};

struct Info {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint32_t page_bytes;
  std::uint64_t cycles;
  std::uint32_t cycles_per_ms;
  unsigned mapped : 1;
  unsigned write_combining : 1;
};
static_assert(sizeof(Info) == 40);

struct InfoV2 {
  Info first;
  int mapping_type;
};
static_assert(sizeof(InfoV2) == 48 && offsetof(InfoV2, mapping_type) == 40);

#pragma GCC visibility push(default)
extern "C" {
gdr* gdr_open();
int gdr_close(gdr* library);
void gdr_runtime_get_version(int* major, int* minor);
int gdr_driver_get_version(gdr* library, int* major, int* minor);
int gdr_pin_buffer(gdr* library, unsigned long address, std::size_t bytes, std::uint64_t, std::uint32_t, Handle* made);
int gdr_unpin_buffer(gdr* library, Handle handle);
int gdr_get_info(gdr* library, Handle handle, Info* info);
int gdr_get_info_v2(gdr* library, Handle handle, InfoV2* info);
int gdr_map(gdr* library, Handle handle, void** mapping, std::size_t bytes);
int gdr_unmap(gdr* library, Handle handle, void* mapping, std::size_t bytes);
int gdr_copy_to_mapping(Handle handle, void* mapping, const void* source, std::size_t bytes);
int gdr_copy_from_mapping(Handle handle, void* target, const void* mapping, std::size_t bytes);
}
#pragma GCC visibility pop

namespace {

constexpr std::size_t page_bytes = 65536;  // of GDRCopy: NCCL aligns what it pins to it
constexpr std::size_t bounce_bytes = 4096;
constexpr int cached_mapping = 2;

void tell(const char* where, const char* what) { std::fprintf(stderr, "stand-in for GDRCopy: %s: %s\n", where, what); }

[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...) {
  char words[256];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(words, sizeof words, format, values);
  va_end(values);
  throw std::runtime_error(words);
}

const char* words_of(CUresult result) {
  const char* words = nullptr;
  cuGetErrorString(result, &words);
  return words != nullptr ? words : "an error that the driver has no words for";
}

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) fail("%s: %s", call, words_of(result));
}

// Of this thread: NCCL pins while a stream is captured, and the driver would refuse most of what follows.
class RelaxedCapture {
 public:
  RelaxedCapture() { check(cuThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode"); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (cuThreadExchangeStreamCaptureMode(&mode_) != CUDA_SUCCESS) tell("capture mode", "cannot be restored");
  }

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// A context is this thread's current one for a while.
class Current {
 public:
  explicit Current(CUcontext context) { check(cuCtxPushCurrent(context), "cuCtxPushCurrent"); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    CUcontext popped = nullptr;
    if (cuCtxPopCurrent(&popped) != CUDA_SUCCESS) tell("cuCtxPopCurrent", "the thread keeps a context of the stand-in");
  }
};

// Copies on one GPU, in a context of their own: in the program's they would stand behind waits for what they bring.
class Copier {
 public:
  explicit Copier(int ordinal) {
    check(cuDeviceGet(&device_, ordinal), "cuDeviceGet");
#if CUDA_VERSION >= 13000
    check(cuCtxCreate(&context_, nullptr, 0, device_), "cuCtxCreate");
#else
    check(cuCtxCreate(&context_, 0, device_), "cuCtxCreate");
#endif
    CUcontext popped = nullptr;
    check(cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
    const Current current(context_);
    int lowest = 0;
    int highest = 0;
    check(cuCtxGetStreamPriorityRange(&lowest, &highest), "cuCtxGetStreamPriorityRange");
    check(cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, highest), "cuStreamCreateWithPriority");
    check(cuMemHostAlloc(&bounce_, bounce_bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  }

  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] CUcontext context() const { return context_; }

  void to_gpu(CUdeviceptr to, const void* from, std::size_t bytes) const {
    const Current current(context_);
    if (bytes <= bounce_bytes) from = std::memcpy(bounce_, from, bytes);
    check(cuMemcpyHtoDAsync(to, from, bytes, stream_), "cuMemcpyHtoDAsync");
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  void from_gpu(void* to, CUdeviceptr from, std::size_t bytes) const {
    const Current current(context_);
    void* landing = bytes <= bounce_bytes ? bounce_ : to;
    check(cuMemcpyDtoHAsync(landing, from, bytes, stream_), "cuMemcpyDtoHAsync");
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    if (landing != to) std::memcpy(to, landing, bytes);
  }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  void* bounce_ = nullptr;  // pinned: small copies from and to what is not
};

// Host memory takes the place of an allocation of the GPU, at its address and with its contents.
void move_to_host(const Copier& copier, CUdeviceptr base, std::size_t bytes) {
  std::vector<char> contents(bytes);
  copier.from_gpu(contents.data(), base, bytes);

  int node = 0;
  check(cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, copier.device()), "cuDeviceGetAttribute");
  CUmemAllocationProp near_gpu{};
  near_gpu.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  near_gpu.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  near_gpu.location.id = node < 0 ? 0 : node;
  CUmemGenericAllocationHandle host = 0;
  check(cuMemCreate(&host, bytes, &near_gpu, 0), "cuMemCreate of host memory");

  CUmemGenericAllocationHandle gpu = 0;
  check(cuMemRetainAllocationHandle(&gpu, reinterpret_cast<void*>(base)), "cuMemRetainAllocationHandle");
  check(cuMemUnmap(base, bytes), "cuMemUnmap");
  check(cuMemMap(base, bytes, 0, host, 0), "cuMemMap");
  CUmemAccessDesc both[2] = {};
  both[0].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  both[0].location.id = copier.device();
  both[1].location = near_gpu.location;
  both[0].flags = both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(base, bytes, both, 2), "cuMemSetAccess");
  std::memcpy(reinterpret_cast<void*>(base), contents.data(), bytes);

  // Our reference and that of its creator, who will look up what to release by address, and find the host memory.
  check(cuMemRelease(gpu), "cuMemRelease");
  check(cuMemRelease(gpu), "cuMemRelease");
}

// A flag is one word: the GPU sees all of it or nothing, after what was stored before it. Its acquire is the GPU's
// wait.
void store_on_host(void* to, const void* from, std::size_t bytes) {
  std::atomic_thread_fence(std::memory_order_release);
  std::uint64_t word = 0;
  if (bytes == sizeof word && reinterpret_cast<std::uintptr_t>(to) % sizeof word == 0) {
    std::memcpy(&word, from, sizeof word);
    std::atomic_ref(*static_cast<std::uint64_t*>(to)).store(word, std::memory_order_release);
  } else {
    std::memcpy(to, from, bytes);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // NCCL takes the copy for fenced, as GDRCopy's is
}

// The release is the GPU's, with which it writes a flag to host memory.
void load_on_host(void* to, const void* from, std::size_t bytes) {
  if (bytes == sizeof(std::uint64_t) && reinterpret_cast<std::uintptr_t>(from) % sizeof(std::uint64_t) == 0) {
    auto* flag = static_cast<std::uint64_t*>(const_cast<void*>(from));  // atomic_ref takes no const before C++26
    const std::uint64_t word = std::atomic_ref(*flag).load(std::memory_order_acquire);
    std::memcpy(to, &word, sizeof word);
  } else {
    std::memcpy(to, from, bytes);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
}

struct Pin {
  CUdeviceptr address;
  std::size_t bytes;
  const Copier* copier;  // null where the CPU loads and stores

  void require_inside(const void* mapping, std::size_t count) const {
    const auto from = reinterpret_cast<CUdeviceptr>(mapping);
    if (from < address || from - address > bytes || count > bytes - (from - address)) {
      fail("%zu bytes at %p are not inside of the %zu pinned at 0x%llx", count, mapping, bytes, address);
    }
  }
};

}  // namespace

// All there is, one for each process.
struct gdr {
  std::mutex mutex;
  std::map<int, Copier> copiers;  // by device
  std::map<unsigned long, Pin> pins;
  unsigned long numbers = 0;

  // Never destroyed: NCCL's threads may outlive static objects.
  [[nodiscard]] static gdr& of_process() {
    static gdr& all = *new gdr;
    return all;
  }

  [[nodiscard]] Pin& pin_of(Handle handle) {
    const auto found = pins.find(handle.number);
    if (found == pins.end()) fail("nothing is pinned as number %lu", handle.number);
    return found->second;
  }

  [[nodiscard]] const Copier& copier_of(int device) { return copiers.try_emplace(device, device).first->second; }

  [[nodiscard]] Pin pin(CUdeviceptr address, std::size_t bytes) {
    CUmemGenericAllocationHandle memory = 0;
    if (cuMemRetainAllocationHandle(&memory, reinterpret_cast<void*>(address)) != CUDA_SUCCESS) {
      fail("the memory at 0x%llx is not made by cuMemCreate; NCCL_CUMEM_ENABLE must not be 0", address);
    }
    CUmemAllocationProp properties{};
    const CUresult known = cuMemGetAllocationPropertiesFromHandle(&properties, memory);
    check(cuMemRelease(memory), "cuMemRelease");
    check(known, "cuMemGetAllocationPropertiesFromHandle");
    // Pinned before, and moved. Asked first: of such memory the driver does not know base and size.
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return {address, bytes, nullptr};

    const Copier& copier = copier_of(properties.location.id);
    CUcontext caller = nullptr;
    check(cuCtxGetCurrent(&caller), "cuCtxGetCurrent");
    std::optional<Current> current;
    if (caller == nullptr) current.emplace(copier.context());
    CUdeviceptr base = 0;
    std::size_t whole = 0;
    check(cuMemGetAddressRange(&base, &whole, address), "cuMemGetAddressRange");
    std::size_t granularity = 0;
    check(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");

    const CUdeviceptr first = address / page_bytes * page_bytes;
    const CUdeviceptr end = (address + bytes + page_bytes - 1) / page_bytes * page_bytes;
    const std::size_t pinned = end - first;
    const bool inside = base <= first && end <= base + whole;
    if (inside && pinned == whole) return {address, bytes, &copier};
    if (!inside || whole - pinned >= granularity + page_bytes) {
      fail("%zu bytes at 0x%llx, of an allocation of %zu at 0x%llx, are neither memory of NCCL's own nor a window",
           bytes, address, whole, base);
    }
    move_to_host(copier, base, whole);
    return {address, bytes, nullptr};
  }
};

namespace {

// What an exported call answers: 0, or EINVAL and a sentence on standard error. One call at a time; NCCL holds a lock
// of its own around each.
template <class Body>
int answer(const char* call, const Body& body) noexcept {
  try {
    gdr& all = gdr::of_process();
    const std::lock_guard lock(all.mutex);
    body(all);
    return 0;
  } catch (const std::exception& error) {
    tell(call, error.what());
    return EINVAL;
  }
}

Info info_of(const Pin& pin) {
  Info info{};
  info.address = pin.address;
  info.bytes = pin.bytes;
  info.page_bytes = page_bytes;
  info.mapped = 1;
  return info;
}

}  // namespace

gdr* gdr_open() {
  return answer(__func__, [](gdr&) { check(cuInit(0), "cuInit"); }) == 0 ? &gdr::of_process() : nullptr;
}

int gdr_close(gdr* library) {
  return answer(__func__, [&](gdr& all) {
    if (library != &all) fail("%p was never opened", static_cast<void*>(library));
  });
}

// With 2.5 NCCL would pin by gdr_pin_buffer_v2.
void gdr_runtime_get_version(int* major, int* minor) {
  *major = 2;
  *minor = 4;
}

int gdr_driver_get_version(gdr*, int* major, int* minor) {
  gdr_runtime_get_version(major, minor);
  return 0;
}

int gdr_pin_buffer(gdr*, unsigned long address, std::size_t bytes, std::uint64_t, std::uint32_t, Handle* made) {
  return answer(__func__, [&](gdr& all) {
    const RelaxedCapture relaxed;
    const Pin pin = all.pin(address, bytes);
    made->number = ++all.numbers;
    all.pins.emplace(made->number, pin);
  });
}

int gdr_unpin_buffer(gdr*, Handle handle) {
  return answer(__func__, [&](gdr& all) {
    static_cast<void>(all.pin_of(handle));
    all.pins.erase(handle.number);
  });
}

int gdr_get_info(gdr*, Handle handle, Info* info) {
  return answer(__func__, [&](gdr& all) { *info = info_of(all.pin_of(handle)); });
}

int gdr_get_info_v2(gdr*, Handle handle, InfoV2* info) {
  return answer(__func__, [&](gdr& all) { *info = {info_of(all.pin_of(handle)), cached_mapping}; });
}

int gdr_map(gdr*, Handle handle, void** mapping, std::size_t bytes) {
  return answer(__func__, [&](gdr& all) {
    const Pin& pin = all.pin_of(handle);
    void* start = reinterpret_cast<void*>(pin.address);
    pin.require_inside(start, bytes);
    *mapping = start;
  });
}

int gdr_unmap(gdr*, Handle handle, void* mapping, std::size_t bytes) {
  return answer(__func__, [&](gdr& all) { all.pin_of(handle).require_inside(mapping, bytes); });
}

int gdr_copy_to_mapping(Handle handle, void* mapping, const void* source, std::size_t bytes) {
  return answer(__func__, [&](gdr& all) {
    const Pin& pin = all.pin_of(handle);
    pin.require_inside(mapping, bytes);
    if (pin.copier == nullptr) return store_on_host(mapping, source, bytes);
    const RelaxedCapture relaxed;
    pin.copier->to_gpu(reinterpret_cast<CUdeviceptr>(mapping), source, bytes);
  });
}

int gdr_copy_from_mapping(Handle handle, void* target, const void* mapping, std::size_t bytes) {
  return answer(__func__, [&](gdr& all) {
    const Pin& pin = all.pin_of(handle);
    pin.require_inside(mapping, bytes);
    if (pin.copier == nullptr) return load_on_host(target, mapping, bytes);
    const RelaxedCapture relaxed;
    pin.copier->from_gpu(target, reinterpret_cast<CUdeviceptr>(mapping), bytes);
  });
}
