// SPDX-License-Identifier: Apache-2.0
//
// Reducer: a policy that writes the plan of a reduce-scatter.
//
// Laws, for every collective and rank: `verify` holds for the plans of all ranks (tests/conformance/reducer.hpp), and
// the plan is a function of its arguments alone.
//
// Cost: one call per rank when a pipeline is constructed; nothing in a step.
// Models: CopyEngineReducer; SwitchReducer, whose sums over nodes the switch adds in its own order. Such a model says
// by a member `exchange` how sums cross nodes (reduce/node_exchange.hpp).

#pragma once

#include <tide/plan/plan.hpp>            // Plan, Collective
#include <tide/reduce/launch.hpp>        // Launch
#include <tide/transport/transport.hpp>  // Capability

#include <concepts>
#include <string_view>

namespace tide {

/// `R::name`, `R::capability`, `R::finish`, `R::launch` (a Launch), `R::reduce(collective, rank)`, the plan of one rank
/// where the mesh has one node, and `R::reduce_over_nodes(collective, rank)`, that for any mesh.
template <class R>
concept Reducer = requires(const Collective& collective, Rank rank) {
  { R::name } -> std::convertible_to<std::string_view>;
  { R::capability } -> std::convertible_to<Capability>;
  { R::finish } -> std::convertible_to<Finish>;
  requires Launch<typename R::launch>;
  { R::reduce(collective, rank) } -> std::same_as<Plan>;
  { R::reduce_over_nodes(collective, rank) } -> std::same_as<Plan>;
};

}  // namespace tide
