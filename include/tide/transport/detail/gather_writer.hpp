// SPDX-License-Identifier: Apache-2.0
//
// What the gather plans of all transports have in common: who has something to send, the handshake, the own block.

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
    sends_.reserve(static_cast<std::size_t>(ranks()));
    for (index_t r = 0; r < ranks(); ++r) {
      bool sends = false;
      collective.layout.for_each_piece(Rank{r}, [&](const Piece& piece) { sends = sends || piece.elements() > 0; });
      sends_.push_back(sends ? 1 : 0);
    }
  }

  [[nodiscard]] constexpr index_t ranks() const noexcept { return mesh_.ranks(); }
  // The k-th peer of this rank: at each step the peers of all ranks form a permutation.
  [[nodiscard]] constexpr Rank peer(index_t k) const noexcept { return Rank{(plan.rank().value + k) % ranks()}; }
  // Whether a rank owns any byte; a rank that does not never signals.
  [[nodiscard]] constexpr bool sends(Rank rank) const noexcept {
    return sends_[static_cast<std::size_t>(rank.value)] != 0;
  }
  [[nodiscard]] constexpr bool sends() const noexcept { return sends(plan.rank()); }
  [[nodiscard]] constexpr index_t ready(Rank rank) const noexcept { return words.word(WordKind::ready, rank.value); }
  [[nodiscard]] constexpr index_t arrived(Rank rank) const noexcept {
    return words.word(WordKind::arrived, rank.value);
  }
  [[nodiscard]] constexpr index_t event(LaneIndex lane) const noexcept {
    return words.word(WordKind::event, lane.value);
  }

  // Where peers are served from.
  [[nodiscard]] constexpr Space served_from() const noexcept {
    const OwnBlock own = plan.collective().own;
    return own == OwnBlock::copy || own == OwnBlock::multicast ? Space::shards : Space::slot;
  }

  // The own blocks as peers get them.
  [[nodiscard]] constexpr std::vector<Block> own_blocks() const {
    const Buffer source = served_from() == Space::shards ? Buffer::shards : Buffer::slot;
    return coalesce(plan.collective().layout.blocks(plan.rank(), source, Buffer::slot));
  }

  // Tells every peer that will write here that the slot is free.
  constexpr void signal_ready() {
    for (index_t k = 1; k < ranks(); ++k) {
      if (sends(peer(k))) plan.signal(plan.caller(), peer(k), ready(plan.rank()));
    }
  }

  // Tells the own push lanes that the sources are written.
  constexpr void signal_start() {
    if (sends() && ranks() > 1) plan.signal(plan.caller(), plan.rank(), event(plan.caller()));
  }

  // Brings the own block into the own slot and starts the push lanes as early as the source allows.
  constexpr void own_block() {
    const Collective& collective = plan.collective();
    if (collective.own == OwnBlock::cast) {
      std::vector<Block> blocks = collective.layout.blocks(plan.rank(), Buffer::masters, Buffer::slot);
      name_kernels(blocks, collective);
      for (const Block& block : coalesce(blocks)) plan.cast(plan.caller(), block);
    }
    signal_start();
    const bool alone = collective.own == OwnBlock::multicast && ranks() == 1;
    if (collective.own == OwnBlock::copy || alone) {
      for (const Block& block : own_blocks()) plan.copy(plan.caller(), plan.rank(), Space::shards, Space::slot, block);
    }
  }

  // Waits for the blocks of all peers and for the own lanes that still read.
  constexpr Plan complete(const std::vector<LaneIndex>& lanes) && {
    for (index_t k = 1; k < ranks(); ++k) {
      if (sends(peer(k))) plan.wait(plan.caller(), arrived(peer(k)));
    }
    for (const LaneIndex lane : lanes) plan.wait(plan.caller(), event(lane));
    plan.exit(ExitKind::complete, plan.caller());
    return std::move(plan).finish();
  }

  PlanBuilder plan;
  SignalWords words;

 private:
  MeshShape mesh_;
  std::vector<char> sends_;
};

}  // namespace tide::detail
