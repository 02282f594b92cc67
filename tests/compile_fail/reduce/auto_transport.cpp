// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/auto_transport.hpp>

#include <tide/transport/send_recv_doubling_transport.hpp>

struct OnMine {
  static constexpr tide::Machine machine{.nic_rate = 25e9};
};

#if TIDE_CASE == 1  // expect: tide::AutoTransport: On must have a Machine
tide::AutoTransport<tide::SingleNode> subject;
#elif TIDE_CASE == 2  // expect: tide::AutoTransport: Gather must be an InterTransport with puts
tide::AutoTransport<OnMine, tide::SendRecvDoublingTransport<>> subject;
#elif TIDE_CASE == 3  // expect: tide::Bf16Wire: Inter must be a NodeExchange
tide::Bf16Wire<OnMine> subject;
#else                 // control: a machine of one's own, and policies of the right kind
tide::AutoTransport<OnMine, tide::RdmaDoublingTransport<>> subject;
tide::Bf16Wire<tide::RdmaDirectTransport> wire;
#endif
