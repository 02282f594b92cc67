// SPDX-License-Identifier: Apache-2.0
//
// The walk behind LayoutView: a rank's pieces in group order, with the running offsets of every buffer.

#pragma once

#include <tide/layout/detail/cut.hpp>  // shard_begin, shard_chunk
#include <tide/layout/group.hpp>       // GroupView
#include <tide/layout/mesh.hpp>        // MeshShape
#include <tide/layout/packing.hpp>     // PackingRule
#include <tide/layout/piece.hpp>       // Piece

#include <array>

namespace tide::detail {

// The piece of parameter `i`, from where the pieces before it end; moves the ends behind it. Not inlined: every caller
// of the walk below would carry a copy.
[[gnu::noinline]] constexpr Piece next_piece(const GroupView& group, index_t i, index_t ranks, PackingRule packing,
                                             index_t storage_alignment, Rank rank,
                                             std::array<index_t, buffer_count>& end) {
  const Parameter& parameter = group[ParameterIndex{i}];
  const int dimension = parameter.sharding.dimension;
  const index_t inner = parameter.shape.product(dimension + 1, parameter.shape.rank);
  Piece piece;
  piece.parameter = ParameterIndex{i};
  piece.begin = shard_begin(parameter, ranks, rank.value);
  piece.count = shard_begin(parameter, ranks, rank.value + 1) - piece.begin;
  piece.outer = parameter.shape.product(0, dimension);
  piece.width = piece.count * inner;
  piece.pitch = parameter.shape[dimension] * inner;
  piece.first = piece.begin * inner;
  const auto gathered = static_cast<index_t>(size_bytes(parameter.gathered));
  const auto gradient = static_cast<index_t>(size_bytes(parameter.gradient));
  piece.element_bytes = {4, gathered, 4, gathered, gradient};
  const index_t packed_rows =
      packing.padding == PackingRule::Padding::to_chunk ? shard_chunk(parameter, ranks) : piece.count;
  for (std::size_t b = 0; b < end.size(); ++b) {
    const bool dense = is_dense(static_cast<Buffer>(b));
    piece.start[b] = align_up(end[b], dense ? storage_alignment : packing.start_alignment);
    const index_t elements = piece.outer * (dense ? piece.pitch : packed_rows * inner);
    end[b] = elements == 0 ? end[b] : piece.start[b] + elements * piece.element_bytes[b];
  }
  return piece;
}

// Calls f for each piece; returns where each buffer ends.
template <class F>
constexpr std::array<index_t, buffer_count> for_each_piece(const GroupView& group, index_t ranks, PackingRule packing,
                                                           index_t storage_alignment, Rank rank, F f) {
  std::array<index_t, buffer_count> end{};
  for (index_t i = 0; i < group.size(); ++i) {
    const Piece piece = next_piece(group, i, ranks, packing, storage_alignment, rank, end);
    f(piece);
  }
  return end;
}

}  // namespace tide::detail
