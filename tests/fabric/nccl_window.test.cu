// SPDX-License-Identifier: Apache-2.0
//
// What the arena asks of NCCL, with NCCL played by this file: which calls are made, in which order, and what becomes of
// answers that a library gives when it has no windows. Nothing of NCCL, the driver or a GPU is needed.
//
// labels: no_gpu

#include <doctest/doctest.h>
#include <tide/fabric/detail/nccl_window.cuh>

#include "support/raised.hpp"

#include <string>

namespace {

// How NCCL behaves, and what it was asked.
struct Script {
  bool has_memory = true;
  bool has_windows = true;
  ncclResult_t registration = ncclSuccess;
  ncclResult_t pointers = ncclSuccess;
  int version = NCCL_VERSION_CODE;
  std::string calls{};
};

Script script;
std::byte memory[1];
int communicator_memory = 0;
int window_memory = 0;
const auto communicator = reinterpret_cast<ncclComm_t>(&communicator_memory);

void called(const char* name) { script.calls += (script.calls.empty() ? "" : " ") + std::string(name); }

}  // namespace

extern "C" {
ncclResult_t ncclGetVersion(int* version) {
  *version = script.version;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t status) { return status == ncclInvalidUsage ? "invalid usage" : "another"; }
const char* ncclGetLastError(ncclComm_t) { return "a word more"; }
ncclResult_t ncclMemAlloc(void** pointer, std::size_t) {
  called("alloc");
  *pointer = script.has_memory ? memory : nullptr;
  return script.has_memory ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclMemFree(void* pointer) {
  called(pointer == memory ? "free" : "free(unknown)");
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, std::size_t, ncclWindow_t* window, int flags) {
  called(flags == NCCL_WIN_COLL_SYMMETRIC ? "window" : "window(flags)");
  *window = script.has_windows ? reinterpret_cast<ncclWindow_t>(&window_memory) : nullptr;
  return script.registration;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t of, ncclWindow_t window) {
  called(of == communicator && window == reinterpret_cast<ncclWindow_t>(&window_memory) ? "unwindow"
                                                                                        : "unwindow(unknown)");
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  called("deregister");
  return ncclSuccess;
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, std::size_t, int, void** pointer) {
  *pointer = memory;
  return script.pointers;
}
#endif
CUresult cuGetErrorString(CUresult, const char** words) {
  *words = "another";
  return CUDA_SUCCESS;
}
}

namespace {

// What is raised while an arena of two ranks is made and released, with an NCCL that behaves so.
std::string said(const Script& behaviour) {
  script = behaviour;
  return tide_test::text_of([] {
    tide::detail::NcclWindow window;
    REQUIRE(window.allocate(100));
    window.register_memory(communicator, 2, nullptr);
  });
}

TEST_CASE("NcclWindow: success without a window is an error that says what may be off, and the memory goes back") {
  const std::string text = said({.has_windows = false});
  CHECK(text.find("tide::CudaFabric: NCCL gives no symmetric window on this communicator;") == 0);
  CHECK(text.find("NCCL_WIN_ENABLE") != std::string::npos);
  CHECK(script.calls == "alloc window free");
}

TEST_CASE("NcclWindow: a registration that is refused, or not over, is never taken for one that is done") {
  // A group that the caller left open, a communicator that does not block, a library without support.
  for (const ncclResult_t status : {ncclInvalidUsage, ncclInProgress, ncclInvalidArgument}) {
    CAPTURE(static_cast<int>(status));
    const std::string text = said({.has_windows = false, .registration = status});
    CHECK(text.find("tide::CudaFabric: ncclCommWindowRegister failed: ") == 0);
    CHECK(text.find("; NCCL says: a word more.") != std::string::npos);
    CHECK(script.calls == "alloc window free");
  }
}

TEST_CASE("NcclWindow: after an error a window goes as a window, before its memory, each once") {
  // With older headers the peers' addresses come from a kernel, for which there is no GPU here: an error, too.
  const std::string text = said({.pointers = ncclSystemError});
  CHECK(text.find("tide::CudaFabric: ") == 0);
  CHECK(text.find("failed: ") != std::string::npos);
  CHECK(script.calls == "alloc window unwindow free");
}

TEST_CASE("NcclWindow: no memory is no error yet, and nothing is given back that was never had") {
  script = {.has_memory = false};
  {
    tide::detail::NcclWindow window;
    CHECK_FALSE(window.allocate(100));
    CHECK(window.memory() == nullptr);
  }
  CHECK(script.calls == "alloc");
}

TEST_CASE("NcclWindow: what is released is released once; what is abandoned stays for the end of the process") {
  script = {};
  {
    tide::detail::NcclWindow window;
    REQUIRE(window.allocate(100));
    window.release();
    window.release();
  }
  CHECK(script.calls == "alloc free");
  script = {};
  {
    tide::detail::NcclWindow window;
    REQUIRE(window.allocate(100));
    window.abandon();
  }
  CHECK(script.calls == "alloc");
}

TEST_CASE("NCCL: a library older than the header is refused, with both versions") {
  const auto said_of = [](int version) {
    script = {.version = version};
    return tide_test::text_of([] { tide::detail::require_nccl(); });
  };
  CHECK(said_of(NCCL_VERSION_CODE).empty());
  CHECK(said_of(NCCL_VERSION_CODE + 100).empty());
  CHECK(said_of(NCCL_VERSION(2, 27, 7)) ==
        "tide::CudaFabric: the NCCL library must not be older than its header; compiled with " +
            tide::detail::nccl_version_text(NCCL_VERSION_CODE) + ", loaded 2.27.7.");
}

}  // namespace
