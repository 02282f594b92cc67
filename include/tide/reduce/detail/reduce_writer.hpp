// SPDX-License-Identifier: Apache-2.0
//
// The plan of CopyEngineReducer. Credits are sent only for chunks that somebody waits for: a chunk c may be pushed when
// the chunk that was in its place before has been summed, in this run or in the last one. In a slot each chunk has a
// place of its own, and there is one handshake instead: the caller, who has taken the slot, tells that it is free.

#pragma once

#include <tide/plan/plan_builder.hpp>      // PlanBuilder
#include <tide/reduce/detail/chunks.hpp>   // owner_chunks
#include <tide/reduce/detail/credits.hpp>  // Credits

#include <utility>
#include <vector>

namespace tide::detail {

class ReduceWriter {
 public:
  constexpr ReduceWriter(const Collective& collective, Rank rank)
      : plan_(collective, rank), words_(collective.words()), ranks_(collective.ranks()) {
    for (index_t k = 0; k < ranks_; ++k) {
      const Rank owner = peer(k);
      owners_.push_back({owner, owner_chunks(collective, owner), {}, {}});
      Owner& added = owners_.back();
      if (ranks_ > 1 && !in_slot()) {
        added.credits = Credits(static_cast<index_t>(added.chunks.size()), collective.inbox.chunks);
      }
      if (k > 0 && !added.chunks.empty()) added.lane = plan_.lane(LaneKind::push, k);
    }
    sum_ = plan_.lane(LaneKind::sum);
  }

  [[nodiscard]] constexpr Plan write() && {
    start();
    index_t most = 0;
    for (const Owner& owner : owners_) most = std::max(most, static_cast<index_t>(owner.chunks.size()));
    // A chunk is summed as late as its place allows: so the queue that all lanes merge into makes progress.
    const index_t lag = std::max<index_t>(0, plan_.collective().inbox.chunks - 1);
    for (index_t c = 0; c < most + lag; ++c) {
      for (std::size_t k = 1; k < owners_.size(); ++k) push(owners_[k], c);
      if (c >= lag) sum(c - lag);
    }
    finish();
    return std::move(plan_).finish();
  }

 private:
  struct Owner {
    Rank rank;
    std::vector<OwnerChunk> chunks;
    Credits credits;
    LaneIndex lane;
  };

  [[nodiscard]] constexpr Rank peer(index_t k) const noexcept { return Rank{(plan_.rank().value + k) % ranks_}; }
  [[nodiscard]] constexpr bool in_slot() const noexcept { return plan_.collective().inbox.place == InboxPlace::slot; }
  [[nodiscard]] constexpr index_t event(LaneIndex lane) const noexcept {
    return words_.word(WordKind::event, lane.value);
  }

  // Where the piece of `source` lies among the pieces of `owner`, which has none of its own.
  [[nodiscard]] static constexpr index_t piece(Rank source, Rank owner) noexcept {
    return source.value < owner.value ? source.value : source.value - 1;
  }

  // Tells the peers that the slot is free, and the other lanes that the gradients are written.
  constexpr void start() {
    if (in_slot() && !owners_[0].chunks.empty()) {
      for (index_t k = 1; k < ranks_; ++k) {
        plan_.signal(plan_.caller(), peer(k), words_.word(WordKind::ready, plan_.rank().value));
      }
    }
    // Pieces in a slot come from peers whom the caller's lane has told that it is free, so sums need no start.
    const std::size_t first = in_slot() && ranks_ > 1 ? 1 : 0;
    bool reads = false;
    for (std::size_t k = first; k < owners_.size(); ++k) reads = reads || !owners_[k].chunks.empty();
    if (reads) plan_.signal(plan_.caller(), plan_.rank(), event(plan_.caller()));
    for (std::size_t k = first; k < owners_.size(); ++k) {
      if (owners_[k].chunks.empty()) continue;
      const LaneIndex lane = k == 0 ? sum_ : owners_[k].lane;
      plan_.wait(lane, event(plan_.caller()));
      if (in_slot() && k > 0) plan_.wait(lane, words_.word(WordKind::ready, owners_[k].rank.value));
    }
  }

  constexpr void push(const Owner& owner, index_t c) {
    const auto count = static_cast<index_t>(owner.chunks.size());
    if (c >= count) return;
    const InboxShape& inbox = plan_.collective().inbox;
    const index_t place = c % inbox.chunks;
    const index_t before = in_slot() ? Credits::none : owner.credits.before(c);
    if (before != Credits::none) plan_.wait(owner.lane, words_.word(WordKind::credit, owner.rank.value), before, count);
    for (Block block : owner.chunks[static_cast<std::size_t>(c)].pushes) {
      block.target += piece(plan_.rank(), owner.rank) * inbox.piece_bytes();
      plan_.copy(owner.lane, owner.rank, Space::gradients, Space::inbox, block, place);
    }
    plan_.signal(owner.lane, owner.rank, words_.word(WordKind::arrived, plan_.rank().value), c + 1, count);
    if (c + 1 == count) plan_.signal(owner.lane, plan_.rank(), event(owner.lane));
  }

  constexpr void sum(index_t c) {
    const std::vector<OwnerChunk>& chunks = owners_[0].chunks;
    const auto count = static_cast<index_t>(chunks.size());
    if (c >= count) return;
    const index_t place = c % std::max<index_t>(1, plan_.collective().inbox.chunks);
    const OwnerChunk& chunk = chunks[static_cast<std::size_t>(c)];
    for (index_t k = 1; k < ranks_; ++k) {
      plan_.wait(sum_, words_.word(WordKind::arrived, peer(k).value), c + 1, count);
    }
    for (std::size_t b = 0; b < chunk.sums.size(); ++b) {
      plan_.reduce(sum_, plan_.rank().value, chunk.sums[b], place, chunk.pushes[b].target);
    }
    if (ranks_ > 1 && !in_slot() && owners_[0].credits.wanted(c)) {
      for (index_t k = 1; k < ranks_; ++k) {
        plan_.signal(sum_, peer(k), words_.word(WordKind::credit, plan_.rank().value), c + 1, count);
      }
    }
  }

  // The output is complete; then, when the pushes are done too, the gradients are free.
  constexpr void finish() {
    plan_.exit(ExitKind::shards_ready, sum_);
    for (std::size_t k = 1; k < owners_.size(); ++k) {
      if (!owners_[k].chunks.empty()) plan_.wait(sum_, event(owners_[k].lane));
    }
    plan_.exit(ExitKind::gradients_free, sum_);
  }

  PlanBuilder plan_;
  SignalWords words_;
  index_t ranks_;
  std::vector<Owner> owners_;
  LaneIndex sum_{};
};

}  // namespace tide::detail
