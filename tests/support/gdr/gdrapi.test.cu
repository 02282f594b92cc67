// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for GDRCopy, with the driver played by this file: which memory moves to the host, who copies, what is
// refused. Memory "of the GPU" lies elsewhere, and its addresses cannot be touched by the CPU. Nothing of NCCL, the
// driver or a GPU is needed.
//
// labels: no_gpu

#include <doctest/doctest.h>
#include <sys/mman.h>

#include "support/gdr/gdrapi.cpp"

#include <cstdlib>
#include <thread>

namespace {

constexpr std::size_t granule = std::size_t{2} << 20;
constexpr std::size_t page = 65536;

// Of the GPU or of the host, mapped at `base`; gone with its last reference.
struct Memory {
  std::vector<char> on_gpu;
  bool host;
  int references;
};

struct Mapping {
  std::size_t bytes;
  CUmemGenericAllocationHandle memory;
};

// What the driver knows.
struct World {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Memory> memories;
  std::map<CUdeviceptr, Mapping> mappings;
  CUmemGenericAllocationHandle last = 0;
  int copies = 0;
  int copies_of_program = 0;  // in its own context

  Mapping* find(CUdeviceptr address, CUdeviceptr* base) {
    auto next = mappings.upper_bound(address);
    if (next == mappings.begin()) return nullptr;
    --next;
    *base = next->first;
    return address - next->first < next->second.bytes ? &next->second : nullptr;
  }
  char* bytes_at(CUdeviceptr address) {
    CUdeviceptr base = 0;
    const Mapping& mapping = *find(address, &base);
    Memory& memory = memories.at(mapping.memory);
    return memory.host ? reinterpret_cast<char*>(address) : memory.on_gpu.data() + (address - base);
  }
};

World world;
int program_context = 0;
int other_contexts[8];
std::atomic<int> contexts_made = 0;
thread_local std::vector<CUcontext> current = {reinterpret_cast<CUcontext>(&program_context)};
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult copy(CUdeviceptr gpu, void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(world.mutex);
  CUdeviceptr base = 0;
  const Mapping* mapping = world.find(gpu, &base);
  if (mapping == nullptr || current.empty() || capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++world.copies;
  world.copies_of_program += current.back() == reinterpret_cast<CUcontext>(&program_context);
  std::memcpy(to == nullptr ? world.bytes_at(gpu) : to, from == nullptr ? world.bytes_at(gpu) : from, bytes);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** words) {
  *words = "words of the driver";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = -1;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current.empty() ? nullptr : current.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  current.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  *context = current.back();
  current.pop_back();
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 13000
CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice) {
#else
CUresult cuCtxCreate(CUcontext* context, unsigned, CUdevice) {
#endif
  *context = reinterpret_cast<CUcontext>(&other_contexts[contexts_made++]);
  return cuCtxPushCurrent(*context);
}
CUresult cuCtxGetStreamPriorityRange(int*, int*) { return CUDA_SUCCESS; }
CUresult cuStreamCreateWithPriority(CUstream*, unsigned, int) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream) {
  return copy(to, nullptr, from, bytes);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
  return copy(from, to, nullptr, bytes);
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = granule;
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* made, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
  const std::lock_guard lock(world.mutex);
  const bool host = properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  *made = ++world.last;
  world.memories[*made] = {std::vector<char>(host ? 0 : bytes), host, 1};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle memory) {
  const std::lock_guard lock(world.mutex);
  if (--world.memories.at(memory).references == 0) world.memories.erase(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* memory, void* address) {
  const std::lock_guard lock(world.mutex);
  CUdeviceptr base = 0;
  const Mapping* mapping = world.find(reinterpret_cast<CUdeviceptr>(address), &base);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *memory = mapping->memory;
  ++world.memories.at(*memory).references;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle memory) {
  const std::lock_guard lock(world.mutex);
  *properties = {};
  properties->location.type =
      world.memories.at(memory).host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  const std::lock_guard lock(world.mutex);
  const Mapping* mapping = world.find(address, base);
  if (mapping == nullptr || current.empty()) return CUDA_ERROR_INVALID_VALUE;
  *bytes = mapping->bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr base, std::size_t bytes) {
  const std::lock_guard lock(world.mutex);
  const bool whole = world.mappings.at(base).bytes == bytes;
  world.mappings.erase(base);
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemMap(CUdeviceptr base, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle memory,
                  unsigned long long) {
  const std::lock_guard lock(world.mutex);
  return world.mappings.emplace(base, Mapping{bytes, memory}).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemSetAccess(CUdeviceptr base, std::size_t bytes, const CUmemAccessDesc*, std::size_t count) {
  if (count == 2) mprotect(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}
}

namespace {

// Made as NCCL makes memory: whole granules, one reference.
CUdeviceptr allocate(std::size_t bytes) {
  void* reserved = mmap(nullptr, bytes + granule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const CUdeviceptr base = (reinterpret_cast<CUdeviceptr>(reserved) + granule - 1) / granule * granule;
  CUmemAllocationProp properties{};
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle memory = 0;
  cuMemCreate(&memory, bytes, &properties, 0);
  cuMemMap(base, bytes, 0, memory, 0);
  return base;
}

// Releases it as NCCL does, with what it finds at the address.
void release(CUdeviceptr base, std::size_t bytes) {
  CUmemGenericAllocationHandle memory = 0;
  cuMemRetainAllocationHandle(&memory, reinterpret_cast<void*>(base));
  cuMemRelease(memory);
  cuMemUnmap(base, bytes);
  cuMemRelease(memory);
}

char* pointer(CUdeviceptr address) { return reinterpret_cast<char*>(address); }

Handle pin(CUdeviceptr address, std::size_t bytes) {
  Handle handle{};
  REQUIRE(gdr_pin_buffer(gdr_open(), address, bytes, 0, 0, &handle) == 0);
  void* mapping = nullptr;
  REQUIRE(gdr_map(gdr_open(), handle, &mapping, bytes) == 0);
  CHECK(mapping == pointer(address));
  InfoV2 info{};
  REQUIRE(gdr_get_info_v2(gdr_open(), handle, &info) == 0);
  CHECK(info.first.address == address);
  CHECK(info.first.bytes == bytes);
  return handle;
}

void unpin(Handle handle, CUdeviceptr address, std::size_t bytes) {
  CHECK(gdr_unmap(gdr_open(), handle, pointer(address), bytes) == 0);
  CHECK(gdr_unpin_buffer(gdr_open(), handle) == 0);
}

// What a call says on standard error when it answers EINVAL; empty for another answer.
template <class Call>
std::string refusal(const Call& call) {
  char* words = nullptr;
  std::size_t count = 0;
  std::FILE* const before = stderr;
  stderr = open_memstream(&words, &count);
  const int answered = call();
  std::fclose(stderr);
  stderr = before;
  const std::string text(words, count);
  std::free(words);
  return answered == EINVAL ? text : std::string();
}

}  // namespace

TEST_CASE("GDRCopy's stand-in: a window stays on the GPU and is copied in another context than the program's") {
  const CUdeviceptr window = allocate(2 * granule);
  const Handle handle = pin(window, 2 * granule);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{100'000}}) {
    CAPTURE(bytes);
    std::vector<char> sent(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<char>(i + bytes);
    std::vector<char> came(bytes);
    CHECK(gdr_copy_to_mapping(handle, pointer(window + granule), sent.data(), bytes) == 0);
    CHECK(std::memcmp(world.bytes_at(window + granule), sent.data(), bytes) == 0);
    CHECK(gdr_copy_from_mapping(handle, came.data(), pointer(window + granule), bytes) == 0);
    CHECK(came == sent);
  }
  CHECK(world.copies_of_program == 0);
  CHECK(current.size() == 1);
  CHECK(capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  unpin(handle, window, 2 * granule);
  release(window, 2 * granule);
  CHECK(world.memories.empty());
}

TEST_CASE("GDRCopy's stand-in: memory of NCCL's own moves to the host with its contents, once") {
  for (const std::size_t bytes : {page, granule - page, granule + page}) {
    CAPTURE(bytes);
    const std::size_t whole = (bytes + page - 1 + granule - 1) / granule * granule;
    const CUdeviceptr flags = allocate(whole);
    std::memcpy(world.bytes_at(flags + 16), "contents", 8);
    const Handle handle = pin(flags, bytes);
    CHECK(std::memcmp(pointer(flags + 16), "contents", 8) == 0);
    CHECK(world.memories.size() == 1);

    const int copies = world.copies;
    const Handle again = pin(flags, page);
    const std::uint64_t word = 0x0123456789abcdef;
    CHECK(gdr_copy_to_mapping(again, pointer(flags + 8), &word, sizeof word) == 0);
    std::uint64_t came = 0;
    CHECK(gdr_copy_from_mapping(handle, &came, pointer(flags + 8), sizeof came) == 0);
    CHECK(came == word);
    CHECK(gdr_copy_to_mapping(handle, pointer(flags + 33), "odd", 3) == 0);
    CHECK(std::memcmp(pointer(flags + 33), "odd", 3) == 0);
    CHECK(world.copies == copies);
    unpin(again, flags, page);
    unpin(handle, flags, bytes);
    release(flags, whole);
    CHECK(world.memories.empty());
  }
}

TEST_CASE("GDRCopy's stand-in: what it does not expect is refused in words") {
  const CUdeviceptr window = allocate(4 * granule);
  Handle made{};
  const auto pinned = [&](CUdeviceptr address, std::size_t bytes) {
    return refusal([&] { return gdr_pin_buffer(gdr_open(), address, bytes, 0, 0, &made); });
  };
  CHECK(pinned(window, granule).find("are neither memory of NCCL's own nor a window") != std::string::npos);
  CHECK(pinned(window, 5 * granule).find("are neither memory of NCCL's own nor a window") != std::string::npos);
  CHECK(pinned(window + page, 4 * granule).find("are neither memory of NCCL's own nor a window") != std::string::npos);
  CHECK(pinned(4096, page).find("NCCL_CUMEM_ENABLE must not be 0") != std::string::npos);

  const Handle handle = pin(window, 4 * granule);
  char byte = 0;
  const auto copied = [&](CUdeviceptr from, std::size_t bytes) {
    return refusal([&] { return gdr_copy_from_mapping(handle, &byte, pointer(from), bytes); });
  };
  CHECK(copied(window - 1, 1).find("are not inside of") != std::string::npos);
  CHECK(copied(window + 4 * granule, 1).find("are not inside of") != std::string::npos);
  CHECK(copied(window, 4 * granule + 1).find("are not inside of") != std::string::npos);
  unpin(handle, window, 4 * granule);
  CHECK(copied(window, 1).find("nothing is pinned as number") != std::string::npos);
  CHECK(refusal([&] { return gdr_unpin_buffer(gdr_open(), handle); }).find("gdr_unpin_buffer") != std::string::npos);
  CHECK(refusal([] { return gdr_close(nullptr); }).find("was never opened") != std::string::npos);
  release(window, 4 * granule);
}

TEST_CASE("GDRCopy's stand-in: threads pin and copy at once, also such without a context") {
  constexpr int count = 4;
  std::vector<CUdeviceptr> windows;
  for (int i = 0; i < count; ++i) windows.push_back(allocate(granule));
  std::vector<int> wrong(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      if (i % 2 == 1) current.clear();
      const CUdeviceptr window = windows[static_cast<std::size_t>(i)];
      for (int round = 0; round < 200; ++round) {
        Handle handle{};
        int came = 0;
        const int sent = 1000 * i + round;
        const bool right = gdr_pin_buffer(gdr_open(), window, granule, 0, 0, &handle) == 0 &&
                           gdr_copy_to_mapping(handle, pointer(window + 64), &sent, sizeof sent) == 0 &&
                           gdr_copy_from_mapping(handle, &came, pointer(window + 64), sizeof came) == 0 &&
                           gdr_unpin_buffer(gdr_open(), handle) == 0 && came == sent;
        if (!right) ++wrong[static_cast<std::size_t>(i)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(count));
  for (const CUdeviceptr window : windows) release(window, granule);
}
