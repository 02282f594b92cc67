// SPDX-License-Identifier: Apache-2.0
#include <tide/transport/rdma_doubling_transport.hpp>

#if TIDE_CASE == 1  // expect: tide::RdmaDoublingTransport: Chunk must be Bytes<N> and Pace PutsInFlight<N>
tide::RdmaDoublingTransport<tide::Bytes<4096>, tide::Bytes<1>> subject;
#elif TIDE_CASE == 2  // expect: tide::RdmaDoublingTransport: Chunk must be Bytes<N> and Pace PutsInFlight<N>
tide::RdmaDoublingTransport<tide::Chunks<4>> subject;
#else                 // control: bytes and puts
tide::RdmaDoublingTransport<tide::Bytes<4096>, tide::PutsInFlight<2>> subject;
#endif
