// SPDX-License-Identifier: Apache-2.0
//
// Which rows of which memory an op touches: the table of plan/op.hpp, as code.

#pragma once

#include <tide/core/math.hpp>        // checked_product
#include <tide/plan/collective.hpp>  // Collective
#include <tide/plan/op.hpp>          // Op
#include <tide/plan/traffic.hpp>     // target_width

#include <cstdint>

namespace tide::detail {

// `rows` runs of `width` bytes, `pitch` apart.
struct OpRows {
  index_t offset = 0;
  index_t width = 0;
  index_t pitch = 0;
  index_t rows = 1;

  [[nodiscard]] constexpr index_t begin(index_t row) const noexcept { return offset + row * pitch; }
  [[nodiscard]] constexpr bool dense() const noexcept { return rows == 1 || pitch == width; }
  [[nodiscard]] constexpr OpRows some(index_t first, index_t count) const noexcept {
    return {begin(first), width, pitch, count};
  }

  // One past the last byte; -1 where that is no number or the rows are none.
  [[nodiscard]] constexpr index_t end() const noexcept {
    if (offset < 0 || width <= 0 || rows <= 0) return -1;
    const index_t span = checked_product(rows - 1, pitch);
    if (span < 0 || offset > INT64_MAX - span || width > INT64_MAX - span - offset) return -1;
    return offset + span + width;
  }
};

[[nodiscard]] constexpr OpRows source_rows(const Op& op) noexcept {
  return {op.source_offset, op.width, static_cast<index_t>(op.source_pitch), static_cast<index_t>(op.rows)};
}

// The kernel of a reduce or cast.  @pre op.kernel is one of the table
[[nodiscard]] constexpr const Kernel& kernel_of(const Op& op, const Collective& collective) noexcept {
  return collective.kernels[op.kernel];
}

// @pre the kernel of a reduce or cast is one of the table, and of known elements
[[nodiscard]] constexpr OpRows target_rows(const Op& op, const Collective& collective) noexcept {
  return {op.target_offset, target_width(collective, op), static_cast<index_t>(op.target_pitch),
          static_cast<index_t>(op.rows)};
}

// Whether an op reads its inputs at every rank of its node.  @pre the kernel of a reduce is one of the table
[[nodiscard]] constexpr bool adds_in_switch(const Op& op, const Collective& collective) noexcept {
  return op.kind == OpKind::reduce && kernel_of(op, collective).kind == Kernel::Kind::switch_sum;
}

// Whether a sum is over the ranks of a node; else it is over nodes.
[[nodiscard]] constexpr bool adds_local_ranks(const Op& op, MeshShape mesh) noexcept {
  return mesh.nodes == 1 || (mesh.ranks_per_node > 1 && op.source.space == Space::gradients);
}

// How the pieces of a reduce lie: those of local ranks as the inbox says, those of nodes as the network does.
struct PieceSpacing {
  index_t piece_bytes = 0;    // from piece to piece
  index_t element_bytes = 0;  // from element to element, where rows begin
};

[[nodiscard]] constexpr PieceSpacing piece_spacing(const Op& op, const Collective& collective) noexcept {
  if (op.extra.space == Space::inbox) return {collective.inbox.piece_bytes(), collective.inbox.element_bytes};
  return {collective.network.piece_bytes, static_cast<index_t>(size_bytes(kernel_of(op, collective).input))};
}

// The rows of the first piece of a reduce; the next piece is `piece_spacing().piece_bytes` further.
[[nodiscard]] constexpr OpRows piece_rows(const Op& op, const Collective& collective) noexcept {
  const auto output = static_cast<index_t>(size_bytes(kernel_of(op, collective).output));
  const index_t pitch =
      checked_product(static_cast<index_t>(op.target_pitch) / output, piece_spacing(op, collective).element_bytes);
  return {op.extra_offset, op.width, pitch, static_cast<index_t>(op.rows)};
}

}  // namespace tide::detail
