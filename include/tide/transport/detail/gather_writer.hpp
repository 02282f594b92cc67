// SPDX-License-Identifier: Apache-2.0
//
// What the gather plans of all transports have in common inside a node: who has something to send, the handshake, the
// own block.

#pragma once

#include <tide/layout/coalesce.hpp>    // coalesce
#include <tide/plan/kernels.hpp>       // name_kernels
#include <tide/plan/plan_builder.hpp>  // PlanBuilder

#include <vector>

namespace tide::detail {

class GatherWriter {
 public:
  constexpr GatherWriter(const Collective& collective, Rank rank)
      : plan(collective, rank), words(collective.words()), mesh_(collective.layout.mesh) {
    for (index_t k = 0; k < ranks(); ++k) {
      bool sends = false;
      for (index_t node = 0; node < mesh_.nodes; ++node) sends = sends || owns(mesh_.rank(node, mesh_.local(peer(k))));
      sends_.push_back(sends ? 1 : 0);
    }
  }

  [[nodiscard]] constexpr MeshShape mesh() const noexcept { return mesh_; }
  // Ranks of the node.
  [[nodiscard]] constexpr index_t ranks() const noexcept { return mesh_.ranks_per_node; }
  // The k-th peer of this rank in its node: at each step the peers of all ranks form a permutation.
  [[nodiscard]] constexpr Rank peer(index_t k) const noexcept {
    return mesh_.rank(mesh_.node(plan.rank()), (mesh_.local(plan.rank()) + k) % ranks());
  }
  // Whether a rank owns any byte.
  [[nodiscard]] constexpr bool owns(Rank rank) const {
    bool owns = false;
    plan.collective().layout.for_each_piece(rank, [&](const Piece& piece) { owns = owns || piece.elements() > 0; });
    return owns;
  }
  // Whether the k-th peer (0: this rank) has bytes for its node: its own, or those that come to it from other nodes.
  // One that has none never signals.
  [[nodiscard]] constexpr bool sends(index_t k = 0) const noexcept { return sends_[static_cast<std::size_t>(k)] != 0; }
  [[nodiscard]] constexpr index_t ready(Rank rank) const noexcept { return words.word(WordKind::ready, rank.value); }
  [[nodiscard]] constexpr index_t arrived(Rank rank) const noexcept {
    return words.word(WordKind::arrived, rank.value);
  }
  [[nodiscard]] constexpr index_t event(LaneIndex lane) const noexcept {
    return words.word(WordKind::event, lane.value);
  }

  // Where peers of the node are served from.
  [[nodiscard]] constexpr Space served_from() const noexcept {
    return plan.collective().gives_shards() ? Space::shards : Space::slot;
  }

  // The own blocks as peers get them.
  [[nodiscard]] constexpr std::vector<Block> own_blocks() const {
    return blocks(served_from() == Space::shards ? Buffer::shards : Buffer::slot, Buffer::slot);
  }

  // Tells every peer of the node that will write here that the slot is free.
  constexpr void signal_ready() {
    for (index_t k = 1; k < ranks(); ++k) {
      if (sends(k)) plan.signal(plan.caller(), peer(k), ready(plan.rank()));
    }
  }

  // Brings the own block into the own slot, packs it where other nodes are served and the caller gives no shards, and
  // starts the other lanes, if any wait, as early as the source allows.
  constexpr void own_block(bool start) {
    const Collective& collective = plan.collective();
    if (collective.own == OwnBlock::cast) {
      for (const Block& block : blocks(Buffer::masters, Buffer::slot)) plan.cast(plan.caller(), block);
    }
    if (mesh_.nodes > 1 && !collective.gives_shards()) {
      for (const Block& block : blocks(Buffer::slot, Buffer::shards)) {
        plan.copy(plan.caller(), plan.rank(), Space::slot, Space::shards, block);
      }
    }
    if (start) plan.signal(plan.caller(), plan.rank(), event(plan.caller()));
    const bool alone = collective.own == OwnBlock::multicast && ranks() == 1;
    if (collective.own == OwnBlock::copy || alone) {
      for (const Block& block : own_blocks()) plan.copy(plan.caller(), plan.rank(), Space::shards, Space::slot, block);
    }
  }

  // Waits for the blocks of all peers of the node and for the own lanes that still read.
  constexpr Plan complete(const std::vector<LaneIndex>& lanes) && {
    for (index_t k = 1; k < ranks(); ++k) {
      if (sends(k)) plan.wait(plan.caller(), arrived(peer(k)));
    }
    for (const LaneIndex lane : lanes) plan.wait(plan.caller(), event(lane));
    plan.exit(ExitKind::complete, plan.caller());
    return std::move(plan).finish();
  }

  PlanBuilder plan;
  SignalWords words;

 private:
  // The own pieces from one buffer to another, coalesced; of casts, those that one kernel does.
  [[nodiscard]] constexpr std::vector<Block> blocks(Buffer source, Buffer target) const {
    std::vector<Block> list = plan.collective().layout.blocks(plan.rank(), source, target);
    if (source == Buffer::masters) name_kernels(list, plan.collective());
    return coalesce(list);
  }

  MeshShape mesh_;
  std::vector<char> sends_;  // by peer of the node
};

}  // namespace tide::detail
