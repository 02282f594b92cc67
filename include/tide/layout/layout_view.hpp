// SPDX-License-Identifier: Apache-2.0
//
// LayoutView: what lies where: the one function that maps (parameter, rank) to offsets. Nothing else computes one.
//
// Laws, for every group, mesh and packing:           (tests/layout/layout_view.test.cpp)
//   partition  for every parameter, the pieces of all ranks are disjoint, complete and in bounds
//   disjoint   pieces of different parameters share no byte of any buffer
//   aligned    each start is a multiple of the packing's or the storage's alignment

#pragma once

#include <tide/layout/detail/pieces.hpp>  // for_each_piece
#include <tide/layout/group.hpp>          // GroupView
#include <tide/layout/mesh.hpp>           // MeshShape
#include <tide/layout/packing.hpp>        // PackingRule
#include <tide/layout/piece.hpp>          // Piece, Buffer

#include <array>
#include <vector>

namespace tide {

struct LayoutView;

namespace detail {
// Who knows where the pieces of a group start. A pointer to a function: static layouts need none of what is behind it.
struct PieceSource {
  Piece (*piece)(const PieceSource&, const LayoutView&, ParameterIndex, Rank) = nullptr;
};
}  // namespace detail

/// A group on a mesh, packed and stored by rules. Cheap to copy; the group must outlive it.
struct LayoutView {
  GroupView group{};
  MeshShape mesh{};
  PackingRule packing{};
  index_t storage_alignment = 256;                 ///< bytes
  const detail::PieceSource* remembers = nullptr;  ///< of a group put together at run time

  /// Calls `f(const Piece&)` for each parameter in group order, empty pieces included; returns the ends of the buffers.
  template <class F>
  constexpr std::array<index_t, buffer_count> for_each_piece(Rank rank, F f) const {
    return detail::for_each_piece(group, mesh.ranks(), packing, storage_alignment, rank, f);
  }

  /// The piece of one parameter on one rank. Walks over the parameters before it, but for layouts made at run time:
  /// these walk once for each rank that is asked about, and remember.
  [[nodiscard]] constexpr Piece piece(ParameterIndex parameter, Rank rank) const;

  /// Bytes of a buffer: of that rank where packed; whole parameters, up to the storage alignment, where dense.
  [[nodiscard]] constexpr index_t bytes(Buffer buffer, Rank rank = Rank{0}) const {
    const index_t end = for_each_piece(rank, [](const Piece&) {})[static_cast<std::size_t>(buffer)];
    return is_dense(buffer) ? align_up(end, storage_alignment) : end;
  }

  /// Bytes of the largest rank's buffer.
  [[nodiscard]] constexpr index_t max_bytes(Buffer buffer) const;

  /// The blocks of a rank's pieces from one buffer to another, not coalesced: one per non-empty piece, or one per row
  /// where rows are more than `max_pitch` bytes apart.
  [[nodiscard]] constexpr std::vector<Block> blocks(Rank rank, Buffer source, Buffer target) const {
    std::vector<Block> list;
    for_each_piece(rank, [&](const Piece& piece) {
      if (piece.elements() > 0) append_within_limits(list, piece.block(source, target));
    });
    return list;
  }
};

constexpr Piece LayoutView::piece(ParameterIndex parameter, Rank rank) const {
  if (remembers != nullptr) return remembers->piece(*remembers, *this, parameter, rank);
  std::array<index_t, buffer_count> end{};
  Piece piece;
  for (index_t i = 0; i <= parameter.value; ++i) {
    piece = detail::next_piece(group, i, mesh.ranks(), packing, storage_alignment, rank, end);
  }
  return piece;
}

constexpr index_t LayoutView::max_bytes(Buffer buffer) const {
  if (is_dense(buffer)) return bytes(buffer);
  index_t largest = 0;
  for (index_t r = 0; r < mesh.ranks(); ++r) {
    const index_t candidate = bytes(buffer, Rank{r});
    largest = candidate > largest ? candidate : largest;
  }
  return largest;
}

}  // namespace tide
