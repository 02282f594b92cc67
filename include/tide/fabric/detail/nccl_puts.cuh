// SPDX-License-Identifier: Apache-2.0
//
// One-sided puts of NCCL, and whether there are any: what depends on NCCL's version is here. From 2.31.2 on a put has a
// signal index of its choice, and no first call that all ranks must make; tide uses none of an older release.

#pragma once

#include <tide/core/index.hpp>                 // index_t
#include <tide/fabric/detail/cuda_check.cuh>   // check
#include <tide/fabric/detail/nccl_window.cuh>  // nccl_device.h, nccl_properties, nccl_version_text

#include <cstddef>
#include <string>
#include <vector>

namespace tide::detail {

// Signal indices: of data, whose arrivals are counted, and of words, which are watched instead.
inline constexpr int nccl_data_signal = 0;
inline constexpr int nccl_word_signal = 1;

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 2)

// So many arrivals from a rank. NCCL's own struct has no name; nvcc 13.0 breaks off where a vector is made of such.
struct NcclWait : ncclWaitSignalDesc_t {
  NcclWait(int count, int rank) noexcept : ncclWaitSignalDesc_t{count, rank, nccl_data_signal, 0} {}
};
static_assert(sizeof(NcclWait) == sizeof(ncclWaitSignalDesc_t));

inline ncclResult_t nccl_put(const void* from, std::size_t bytes, int rank, ncclWindow_t window, std::size_t offset,
                             int signal, ncclComm_t communicator, cudaStream_t stream) {
  return ncclPutSignal(from, bytes, ncclInt8, rank, window, offset, signal, 0, 0, communicator, stream);
}
inline ncclResult_t nccl_wait(std::vector<NcclWait>& waits, ncclComm_t communicator, cudaStream_t stream) {
  return ncclWaitSignal(static_cast<int>(waits.size()), waits.data(), communicator, stream);
}

#else

struct NcclWait {
  NcclWait(int, int) noexcept {}
};

inline ncclResult_t nccl_put(const void*, std::size_t, int, ncclWindow_t, std::size_t, int, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}
inline ncclResult_t nccl_wait(std::vector<NcclWait>&, ncclComm_t, cudaStream_t) { return ncclInvalidUsage; }

#endif

// What NCCL sets aside for a communicator grows with the CTAs that it may use (docs/performance.md): 29 MB for 4, 407
// for as many as it likes. Only sends and receives use any.
inline constexpr int nccl_ctas = 4;

// Of the communicators that plans use: with the signal indices above.
[[nodiscard]] inline ncclConfig_t nccl_configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.maxCTAs = nccl_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 2)
  config.numRmaSig = 2;
#endif
  return config;
}

// The same bytes to the same place of each rank, in one group: its puts do not wait for each other.
inline ncclResult_t nccl_put_to_each(const std::vector<int>& ranks, const void* from, std::size_t bytes,
                                     ncclWindow_t window, std::size_t offset, int signal, ncclComm_t communicator,
                                     cudaStream_t stream) {
  ncclResult_t first = ncclGroupStart();
  for (const int rank : ranks) {
    const ncclResult_t put = nccl_put(from, bytes, rank, window, offset, signal, communicator, stream);
    if (first == ncclSuccess) first = put;
  }
  const ncclResult_t ended = ncclGroupEnd();  // after an error, too: a group must not stay open
  return first == ncclSuccess ? ended : first;
}
// One arrival from each rank.
inline ncclResult_t nccl_wait_for_each(const std::vector<int>& ranks, ncclComm_t communicator, cudaStream_t stream) {
  std::vector<NcclWait> waits;
  for (const int rank : ranks) waits.emplace_back(1, rank);
  return nccl_wait(waits, communicator, stream);
}

// What NCCL finds: ranks that reach each other's memory are a node, and come one after the other.
struct NcclFindings {
  index_t ranks = 1;
  index_t nodes = 1;
  std::string no_puts{};  // why there are no puts; empty where there are

  explicit NcclFindings(ncclComm_t communicator) {
    int count = 0;
    check(ncclCommCount(communicator, &count), "ncclCommCount");
    ranks = count;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 2)
    const ncclCommProperties_t properties = nccl_properties(communicator);
    nodes = properties.nLsaTeams;
    if (!properties.hostRmaSupport) {
      no_puts =
          "NCCL says that this communicator has no host RMA; between machines it needs a network with one-sided puts, "
          "GPUs that its NICs reach, and neither NCCL_CROSS_NIC=0 nor NCCL_RMA_DISABLE=1";
    }
#else
    int loaded = 0;
    check(ncclGetVersion(&loaded), "ncclGetVersion");
    // An older NCCL does not say how many nodes there are, but how large they are; 0 where it does not know.
    const int node = ncclTeamLsa(communicator).nRanks;
    if (node > 0) nodes = ranks / node;
    no_puts = text({"puts need NCCL 2.31.2 or newer; compiled with ", nccl_version_text(NCCL_VERSION_CODE), ", loaded ",
                    nccl_version_text(loaded)});
#endif
  }
};

}  // namespace tide::detail
