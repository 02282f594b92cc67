// SPDX-License-Identifier: Apache-2.0
//
// SendRecvDoublingTransport: the rounds of RdmaDoublingTransport, for clusters whose network has no one-sided puts: a
// fabric makes a send of each put, and a receive of each wait for one.
//
// On GPUs sends and receives are kernels: they take SMs from what they overlap with.
//
// Laws: those of RdmaDoublingTransport               (tests/transport/rdma_doubling_transport.test.cpp)

#pragma once

#include <tide/transport/rdma_doubling_transport.hpp>  // RdmaDoublingTransport

namespace tide {

/// The same plans under another capability: what a fabric needs for them, and what it costs, differ.
template <class Chunk = Bytes<(index_t{8} << 20)>, class Pace = PutsInFlight<16>>
struct SendRecvDoublingTransport : RdmaDoublingTransport<Chunk, Pace> {
  static constexpr std::string_view name = "send-receive doubling (uses SMs)";
  static constexpr Capability capability = Capability::send_receive;
};

static_assert(InterTransport<SendRecvDoublingTransport<>>);

}  // namespace tide
