// SPDX-License-Identifier: Apache-2.0
//
// NodeExchange: a policy that says how the partial sums of a reduce-scatter cross nodes.
//
//   doubling   in round k, of subtrees of up to 2^k nodes, half of what a node holds goes to one other: few, large puts
//   direct     a put from each node to each owner, summed when all are there: as many puts as there are nodes
//   in switch  as SwitchReducer says it, whatever the policy
//
// The first two send each partial sum once and add it along the tree of node_tree.hpp: the bits are the same. Both need
// room for as many landed sums as there are nodes.
//
// Test: tests/reduce/node_exchange.test.cpp

#pragma once

#include <tide/plan/collective.hpp>      // Exchange
#include <tide/reduce/inbox.hpp>         // ReduceMemory
#include <tide/transport/transport.hpp>  // Capability, SingleNode

#include <concepts>
#include <string_view>
#include <type_traits>

namespace tide {

/// How a policy crosses nodes: its member `exchange`. SingleNode, which crosses none, counts as doubling.
template <class X>
inline constexpr Exchange exchange_of = [] {
  if constexpr (requires { X::exchange; }) {
    return X::exchange;
  } else {
    return Exchange::doubling;
  }
}();

/// What sums of several ranks cross in: a policy's member `wire`, or f32 where it has none.
template <class X>
inline constexpr Element wire_of = [] {
  if constexpr (requires { X::wire; }) {
    return X::wire;
  } else {
    return Element::f32;
  }
}();

namespace detail {

// A reducer and an inbox that only the trait below names.
struct AnyReducer {
  [[nodiscard]] static constexpr Plan reduce_over_nodes(const Collective&, Rank) { return {}; }
};
struct AnyMemory {
  [[nodiscard]] constexpr ReduceMemory operator()(Exchange) const { return {}; }
};

}  // namespace detail

/// Whether a policy chooses how to cross nodes for each layout: by a member `choose<Reducer>(collective, memory)`.
template <class X>
inline constexpr bool chooses_exchange = requires(const Collective& collective) {
  X::template choose<detail::AnyReducer>(collective, detail::AnyMemory{});
};

/// Whether a reducer says itself how sums cross nodes, by a member `exchange`. Of a policy between nodes it needs puts.
template <class R>
concept CrossesItself = requires {
  { R::exchange } -> std::convertible_to<Exchange>;
};

namespace detail {

// How sums cross nodes by a reducer and a policy between nodes.
template <class R, class X>
struct Crossing {
  using type = X;
};
template <CrossesItself R, class X>
struct Crossing<R, X> {
  struct type {
    static constexpr std::string_view name = X::name;
    static constexpr Capability capability = X::capability;
    static constexpr Exchange exchange = R::exchange;
  };
};
template <CrossesItself R>
struct Crossing<R, SingleNode> {
  using type = SingleNode;
};

}  // namespace detail

/// `X::name`, `X::capability`, `X::exchange`; only a reducer can leave sums to a switch. SingleNode has no exchange.
///
/// Models: SingleNode, RdmaDirectTransport, SendRecvDirectTransport, AutoTransport, and the transports that double:
/// RdmaDoublingTransport, SendRecvDoublingTransport.
template <class X>
concept NodeExchange = std::same_as<X, SingleNode> || requires {
  { X::name } -> std::convertible_to<std::string_view>;
  { X::capability } -> std::convertible_to<Capability>;
  { X::exchange } -> std::convertible_to<Exchange>;
  requires(X::exchange != Exchange::in_switch);
};

/// Each partial sum straight to its owner, by one-sided puts. Choose it for few nodes; doubling sends fewer, larger
/// puts where there are many.
struct RdmaDirectTransport {
  static constexpr std::string_view name = "RDMA direct";
  static constexpr Capability capability = Capability::puts;
  static constexpr Exchange exchange = Exchange::direct;
};

/// The same by sends and receives, for clusters whose network has no one-sided puts. On GPUs those take SMs.
struct SendRecvDirectTransport {
  static constexpr std::string_view name = "send-receive direct (uses SMs)";
  static constexpr Capability capability = Capability::send_receive;
  static constexpr Exchange exchange = Exchange::direct;
};

/// The same with sums that cross in bf16: half the bytes, and the one place where bits depend on the nodes.
///
/// Each sum is rounded to bf16 once for each time it crosses: once with direct exchange, up to ceil(log2 nodes) times,
/// in larger and larger sums, with doubling. Gradients of nodes of one rank cross as they are. Of R roundings at most,
/// with S_m the sum of node m, the error of a shard is at most scale * R * 2^-8 * (1 + 2^-8)^(R - 1) * (|S_0| + |S_1| +
/// ...), beside that of the f32 additions. Choose it where the network is the bottleneck and gradients are averaged
/// over few nodes; all else is added as without it.
template <class Inter>
struct Bf16Wire : Inter {
  static_assert(NodeExchange<Inter>,
                "tide::Bf16Wire: Inter must be a NodeExchange; RdmaDoublingTransport or RdmaDirectTransport.");

  static constexpr Element wire = Element::bf16;
};

static_assert(NodeExchange<Bf16Wire<RdmaDirectTransport>> && wire_of<Bf16Wire<RdmaDirectTransport>> == Element::bf16);
static_assert(NodeExchange<SingleNode> && NodeExchange<RdmaDirectTransport> && NodeExchange<SendRecvDirectTransport>);

}  // namespace tide
