// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of NCCL in one group. They are kernels: of a few CTAs for as long as it takes, and until the other
// side takes part. Any NCCL that tide takes has them, and they need no window.

#pragma once

#include <tide/fabric/detail/cuda_check.cuh>  // nccl.h

#include <cstddef>
#include <vector>

namespace tide::detail {

struct NcclSend {
  const void* from = nullptr;
  std::size_t bytes = 0;
  int rank = 0;  // in the communicator
};
struct NcclReceive {
  void* into = nullptr;
  std::size_t bytes = 0;
  int rank = 0;
};

// What a rank sends and receives at once. Between two ranks, NCCL gives the receives of the one what the other sends,
// in the order of both.
struct NcclParcels {
  std::vector<NcclSend> sends{};
  std::vector<NcclReceive> receives{};

  void clear() noexcept {
    sends.clear();
    receives.clear();
  }
};

inline ncclResult_t nccl_hand_over(const NcclParcels& parcels, ncclComm_t communicator, cudaStream_t stream) {
  ncclResult_t first = ncclGroupStart();
  const auto note = [&first](ncclResult_t status) {
    if (first == ncclSuccess) first = status;
  };
  for (const NcclSend& send : parcels.sends) {
    note(ncclSend(send.from, send.bytes, ncclInt8, send.rank, communicator, stream));
  }
  for (const NcclReceive& receive : parcels.receives) {
    note(ncclRecv(receive.into, receive.bytes, ncclInt8, receive.rank, communicator, stream));
  }
  note(ncclGroupEnd());  // after an error, too: a group must not stay open
  return first;
}

}  // namespace tide::detail
