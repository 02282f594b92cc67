// SPDX-License-Identifier: Apache-2.0
//
// How every reduce over nodes begins: each rank pushes to each local peer what that sums, and sums what came to it.
// What a rank sums is of the owners of one rail, one of each node; whose rail that is, a reducer says by a turn.
//
//   turn 0      local rank q sums for the owners (., q)          turn 1      local rank q sums for (., q - 1)

#pragma once

#include <tide/reduce/detail/credits.hpp>         // Credits
#include <tide/reduce/detail/marked_plan.hpp>     // MarkedPlan
#include <tide/reduce/detail/node_addresses.hpp>  // NodeAddresses
#include <tide/reduce/detail/rail.hpp>            // rail_chunks
#include <tide/reduce/detail/sum_rows.hpp>        // RowSum, in_rows

#include <algorithm>
#include <span>
#include <vector>

namespace tide::detail {

class NodePushes {
 protected:
  using Mark = MarkedPlan::Mark;

  // The owners whom a rank of this node sums for, and the lane that serves that rank.
  struct Rail {
    Rank peer{};
    std::vector<RailChunk> chunks{};
    Credits credits{};  // of the peer's inbox
    LaneIndex lane{};
    Mark done = MarkedPlan::none;
  };

  constexpr NodePushes(const Collective& collective, Rank rank, index_t turn = 0)
      : plan_(collective, rank),
        words_(collective.words()),
        mesh_(collective.layout.mesh),
        node_(mesh_.node(rank)),
        local_(mesh_.local(rank)),
        one_size_(one_gradient_size(collective)),
        rails_(make_rails(collective, turn)),
        addresses_(collective, rails_[0].chunks) {
    for (std::size_t k = 1; k < rails_.size(); ++k) {
      const auto count = static_cast<index_t>(rails_[k].chunks.size());
      if (count > 0) rails_[k].lane = plan_.lane(LaneKind::push, static_cast<index_t>(k));
    }
    sum_ = plan_.lane(LaneKind::sum);
    add_ = plan_.lane(LaneKind::sum, 1);
    start_ = plan_.declare();
    ready_.assign(chunks().size(), MarkedPlan::none);
  }

  // That for which this rank sums first.
  [[nodiscard]] constexpr std::vector<Rail> make_rails(const Collective& collective, index_t turn) const {
    std::vector<Rail> rails;
    const index_t ranks = mesh_.ranks_per_node;
    for (index_t k = 0; k < ranks; ++k) {
      const index_t local = (local_ + k) % ranks;
      const index_t owners = (local + ranks - turn % ranks) % ranks;
      rails.push_back({mesh_.rank(node_, local), rail_chunks(collective, owners), {}, {}, MarkedPlan::none});
      if (collective.inbox.place == InboxPlace::slot) continue;
      rails.back().credits = Credits(static_cast<index_t>(rails.back().chunks.size()), collective.inbox.chunks);
    }
    return rails;
  }

  // Marks that will be placed later.
  [[nodiscard]] constexpr std::vector<Mark> declared(std::size_t count) {
    std::vector<Mark> marks(count, MarkedPlan::none);
    for (Mark& mark : marks) mark = plan_.declare();
    return marks;
  }

  // A chunk is summed as late as its place allows, and what crosses ends as late: then others are on their way.
  [[nodiscard]] constexpr index_t lag() const noexcept { return ring() - 1; }
  // Steps of the issue order until all is done.
  [[nodiscard]] constexpr index_t steps() const noexcept {
    index_t most = 0;
    for (const Rail& rail : rails_) most = std::max(most, static_cast<index_t>(rail.chunks.size()));
    return most + 2 * ring();
  }

  // Tells the local peers that the slot is free, and the other lanes that the gradients are written.
  constexpr void start() {
    for (std::size_t k = 1; k < rails_.size() && in_slot() && !chunks().empty(); ++k) {
      plan_.op([&](PlanBuilder& p) {
        p.signal(PlanBuilder::caller(), rails_[k].peer, words_.word(WordKind::ready, plan_.rank().value));
      });
    }
    plan_.place(start_, PlanBuilder::caller());
  }

  constexpr void push(Rail& rail, index_t c) {
    const auto count = static_cast<index_t>(rail.chunks.size());
    if (c >= count) return;
    const InboxShape& inbox = collective().inbox;
    plan_.wait(rail.lane, start_);
    if (in_slot() && c == 0) {
      plan_.op([&](PlanBuilder& p) { p.wait(rail.lane, words_.word(WordKind::ready, rail.peer.value)); });
    }
    if (const index_t before = in_slot() ? Credits::none : rail.credits.before(c); before != Credits::none) {
      const index_t word = words_.word(WordKind::credit, rail.peer.value);
      plan_.op([&](PlanBuilder& p) { p.wait(rail.lane, word, before, count); });
    }
    const index_t piece = (local_ < mesh_.local(rail.peer) ? local_ : local_ - 1) * inbox.piece_bytes();
    const RailChunk& chunk = rail.chunks[static_cast<std::size_t>(c)];
    std::vector<Block> blocks;
    blocks.reserve(chunk.owners.size());
    for (index_t owner = 0; owner < mesh_.nodes; ++owner) {
      append_owner(blocks, chunk.owners[static_cast<std::size_t>(owner)], inbox.element_bytes,
                   addresses_.piece(c, owner).offset + piece);
    }
    const index_t place = addresses_.piece(c, 0).place.instance;
    for (const Block& block : merge(blocks)) {
      plan_.op([&](PlanBuilder& p) { p.copy(rail.lane, rail.peer, Space::gradients, Space::inbox, block, place); });
    }
    plan_.op([&](PlanBuilder& p) {
      p.signal(rail.lane, rail.peer, words_.word(WordKind::arrived, plan_.rank().value), c + 1, count);
    });
    if (c + 1 == count) rail.done = plan_.mark(rail.lane);
  }

  // Appends copies of an owner's gradients to where elements are `element_bytes` apart, from `start` on.
  constexpr void append_owner(std::vector<Block>& blocks, const OwnerPart& part, index_t element_bytes,
                              index_t start) const {
    const std::size_t first = blocks.size();
    if (one_size_) {
      blocks.insert(blocks.end(), part.blocks.begin(), part.blocks.end());
    } else {  // rows one by one: elements of unlike size must not merge
      for (const Block& row : merge(part.blocks)) blocks.push_back(row);
    }
    retarget(std::span(blocks).subspan(first), element_bytes, start);
  }

  // The chunk that was in the place of another before, and whether that was in the last run.
  struct Before {
    std::size_t chunk = 0;
    bool last_run = false;
  };
  [[nodiscard]] constexpr Before before(index_t c) const noexcept {
    const auto count = static_cast<index_t>(chunks().size());
    if (c >= ring()) return {static_cast<std::size_t>(c - ring()), false};
    return {static_cast<std::size_t>(c + (count - 1 - c) / ring() * ring()), true};
  }
  // Makes the sums of a chunk wait for the mark of the chunk that was in its place before.
  constexpr void wait_for_last(const std::vector<Mark>& marks, index_t c) {
    const Mark mark = marks[before(c).chunk];
    before(c).last_run ? plan_.wait_last_run(sum_, mark) : plan_.wait(sum_, mark);
  }

  // Waits for the pieces of a chunk.
  constexpr void await_pieces(index_t c) {
    for (std::size_t k = 1; k < rails_.size(); ++k) {
      const index_t word = words_.word(WordKind::arrived, rails_[k].peer.value);
      plan_.op([&](PlanBuilder& p) { p.wait(sum_, word, c + 1, static_cast<index_t>(chunks().size())); });
    }
  }

  // Tells those who have pushed them that they have been summed.
  constexpr void give_pieces_back(index_t c) {
    if (in_slot() || rails_.size() == 1 || !rails_[0].credits.wanted(c)) return;
    for (std::size_t k = 1; k < rails_.size(); ++k) {
      plan_.op([&](PlanBuilder& p) {
        p.signal(sum_, rails_[k].peer, words_.word(WordKind::credit, plan_.rank().value), c + 1,
                 static_cast<index_t>(chunks().size()));
      });
    }
  }

  // The sum of the node of a block of an owner, for `write_sums`.
  constexpr void sum_node(Block block, index_t c, index_t owner, const Address& target) {
    Address pieces = addresses_.piece(c, owner);
    pieces.offset += block.target / 4 * collective().inbox.element_bytes;
    block.kind = kernel(static_cast<Element>(block.kind), Finish::partial, mesh_.ranks_per_node);
    block.target += target.offset;
    sums_.push_back({block,
                     of({Space::gradients, 0, 0}, block),
                     of(target.place, block),
                     {of(pieces.place, block), pieces.offset},
                     collective().inbox.element_bytes,
                     local_});
  }

  // A sum over nodes, for `write_sums`, of a block whose source and target are inside the part of an owner: of one
  // input, or with others at `others`, where they lie as the source does.
  constexpr void add(Block block, std::uint8_t kernel, const Address& source, const Address& target,
                     index_t position = 0, const Address& others = {{Space::partials, 0, 0}, 0}) {
    const Kernel& adds = collective().kernels[kernel];
    const index_t element = adds.inputs > 1 ? static_cast<index_t>(size_bytes(adds.input)) : 0;
    const index_t inside = block.source;
    block.kind = kernel;
    block.source += source.offset;
    block.target += target.offset;
    sums_.push_back({block,
                     of(source.place, block),
                     of(target.place, block),
                     {of(others.place, block), others.offset + inside},
                     element,
                     position});
  }

  // Writes the sums that have been named since the last time; they must not depend on each other.
  constexpr void write_sums(LaneIndex lane) {
    for (const RowSum& sum : in_rows(sums_)) {
      plan_.op([&](PlanBuilder& p) { p.reduce(lane, sum.position, sum.block, sum.source, sum.target, sum.others); });
    }
    sums_.clear();
  }

  // Gradients are free when the pushes are done, too.
  constexpr void free_gradients() {
    for (std::size_t k = 1; k < rails_.size(); ++k) plan_.wait(sum_, rails_[k].done);
    plan_.exit(ExitKind::gradients_free, sum_);
  }

  [[nodiscard]] constexpr const Collective& collective() const noexcept { return plan_.collective(); }
  [[nodiscard]] constexpr const NodePlaces& places() const noexcept { return addresses_.places(); }
  [[nodiscard]] constexpr bool in_slot() const noexcept { return addresses_.in_slot(); }
  [[nodiscard]] constexpr index_t ring() const noexcept { return addresses_.ring(); }
  [[nodiscard]] constexpr const std::vector<RailChunk>& chunks() const noexcept { return rails_[0].chunks; }
  [[nodiscard]] constexpr const RailChunk& chunk(index_t c) const { return chunks()[static_cast<std::size_t>(c)]; }
  [[nodiscard]] constexpr const OwnerPart& part(index_t c, index_t owner) const {
    return chunk(c).owners[static_cast<std::size_t>(owner)];
  }

  // The blocks of an owner's part of a chunk, from f32 to f32, inside it.
  [[nodiscard]] static constexpr std::vector<Block> sum_blocks(const OwnerPart& part) {
    std::vector<Block> blocks = part.blocks;
    for (Block& block : blocks) {
      block.source = block.target;
      block.source_pitch = block.target_pitch;
      block.source_width = block.target_width;
      block.kind = 0;
    }
    return coalesce(blocks);
  }
  [[nodiscard]] constexpr std::vector<Block> merge(const std::vector<Block>& blocks) const {
    return merged(blocks, one_size_, collective().gradients == GradientSource::table);
  }

  // A place of the block's parameter.
  [[nodiscard]] static constexpr Place of(Place place, const Block& block) noexcept {
    place.parameter = static_cast<std::uint16_t>(block.parameter.value);
    return place;
  }
  [[nodiscard]] constexpr std::uint8_t kernel(Element input, Finish finish, index_t inputs) const {
    return kernel_index(collective(), sum_kernel(input, finish, inputs));
  }

  MarkedPlan plan_;
  SignalWords words_;
  MeshShape mesh_;
  index_t node_;
  index_t local_;
  bool one_size_;
  std::vector<Rail> rails_;  // the first: for whom this rank sums
  NodeAddresses addresses_;
  LaneIndex sum_{};
  LaneIndex add_{};
  Mark start_ = MarkedPlan::none;
  std::vector<Mark> ready_;   // of each chunk that this rank sums: its sums are there
  std::vector<RowSum> sums_;  // that are not written yet
};

}  // namespace tide::detail
