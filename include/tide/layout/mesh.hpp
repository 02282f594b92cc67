// SPDX-License-Identifier: Apache-2.0
//
// Mesh: the ranks of a collective as nodes x ranks per node, known at compile time or at run time, as extents of
// mdspan.
//
//   Mesh<2, 3>        node 0 | 0  1  2      rank = node * ranks_per_node + local
//                     node 1 | 3  4  5
//
// Laws, for every rank r:                            (tests/layout/mesh.test.cpp)
//   inverse   rank(node(r), local(r)) == r
//   bounded   node(r) < nodes, local(r) < ranks_per_node

#pragma once

#include <tide/core/error.hpp>  // raise
#include <tide/core/index.hpp>  // Rank
#include <tide/core/text.hpp>   // text

#include <string>

namespace tide {

/// A mesh size that is known at run time only.
inline constexpr index_t dynamic = -1;

/// The largest number of ranks that a mesh may have.
inline constexpr index_t max_ranks = 65535;

/// A mesh as a value: what layout functions and plan writers work with, whichever sizes were static.
struct MeshShape {
  index_t nodes = 1;
  index_t ranks_per_node = 1;

  [[nodiscard]] constexpr index_t ranks() const noexcept { return nodes * ranks_per_node; }
  [[nodiscard]] constexpr index_t node(Rank rank) const noexcept { return rank.value / ranks_per_node; }
  [[nodiscard]] constexpr index_t local(Rank rank) const noexcept { return rank.value % ranks_per_node; }
  [[nodiscard]] constexpr Rank rank(index_t node, index_t local) const noexcept {
    return Rank{node * ranks_per_node + local};
  }
  [[nodiscard]] friend constexpr bool operator==(const MeshShape&, const MeshShape&) = default;
};

/// Ranks as `Nodes` x `RanksPerNode`; rank = node * RanksPerNode + local rank.
///
/// @tparam Nodes         number of nodes, or `tide::dynamic`
/// @tparam RanksPerNode  ranks of each node, or `tide::dynamic`
template <index_t Nodes, index_t RanksPerNode>
class Mesh {
  static_assert(Nodes == dynamic || Nodes > 0, "tide::Mesh: Nodes must be positive; or tide::dynamic.");
  static_assert(RanksPerNode == dynamic || RanksPerNode > 0,
                "tide::Mesh: RanksPerNode must be positive; or tide::dynamic.");
  static_assert(Nodes == dynamic || RanksPerNode == dynamic || Nodes <= 0 || RanksPerNode <= max_ranks / Nodes,
                "tide::Mesh: a mesh has at most 65535 ranks.");

 public:
  /// The number of nodes, or `tide::dynamic`.
  static constexpr index_t static_nodes = Nodes;
  /// The number of ranks on each node, or `tide::dynamic`.
  static constexpr index_t static_ranks_per_node = RanksPerNode;

  /// Whether both sizes are known at compile time.
  static constexpr bool is_static = Nodes != dynamic && RanksPerNode != dynamic;

  /// The mesh of the static sizes.
  constexpr Mesh() requires(is_static) : shape_{Nodes, RanksPerNode} {}

  /// A mesh of the given sizes.
  /// @throws Error (Errc::layout) when a size is not positive or there are more than 65535 ranks, (Errc::mismatch) when
  ///         one differs from a static one
  constexpr Mesh(index_t nodes, index_t ranks_per_node) : shape_{nodes, ranks_per_node} {
    if (nodes <= 0) raise(Errc::layout, "tide::Mesh: Nodes must be positive; or tide::dynamic.");
    if (ranks_per_node <= 0) raise(Errc::layout, "tide::Mesh: RanksPerNode must be positive; or tide::dynamic.");
    if (ranks_per_node > max_ranks / nodes) raise(Errc::layout, "tide::Mesh: a mesh has at most 65535 ranks.");
    if ((Nodes != dynamic && nodes != Nodes) || (RanksPerNode != dynamic && ranks_per_node != RanksPerNode)) {
      raise(Errc::mismatch,
            detail::text({"tide::Mesh: sizes given at run time must equal the static ones; static ", size(Nodes), "x",
                          size(RanksPerNode), ", given ", nodes, "x", ranks_per_node, "."}));
    }
  }

  [[nodiscard]] constexpr index_t nodes() const noexcept { return shape_.nodes; }
  [[nodiscard]] constexpr index_t ranks_per_node() const noexcept { return shape_.ranks_per_node; }
  [[nodiscard]] constexpr index_t ranks() const noexcept { return shape_.ranks(); }
  [[nodiscard]] constexpr MeshShape shape() const noexcept { return shape_; }

 private:
  static std::string size(index_t extent) { return extent == dynamic ? "dynamic" : std::to_string(extent); }

  MeshShape shape_;
};

}  // namespace tide
