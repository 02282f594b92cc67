// SPDX-License-Identifier: Apache-2.0
//
// The hash behind fingerprint.hpp: each field that ranks agree on as a 64-bit word, lists with their length first.

#pragma once

#include <tide/plan/collective.hpp>  // Collective
#include <tide/plan/plan.hpp>        // Plan

#include <cstdint>
#include <string_view>
#include <vector>

namespace tide::detail {

class Hash {
 public:
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

  // Words one after the other, through the finalizer of splitmix64: a bijection, so one changed word changes the value.
  constexpr void word(std::uint64_t next) noexcept {
    std::uint64_t mixed = (value_ ^ next) + 0x9e3779b97f4a7c15ULL;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebULL;
    value_ = mixed ^ (mixed >> 31U);
  }

  template <class... Numbers>
  constexpr void add(Numbers... numbers) noexcept {
    (word(static_cast<std::uint64_t>(numbers)), ...);
  }

  constexpr void add(std::string_view text) noexcept {
    add(text.size());
    for (const char c : text) word(static_cast<unsigned char>(c));
  }

  constexpr void add(const Place& place) noexcept { add(place.space, place.instance, place.parameter); }

  constexpr void add(const Op& op) noexcept {
    add(op.kind, op.kernel, op.lane, op.peer);
    add(op.source);
    add(op.target);
    add(op.extra);
    add(op.rows, op.source_offset, op.target_offset, op.extra_offset, op.width, op.source_pitch, op.target_pitch);
  }

  constexpr void add(const Plan& plan) noexcept {
    add(plan.rank.value, plan.lanes.size(), plan.ops.size(), plan.exits.size());
    for (const Lane& lane : plan.lanes) add(lane.kind, lane.index);
    for (const Op& op : plan.ops) add(op);
    for (const Exit& exit : plan.exits) add(exit.kind, exit.lane.value, exit.position);
  }

  constexpr void add(const Collective& collective) {
    add(collective.layout);
    add(collective.operation, collective.own, collective.gradients, collective.finish);
    const InboxShape& inbox = collective.inbox;
    add(inbox.chunks, inbox.pieces, inbox.chunk_elements, inbox.element_bytes, inbox.piece_room, inbox.place,
        inbox.slot_bytes);
    const NetworkShape& network = collective.network;
    add(network.inbox_bytes, network.inbox_instances, network.partials_bytes, network.partials_instances,
        network.piece_bytes, network.puts_in_flight, network.exchange, network.wire);
    add(collective.kernels.size());
    for (const Kernel& kernel : collective.kernels) {
      add(kernel.kind, kernel.input, kernel.output, kernel.finish, kernel.inputs);
    }
  }

  constexpr void add(const LayoutView& layout) {
    add(layout.mesh.nodes, layout.mesh.ranks_per_node, layout.packing.start_alignment, layout.packing.padding,
        layout.storage_alignment, layout.group.size(), layout.group.aliases.size());
    for (const Parameter& parameter : layout.group.parameters) {
      add(parameter.name.hash(), parameter.gathered, parameter.gradient, parameter.shape.rank,
          parameter.sharding.dimension);
      for (int i = 0; i < parameter.shape.rank; ++i) add(parameter.shape[i]);
    }
    for (const Alias& alias : layout.group.aliases) {
      add(alias.name);
      add(alias.target);
    }
    for (index_t rank = 0; rank < layout.mesh.ranks(); ++rank) {  // the cut, whichever rule or table made it
      layout.for_each_piece(Rank{rank}, [&](const Piece& piece) {
        add(piece.begin, piece.count);
        for (const index_t start : piece.start) add(start);
      });
    }
  }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace tide::detail
