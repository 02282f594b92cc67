// SPDX-License-Identifier: Apache-2.0
//
// What a node of the graph reads, by what its op says.

#pragma once

#include <tide/plan/detail/op_graph.hpp>     // OpGraph
#include <tide/plan/detail/op_rows.hpp>      // OpRows, source_rows, piece_rows
#include <tide/plan/detail/piece_table.hpp>  // PieceTable

#include <algorithm>

namespace tide::detail {

// Bytes of one instance of a space of a rank.
struct MemoryRegion {
  Rank rank{};
  Space space = Space::slot;
  index_t instance = 0;

  [[nodiscard]] friend bool operator==(const MemoryRegion&, const MemoryRegion&) = default;
};

class NodeReads {
 public:
  NodeReads(const Collective& collective, const PieceTable& pieces, const OpGraph& graph)
      : collective_(&collective), pieces_(&pieces), graph_(&graph) {}

  // Calls f(begin, end) for what a node reads of bytes [begin, end) of a region, row by row.
  template <class F>
  void for_each_overlap(NodeIndex v, const MemoryRegion& region, index_t begin, index_t end, F f) const {
    for_each(v, [&](const MemoryRegion& from, const OpRows& rows) {
      if (!(from == region) || rows.offset >= end || rows.end() <= begin) return;
      // Rows may lie on each other, where an op reads some bytes again and again.
      const index_t first = rows.pitch == 0 ? 0 : std::max<index_t>(0, (begin - rows.offset - rows.width) / rows.pitch);
      for (index_t row = first; row < rows.rows && rows.begin(row) < end; ++row) {
        const index_t from_byte = std::max(begin, rows.begin(row));
        const index_t to_byte = std::min(end, rows.begin(row) + rows.width);
        if (from_byte < to_byte) f(from_byte, to_byte);
        if (rows.pitch == 0) break;
      }
    });
  }

 private:
  // Calls f(region, rows) for all that a node reads.
  template <class F>
  void for_each(NodeIndex v, F f) const {
    const OpGraph::Node node = graph_->decode(v);
    switch (node.role) {
      case OpGraph::Role::op:
        return for_each_of_op(graph_->op(node), node.rank, f);
      case OpGraph::Role::free:
        for (index_t p = 0; p < pieces_->parameters(); ++p) {
          const PieceTable::Range range = pieces_->dense(Buffer::slot, p);
          if (range.begin < range.end) f({node.rank, Space::slot, 0}, {range.begin, range.end - range.begin, 0, 1});
        }
        return;
      case OpGraph::Role::ready:
        for (const Piece& piece : pieces_->pieces(node.rank)) {
          if (piece.elements() == 0) continue;
          f({node.rank, Space::output, 0}, {piece.offset(Buffer::output), piece.bytes(Buffer::output), 0, 1});
        }
        return;
      case OpGraph::Role::call:
      case OpGraph::Role::fill:
      case OpGraph::Role::take:
      case OpGraph::Role::wire:
        return;
    }
  }

  template <class F>
  void for_each_of_op(const Op& op, Rank rank, F f) const {
    if (!op.moves()) return;
    const MeshShape mesh = collective_->layout.mesh;
    const bool in_switch = adds_in_switch(op, *collective_);
    const index_t pieces = op.kind == OpKind::reduce ? kernel_of(op, *collective_).inputs - 1 : 0;
    for (index_t local = 0; local < (in_switch ? mesh.ranks_per_node : 1); ++local) {
      const Rank at = in_switch ? mesh.rank(mesh.node(rank), local) : rank;
      f({at, op.source.space, op.source.instance}, source_rows(op));
      for (index_t i = 0; i < pieces; ++i) {
        OpRows rows = piece_rows(op, *collective_);
        rows.offset += i * piece_spacing(op, *collective_).piece_bytes;
        f({at, op.extra.space, op.extra.instance}, rows);
      }
    }
  }

  const Collective* collective_;
  const PieceTable* pieces_;
  const OpGraph* graph_;
};

}  // namespace tide::detail
