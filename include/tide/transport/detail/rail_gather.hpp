// SPDX-License-Identifier: Apache-2.0
//
// The plan of one rank of a gather over several nodes: packed shards cross on the rail in rounds, placement is in the
// copies that spread them inside the node.
//
//   caller    ready to peers   [cast]   start   [own block]                         wait for peers and lanes   complete
//   net       wait start   ready on the rail | wait ready  put 0.0 | wait arrived 0.0  event  put 0.1, 1.0 | ...
//   push k    wait start   wait ready   copy own block   wait net event   copy what came   ...   arrived    event
//
// A wave of the net lane first takes what peers put in their wave before, chunk by chunk, then puts: so it never waits
// for a put of the same wave. Push lanes place what came while later rounds go on.

#pragma once

#include <tide/transport/detail/gather_writer.hpp>  // GatherWriter
#include <tide/transport/detail/rail_pace.hpp>      // RailPace

#include <algorithm>
#include <utility>
#include <vector>

namespace tide::detail {

class RailGather {
 public:
  constexpr RailGather(const Collective& collective, Rank rank, index_t chunk_bytes, OpKind spreads_by)
      : writer_(collective, rank),
        plan_(&writer_.plan),
        local_(writer_.mesh().local(rank)),
        node_(writer_.mesh().node(rank)),
        multicast_(spreads_by == OpKind::multicast && writer_.ranks() > 1),
        owns_(writer_.owns(rank)),
        rail_(collective.layout, local_, chunk_bytes),
        pace_(rail_, collective.network.puts_in_flight) {
    for (index_t n = 0; n < rail_.nodes(); ++n) {
      blocks_.push_back(collective.layout.blocks(this->rank(n), Buffer::shards, Buffer::slot));
    }
    count_events();
  }
  RailGather(const RailGather&) = delete;
  RailGather& operator=(const RailGather&) = delete;

  [[nodiscard]] constexpr Plan write() && {
    const bool pushes_own = owns_ && writer_.ranks() > 1;
    writer_.signal_ready();
    writer_.own_block(pushes_own || any_);
    if (any_) open_net();
    for (index_t wave = 0; wave < pace_.waves(); ++wave) {
      for (index_t k = 0; k < rail_.rounds(); ++k) take(k, wave - 1 - k);
      for (index_t k = 0; k < rail_.rounds(); ++k) put(k, wave - k);
      if (wave == 0) open_push_lanes();
      for (const Arrival& arrival : arrivals_) spread(arrival);
      arrivals_.clear();
    }
    if (pace_.waves() == 0) open_push_lanes();
    std::vector<LaneIndex> lanes = close_push_lanes();
    if (ends_in_put_) {
      plan_->signal(net_, plan_->rank(), writer_.event(net_), events_, events_);
      plan_->wait(plan_->caller(), writer_.event(net_), events_, events_);
    }
    return std::move(writer_).complete(lanes);
  }

 private:
  // A lane to one local peer, to the own slot (k = 0), or to all by multicast.
  struct PushLane {
    LaneIndex lane;
    index_t k;
  };
  // What came of a chunk in a round, and the event of the net lane that says so.
  struct Arrival {
    index_t k;
    index_t chunk;
    index_t event;
  };

  [[nodiscard]] constexpr Rank rank(index_t node) const { return writer_.mesh().rank(node, local_); }
  [[nodiscard]] constexpr index_t credit(index_t node) const {
    return writer_.words.word(WordKind::credit, rank(node).value);
  }
  [[nodiscard]] constexpr index_t source(index_t k) const { return rail_.source(node_, k); }
  [[nodiscard]] constexpr index_t target(index_t k) const { return rail_.target(node_, k); }

  // The events of the net lane: one for what comes of a chunk in a round, and one behind the last put.
  constexpr void count_events() {
    for (index_t wave = 0; wave < pace_.waves(); ++wave) {
      for (index_t k = 0; k < rail_.rounds(); ++k) {
        if (!pace_.any(source(k), k, wave - 1 - k)) continue;
        ++events_;
        ends_in_put_ = false;
      }
      for (index_t k = 0; k < rail_.rounds(); ++k) ends_in_put_ = ends_in_put_ || pace_.any(node_, k, wave - k);
    }
    any_ = events_ > 0 || ends_in_put_;
    events_ += ends_in_put_ ? 1 : 0;
  }

  constexpr void open_net() {
    net_ = plan_->lane(LaneKind::net);
    plan_->wait(net_, writer_.event(plan_->caller()));
    for (index_t k = 0; k < rail_.rounds(); ++k) {
      if (pace_.needs_ready(source(k), k)) plan_->signal(net_, rank(source(k)), writer_.ready(plan_->rank()));
    }
  }

  constexpr void take(index_t k, index_t chunk) {
    const index_t from = source(k);
    if (!pace_.any(from, k, chunk)) return;
    plan_->wait(net_, writer_.arrived(rank(from)), pace_.puts(from, k, chunk), pace_.puts(from, k));
    if (pace_.gives_credit(from, k, chunk)) {
      plan_->signal(net_, rank(from), credit(node_), pace_.credits(from, k, chunk), pace_.credits(from, k));
    }
    plan_->signal(net_, plan_->rank(), writer_.event(net_), ++event_, events_);
    arrivals_.push_back({k, chunk, event_});
  }

  constexpr void put(index_t k, index_t chunk) {
    if (!pace_.any(node_, k, chunk)) return;
    const Rank to = rank(target(k));
    index_t i = pace_.puts(node_, k, chunk - 1);
    if (i == 0 && pace_.needs_ready(node_, k)) plan_->wait(net_, writer_.ready(to));
    for (const RailRounds::Put& put : rail_.puts(node_, k, chunk)) {
      if (const index_t come = pace_.needs_credit(node_, k, i); come != RailPace::none) {
        plan_->wait(net_, credit(target(k)), pace_.credits(node_, k, come), pace_.credits(node_, k));
      }
      const auto parameter = first_parameter(put.first, rail_.part_begin(chunk));
      const Space space = put.from_shards ? Space::shards : Space::network_inbox;
      plan_->put(net_, to, {{space, 0, parameter}, put.source}, {{Space::network_inbox, 0, parameter}, put.target},
                 put.bytes, writer_.arrived(plan_->rank()), ++i, pace_.puts(node_, k));
    }
  }

  // The parameter that a byte of a node's packed shards belongs to, or the one before it.
  [[nodiscard]] constexpr std::uint16_t first_parameter(index_t node, index_t byte) const {
    ParameterIndex found{};
    for (const Block& block : blocks_[static_cast<std::size_t>(node)]) {
      if (block.source <= byte) found = block.parameter;
    }
    return static_cast<std::uint16_t>(found.value);
  }

  constexpr void open_push_lanes() {
    const bool others = rail_brings();
    std::vector<Block> own;
    if (owns_) own = writer_.own_blocks();
    if (multicast_) {
      if (writer_.sends()) open(0, own);
    } else {
      if (others) push_.push_back({plan_->lane(LaneKind::push, 0), 0});
      for (index_t k = 1; k < writer_.ranks() && writer_.sends(); ++k) open(k, own);
    }
  }

  // Whether anything comes on the rail.
  [[nodiscard]] constexpr bool rail_brings() const {
    bool any = false;
    for (index_t k = 0; k < rail_.rounds(); ++k) any = any || pace_.puts(source(k), k) > 0;
    return any;
  }

  // A lane that writes to others: to peer k, or to all.
  constexpr void open(index_t k, const std::vector<Block>& own) {
    const LaneIndex lane = plan_->lane(LaneKind::push, k);
    push_.push_back({lane, k});
    if (owns_) plan_->wait(lane, writer_.event(plan_->caller()));
    for (index_t peer = 1; peer < writer_.ranks(); ++peer) {
      if (multicast_ || peer == k) plan_->wait(lane, writer_.ready(writer_.peer(peer)));
    }
    push(push_.back(), writer_.served_from(), own);
  }

  constexpr void push(const PushLane& to, Space source, const std::vector<Block>& blocks) {
    for (const Block& block : blocks) {
      if (multicast_) {
        plan_->multicast(to.lane, source, Space::slot, block);
      } else {
        plan_->copy(to.lane, writer_.peer(to.k), source, Space::slot, block);
      }
    }
  }

  constexpr void spread(const Arrival& arrival) {
    const std::vector<Block> blocks = arrived_blocks(arrival.k, arrival.chunk);
    for (const PushLane& to : push_) {
      plan_->wait(to.lane, writer_.event(net_), arrival.event, events_);
      push(to, Space::network_inbox, blocks);
    }
  }

  // What came of a chunk in a round, from the network inbox to the slot: all its nodes coalesced together, or each by
  // itself where that is less.
  [[nodiscard]] constexpr std::vector<Block> arrived_blocks(index_t k, index_t chunk) const {
    std::vector<Block> all;
    std::vector<Block> by_node;
    const index_t count = std::min(RailRounds::distance(k), rail_.nodes() - RailRounds::distance(k));
    for (index_t j = count - 1; j >= 0; --j) {
      const std::vector<Block> blocks = node_blocks(rail_.wrap(source(k) - j), chunk);
      all.insert(all.end(), blocks.begin(), blocks.end());
      for (const Block& block : coalesce(blocks)) by_node.push_back(block);
    }
    std::sort(all.begin(), all.end(), [](const Block& a, const Block& b) { return a.target < b.target; });
    all = coalesce(all);
    return by_node.size() < all.size() ? by_node : all;
  }

  // A node's part of a chunk: rows, or parts of rows, of its pieces.
  [[nodiscard]] constexpr std::vector<Block> node_blocks(index_t node, index_t chunk) const {
    std::vector<Block> list;
    const index_t begin = rail_.part_begin(chunk);
    const index_t end = begin + rail_.part(node, chunk);
    const index_t shift = rail_.offset(node_, chunk, node) - begin;
    for (const Block& block : blocks_[static_cast<std::size_t>(node)]) {
      const index_t first = std::max(begin, block.source) - block.source;
      const index_t last = std::min(end, block.source + block.source_bytes()) - block.source;
      for (index_t at = first; at < last;) {  // rows touch in packed shards
        const index_t row = at / block.source_width;
        const index_t inside = at % block.source_width;
        const bool whole = inside == 0 && last - at >= block.source_width;
        Block part = block;
        part.rows = whole ? (last - at) / block.source_width : 1;
        part.source_width = part.target_width =
            whole ? block.source_width : std::min(block.source_width - inside, last - at);
        part.source = block.source + at + shift;
        part.target = block.target + row * block.target_pitch + inside;
        list.push_back(part);
        at += part.source_bytes();
      }
    }
    return list;
  }

  constexpr std::vector<LaneIndex> close_push_lanes() {
    std::vector<LaneIndex> lanes;
    for (const PushLane& to : push_) {
      for (index_t peer = 1; peer < writer_.ranks(); ++peer) {
        if (multicast_ || peer == to.k) {
          plan_->signal(to.lane, writer_.peer(peer), writer_.arrived(plan_->rank()));
        }
      }
      plan_->signal(to.lane, plan_->rank(), writer_.event(to.lane));
      lanes.push_back(to.lane);
    }
    return lanes;
  }

  GatherWriter writer_;
  PlanBuilder* plan_;
  index_t local_;
  index_t node_;
  bool multicast_;
  bool owns_;
  RailRounds rail_;
  RailPace pace_;
  std::vector<std::vector<Block>> blocks_;  // of each node of the rail, from packed shards to the slot
  bool any_ = false;                        // whether the net lane has anything to do
  bool ends_in_put_ = false;                // whether its last op is one
  index_t events_ = 0;                      // of the net lane in a run
  index_t event_ = 0;                       // the last that was raised
  LaneIndex net_{};
  std::vector<PushLane> push_;
  std::vector<Arrival> arrivals_;  // of this wave
};

}  // namespace tide::detail
