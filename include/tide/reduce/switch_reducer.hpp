// SPDX-License-Identifier: Apache-2.0
//
// SwitchReducer: over nodes, the switch of the owner's node adds the sums of all nodes, on the owner's one read.
//
//   4 nodes of 2 ranks, owner (n, 0)          (n, 0)      (n, 1)
//     row 0                                   node 0  +   node 1    read as one f32 each, added by the switch
//     row 1                                   node 2  +   node 3    read, and added to the row before
//
// In node m, local rank (g + m) mod G sums for the owner (n, g), so that sums of G nodes lie at one offset of G ranks.
//
// The order in which a switch adds is its own: law 3 holds but for the order, and bits may differ from run to run. Each
// input is added exactly once, and each operation rounded to f32.
//
// Laws: those of Reducer, with that exception        (tests/reduce/switch_reducer.test.cpp)

#pragma once

#include <tide/reduce/copy_engine_reducer.hpp>          // CopyEngineReducer
#include <tide/reduce/detail/switch_reduce_writer.hpp>  // SwitchReduceWriter

namespace tide {

/// Inside a node copies move and CTAs add, as with `CopyEngineReducer`; over nodes the owner reads, in place of the
/// sums of all nodes, one sum for each `ranks per node` of them.
///
/// Choose it on about as many nodes as a node has ranks, or more, where the bits need not repeat; with few nodes most
/// of what crosses the links is zeros. Of the policy between nodes it takes the puts: how sums cross is its own. Its
/// inbox is a `Ring`. On one node its plans are those of `CopyEngineReducer`.
///
/// @tparam L  with how many CTAs a GPU sums
/// @tparam E  `Store`, or `Accumulate` into existing shards
template <class L = Burst, class E = Store>
struct SwitchReducer {
  static_assert(Launch<L>, "tide::SwitchReducer: the first policy must be a Launch; Burst or Trickle.");
  static_assert(Epilogue<E>, "tide::SwitchReducer: the second policy must be an Epilogue; Store or Accumulate.");

  static constexpr std::string_view name = "switch";
  static constexpr Capability capability = Capability::switch_sums;
  static constexpr Exchange exchange = Exchange::in_switch;
  static constexpr Finish finish = E::finish;
  using launch = L;

  /// The plan of one rank of a reduce-scatter.  @pre the mesh has one node
  [[nodiscard]] static constexpr Plan reduce(const Collective& collective, Rank rank) {
    return CopyEngineReducer<L, E>::reduce(collective, rank);
  }
  /// The same over the nodes of any mesh.  @pre `collective.network.exchange` is `exchange`, if there are several
  [[nodiscard]] static constexpr Plan reduce_over_nodes(const Collective& collective, Rank rank) {
    if (collective.layout.mesh.nodes == 1) return reduce(collective, rank);
    return detail::SwitchReduceWriter(collective, rank).write();
  }
};

static_assert(Reducer<SwitchReducer<>>);

}  // namespace tide
