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
};

[[nodiscard]] constexpr std::string_view name(Capability capability) noexcept {
  constexpr std::string_view names[] = {"nothing", "multicast", "one-sided puts", "sends and receives"};
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

/// The inter-node policy of meshes with one node: nothing crosses nodes.
struct SingleNode {
  static constexpr std::string_view name = "single node";
};

}  // namespace tide
