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

#include <tide/reduce/detail/credits.hpp>      // Credits
#include <tide/reduce/detail/marked_plan.hpp>  // MarkedPlan
#include <tide/reduce/detail/net_credits.hpp>  // NetCredits
#include <tide/reduce/detail/node_places.hpp>  // NodePlaces
#include <tide/reduce/detail/rail.hpp>         // rail_chunks
#include <tide/reduce/node_tree.hpp>           // NodeMessage, OwnerOrder

#include <algorithm>
#include <utility>
#include <vector>

namespace tide::detail {

class NodeReduceWriter {
 public:
  constexpr NodeReduceWriter(const Collective& collective, Rank rank)
      : plan_(collective, rank),
        words_(collective.words()),
        mesh_(collective.layout.mesh),
        node_(mesh_.node(rank)),
        local_(mesh_.local(rank)),
        order_(mesh_.nodes),
        places_(mesh_, collective.network.exchange, collective.network.wire, collective.inbox.element_bytes,
                collective.inbox.chunk_elements),
        shares_(slot_shares(mesh_, collective.inbox)),
        ring_(collective.network.inbox_instances),
        in_slot_(collective.inbox.place == InboxPlace::slot),
        one_size_(one_gradient_size(collective)) {
    for (index_t k = 0; k < mesh_.ranks_per_node; ++k) add_rail((local_ + k) % mesh_.ranks_per_node, k);
    sum_ = plan_.lane(LaneKind::sum);
    add_ = plan_.lane(LaneKind::sum, 1);
    start_ = plan_.declare();
    const std::vector<NodeMessage> messages =
        places_.direct ? direct_messages(mesh_.nodes, node_) : doubling_messages(mesh_.nodes, node_);
    while (static_cast<index_t>(rounds_.size()) < last_round()) add_round();
    for (NodeMessage m : messages) {
      if (m.from == node_) m.landing = landing_of(m);
      rounds_[static_cast<std::size_t>(m.round - 1)].messages.push_back(m);
    }
    for (Round& round : rounds_) add_traffic(round);
    const auto chunks = rails_[0].chunks.size();
    ready_.assign(chunks, MarkedPlan::none);
    done_.assign(chunks, MarkedPlan::none);
    for (auto& mark : done_) mark = plan_.declare();
  }

  [[nodiscard]] constexpr Plan write() && {
    start();
    index_t most = 0;
    for (const Rail& rail : rails_) most = std::max(most, static_cast<index_t>(rail.chunks.size()));
    for (index_t t = 0; t < most + 2 * ring_; ++t) {
      give_credits(t);
      for (std::size_t k = 1; k < rails_.size(); ++k) push(rails_[k], t);
      for (index_t c = std::max<index_t>(0, t - 2 * ring_); c <= t; ++c) step(c, t);
    }
    for (std::size_t k = 1; k < rails_.size(); ++k) plan_.wait(sum_, rails_[k].done);
    plan_.exit(ExitKind::gradients_free, sum_);
    if (in_slot_) await_puts();
    plan_.exit(ExitKind::shards_ready, add_);
    return std::move(plan_).finish();
  }

 private:
  using Mark = MarkedPlan::Mark;

  // What the ranks of one local number own, and the lane that serves the one on this node.
  struct Rail {
    Rank peer{};
    std::vector<RailChunk> chunks{};
    Credits credits{};  // of the peer's inbox
    LaneIndex lane{};
    Mark done = MarkedPlan::none;
  };

  // What goes to, or comes from, one other node: only in one round. `chunks` are those in which anything does.
  struct Traffic {
    index_t node = 0;
    bool sends = false;
    index_t puts = 0;     // in a run
    index_t next = 0;     // of them, in the order of issue
    index_t waited = -1;  // the chunk whose place is known to be free
    std::vector<index_t> chunks{};
    NetCredits credits{};
  };
  struct Round {
    index_t number = 0;
    LaneIndex lane{};
    std::vector<NodeMessage> messages{};
    std::vector<Traffic> traffic{};
    std::vector<Mark> known{};  // of each chunk: what its puts have waited for
    std::vector<Mark> sent{};   // of each chunk: its puts are over
    std::vector<Mark> added{};  // of each chunk: what has landed has been added
  };

  // The part of a message that holds anything in a chunk.
  struct Span {
    index_t first = 0;  // owners of the message
    index_t last = 0;
    [[nodiscard]] constexpr bool any() const noexcept { return first < last; }
  };

  // ---- before the ops
  // ------------------------------------------------------------------------------------------------

  constexpr void add_rail(index_t local, index_t k) {
    Rail rail{mesh_.rank(node_, local), rail_chunks(collective(), local), {}, {}, MarkedPlan::none};
    const auto count = static_cast<index_t>(rail.chunks.size());
    if (k > 0 && count > 0) rail.lane = plan_.lane(LaneKind::push, k);
    if (!in_slot_) rail.credits = Credits(count, collective().inbox.chunks);
    rails_.push_back(std::move(rail));
  }

  constexpr void add_round() {
    Round round;
    round.number = static_cast<index_t>(rounds_.size()) + 1;
    round.lane = plan_.lane(LaneKind::net, static_cast<index_t>(rounds_.size()));
    round.known.assign(rails_[0].chunks.size(), MarkedPlan::none);
    round.sent.assign(rails_[0].chunks.size(), MarkedPlan::none);
    round.added.assign(rails_[0].chunks.size(), MarkedPlan::none);
    for (auto& mark : round.sent) mark = plan_.declare();
    for (auto& mark : round.added) mark = plan_.declare();
    rounds_.push_back(std::move(round));
  }

  constexpr void add_traffic(Round& round) {
    for (const NodeMessage& m : round.messages) {
      const bool sends = m.from == node_;
      if (find(round, sends ? m.to : m.from, sends) == nullptr) {
        round.traffic.push_back({sends ? m.to : m.from, sends, 0, 0, -1, {}, {}});
      }
    }
    const RoundSteps steps{places_.direct ? 0 : delay(round.number - 1), delay(round.number)};
    for (Traffic& traffic : round.traffic) {
      for (std::size_t c = 0; c < rails_[0].chunks.size(); ++c) {
        index_t puts = 0;
        for (const NodeMessage& m : round.messages) puts += is_of(traffic, m) && span(m, c).any() ? 1 : 0;
        traffic.puts += puts;
        if (puts > 0) traffic.chunks.push_back(static_cast<index_t>(c));
      }
    }
    for (Traffic& traffic : round.traffic) {
      const Traffic* back = find(round, traffic.node, !traffic.sends);
      traffic.credits =
          NetCredits(traffic.chunks, back != nullptr ? back->chunks : std::vector<index_t>{}, ring_, steps);
    }
  }

  // ---- the ops of a step
  // ---------------------------------------------------------------------------------------------

  // A chunk is summed as late as its place allows, and its rounds end as late: then others are on their way.
  [[nodiscard]] constexpr index_t lag() const noexcept { return ring_ - 1; }
  [[nodiscard]] constexpr index_t last_round() const noexcept {
    return places_.direct ? mesh_.nodes - 1 : NodeRange{0, mesh_.nodes}.round();
  }
  // The step, counted from the sum of the node, at which what a round brings is added.
  [[nodiscard]] constexpr index_t delay(index_t round) const noexcept {
    return places_.direct ? lag() : ceil_div(round * lag(), last_round());
  }

  // Tells the local peers that the slot is free, and the other lanes that the gradients are written.
  constexpr void start() {
    if (in_slot_ && !rails_[0].chunks.empty()) {
      for (std::size_t k = 1; k < rails_.size(); ++k) {
        plan_.op([&](PlanBuilder& p) {
          p.signal(PlanBuilder::caller(), rails_[k].peer, words_.word(WordKind::ready, plan_.rank().value));
        });
      }
    }
    plan_.place(start_, PlanBuilder::caller());
  }

  constexpr void push(Rail& rail, index_t c) {
    const auto count = static_cast<index_t>(rail.chunks.size());
    if (c >= count) return;
    const InboxShape& inbox = collective().inbox;
    plan_.wait(rail.lane, start_);
    if (in_slot_ && c == 0) {
      plan_.op([&](PlanBuilder& p) { p.wait(rail.lane, words_.word(WordKind::ready, rail.peer.value)); });
    }
    if (const index_t before = in_slot_ ? Credits::none : rail.credits.before(c); before != Credits::none) {
      plan_.op(
          [&](PlanBuilder& p) { p.wait(rail.lane, words_.word(WordKind::credit, rail.peer.value), before, count); });
    }
    const index_t piece = local_ < mesh_.local(rail.peer) ? local_ : local_ - 1;
    const RailChunk& chunk = rail.chunks[static_cast<std::size_t>(c)];
    std::vector<Block> blocks;
    for (index_t owner = 0; owner < mesh_.nodes; ++owner) {
      std::vector<Block> part = merged_rows(chunk.owners[static_cast<std::size_t>(owner)].blocks);
      retarget(part, inbox.element_bytes,
               pieces(c) + piece * inbox.piece_bytes() + owner * inbox.chunk_elements * inbox.element_bytes);
      blocks.insert(blocks.end(), part.begin(), part.end());
    }
    for (const Block& block : merge(blocks)) {
      plan_.op(
          [&](PlanBuilder& p) { p.copy(rail.lane, rail.peer, Space::gradients, Space::inbox, block, piece_place(c)); });
    }
    plan_.op([&](PlanBuilder& p) {
      p.signal(rail.lane, rail.peer, words_.word(WordKind::arrived, plan_.rank().value), c + 1, count);
    });
    if (c + 1 == count) rail.done = plan_.mark(rail.lane);
  }

  // What is done at step t for chunk c of the own rail.
  constexpr void step(index_t c, index_t t) {
    if (c >= static_cast<index_t>(rails_[0].chunks.size())) return;
    const auto at = static_cast<std::size_t>(c);
    if (t == c + lag()) {
      sum(c);
      if (!places_.direct) put(rounds_[0], c);
      for (Round& round : rounds_) {
        if (places_.direct) put(round, c);
      }
    }
    if (places_.direct && t == c + lag() + delay(last_round())) {
      bool gets = false;
      const Round* last = nullptr;
      for (Round& round : rounds_) {
        if (!arrive(round, c)) continue;
        gets = true;
        if (last == nullptr || round.known[at] != MarkedPlan::none) last = &round;
      }
      if (gets) {
        await_ready(*last, c);
        add_all(c);
      }
      for (Round& round : rounds_) plan_.place(round.added[at], add_);
    }
    for (index_t r = 1; r <= last_round() && !places_.direct; ++r) {
      if (t != c + lag() + delay(r)) continue;
      Round& round = rounds_[static_cast<std::size_t>(r - 1)];
      if (arrive(round, c)) {
        await_ready(round, c);
        await_sums_place(c);
        for (const NodeMessage& m : round.messages) {
          if (m.to == node_) add_message(m, c);
        }
        plan_.place(round.added[at], add_);
        ready_[at] = round.added[at];
      }
      if (r < last_round()) put(rounds_[static_cast<std::size_t>(r)], c);
    }
    if (t == c + lag() + delay(last_round())) plan_.place(done_[at], add_);
  }

  // The sums of the node, for every owner of the rail.
  constexpr void sum(index_t c) {
    const Rail& rail = rails_[0];
    const auto count = static_cast<index_t>(rail.chunks.size());
    const RailChunk& chunk = rail.chunks[static_cast<std::size_t>(c)];
    const InboxShape& inbox = collective().inbox;
    // Pieces in a slot come from peers whom the caller's lane has told that it is free, so sums need no start.
    if (!in_slot_ || rails_.size() == 1) plan_.wait(sum_, start_);
    if (!in_slot_) await_place(c);
    for (std::size_t k = 1; k < rails_.size(); ++k) {
      plan_.op(
          [&](PlanBuilder& p) { p.wait(sum_, words_.word(WordKind::arrived, rails_[k].peer.value), c + 1, count); });
    }
    for (index_t position = 0; position < mesh_.nodes; ++position) {
      const index_t owner = owner_at(position);
      for (const Block& block : merge(chunk.owners[static_cast<std::size_t>(owner)].blocks)) {
        places_.leaf_bytes > 0 ? pack(block, c, position) : sum_node(block, c, position, owner, inbox);
      }
    }
    ready_[static_cast<std::size_t>(c)] = plan_.mark(sum_);
    if (in_slot_ || rails_.size() == 1 || !rail.credits.wanted(c)) return;
    for (std::size_t k = 1; k < rails_.size(); ++k) {
      plan_.op([&](PlanBuilder& p) {
        p.signal(sum_, rails_[k].peer, words_.word(WordKind::credit, plan_.rank().value), c + 1, count);
      });
    }
  }

  constexpr void sum_node(Block block, index_t c, index_t position, index_t owner, const InboxShape& inbox) {
    const index_t piece = pieces(c) + (owner * inbox.chunk_elements + block.target / 4) * inbox.element_bytes;
    block.kind = kernel(static_cast<Element>(block.kind), Finish::partial, mesh_.ranks_per_node);
    block.target += sums(c, position);
    plan_.op([&](PlanBuilder& p) {
      p.reduce(sum_, local_, block, place(Space::gradients, 0, block), place(sums_space(), sums_place(c), block),
               {place(Space::inbox, piece_place(c), block), piece});
    });
  }

  // A node of one rank packs its gradients: so they are free early, and cross in few puts.
  constexpr void pack(Block block, index_t c, index_t position) {
    std::vector<Block> packed{block};
    retarget(packed, places_.leaf_bytes, leaf(c, position));
    plan_.op([&](PlanBuilder& p) {
      p.copy(sum_, plan_.rank(), Space::gradients, leaf_space(), packed.front(), leaf_place(c));
    });
  }

  // Waits until no put reads the slot any more, as far as what has come back does not tell.
  constexpr void await_puts() {
    for (const Round& round : rounds_) {
      for (auto sent = round.sent.rbegin(); sent != round.sent.rend(); ++sent) plan_.wait(add_, *sent);
    }
  }

  // The same for the place among the partials that additions of a chunk write to, where the slot has taken the rest.
  constexpr void await_sums_place(index_t c) {
    if (!in_slot_ || (sums_in_slot() && !places_.rounds()) || !places_.sums_cross || c < ring_) return;
    for (const Round& round : rounds_) plan_.wait(add_, round.sent[static_cast<std::size_t>(c - ring_)]);
  }

  // Waits until the place of a chunk among the partials has been left: summed from, and put from.
  constexpr void await_place(index_t c) {
    const auto count = static_cast<index_t>(rails_[0].chunks.size());
    const bool last_run = c < ring_;
    const index_t before = last_run ? c + (count - 1 - c) / ring_ * ring_ : c - ring_;
    const auto wait = [&](Mark mark) { last_run ? plan_.wait_last_run(sum_, mark) : plan_.wait(sum_, mark); };
    bool adds = false;
    for (const Round& round : rounds_) {
      bool gets = false;
      for (const Traffic& traffic : round.traffic) gets = gets || (!traffic.sends && has(traffic, before));
      if (!gets) wait(round.sent[static_cast<std::size_t>(before)]);
      adds = adds || gets;
    }
    if (adds) wait(done_[static_cast<std::size_t>(before)]);
  }

  // Puts of a round, when what they send has been summed and the place where it lands has been left.
  constexpr void put(Round& round, index_t c) {
    const auto at = static_cast<std::size_t>(c);
    bool sends = false;
    for (const NodeMessage& m : round.messages) {
      const Span part = span(m, at);
      if (m.from != node_ || !part.any()) continue;
      Traffic& traffic = *find(round, m.to, true);
      const Rank peer = mesh_.rank(m.to, local_);
      if (!sends) plan_.wait(round.lane, places_.rounds() && !is_leaf(m.sum) ? rounded(round, c) : ready_[at]);
      round.known[at] = ready_[at];
      sends = true;
      await_credit(round, traffic, c);
      const bool leaves = is_leaf(m.sum);
      const index_t element = leaves ? places_.leaf_bytes : places_.wire_bytes;
      const index_t spacing = this->spacing(c);
      const index_t skipped = part.first * spacing * element;
      const index_t last = owner_elements(m, part.last - 1, at);
      const index_t bytes = ((part.last - 1 - part.first) * spacing + last) * element;
      const bool narrow = places_.rounds() && !leaves;
      const index_t source = (leaves   ? leaf(c, m.position)
                              : narrow ? rounded_at(c, m.position)
                                       : sums(c, m.position)) +
                             skipped;
      const index_t target = landing(m.landing) + skipped;
      const auto parameter = first_parameter(m, part.first, at);
      const Space space = leaves ? leaf_space() : narrow ? Space::partials : sums_space();
      const index_t instance = leaves ? leaf_place(c) : narrow ? c % ring_ : sums_place(c);
      const Place from{space, static_cast<std::uint8_t>(instance), parameter};
      ++traffic.next;
      plan_.op([&](PlanBuilder& p) {
        p.put(round.lane, peer, {from, source},
              {{Space::network_inbox, static_cast<std::uint8_t>(c % ring_), parameter}, target}, bytes,
              words_.word(WordKind::arrived, plan_.rank().value), traffic.next, traffic.puts);
      });
    }
    if (sends) plan_.place(round.sent[at], round.lane);
  }

  // Rounds the sums that a round sends to the element of the wire.
  [[nodiscard]] constexpr Mark rounded(const Round& round, index_t c) {
    plan_.wait(add_, ready_[static_cast<std::size_t>(c)]);
    await_sums_place(c);
    Kernel narrow = sum_kernel(Element::f32, Finish::partial, 1);
    narrow.output = collective().network.wire;
    for (const NodeMessage& m : round.messages) {
      const Span part = span(m, static_cast<std::size_t>(c));
      for (index_t i = part.first; i < part.last && m.from == node_ && !is_leaf(m.sum); ++i) {
        for (Block block : sum_blocks(c, owner_at(m.position + i))) {
          block.kind = kernel_index(collective(), narrow);
          block.source += sums(c, m.position + i);
          block.target = rounded_at(c, m.position + i) + block.target / 4 * places_.wire_bytes;
          block.target_pitch = block.target_pitch / 4 * places_.wire_bytes;
          plan_.op([&](PlanBuilder& p) {
            p.reduce(add_, 0, block, place(sums_space(), sums_place(c), block),
                     place(Space::partials, c % ring_, block), {place(Space::partials, c % ring_, block), 0});
          });
        }
      }
    }
    return plan_.mark(add_);
  }

  constexpr void await_credit(Round& round, Traffic& traffic, index_t c) {
    const index_t i = index_of(traffic, c);
    const index_t before = traffic.credits.before(i);
    if (traffic.waited == c) return;
    traffic.waited = c;
    if (const Traffic* back = find(round, traffic.node, false); back != nullptr) {
      for (const NetCredits::Answer& answer : back->credits.answers()) {
        if (answer.put != c) continue;
        const Mark added = round.added[static_cast<std::size_t>(answer.added)];
        answer.of_last_run ? plan_.wait_last_run(round.lane, added) : plan_.wait(round.lane, added);
      }
    }
    if (before == Credits::none) return;
    const index_t count = static_cast<index_t>(traffic.chunks.size());
    const index_t word = words_.word(WordKind::credit, mesh_.rank(traffic.node, local_).value);
    plan_.op([&](PlanBuilder& p) { p.wait(round.lane, word, before, count); });
  }

  // Waits for the own sums of a chunk, where the puts before the arrivals have not.
  constexpr void await_ready(const Round& round, index_t c) {
    const Mark ready = ready_[static_cast<std::size_t>(c)];
    if (round.known[static_cast<std::size_t>(c)] != ready) plan_.wait(add_, ready);
  }

  // Waits for what a round brings; false where it brings nothing.
  constexpr bool arrive(Round& round, index_t c) {
    bool gets = false;
    for (Traffic& traffic : round.traffic) {
      if (traffic.sends || !has(traffic, c)) continue;
      traffic.next += puts_in(round, traffic, c);
      gets = true;
      const index_t word = words_.word(WordKind::arrived, mesh_.rank(traffic.node, local_).value);
      plan_.op([&](PlanBuilder& p) { p.wait(round.lane, word, traffic.next, traffic.puts); });
    }
    if (!gets) return false;
    plan_.wait(add_, plan_.mark(round.lane));
    return true;
  }

  // Direct exchange: the own sum and those of all other nodes, in one.
  constexpr void add_all(index_t c) {
    const bool leaves = places_.leaf_bytes > 0;
    const std::vector<Block> blocks = leaves ? leaf_blocks(c, node_) : sum_blocks(c, node_);
    if (places_.rounds()) {
      for (index_t n = 0; n + 1 < mesh_.nodes; ++n) widen(c, node_, landing(n), widened_at(c, n));
    }
    for (Block block : blocks) {
      const index_t offset = block.source;  // inside the sum of an owner, at its source's element
      const index_t target = block.target;
      block.kind = kernel(leaves ? static_cast<Element>(block.kind) : Element::f32, collective().finish, mesh_.nodes);
      block.source += leaves ? leaf(c, node_) : sums(c, node_);
      block.target = target + chunk(c).begin;
      plan_.op([&](PlanBuilder& p) {
        p.reduce(add_, node_, block,
                 leaves ? place(leaf_space(), leaf_place(c), block) : place(sums_space(), sums_place(c), block),
                 place(Space::output, 0, block),
                 places_.rounds() ? Address{place(Space::partials, c % ring_, block), widened_at(c, 0) + offset}
                                  : Address{place(Space::network_inbox, c % ring_, block), landing(0) + offset});
      });
    }
  }

  // Brings the sum of an owner that has landed on a narrow wire back to f32.
  constexpr void widen(index_t c, index_t owner, index_t landed, index_t widened) {
    const Element wire = collective().network.wire;
    for (Block block : sum_blocks(c, owner)) {
      block.kind = kernel(wire, Finish::partial, 1);
      block.source = landed + block.source / 4 * places_.wire_bytes;
      block.source_pitch = block.source_pitch / 4 * places_.wire_bytes;
      block.source_width = block.source_width / 4 * places_.wire_bytes;
      block.target += widened;
      plan_.op([&](PlanBuilder& p) {
        p.reduce(add_, 0, block, place(Space::network_inbox, c % ring_, block),
                 place(Space::partials, c % ring_, block), {place(Space::partials, c % ring_, block), 0});
      });
    }
  }

  constexpr void add_message(const NodeMessage& m, index_t c) {
    const Span part = span(m, static_cast<std::size_t>(c));
    for (index_t i = part.first; i < part.last; ++i) {
      add_owner(m, c, m.position + i,
                landing(m.landing) + i * spacing(c) * (is_leaf(m.sum) ? places_.leaf_bytes : places_.wire_bytes));
    }
  }

  // The sum of another subtree for one owner, which has landed at `landed`, added to the own.
  constexpr void add_owner(const NodeMessage& m, index_t c, index_t position, index_t landed) {
    const index_t owner = owner_at(position);
    const bool ends = owner == node_ && m.round == last_round();
    const Finish finish = ends ? collective().finish : Finish::partial;
    const bool own_leaf = is_leaf(sibling(m.sum));
    const bool other_leaf = is_leaf(m.sum);
    const index_t own_position = m.sum.first < sibling(m.sum).first ? 1 : 0;
    const auto instance = static_cast<std::uint8_t>(c % ring_);
    const Place output{Space::output, 0, 0};
    const Place own_sum{sums_space(), static_cast<std::uint8_t>(sums_place(c)), 0};
    const Place own_leaf_place{leaf_space(), static_cast<std::uint8_t>(leaf_place(c)), 0};
    const Place landed_place{Space::network_inbox, instance, 0};
    const index_t sum_at = sums(c, position);
    const Place target = ends ? output : own_sum;
    const index_t target_at = ends ? chunk(c).begin : sum_at;
    // A sum of blocks, whose sources and targets are inside the part of an owner.
    const auto write = [&](Block block, Element element, Finish end, Address source, Address into, Address other,
                           index_t position_of_own, index_t inputs) {
      const auto parameter = static_cast<std::uint16_t>(block.parameter.value);
      source.place.parameter = into.place.parameter = other.place.parameter = parameter;
      other.offset += block.source;
      block.kind = kernel(element, end, inputs);
      block.source += source.offset;
      block.target += into.offset;
      plan_.op([&](PlanBuilder& p) { p.reduce(add_, position_of_own, block, source.place, into.place, other); });
    };
    const auto widen = [&](Address from, Address into) {
      for (const Block& block : leaf_blocks(c, owner)) {
        write(block, static_cast<Element>(block.kind), Finish::partial, from, into, from, 0, 1);
      }
    };
    const Address own_at{own_leaf_place, leaf(c, position)};
    Address other{landed_place, landed};
    if (own_leaf && other_leaf) {
      for (const Block& block : leaf_blocks(c, owner)) {
        write(block, static_cast<Element>(block.kind), finish, own_at, {target, target_at}, other, own_position, 2);
      }
      return;
    }
    if (own_leaf) widen(own_at, {own_sum, sum_at});
    if (other_leaf) {
      const Address widened{{Space::partials, instance, 0}, widened_at(c, position)};
      widen(other, widened);
      other = widened;
    } else if (places_.rounds()) {
      this->widen(c, owner, landed, widened_at(c, position));
      other = {{Space::partials, instance, 0}, widened_at(c, position)};
    }
    for (const Block& block : sum_blocks(c, owner)) {
      write(block, Element::f32, finish, {own_sum, sum_at}, {target, target_at}, other, own_position, 2);
    }
  }

  // Tells senders that what they put has been added, one step later: then the lane need not wait for it.
  constexpr void give_credits(index_t t) {
    for (index_t r = 1; r <= last_round(); ++r) {
      const index_t c = t - 1 - lag() - delay(r);
      Round& round = rounds_[static_cast<std::size_t>(r - 1)];
      for (const Traffic& traffic : round.traffic) {
        if (traffic.sends || c < 0 || !has(traffic, c)) continue;
        const index_t i = index_of(traffic, c);
        if (!traffic.credits.wanted(i)) continue;
        plan_.wait(round.lane, round.added[static_cast<std::size_t>(c)]);
        plan_.op([&](PlanBuilder& p) {
          p.signal(round.lane, mesh_.rank(traffic.node, local_), words_.word(WordKind::credit, plan_.rank().value),
                   i + 1, static_cast<index_t>(traffic.chunks.size()));
        });
      }
    }
  }

  // ---- what lies where
  // -----------------------------------------------------------------------------------------------

  [[nodiscard]] constexpr const Collective& collective() const noexcept { return plan_.collective(); }
  [[nodiscard]] constexpr const RailChunk& chunk(index_t c) const {
    return rails_[0].chunks[static_cast<std::size_t>(c)];
  }

  // Elements from owner to owner in a chunk; fewer where the chunk is short. Landings of direct exchange are pieces of
  // one sum, at one distance.
  [[nodiscard]] constexpr index_t spacing(index_t c) const {
    return places_.direct ? places_.chunk_elements : std::min(places_.chunk_elements, align_up(chunk(c).elements, 16));
  }
  // Sums of nodes lie among the partials, or one chunk after the other in the slot. Leaves likewise.
  [[nodiscard]] constexpr bool sums_in_slot() const noexcept { return in_slot_ && places_.leaf_bytes == 0; }
  [[nodiscard]] constexpr Space sums_space() const noexcept { return sums_in_slot() ? Space::inbox : Space::partials; }
  [[nodiscard]] constexpr Space leaf_space() const noexcept { return in_slot_ ? Space::inbox : Space::partials; }
  [[nodiscard]] constexpr index_t sums_place(index_t c) const noexcept { return sums_in_slot() ? 0 : c % ring_; }
  [[nodiscard]] constexpr index_t leaf_place(index_t c) const noexcept { return in_slot_ ? 0 : c % ring_; }
  [[nodiscard]] constexpr index_t sums(index_t c, index_t position) const {
    const index_t begin = sums_in_slot() ? c * shares_.sums_bytes : in_slot_ ? 0 : places_.sums_begin();
    return begin + position * spacing(c) * 4;
  }
  [[nodiscard]] constexpr index_t widened_at(index_t c, index_t position) const {
    return places_.widened_begin() - taken_by_slot() + position * spacing(c) * 4;
  }
  [[nodiscard]] constexpr index_t rounded_at(index_t c, index_t position) const {
    return places_.rounded_begin() - taken_by_slot() + position * spacing(c) * places_.wire_bytes;
  }
  [[nodiscard]] constexpr index_t taken_by_slot() const noexcept { return in_slot_ ? places_.slot_takes() : 0; }
  [[nodiscard]] constexpr index_t piece_place(index_t c) const noexcept {
    return in_slot_ ? 0 : c % collective().inbox.chunks;
  }
  [[nodiscard]] constexpr index_t pieces(index_t c) const noexcept {
    return in_slot_ ? shares_.pieces_begin() + c * shares_.pieces_bytes : 0;
  }
  [[nodiscard]] constexpr index_t leaf(index_t c, index_t position) const {
    return (in_slot_ ? c * shares_.sums_bytes : 0) + position * spacing(c) * places_.leaf_bytes;
  }
  // Where what has `n` owners before it lands: at one place for all chunks, since each sender has credits of its own.
  [[nodiscard]] constexpr index_t landing(index_t n) const noexcept {
    return n * places_.chunk_elements * places_.landing_element();
  }
  // Where a message that this rank sends lands: the receiver counts.
  [[nodiscard]] constexpr index_t landing_of(const NodeMessage& m) const {
    if (places_.direct) return m.landing;
    for (const NodeMessage& there : doubling_messages(mesh_.nodes, m.to)) {
      if (there.from == m.from && there.to == m.to && there.position == m.position) return there.landing;
    }
    return 0;
  }
  [[nodiscard]] constexpr index_t owner_at(index_t position) const {
    return places_.direct ? position : order_.owner(position);
  }
  [[nodiscard]] constexpr bool is_leaf(NodeRange range) const noexcept {
    return places_.leaf_bytes > 0 && range.size() == 1;
  }
  // The other child of the subtree that a sum is a child of, on the side of this node.
  [[nodiscard]] constexpr NodeRange sibling(NodeRange range) const {
    NodeRange found{node_, node_ + 1};
    for_each_subtree_of({0, mesh_.nodes}, node_, [&](NodeRange parent) {
      const NodeRange left{parent.first, parent.middle()};
      const NodeRange right{parent.middle(), parent.last};
      if (left == range) found = right;
      if (right == range) found = left;
    });
    return found;
  }

  // The blocks of an owner's part of a chunk. Sources and targets inside it: leaves to f32, f32 to f32.
  [[nodiscard]] constexpr std::vector<Block> leaf_blocks(index_t c, index_t owner) const {
    std::vector<Block> blocks = chunk(c).owners[static_cast<std::size_t>(owner)].blocks;
    for (Block& block : blocks) {
      block.source = block.target / 4 * places_.leaf_bytes;
      block.source_pitch = block.target_pitch / 4 * places_.leaf_bytes;
    }
    return merged(blocks, one_size_, false);
  }
  [[nodiscard]] constexpr std::vector<Block> sum_blocks(index_t c, index_t owner) const {
    std::vector<Block> blocks = chunk(c).owners[static_cast<std::size_t>(owner)].blocks;
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
  // Rows as they are, or one by one where elements are of unlike size.
  [[nodiscard]] constexpr std::vector<Block> merged_rows(const std::vector<Block>& blocks) const {
    return one_size_ ? blocks : merged(blocks, false, false);
  }

  [[nodiscard]] static constexpr Place place(Space space, index_t instance, const Block& block) noexcept {
    return {space, static_cast<std::uint8_t>(instance), static_cast<std::uint16_t>(block.parameter.value)};
  }
  [[nodiscard]] constexpr std::uint8_t kernel(Element input, Finish finish, index_t inputs) const {
    return kernel_index(collective(), sum_kernel(input, finish, inputs));
  }

  // ---- messages in a chunk
  // -------------------------------------------------------------------------------------------

  [[nodiscard]] constexpr index_t owner_elements(const NodeMessage& m, index_t i, std::size_t c) const {
    return rails_[0].chunks[c].owners[static_cast<std::size_t>(owner_at(m.position + i))].elements;
  }
  [[nodiscard]] constexpr Span span(const NodeMessage& m, std::size_t c) const {
    Span part{0, m.owners};
    while (part.any() && owner_elements(m, part.first, c) == 0) ++part.first;
    while (part.any() && owner_elements(m, part.last - 1, c) == 0) --part.last;
    return part;
  }
  [[nodiscard]] constexpr std::uint16_t first_parameter(const NodeMessage& m, index_t i, std::size_t c) const {
    const OwnerPart& part = rails_[0].chunks[c].owners[static_cast<std::size_t>(owner_at(m.position + i))];
    return static_cast<std::uint16_t>(part.blocks.front().parameter.value);
  }
  [[nodiscard]] constexpr bool is_of(const Traffic& traffic, const NodeMessage& m) const noexcept {
    return traffic.sends ? m.from == node_ && m.to == traffic.node : m.to == node_ && m.from == traffic.node;
  }
  [[nodiscard]] static constexpr Traffic* find(Round& round, index_t node, bool sends) {
    for (Traffic& traffic : round.traffic) {
      if (traffic.node == node && traffic.sends == sends) return &traffic;
    }
    return nullptr;
  }
  [[nodiscard]] constexpr index_t puts_in(const Round& round, const Traffic& traffic, index_t c) const {
    index_t puts = 0;
    for (const NodeMessage& m : round.messages) {
      puts += is_of(traffic, m) && span(m, static_cast<std::size_t>(c)).any() ? 1 : 0;
    }
    return puts;
  }
  [[nodiscard]] static constexpr index_t index_of(const Traffic& traffic, index_t c) {
    return std::lower_bound(traffic.chunks.begin(), traffic.chunks.end(), c) - traffic.chunks.begin();
  }
  [[nodiscard]] static constexpr bool has(const Traffic& traffic, index_t c) {
    return std::binary_search(traffic.chunks.begin(), traffic.chunks.end(), c);
  }

  MarkedPlan plan_;
  SignalWords words_;
  MeshShape mesh_;
  index_t node_;
  index_t local_;
  OwnerOrder order_;
  NodePlaces places_;
  SlotShares shares_;
  index_t ring_;  // chunks that landings, and partials apart from a slot, have room for
  bool in_slot_;
  bool one_size_;
  std::vector<Rail> rails_;  // the own first
  std::vector<Round> rounds_;
  LaneIndex sum_{};
  LaneIndex add_{};
  Mark start_ = MarkedPlan::none;
  std::vector<Mark> ready_;  // of each chunk of the own rail: what the next round sends or adds to is there
  std::vector<Mark> done_;   // of each chunk: its last round has been added
};

}  // namespace tide::detail
