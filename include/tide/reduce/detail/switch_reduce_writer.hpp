// SPDX-License-Identifier: Apache-2.0
//
// The plan of SwitchReducer on several nodes. In node m, local rank (g + m) mod G sums for the owners (., g), and sends
// along its own rail. So sums of G nodes in a row come to G ranks of the owner's node, at one offset there:
//
//   owner (n, 0), 5 nodes of 2 ranks        row 0      row 1      row 2
//     places on rank (n, 0)               | node 0   | node 2   | node 4   |
//     places on rank (n, 1)               | node 1   | node 3   | zeros    |    nothing is ever written there
//
// For each chunk, in this order:
//
//   push k    copies, of what a local peer sums
//   sum       the sum of the node for each owner: for that of another node into the partials, for that of this node into
//             its place of the network inbox, where no put ever comes
//   net k     the put to the k + 1-th node from here, when its owner has given the place back
//   net N-1   waits until all has come that other nodes put here, and tells the owners
//   sum 1     the owner: one op in which the switch adds that place of all ranks of the node, row by row
//   net N     the owner gives the places back: to the rank of its node that writes to one, and to all that put to others
//
// N nodes; ops of one chunk are written at the same steps on all ranks, as by NodeReduceWriter.

#pragma once

#include <tide/reduce/detail/node_pushes.hpp>  // NodePushes

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tide::detail {

class SwitchReduceWriter : NodePushes {
 public:
  constexpr SwitchReduceWriter(const Collective& collective, Rank rank)
      : NodePushes(collective, rank, collective.layout.mesh.node(rank)),
        ranks_(mesh_.ranks_per_node),
        rows_(ceil_div(mesh_.nodes, ranks_)) {
    added_ = declared(shards().chunks.size());
    landed_.assign(shards().chunks.size(), MarkedPlan::none);
    const index_t turned = (local_ + ranks_ - node_ % ranks_) % ranks_;
    for (index_t node = 0; node < mesh_.nodes; ++node) {
      there_.emplace_back(rails_[0], node, mesh_.rank(node, turned), ring());
    }
    for (index_t k = 0; k < ranks_; ++k) {
      const Rank owner = mesh_.rank(node_, (turned + k) % ranks_);
      here_.emplace_back(rails_[static_cast<std::size_t>(k)], node_, owner, ring());
    }
    for (index_t k = 1; k < mesh_.nodes; ++k) {
      nets_.push_back({plan_.lane(LaneKind::net, k - 1), declared(chunks().size())});
    }
    arrivals_ = plan_.lane(LaneKind::net, mesh_.nodes - 1);
    credits_ = plan_.lane(LaneKind::net, mesh_.nodes);
  }

  [[nodiscard]] constexpr Plan write() && {
    start();
    for (index_t t = 0; t < steps(); ++t) {
      give_places_back(t - 1 - 2 * lag());  // one step later: then the lane need not wait for it
      for (std::size_t k = 1; k < rails_.size(); ++k) push(rails_[k], t);
      sum(t - lag());
      put(t - lag());
      await_arrivals(t - 2 * lag());
      add_places(t - 2 * lag());
    }
    free_gradients();
    plan_.exit(ExitKind::shards_ready, add_);
    return std::move(plan_).finish();
  }

 private:
  // The chunks of a rail in which one of its owners has anything: each fills a place of that owner on each node.
  struct Turns {
    constexpr Turns(const Rail& rail, index_t node, Rank of, index_t ring) : owner(of) {
      std::vector<index_t> places;
      for (std::size_t c = 0; c < rail.chunks.size(); ++c) {
        if (rail.chunks[c].owners[static_cast<std::size_t>(node)].elements == 0) continue;
        chunks.push_back(static_cast<index_t>(c));
        places.push_back(chunks.back() % ring);
      }
      credits = Credits(places);
    }

    [[nodiscard]] constexpr bool has(index_t c) const { return std::binary_search(chunks.begin(), chunks.end(), c); }
    [[nodiscard]] constexpr index_t index_of(index_t c) const {
      return std::lower_bound(chunks.begin(), chunks.end(), c) - chunks.begin();
    }
    [[nodiscard]] constexpr index_t count() const noexcept { return static_cast<index_t>(chunks.size()); }

    Rank owner;
    std::vector<index_t> chunks{};
    Credits credits{};
  };

  // The lane of puts to one node.
  struct Net {
    LaneIndex lane{};
    std::vector<Mark> sent{};  // of each chunk: its put is over
  };

  // ---- the ops of a step

  constexpr void sum(index_t c) {
    if (c < 0 || c >= static_cast<index_t>(chunks().size())) return;
    plan_.wait(sum_, start_);
    for (const Net& net : nets_) wait_for_last(net.sent, c);
    await_place(sum_, there(node_), c);
    await_pieces(c);
    for (index_t node = 0; node < mesh_.nodes; ++node) {
      const Address target = node == node_ ? place(c) : addresses_.sum(c, position(node));
      for (const Block& block : merge(part(c, node).blocks)) sum_node(block, c, node, target);
    }
    write_sums(sum_);
    ready_[static_cast<std::size_t>(c)] = plan_.mark(sum_);
    give_pieces_back(c);
  }

  constexpr void put(index_t c) {
    for (index_t k = 1; k < mesh_.nodes; ++k) {
      const index_t node = (node_ + k) % mesh_.nodes;
      const Turns& turns = there(node);
      if (c < 0 || !turns.has(c)) continue;
      const Net& net = nets_[static_cast<std::size_t>(k - 1)];
      plan_.wait(net.lane, ready_[static_cast<std::size_t>(c)]);
      await_place(net.lane, turns, c);
      const Block& first = part(c, node).blocks.front();  // padding before it stays here
      const Address source = addresses_.sum(c, position(node));
      plan_.op([&](PlanBuilder& p) {
        p.put(net.lane, mesh_.rank(node, local_), {of(source.place, first), source.offset + first.target},
              {of(place(c).place, first), place(c).offset + first.target}, part(c, node).elements * 4 - first.target,
              words_.word(WordKind::arrived, plan_.rank().value), turns.index_of(c) + 1, turns.count());
      });
      plan_.place(net.sent[static_cast<std::size_t>(c)], net.lane);
    }
  }

  // Waits until a chunk is there, for each owner of the node of whom this rank has a part, and tells them.
  constexpr void await_arrivals(index_t c) {
    const auto for_each_owner = [&](auto f) {
      for (index_t k = 0; k < ranks_; ++k) {
        const Turns& turns = here_[static_cast<std::size_t>(k)];
        const std::vector<index_t> nodes = nodes_with(k);
        if (c >= 0 && turns.has(c) && !nodes.empty()) f(turns, nodes);
      }
    };
    for_each_owner([&](const Turns& turns, const std::vector<index_t>& nodes) {
      for (const index_t node : nodes) {
        if (node == node_) {
          plan_.wait(arrivals_, ready_[static_cast<std::size_t>(c)]);
          continue;
        }
        const index_t word = words_.word(WordKind::arrived, mesh_.rank(node, local_).value);
        plan_.op([&](PlanBuilder& p) { p.wait(arrivals_, word, turns.index_of(c) + 1, turns.count()); });
      }
    });
    for_each_owner([&](const Turns& turns, const std::vector<index_t>&) {
      if (turns.owner == plan_.rank()) {
        landed_[static_cast<std::size_t>(c)] = plan_.mark(arrivals_);
      } else {
        const index_t word = words_.word(WordKind::landed, plan_.rank().value);
        plan_.op([&](PlanBuilder& p) { p.signal(arrivals_, turns.owner, word, turns.index_of(c) + 1, turns.count()); });
      }
    });
  }

  // The owner's sum of a chunk, when all ranks of the node that have a part of it say so.
  constexpr void add_places(index_t c) {
    const Turns& turns = own_turns();
    if (c < 0 || !turns.has(c)) return;
    for (index_t k = 0; k < std::min(ranks_, mesh_.nodes); ++k) {  // the k-th node sends to rank local + k
      const Rank holder = mesh_.rank(node_, (local_ + k) % ranks_);
      if (holder == plan_.rank()) {
        plan_.wait(add_, landed_[static_cast<std::size_t>(c)]);
      } else {
        const index_t word = words_.word(WordKind::landed, holder.value);
        plan_.op([&](PlanBuilder& p) { p.wait(add_, word, turns.index_of(c) + 1, turns.count()); });
      }
    }
    const RailChunk& chunk = shards().chunks[static_cast<std::size_t>(c)];
    const std::uint8_t kernel = kernel_index(collective(), switch_kernel(collective().finish, rows_));
    for (const Block& block : sum_blocks(chunk.owners[static_cast<std::size_t>(node_)])) {
      add(block, kernel, row(c, local_, 0), {{Space::output, 0, 0}, chunk.begin}, 0, row(c, local_, 1));
    }
    write_sums(add_);
    plan_.place(added_[static_cast<std::size_t>(c)], add_);
  }

  // Tells who writes to the places of a chunk that it has been added.
  constexpr void give_places_back(index_t c) {
    const Turns& turns = own_turns();
    if (c < 0 || !turns.has(c) || !turns.credits.wanted(turns.index_of(c))) return;
    plan_.wait(credits_, added_[static_cast<std::size_t>(c)]);
    for (index_t node = 0; node < mesh_.nodes; ++node) {
      const Rank writer = mesh_.rank(node, (local_ + node) % ranks_);
      if (writer == plan_.rank()) continue;
      const index_t word = words_.word(WordKind::ready, plan_.rank().value);
      plan_.op([&](PlanBuilder& p) { p.signal(credits_, writer, word, turns.index_of(c) + 1, turns.count()); });
    }
  }

  // Waits until the owner has added what was in the place of a chunk before.
  constexpr void await_place(LaneIndex lane, const Turns& turns, index_t c) {
    if (!turns.has(c)) return;
    const index_t before = turns.credits.before(turns.index_of(c));
    if (before == Credits::none) return;
    if (turns.owner != plan_.rank()) {
      const index_t word = words_.word(WordKind::ready, turns.owner.value);
      plan_.op([&](PlanBuilder& p) { p.wait(lane, word, before, turns.count()); });
      return;
    }
    const index_t index = before > 0 ? before - 1 : before - 1 + turns.count();
    const Mark added = added_[static_cast<std::size_t>(turns.chunks[static_cast<std::size_t>(index)])];
    before > 0 ? plan_.wait(lane, added) : plan_.wait_last_run(lane, added);
  }

  // ---- who and where

  // The nodes whose sums come to this rank for the owner `k` ranks behind the one that it sums for.
  [[nodiscard]] constexpr std::vector<index_t> nodes_with(index_t k) const {
    std::vector<index_t> nodes;
    for (index_t node = (node_ % ranks_ + ranks_ - k) % ranks_; node < mesh_.nodes; node += ranks_)
      nodes.push_back(node);
    return nodes;
  }
  [[nodiscard]] constexpr const Turns& there(index_t node) const { return there_[static_cast<std::size_t>(node)]; }
  // The rail of the own shards, which another rank of the node sums for unless the turn is whole.
  [[nodiscard]] constexpr const Rail& shards() const { return rails_[static_cast<std::size_t>(node_ % ranks_)]; }
  [[nodiscard]] constexpr const Turns& own_turns() const { return here_[static_cast<std::size_t>(node_ % ranks_)]; }

  // Among the sums that wait for their puts.
  [[nodiscard]] constexpr index_t position(index_t node) const noexcept { return node < node_ ? node : node - 1; }
  // Where, on each rank of a node, sums of `ranks_` nodes wait for the owner with a local number.
  [[nodiscard]] constexpr Address row(index_t c, index_t owner, index_t row) const noexcept {
    return addresses_.landing(c, owner * rows_ + row);
  }
  // Where a sum of this node waits for its owner.
  [[nodiscard]] constexpr Address place(index_t c) const noexcept {
    return row(c, mesh_.local(there(node_).owner), node_ / ranks_);
  }

  index_t ranks_;  // per node
  index_t rows_;
  std::vector<Turns> there_;  // of each node: of the owner whom this rank sums for
  std::vector<Turns> here_;   // of the owners of this node, in the order of rails
  std::vector<Net> nets_;     // by distance
  LaneIndex arrivals_{};
  LaneIndex credits_{};
  std::vector<Mark> added_;   // of each chunk of the own shards: the switch has added it
  std::vector<Mark> landed_;  // the same: what comes to this rank is there
};

}  // namespace tide::detail
