// SPDX-License-Identifier: Apache-2.0
//
// Traffic: how many bytes an op reads, and how many it writes on how many ranks. Every count of bytes, of a tally, of a
// bound or of a simulation, starts here.
//
//   op          read                                        written            targets
//   copy, put   source                                      source             1
//   multicast   source                                      source             ranks of the node, own included
//   cast        source                                      source, converted  1
//   reduce      own gradient and pieces, output if added to output             1
//   signal, wait: none; words are not counted as bytes
//
// A sum in the switch reads as much on every rank of the node; the own rank's is counted, as all read bytes are.
//
// Test: tests/plan/traffic.test.cpp

#pragma once

#include <tide/core/math.hpp>        // checked_product
#include <tide/plan/collective.hpp>  // Collective
#include <tide/plan/op.hpp>          // Op

namespace tide {

/// What an op moves.
struct Traffic {
  index_t read_bytes = 0;     ///< from memory of the own rank
  index_t written_bytes = 0;  ///< on each target
  index_t targets = 0;        ///< ranks that are written to

  [[nodiscard]] friend constexpr bool operator==(const Traffic&, const Traffic&) = default;
};

/// Bytes of a row at the target: as many elements as at the source, in the kernel's output element where there is one;
/// -1 where that does not fit into an index_t.
/// @pre `op.kernel` is an entry of the collective's kernel table, of known elements, if the op is a reduce or a cast
[[nodiscard]] constexpr index_t target_width(const Collective& collective, const Op& op) noexcept {
  if (op.kind != OpKind::reduce && op.kind != OpKind::cast) return op.width;
  const Kernel& kernel = collective.kernels[op.kernel];
  const index_t elements = op.width / static_cast<index_t>(size_bytes(kernel.input));
  return checked_product(elements, static_cast<index_t>(size_bytes(kernel.output)));
}

/// What an op moves.  @pre that of `target_width`, and that all of it fits into an index_t
[[nodiscard]] constexpr Traffic traffic(const Collective& collective, const Op& op) noexcept {
  const auto rows = static_cast<index_t>(op.rows);
  switch (op.kind) {
    case OpKind::copy:
    case OpKind::put:
      return {op.bytes(), op.bytes(), 1};
    case OpKind::multicast:
      return {op.bytes(), op.bytes(), collective.layout.mesh.ranks_per_node};
    case OpKind::cast:
      return {op.bytes(), rows * target_width(collective, op), 1};
    case OpKind::reduce: {
      const Kernel& kernel = collective.kernels[op.kernel];
      const index_t written = rows * target_width(collective, op);
      const index_t added_to = kernel.finish == Finish::accumulate ? written : 0;
      return {op.bytes() * static_cast<index_t>(kernel.inputs) + added_to, written, 1};
    }
    case OpKind::signal:
    case OpKind::wait:
      break;
  }
  return {};
}

}  // namespace tide
