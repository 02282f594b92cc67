// SPDX-License-Identifier: Apache-2.0
//
// What the caller does around a run, replayed: it fills the inputs, and reads the result.

#pragma once

#include <tide/plan/detail/contents.hpp>      // filled_shards
#include <tide/plan/detail/replay_state.hpp>  // ReplayState

namespace tide::detail {

class CallerReplay {
 public:
  explicit CallerReplay(ReplayState& state) : state_(&state) {}

  // Slots as they are before the first run: parameters, and padding between them.
  void prepare() {
    if (state_->collective.operation != Operation::gather) return;
    for (index_t r = 0; r < state_->collective.ranks(); ++r) {
      const MemoryRegion slot{Rank{r}, Space::slot, 0};
      if (state_->pieces.bytes(Rank{r}, Space::slot) == 0) continue;
      state_->memory.rewrite(slot, filled_parameters(state_->pieces, Rank{r}, Space::slot, no_node, 0));
    }
  }

  void fill_shards() {
    const Rank rank = state_->node.rank;
    for (const Space space : {Space::master, Space::shards}) {
      const bool given = space == Space::master || state_->collective.gives_shards();
      if (given && state_->pieces.bytes(rank, space) > 0) {
        state_->memory.rewrite({rank, space, 0},
                               filled_shards(state_->pieces, rank, space, state_->now, state_->node.run));
      }
    }
    if (state_->collective.own != OwnBlock::in_place) return;
    for (const Piece& piece : state_->pieces.pieces(rank)) {
      for (index_t row = 0; row < piece.outer && piece.width > 0; ++row) {
        const index_t begin = piece.offset(Buffer::slot) + row * piece.pitch_bytes(Buffer::slot);
        const ByteContent content{begin, -1, ByteContent::Kind::gathered, state_->run()};
        const Column column{{0, state_->now, ReaderLists::none, content}, 0};
        state_->write({rank, Space::slot, 0}, {begin, piece.width * piece.size(Buffer::slot)}, {&column, 1},
                      piece.parameter);
      }
    }
  }

  void fill_gradients() {
    const Rank rank = state_->node.rank;
    if (state_->pieces.bytes(rank, Space::gradients) > 0) {
      state_->memory.rewrite({rank, Space::gradients, 0},
                             filled_parameters(state_->pieces, rank, Space::gradients, state_->now, state_->node.run));
    }
    if (state_->node.run == 0 && state_->pieces.bytes(rank, Space::output) > 0) {
      state_->memory.rewrite({rank, Space::output, 0}, filled_output(state_->pieces, rank, state_->now));
    }
  }

  // The slot that will be the inbox: since its last reduce it has been gathered into and read.
  void take_slot() {
    const Rank rank = state_->node.rank;
    if (state_->pieces.bytes(rank, Space::inbox) == 0) return;
    const Cell old{0, state_->now, ReaderLists::none, {}};
    for (index_t chunk = 0; chunk < state_->collective.space_instances(Space::inbox); ++chunk) {
      state_->memory.rewrite({rank, Space::inbox, chunk}, {&old, 1});
    }
  }

  // At `complete` the slot may be given to another pipeline, which no op of this one waits for.
  void give_slot_away() {
    const Rank rank = state_->node.rank;
    if (state_->pieces.bytes(rank, Space::slot) == 0) return;
    state_->memory.rewrite({rank, Space::slot, 0},
                           filled_parameters(state_->pieces, rank, Space::slot, state_->now, state_->node.run));
    // So may what lies beside it: the own shards, where plans pack them.
    if (state_->collective.gives_shards() || state_->pieces.bytes(rank, Space::shards) == 0) return;
    const Cell old{0, state_->now, ReaderLists::none, {}};
    state_->memory.rewrite({rank, Space::shards, 0}, {&old, 1});
  }

  // The network inbox goes with the slot: at `complete` another gather may have both.
  void give_network_inbox_away() {
    const Rank rank = state_->node.rank;
    if (state_->pieces.bytes(rank, Space::network_inbox) == 0) return;
    const Cell old{0, state_->now, ReaderLists::none, {}};
    for (index_t i = 0; i < state_->collective.network.inbox_instances; ++i) {
      state_->memory.rewrite({rank, Space::network_inbox, i}, {&old, 1});
    }
  }

  void read_slot() {
    const MemoryRegion slot{state_->node.rank, Space::slot, 0};
    for (index_t p = 0; p < state_->pieces.parameters(); ++p) {
      const PieceTable::Range range = state_->pieces.dense(Buffer::slot, p);
      if (range.begin < range.end)
        read_result(slot, range.begin, range.end, ByteContent::Kind::gathered, Law::delivery);
    }
  }

  void read_output() {
    for (const Piece& piece : state_->pieces.pieces(state_->node.rank)) {
      const index_t begin = piece.offset(Buffer::output);
      if (piece.elements() == 0) continue;
      read_result({state_->node.rank, Space::output, 0}, begin, begin + piece.bytes(Buffer::output),
                  ByteContent::Kind::sum, Law::sum);
    }
  }

  // The caller reads what this run should have made.
  void read_result(const MemoryRegion& region, index_t begin, index_t end, ByteContent::Kind kind, Law law) {
    state_->memory.read_all(region, begin, end, [&](const ByteContent& content, index_t cell_begin, index_t cell_end) {
      const bool good = content.kind == kind && content.run == state_->node.run;
      if (!good) {
        state_->blame(law, region, cell_begin, cell_end, [&](const Side& side) {
          return " reads " + state_->faults.what(side) + ", which no op has written in this run";
        });
      }
      return good;
    });
  }

 private:
  ReplayState* state_;
};

}  // namespace tide::detail
