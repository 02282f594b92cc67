// SPDX-License-Identifier: Apache-2.0
//
// What a rendezvous asks of CUDA and NCCL, both played by this file: which calls are made, in which order, how many may
// be queued, and what is said of one that does not end. Nothing of NCCL, the driver or a GPU is needed.
//
// labels: no_gpu

#include <doctest/doctest.h>
#include <tide/fabric/detail/cuda_network.cuh>

#include "support/raised.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

// What was called, and which events have passed; those that were never recorded have.
std::vector<std::string> calls;
std::map<std::uintptr_t, bool> pending;
std::uintptr_t events_made = 0;
ncclResult_t group_end = ncclSuccess;

void called(std::string call) { calls.push_back(std::move(call)); }
std::string name(const void* handle) { return std::to_string(reinterpret_cast<std::uintptr_t>(handle)); }
std::uintptr_t number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

const auto network_stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{9000});
const auto lane = reinterpret_cast<cudaStream_t>(std::uintptr_t{9001});
const auto communicator = reinterpret_cast<ncclComm_t>(std::uintptr_t{9002});

}  // namespace

// Of these nvcc has definitions for device code already, so they have names of their own here.
extern "C" {
cudaError_t play_stream_destroy(cudaStream_t) __asm__("cudaStreamDestroy");
cudaError_t play_event_create(cudaEvent_t* event, unsigned) __asm__("cudaEventCreateWithFlags");
cudaError_t play_event_destroy(cudaEvent_t) __asm__("cudaEventDestroy");
cudaError_t play_event_record(cudaEvent_t event, cudaStream_t stream) __asm__("cudaEventRecord");
cudaError_t play_stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned) __asm__("cudaStreamWaitEvent");
}

extern "C" {
const char* ncclGetErrorString(ncclResult_t) { return "a system error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** pointer, std::size_t) {
  alignas(64) static std::byte memory[4096];
  *pointer = memory;
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void*) { return ncclSuccess; }
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, std::size_t, ncclWindow_t*, int) { return ncclInternalError; }
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }
ncclResult_t ncclGroupStart() {
  called("group");
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  called("end");
  return group_end;
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
  called("send " + std::to_string(count) + " to " + std::to_string(peer) + (from == nullptr ? " from null" : ""));
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* into, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
  called("receive " + std::to_string(count) + " from " + std::to_string(peer) + (into == nullptr ? " into null" : ""));
  return ncclSuccess;
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, std::size_t, int, void**) { return ncclInternalError; }
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 2)
ncclResult_t ncclPutSignal(const void*, std::size_t, ncclDataType_t, int peer, ncclWindow_t, std::size_t, int, int,
                           unsigned, ncclComm_t, cudaStream_t) {
  called("put to " + std::to_string(peer));
  return ncclSuccess;
}
ncclResult_t ncclWaitSignal(int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t) {
  called("wait for puts");
  return ncclSuccess;
}
#endif
CUresult cuGetErrorString(CUresult, const char** words) {
  *words = "another";
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue64(CUstream, CUdeviceptr word, cuuint64_t value, unsigned) {
  called("write " + std::to_string(value) + " at " + std::to_string(word));
  return CUDA_SUCCESS;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = network_stream;
  return cudaSuccess;
}
cudaError_t play_stream_destroy(cudaStream_t) { return cudaSuccess; }
cudaError_t play_event_create(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(++events_made);
  return cudaSuccess;
}
cudaError_t play_event_destroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t play_event_record(cudaEvent_t event, cudaStream_t stream) {
  pending[number(event)] = true;
  called("record " + name(event) + " on " + name(stream));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return pending[number(event)] ? cudaErrorNotReady : cudaSuccess; }
cudaError_t play_stream_wait(cudaStream_t stream, cudaEvent_t event, unsigned) {
  called(name(stream) + " waits for " + name(event));
  return cudaSuccess;
}
}

namespace {

using tide::detail::CudaNetwork;
using Calls = std::vector<std::string>;

const auto sent = reinterpret_cast<cudaEvent_t>(std::uintptr_t{8000});
const auto never = [](const std::function<bool()>&) { FAIL("the host waits where there is room"); };

struct Opened {
  tide::detail::NcclWindow arena;
  CudaNetwork network;
  std::uintptr_t first_event = 0;  // of the first entry: begun, and then done

  Opened() {
    calls.clear();
    pending.clear();
    group_end = ncclSuccess;
    REQUIRE(arena.allocate(100));
    first_event = events_made + 1;
    network.open(arena, communicator, 4, 0);
  }
  ~Opened() { arena.abandon(); }

  template <class Poll>
  ncclResult_t meet(int peer, const Poll& poll) {
    tide::detail::NcclParcels parcels;
    parcels.sends = {{arena.memory(), 100, peer}, network.token_to(3)};
    parcels.receives = {{arena.memory(), 50, peer}};
    return network.rendezvous(parcels, {peer, 3}, {sent}, {{800, 5}, {808, 6}}, {lane}, poll);
  }
};

TEST_CASE("CudaNetwork: a rendezvous is one group, behind the lanes that send, before words and lanes that have put") {
  Opened opened;
  CHECK(opened.meet(1, never) == ncclSuccess);
  const std::string begun = std::to_string(opened.first_event);
  const std::string done = std::to_string(opened.first_event + 1);
  CHECK(calls == Calls{"9000 waits for 8000", "record " + begun + " on 9000", "group", "send 100 to 1", "send 8 to 3",
                       "receive 50 from 1", "end", "write 5 at 800", "write 6 at 808", "record " + done + " on 9000",
                       "9001 waits for " + done});
}

TEST_CASE("CudaNetwork: at most so many rendezvous are queued; the host waits for the first to be over") {
  Opened opened;
  for (std::size_t i = 0; i < CudaNetwork::most_rendezvous; ++i) CHECK(opened.meet(1, never) == ncclSuccess);
  int waits = 0;
  CHECK(opened.meet(1, [&](const std::function<bool()>& met) {
    ++waits;
    CHECK_FALSE(met());
    pending[opened.first_event] = pending[opened.first_event + 1] = false;
    CHECK(met());
  }) == ncclSuccess);
  CHECK(waits == 1);
}

TEST_CASE(
    "CudaNetwork: who is waited for is known of a rendezvous that has begun, and not of one that waits for lanes") {
  Opened opened;
  CHECK_FALSE(opened.network.head().has_value());
  CHECK(opened.meet(1, never) == ncclSuccess);
  CHECK(opened.meet(2, never) == ncclSuccess);
  CHECK_FALSE(opened.network.head().has_value());
  pending[opened.first_event] = false;
  const auto first = opened.network.head();
  REQUIRE(first.has_value());
  CHECK(first->kind == CudaNetwork::Kind::rendezvous);
  CHECK(first->peers == std::vector<int>{1, 3});
  pending[opened.first_event + 1] = pending[opened.first_event + 2] = false;
  const auto second = opened.network.head();
  REQUIRE(second.has_value());
  CHECK(second->peers == std::vector<int>{2, 3});
  pending[opened.first_event + 3] = false;
  CHECK_FALSE(opened.network.head().has_value());
}

TEST_CASE("CudaNetwork: where NCCL refuses, its group is closed, no word is raised, and no lane goes on") {
  Opened opened;
  group_end = ncclSystemError;
  CHECK(opened.meet(1, never) == ncclSystemError);
  CHECK(calls.back() == "end");
  pending[opened.first_event] = false;
  CHECK_FALSE(opened.network.head().has_value());
}

}  // namespace
