// SPDX-License-Identifier: Apache-2.0
//
// CopyEngineReducer: each rank pushes, from the gradients where they lie, what each peer sums; each rank sums what
// came.
//
//   push k, to peer o      wait start   [wait credit of o]   copy chunk 0   signal arrived   ...   copy chunk 1   ...
//   sum                    wait start   wait arrived of all  reduce chunk 0 [signal credit]  ...   reduce chunk 1 ...
//
// Sums follow the tree of reduce/tree.hpp, the own gradient at the own position.
//
// Laws: those of Reducer                             (tests/reduce/copy_engine_reducer.test.cpp)

#pragma once

#include <tide/reduce/detail/node_reduce_writer.hpp>  // NodeReduceWriter
#include <tide/reduce/detail/reduce_writer.hpp>       // ReduceWriter
#include <tide/reduce/epilogue.hpp>                   // Epilogue, Store
#include <tide/reduce/launch.hpp>                     // Launch, Burst
#include <tide/reduce/reducer.hpp>                    // Reducer

namespace tide {

/// Copies move, short-lived CTAs (or host threads) add.
///
/// @tparam L  with how many CTAs a GPU sums
/// @tparam E  `Store`, or `Accumulate` into existing shards
template <class L = Burst, class E = Store>
struct CopyEngineReducer {
  static_assert(Launch<L>, "tide::CopyEngineReducer: the first policy must be a Launch; Burst or Trickle.");
  static_assert(Epilogue<E>, "tide::CopyEngineReducer: the second policy must be an Epilogue; Store or Accumulate.");

  static constexpr std::string_view name = "copy engine";
  static constexpr Capability capability = Capability::none;
  static constexpr Finish finish = E::finish;
  using launch = L;

  /// The plan of one rank of a reduce-scatter.  @pre the mesh has one node
  [[nodiscard]] static constexpr Plan reduce(const Collective& collective, Rank rank) {
    return detail::ReduceWriter(collective, rank).write();
  }
  /// The same over the nodes of any mesh, as `collective.network` says. Apart, so that programs of one node compile
  /// none of it.
  [[nodiscard]] static constexpr Plan reduce_over_nodes(const Collective& collective, Rank rank) {
    if (collective.layout.mesh.nodes == 1) return reduce(collective, rank);
    return detail::NodeReduceWriter(collective, rank).write();
  }
};

static_assert(Reducer<CopyEngineReducer<>>);

}  // namespace tide
