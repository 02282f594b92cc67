// SPDX-License-Identifier: Apache-2.0
//
// Transport: a policy that writes the plan of an all-gather.
//
// Laws, for every collective and rank: `verify` holds for the plans of all ranks (tests/conformance/transport.hpp), and
// the plan is a function of its arguments alone.
//
// Cost: one call per rank and source when a pipeline is constructed; nothing in a step.
// Models: UnicastTransport, MulticastTransport, and the user's own (examples/07_own_transport.cpp).

#pragma once

#include <tide/plan/plan_builder.hpp>  // PlanBuilder

#include <concepts>
#include <string_view>

namespace tide {

/// What a transport needs of a fabric; a fabric without it refuses the transport by name.
enum class Capability : std::uint8_t {
  none,
  multicast,     ///< one write reaches all ranks of a node
  puts,          ///< one-sided puts to other nodes, by NICs and copy engines
  send_receive,  ///< sends and receives to other nodes, for which a GPU uses SMs
  switch_sums,   ///< one read sums what lies at an offset of all ranks of a node
};

[[nodiscard]] constexpr std::string_view name(Capability capability) noexcept {
  constexpr std::string_view names[] = {"nothing", "multicast", "one-sided puts", "sends and receives",
                                        "sums in the switch"};
  return names[static_cast<int>(capability)];
}

/// `T::name` for messages, `T::capability`, `T::own_block` (how the own block arrives when shards are gathered), and
/// `T::gather(collective, rank)`, the plan of one rank.
template <class T>
concept Transport = requires(const Collective& collective, Rank rank) {
  { T::name } -> std::convertible_to<std::string_view>;
  { T::capability } -> std::convertible_to<Capability>;
  { T::own_block } -> std::convertible_to<OwnBlock>;
  { T::gather(collective, rank) } -> std::same_as<Plan>;
};

/// A Transport that can also spread what came from other nodes: `T::spreads_by` is OpKind::copy (a lane for each peer)
/// or OpKind::multicast (one write).
template <class T>
concept SpreadingTransport = Transport<T> && requires {
  { T::spreads_by } -> std::convertible_to<OpKind>;
} &&(T::spreads_by == OpKind::copy || T::spreads_by == OpKind::multicast);

namespace detail {

// A transport that only the concepts below name.
struct AnySpread {
  static constexpr std::string_view name = "any";
  static constexpr Capability capability = Capability::none;
  static constexpr OwnBlock own_block = OwnBlock::copy;
  static constexpr OpKind spreads_by = OpKind::copy;
  [[nodiscard]] static constexpr Plan gather(const Collective&, Rank) { return {}; }
};

}  // namespace detail

/// A policy that says how a gather crosses nodes: `I::name`, `I::capability`, `I::network(layout)` (what the collective
/// needs of the network) and `I::gather<Intra>(collective, rank)`, the plan of one rank.
///
/// Laws: those of Transport, over meshes of several nodes (tests/conformance/inter_transport.hpp).
/// Models: SingleNode, RdmaDoublingTransport, SendRecvDoublingTransport.
template <class I>
concept InterTransport = requires(const Collective& collective, Rank rank) {
  { I::name } -> std::convertible_to<std::string_view>;
  { I::capability } -> std::convertible_to<Capability>;
  { I::network(collective.layout) } -> std::same_as<NetworkShape>;
  { I::template gather<detail::AnySpread>(collective, rank) } -> std::same_as<Plan>;
};

/// The inter-node policy of meshes with one node: nothing crosses nodes.
struct SingleNode {
  static constexpr std::string_view name = "single node";
  static constexpr Capability capability = Capability::none;

  [[nodiscard]] static constexpr NetworkShape network(const LayoutView&) { return {}; }
  template <Transport Intra>
  [[nodiscard]] static constexpr Plan gather(const Collective& collective, Rank rank) {
    return Intra::gather(collective, rank);
  }
};

static_assert(InterTransport<SingleNode>);

}  // namespace tide
