// SPDX-License-Identifier: Apache-2.0
//
// What the gather plans of all transports have in common inside a node: who has something to send, the handshake, the
// own block.

#pragma once

#include <tide/layout/coalesce.hpp>    // coalesce
#include <tide/plan/kernels.hpp>       // name_kernels
#include <tide/plan/plan_builder.hpp>  // PlanBuilder

#include <cstdint>
#include <utility>
#include <vector>

namespace tide::detail {

// More parts would hide more of the first one's cast, and each is a launch that waits for room beside a GEMM.
inline constexpr index_t most_cast_parts = 4;

// Where a part is cast in the time of a few launches there is nothing to hide.
inline constexpr index_t least_cast_part_bytes = index_t{16} << 20;

// Whether a plan pushes parts of the own block while the rest of it is cast.
enum class CastParts : std::uint8_t { one, several };

class GatherWriter {
 public:
  constexpr GatherWriter(const Collective& collective, Rank rank, CastParts parts = CastParts::one)
      : plan(collective, rank), words(collective.words()), mesh_(collective.layout.mesh) {
    for (index_t k = 0; k < ranks(); ++k) {
      bool sends = false;
      for (index_t node = 0; node < mesh_.nodes; ++node) sends = sends || owns(mesh_.rank(node, mesh_.local(peer(k))));
      sends_.push_back(sends ? 1 : 0);
    }
    if (parts == CastParts::several && mesh_.nodes == 1 && ranks() > 1) {
      const index_t bytes = collective.layout.bytes(Buffer::shards, rank);
      cast_parts_ = bytes >= most_cast_parts * least_cast_part_bytes ? most_cast_parts : 1;
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

  // In how many parts the own block is cast, so that the first is pushed while the next one is cast. Of the layout
  // alone: all variants of a pipeline raise the same words.
  [[nodiscard]] constexpr index_t cast_parts() const noexcept { return cast_parts_; }
  // One part of the cast into the own slot; then its number is the value of the caller's event.
  constexpr void cast_part(index_t part) {
    std::vector<Block> list = part_of(Buffer::masters, part);
    name_kernels(list, plan.collective());
    for (const Block& block : coalesce(std::move(list))) plan.cast(plan.caller(), block);
    plan.signal(plan.caller(), plan.rank(), event(plan.caller()), part + 1, cast_parts());
  }
  [[nodiscard]] constexpr bool casts_in_parts() const noexcept {
    return cast_parts_ > 1 && plan.collective().own == OwnBlock::cast;
  }
  // What peers get once a part has been cast: all of it if that is not done in parts.
  [[nodiscard]] constexpr std::vector<Block> own_blocks(index_t part) const {
    if (!casts_in_parts()) return own_blocks();
    return coalesce(part_of(Buffer::slot, part));
  }

  // Brings all of the own block into the own slot, packs it where other nodes are served and the caller gives no
  // shards, and starts the other lanes, if any wait, as early as the source allows.
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
    for (index_t part = 0; start && part < cast_parts(); ++part) {
      plan.signal(plan.caller(), plan.rank(), event(plan.caller()), part + 1, cast_parts());
    }
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

  // The bytes of the own slot that belong to a part, and where they come from. All sources are cut at the same places
  // of the slot: between rows, or inside of what is one row.
  [[nodiscard]] constexpr std::vector<Block> part_of(Buffer source, index_t part) const {
    const std::vector<Block> list = plan.collective().layout.blocks(plan.rank(), source, Buffer::slot);
    index_t bytes = 0;
    for (const Block& block : list) bytes += block.target_bytes();
    const index_t begin = bytes * part / cast_parts();
    const index_t end = bytes * (part + 1) / cast_parts();
    std::vector<Block> cut;
    index_t at = 0;
    for (const Block& block : list) {
      const index_t first = cut_at(block, begin - at);
      const index_t last = cut_at(block, end - at);
      at += block.target_bytes();
      if (first == last) continue;
      Block own = block;
      // Elements have sizes of which one divides the other.
      const auto in_source = [&block](index_t count) {
        return block.source_width >= block.target_width ? count * (block.source_width / block.target_width)
                                                        : count / (block.target_width / block.source_width);
      };
      if (block.rows > 1) {
        own.rows = (last - first) / block.target_width;
        own.source += first / block.target_width * block.source_pitch;
        own.target += first / block.target_width * block.target_pitch;
      } else {
        own.source += in_source(first);
        own.target += first;
        own.source_width = in_source(last - first);
        own.target_width = last - first;
      }
      cut.push_back(own);
    }
    return cut;
  }

  // The place nearest before `bytes` where a block may be cut, so that what follows stays aligned.
  [[nodiscard]] static constexpr index_t cut_at(const Block& block, index_t bytes) {
    if (bytes <= 0) return 0;
    if (bytes >= block.target_bytes()) return block.target_bytes();
    const index_t unit = block.rows > 1 ? block.target_width : 4096;
    return bytes / unit * unit;
  }

  MeshShape mesh_;
  std::vector<char> sends_;  // by peer of the node
  index_t cast_parts_ = 1;
};

}  // namespace tide::detail
