// SPDX-License-Identifier: Apache-2.0
//
// The plan of CopyEngineReducer on several nodes. For each chunk, in this order:
//
//   push k    copies, of what a local peer sums: the gradients of the owners on its rail
//   sum       the sum of the node for each owner, into the partials; of nodes of one rank, the packed gradients
//   net r     round r: puts, then the wait for what other nodes put
//   sum 1     what has landed, added along the tree; at last the output
//
// Ranks of all nodes write the ops of a chunk and round at one step of the issue order, so the queue that all lanes
// merge into makes progress; the rounds of one chunk are spread over the steps that the memory allows, so that others
// are on their way meanwhile.

#pragma once

#include <tide/reduce/detail/node_pushes.hpp>  // NodePushes
#include <tide/reduce/detail/node_rounds.hpp>  // NodeMessages, NodeRound

#include <algorithm>
#include <utility>
#include <vector>

namespace tide::detail {

class NodeReduceWriter : NodePushes {
 public:
  constexpr NodeReduceWriter(const Collective& collective, Rank rank)
      : NodePushes(collective, rank),
        direct_(collective.network.exchange == Exchange::direct),
        messages_(mesh_.nodes, node_, collective.network.exchange) {
    for (index_t r = 1; r <= messages_.rounds(); ++r) add_round(r);
    done_ = declared(chunks().size());
  }

  [[nodiscard]] constexpr Plan write() && {
    start();
    for (index_t t = 0; t < steps(); ++t) {
      give_credits(t);
      for (std::size_t k = 1; k < rails_.size(); ++k) push(rails_[k], t);
      for (index_t c = std::max<index_t>(0, t - 2 * ring()); c <= t; ++c) step(c, t);
    }
    free_gradients();
    if (in_slot()) await_puts();
    plan_.exit(ExitKind::shards_ready, add_);
    return std::move(plan_).finish();
  }

 private:
  // ---- before the ops

  constexpr void add_round(index_t number) {
    NodeRound round;
    round.number = number;
    round.lane = plan_.lane(LaneKind::net, number - 1);
    round.known.assign(chunks().size(), MarkedPlan::none);
    round.sent = declared(chunks().size());
    round.added = declared(chunks().size());
    for (const NodeMessage& m : messages_.all()) {
      if (m.round == number) round.messages.push_back(m);
    }
    messages_.count(round, chunks(), ring(), {direct_ ? 0 : delay(number - 1), delay(number)});
    rounds_.push_back(std::move(round));
  }

  // ---- the ops of a step

  // The step, counted from the sum of the node, at which what a round brings is added.
  [[nodiscard]] constexpr index_t delay(index_t round) const noexcept {
    return direct_ ? lag() : ceil_div(round * lag(), messages_.rounds());
  }

  // What is done at step t for chunk c of the own rail.
  constexpr void step(index_t c, index_t t) {
    if (c >= static_cast<index_t>(chunks().size())) return;
    const index_t since = t - c - lag();
    if (since == 0) {
      sum(c);
      for (std::size_t r = 0; r < (direct_ ? rounds_.size() : 1); ++r) put(rounds_[r], c);
    }
    if (direct_) {
      if (since == delay(messages_.rounds())) end_direct(c);
    } else {
      for (std::size_t r = 0; r < rounds_.size(); ++r) {
        if (since != delay(rounds_[r].number)) continue;
        end_round(rounds_[r], c);
        if (r + 1 < rounds_.size()) put(rounds_[r + 1], c);
      }
    }
    if (since == delay(messages_.rounds())) plan_.place(done_[static_cast<std::size_t>(c)], add_);
  }

  // The sums of the node, for every owner of the rail.
  constexpr void sum(index_t c) {
    // Pieces in a slot come from peers whom the caller's lane has told that it is free, so sums need no start.
    if (!in_slot() || rails_.size() == 1) plan_.wait(sum_, start_);
    if (!in_slot()) await_place(c);
    await_pieces(c);
    places().leaf_bytes > 0 ? pack(c) : sum_nodes(c);
    ready_[static_cast<std::size_t>(c)] = plan_.mark(sum_);
    give_pieces_back(c);
  }

  constexpr void sum_nodes(index_t c) {
    for (index_t position = 0; position < mesh_.nodes; ++position) {
      const index_t owner = messages_.owner_at(position);
      for (const Block& block : merge(part(c, owner).blocks)) sum_node(block, c, owner, addresses_.sum(c, position));
    }
    write_sums(sum_);
  }

  // A node of one rank packs its gradients: so they are free early, and cross in few puts.
  constexpr void pack(index_t c) {
    std::vector<Block> blocks;
    for (index_t position = 0; position < mesh_.nodes; ++position) {
      append_owner(blocks, part(c, messages_.owner_at(position)), places().leaf_bytes,
                   addresses_.leaf(c, position).offset);
    }
    const Place target = addresses_.leaf(c, 0).place;
    for (const Block& block : merge(blocks)) {
      plan_.op(
          [&](PlanBuilder& p) { p.copy(sum_, plan_.rank(), Space::gradients, target.space, block, target.instance); });
    }
  }

  // Puts of a round, when what they send has been summed and the place where it lands has been left.
  constexpr void put(NodeRound& round, index_t c) {
    const auto at = static_cast<std::size_t>(c);
    bool sends = false;
    for (const NodeMessage& m : round.messages) {
      const NodeMessages::Span span = messages_.span(m, chunk(c));
      if (m.from != node_ || !span.any()) continue;
      const bool leaves = addresses_.is_leaf(m.sum);
      const bool narrow = places().rounds() && !leaves;
      if (!sends) plan_.wait(round.lane, narrow ? rounded(round, c) : ready_[at]);
      round.known[at] = ready_[at];
      sends = true;
      NodeTraffic& traffic = *round.find(m.to, true);
      await_credit(round, traffic, c);
      const index_t element = addresses_.crossing_bytes(m.sum);
      const index_t spacing = addresses_.spacing(c);
      // From the first element of the first owner to the last one of the last: padding before it is of no parameter.
      const Block& first = messages_.part(m, span.first, chunk(c)).blocks.front();
      const index_t begin = span.first * spacing + first.target / 4;
      const index_t end = (span.last - 1) * spacing + messages_.part(m, span.last - 1, chunk(c)).elements;
      Address source = leaves   ? addresses_.leaf(c, m.position)
                       : narrow ? addresses_.rounded(c, m.position)
                                : addresses_.sum(c, m.position);
      Address target = addresses_.landing(c, m.landing);
      source.offset += begin * element;
      target.offset += begin * element;
      ++traffic.next;
      plan_.op([&](PlanBuilder& p) {
        p.put(round.lane, mesh_.rank(m.to, local_), {of(source.place, first), source.offset},
              {of(target.place, first), target.offset}, (end - begin) * element,
              words_.word(WordKind::arrived, plan_.rank().value), traffic.next, traffic.puts);
      });
    }
    if (sends) plan_.place(round.sent[at], round.lane);
  }

  // Rounds the sums that a round sends to the element of the wire.
  [[nodiscard]] constexpr Mark rounded(const NodeRound& round, index_t c) {
    plan_.wait(add_, ready_[static_cast<std::size_t>(c)]);
    await_partials(c);
    Kernel narrow = sum_kernel(Element::f32, Finish::partial, 1);
    narrow.output = collective().network.wire;
    for (const NodeMessage& m : round.messages) {
      const NodeMessages::Span span = messages_.span(m, chunk(c));
      for (index_t i = span.first; i < span.last && m.from == node_; ++i) {
        for (Block block : sum_blocks(part(c, messages_.owner_at(m.position + i)))) {
          block.target = block.target / 4 * places().wire_bytes;
          block.target_pitch = block.target_pitch / 4 * places().wire_bytes;
          block.target_width = block.target_width / 4 * places().wire_bytes;
          add(block, kernel_index(collective(), narrow), addresses_.sum(c, m.position + i),
              addresses_.rounded(c, m.position + i));
        }
      }
    }
    write_sums(add_);
    return plan_.mark(add_);
  }

  // Waits for what a round brings; false where it brings nothing.
  constexpr bool arrive(NodeRound& round, index_t c) {
    if (!round.gets(c)) return false;
    for (NodeTraffic& traffic : round.traffic) {
      if (traffic.sends || !traffic.has(c)) continue;
      traffic.next += messages_.puts_in(round, traffic, chunk(c));
      const index_t word = words_.word(WordKind::arrived, mesh_.rank(traffic.node, local_).value);
      plan_.op([&](PlanBuilder& p) { p.wait(round.lane, word, traffic.next, traffic.puts); });
    }
    plan_.wait(add_, plan_.mark(round.lane));
    return true;
  }

  // Calls f(message, position, where) for each owner whose sum has landed in a round. Before its use: Clang 14 has no
  // other in a constant expression.
  template <class F>
  constexpr void for_each_landing(const NodeRound& round, index_t c, F f) const {
    for (const NodeMessage& m : round.messages) {
      const NodeMessages::Span span = messages_.span(m, chunk(c));
      for (index_t i = span.first; i < span.last && m.to == node_; ++i) {
        Address landed = addresses_.landing(c, m.landing);
        landed.offset += i * addresses_.spacing(c) * addresses_.crossing_bytes(m.sum);
        f(m, m.position + i, landed);
      }
    }
  }

  // Doubling: adds what a round has brought.
  constexpr void end_round(NodeRound& round, index_t c) {
    const auto at = static_cast<std::size_t>(c);
    if (!arrive(round, c)) return;
    await_ready(round, c);
    await_partials(c);
    for_each_landing(round, c, [&](const NodeMessage& m, index_t position, const Address& landed) {
      widen(m, c, position, landed);
    });
    write_sums(add_);
    for_each_landing(round, c, [&](const NodeMessage& m, index_t position, const Address& landed) {
      add_owner(m, c, position, landed);
    });
    write_sums(add_);
    plan_.place(round.added[at], add_);
    ready_[at] = round.added[at];
  }

  // Direct exchange: the own sum and those of all other nodes, in one.
  constexpr void end_direct(index_t c) {
    const NodeRound* last = nullptr;
    for (NodeRound& round : rounds_) {
      if (!arrive(round, c)) continue;
      if (last == nullptr || round.known[static_cast<std::size_t>(c)] != MarkedPlan::none) last = &round;
    }
    if (last != nullptr) {
      await_ready(*last, c);
      const bool leaves = places().leaf_bytes > 0;
      for (index_t n = 0; n + 1 < mesh_.nodes && places().rounds(); ++n) {
        widen_wire(c, node_, addresses_.landing(c, n), addresses_.widened(c, n));
      }
      write_sums(add_);
      for (const Block& block : added_blocks(leaves, c, node_)) {
        const Element element = leaves ? static_cast<Element>(block.kind) : Element::f32;
        add(block, kernel(element, collective().finish, mesh_.nodes),
            leaves ? addresses_.leaf(c, node_) : addresses_.sum(c, node_), output(c), node_,
            places().rounds() ? addresses_.widened(c, 0) : addresses_.landing(c, 0));
      }
      write_sums(add_);
    }
    for (NodeRound& round : rounds_) plan_.place(round.added[static_cast<std::size_t>(c)], add_);
  }

  // Doubling: whether two leaves are added, which no one needs in f32.
  [[nodiscard]] constexpr bool adds_leaves(const NodeMessage& m) const {
    return addresses_.is_leaf(messages_.sibling(m.sum)) && addresses_.is_leaf(m.sum);
  }

  // Doubling: brings both sums for an owner to f32, where they are not.
  constexpr void widen(const NodeMessage& m, index_t c, index_t position, const Address& landed) {
    if (adds_leaves(m)) return;
    const index_t owner = messages_.owner_at(position);
    if (addresses_.is_leaf(messages_.sibling(m.sum))) {
      widen_leaf(c, owner, addresses_.leaf(c, position), addresses_.sum(c, position));
    }
    if (addresses_.is_leaf(m.sum)) {
      widen_leaf(c, owner, landed, addresses_.widened(c, position));
    } else if (places().rounds()) {
      widen_wire(c, owner, landed, addresses_.widened(c, position));
    }
  }

  // Doubling: the sum of another subtree for one owner, added to the own.
  constexpr void add_owner(const NodeMessage& m, index_t c, index_t position, const Address& landed) {
    const index_t owner = messages_.owner_at(position);
    const bool leaves = adds_leaves(m);
    const bool ends = owner == node_ && m.round == messages_.rounds();
    const Finish finish = ends ? collective().finish : Finish::partial;
    const index_t own_position = m.sum.first < messages_.sibling(m.sum).first ? 1 : 0;
    const Address sum = addresses_.sum(c, position);
    const bool widened = !leaves && (addresses_.is_leaf(m.sum) || places().rounds());
    for (const Block& block : added_blocks(leaves, c, owner)) {
      const Element element = leaves ? static_cast<Element>(block.kind) : Element::f32;
      add(block, kernel(element, finish, 2), leaves ? addresses_.leaf(c, position) : sum, ends ? output(c) : sum,
          own_position, widened ? addresses_.widened(c, position) : landed);
    }
  }

  // Brings a leaf, or a sum on a narrow wire, to f32.
  constexpr void widen_leaf(index_t c, index_t owner, const Address& from, const Address& to) {
    for (const Block& block : leaf_blocks(c, owner)) {
      add(block, kernel(static_cast<Element>(block.kind), Finish::partial, 1), from, to);
    }
  }
  constexpr void widen_wire(index_t c, index_t owner, const Address& from, const Address& to) {
    for (Block block : sum_blocks(part(c, owner))) {
      block.source = block.source / 4 * places().wire_bytes;
      block.source_pitch = block.source_pitch / 4 * places().wire_bytes;
      block.source_width = block.source_width / 4 * places().wire_bytes;
      add(block, kernel(collective().network.wire, Finish::partial, 1), from, to);
    }
  }

  // ---- what is waited for

  // Waits for the own sums of a chunk, where the puts before the arrivals have not.
  constexpr void await_ready(const NodeRound& round, index_t c) {
    const Mark ready = ready_[static_cast<std::size_t>(c)];
    if (round.known[static_cast<std::size_t>(c)] != ready) plan_.wait(add_, ready);
  }

  // Waits until the place of a chunk among the partials has been left: summed from, and put from.
  constexpr void await_place(index_t c) {
    bool adds = false;
    for (const NodeRound& round : rounds_) {
      const bool gets = round.gets(static_cast<index_t>(before(c).chunk));  // then the addition tells of the puts, too
      if (!gets) wait_for_last(round.sent, c);
      adds = adds || gets;
    }
    if (adds) wait_for_last(done_, c);
  }

  // The same for partials that additions write to, where a slot has taken the others over. A chunk of padding sends
  // nothing and adds nothing: what was put from the place of the chunk before it has not been waited for, then.
  constexpr void await_partials(index_t c) {
    if (!addresses_.adds_beside_slot()) return;
    for (const NodeRound& round : rounds_) {
      index_t last = c - ring();
      while (last >= 0 && !plan_.placed(round.sent[static_cast<std::size_t>(last)])) last -= ring();
      if (last >= 0) plan_.wait(add_, round.sent[static_cast<std::size_t>(last)]);
    }
  }

  // Waits until no put reads the slot any more, as far as what has come back does not tell.
  constexpr void await_puts() {
    for (const NodeRound& round : rounds_) {
      for (auto sent = round.sent.rbegin(); sent != round.sent.rend(); ++sent) plan_.wait(add_, *sent);
    }
  }

  // Waits until what was put to the same place has been added, and, where the other node takes the own puts for the
  // news that its have been added, until that is so.
  constexpr void await_credit(NodeRound& round, NodeTraffic& traffic, index_t c) {
    if (traffic.waited == c) return;
    traffic.waited = c;
    if (const NodeTraffic* back = round.find(traffic.node, false); back != nullptr) {
      for (const NetCredits::Answer& answer : back->credits.answers()) {
        if (answer.put != c) continue;
        const Mark added = round.added[static_cast<std::size_t>(answer.added)];
        answer.of_last_run ? plan_.wait_last_run(round.lane, added) : plan_.wait(round.lane, added);
      }
    }
    const index_t before = traffic.credits.before(traffic.index_of(c));
    if (before == Credits::none) return;
    const auto count = static_cast<index_t>(traffic.chunks.size());
    const index_t word = words_.word(WordKind::credit, mesh_.rank(traffic.node, local_).value);
    plan_.op([&](PlanBuilder& p) { p.wait(round.lane, word, before, count); });
  }

  // Tells senders that what they put has been added, one step later: then the lane need not wait for it.
  constexpr void give_credits(index_t t) {
    for (NodeRound& round : rounds_) {
      const index_t c = t - 1 - lag() - delay(round.number);
      for (const NodeTraffic& traffic : round.traffic) {
        if (traffic.sends || c < 0 || !traffic.has(c)) continue;
        const index_t i = traffic.index_of(c);
        if (!traffic.credits.wanted(i)) continue;
        plan_.wait(round.lane, round.added[static_cast<std::size_t>(c)]);
        plan_.op([&](PlanBuilder& p) {
          p.signal(round.lane, mesh_.rank(traffic.node, local_), words_.word(WordKind::credit, plan_.rank().value),
                   i + 1, static_cast<index_t>(traffic.chunks.size()));
        });
      }
    }
  }

  // ---- blocks

  [[nodiscard]] constexpr Address output(index_t c) const { return {{Space::output, 0, 0}, chunk(c).begin}; }

  // The leaves of an owner's part of a chunk, to f32, inside it.
  [[nodiscard]] constexpr std::vector<Block> leaf_blocks(index_t c, index_t owner) const {
    std::vector<Block> blocks = part(c, owner).blocks;
    for (Block& block : blocks) {
      block.source = block.target / 4 * places().leaf_bytes;
      block.source_pitch = block.target_pitch / 4 * places().leaf_bytes;
    }
    return merged(blocks, one_size_, false);
  }

  // What is added for an owner: leaves, or sums in f32.
  [[nodiscard]] constexpr std::vector<Block> added_blocks(bool leaves, index_t c, index_t owner) const {
    if (leaves) return leaf_blocks(c, owner);
    return sum_blocks(part(c, owner));
  }

  bool direct_;
  NodeMessages messages_;
  std::vector<NodeRound> rounds_;
  std::vector<Mark> done_;  // of each chunk: its last round has been added
};

}  // namespace tide::detail
