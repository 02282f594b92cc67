// SPDX-License-Identifier: Apache-2.0
//
// The rounds in which the packed shards of one rail (the ranks of one local number, one on each node) reach all its
// nodes, and where they wait in the network inboxes.
//
//   round k: node n sends to n + 2^k the blocks of n and of the 2^k - 1 nodes before it, less where nodes run out
//
//   5 nodes    round 0 to n + 1    round 1 to n + 2    round 2 to n + 4
//   node 3 has         3                 2 3               0 1 2 3 4  <- after the last: its own, and 4 that came
//
//   network inbox of node n    | chunk 0: n+1  n+2 .. n-1 | chunk 1: n+1  n+2 .. n-1 | ...      (nodes in a circle)
//
// A chunk is `chunk_bytes` of each shard. What a round sends of a chunk is one stretch of the inbox, and the own part.
// Padding behind the last element that a rank owns stays at home: a rail whose ranks own nothing is silent.

#pragma once

#include <tide/core/math.hpp>           // ceil_div, align_up
#include <tide/layout/layout_view.hpp>  // LayoutView

#include <algorithm>
#include <vector>

namespace tide::detail {

// Parts of shards start at multiples of this in a network inbox; so do chunks in shards.
inline constexpr index_t rail_alignment = 16;

class RailRounds {
 public:
  constexpr RailRounds(const LayoutView& layout, index_t local, index_t chunk_bytes)
      : chunk_bytes_(align_up(chunk_bytes, rail_alignment)) {
    for (index_t n = 0; n < layout.mesh.nodes; ++n) {
      bytes_.push_back(worth_sending(layout, layout.mesh.rank(n, local)));
      if (n == 0 || bytes_.back() != alike_.back().bytes) alike_.push_back({n, bytes_.back()});
      alike_.back().end = n + 1;
    }
  }

  [[nodiscard]] constexpr index_t nodes() const noexcept { return static_cast<index_t>(bytes_.size()); }
  [[nodiscard]] constexpr index_t rounds() const noexcept {
    index_t k = 0;
    while (distance(k) < nodes()) ++k;
    return k;
  }
  [[nodiscard]] constexpr index_t chunks() const {
    return ceil_div(*std::max_element(bytes_.begin(), bytes_.end()), chunk_bytes_);
  }
  [[nodiscard]] static constexpr index_t distance(index_t k) noexcept { return index_t{1} << k; }
  // To whom a node sends in a round, and from whom it gets.
  [[nodiscard]] constexpr index_t target(index_t n, index_t k) const noexcept { return wrap(n + distance(k)); }
  [[nodiscard]] constexpr index_t source(index_t n, index_t k) const noexcept { return wrap(n - distance(k)); }

  // Bytes of a node's shard that a chunk sends.
  [[nodiscard]] constexpr index_t part(index_t n, index_t chunk) const noexcept {
    return std::clamp<index_t>(bytes(n) - chunk * chunk_bytes_, 0, chunk_bytes_);
  }
  // Where they begin in the shard.
  [[nodiscard]] constexpr index_t part_begin(index_t chunk) const noexcept { return chunk * chunk_bytes_; }

  // Where the part of node `of` begins in the network inbox of node n.
  [[nodiscard]] constexpr index_t offset(index_t n, index_t chunk, index_t of) const noexcept {
    const index_t before = rooms(0, nodes(), 0, chunk) - room(bytes(n), 0, chunk);  // of the chunks before
    if (n < of) return before + rooms(n + 1, of, chunk, chunk + 1);
    return before + rooms(n + 1, nodes(), chunk, chunk + 1) + rooms(0, of, chunk, chunk + 1);
  }
  // Bytes of the network inbox of node n.
  [[nodiscard]] constexpr index_t inbox_bytes(index_t n) const noexcept {
    const index_t all = chunks();
    return rooms(0, nodes(), 0, all) - room(bytes(n), 0, all);
  }

  // A put of a chunk in a round.
  struct Put {
    index_t first = 0;  // the nodes that it brings blocks of
    index_t last = 0;   // included; behind the first in the circle
    bool from_shards = false;
    index_t source = 0;  // in the own shards, or the own network inbox
    index_t target = 0;  // in the network inbox of the target
    index_t bytes = 0;
  };
  // What node n puts in a round of a chunk: what came before, then its own; nothing where there are no bytes.
  [[nodiscard]] constexpr std::vector<Put> puts(index_t n, index_t k, index_t chunk) const {
    std::vector<Put> list;
    list.reserve(2);
    const index_t to = target(n, k);
    if (const Nodes sent = passes_on(n, k, chunk); sent.any()) {
      const index_t from = offset(n, chunk, sent.first);
      const index_t bytes = offset(n, chunk, sent.last) + part(sent.last, chunk) - from;
      list.push_back({sent.first, sent.last, false, from, offset(to, chunk, sent.first), bytes});
    }
    if (part(n, chunk) > 0) list.push_back({n, n, true, part_begin(chunk), offset(to, chunk, n), part(n, chunk)});
    return list;
  }
  // How many chunks a node's shard has: the first ones.
  [[nodiscard]] constexpr index_t chunks(index_t n) const noexcept { return ceil_div(bytes(n), chunk_bytes_); }
  // How many nodes before n there are whose parts it may pass on in a round.
  [[nodiscard]] constexpr index_t reach(index_t k) const noexcept {
    return std::min(distance(k), nodes() - distance(k)) - 1;
  }

  [[nodiscard]] constexpr index_t wrap(index_t n) const noexcept { return (n + nodes()) % nodes(); }

 private:
  // Nodes in the circle, the last included.
  struct Nodes {
    index_t first = -1;
    index_t last = -1;

    [[nodiscard]] constexpr bool any() const noexcept { return first >= 0; }
  };

  // The first and the last of the nodes before n whose parts n passes on in a round.
  [[nodiscard]] constexpr Nodes passes_on(index_t n, index_t k, index_t chunk) const noexcept {
    Nodes sent;
    for (index_t j = reach(k); j > 0; --j) {
      const index_t m = wrap(n - j);
      if (part(m, chunk) == 0) continue;
      sent = {sent.any() ? sent.first : m, m};
    }
    return sent;
  }

  [[nodiscard]] constexpr index_t bytes(index_t n) const noexcept { return bytes_[static_cast<std::size_t>(n)]; }
  // Bytes of a rank's packed shards up to its last element.
  [[nodiscard]] static constexpr index_t worth_sending(const LayoutView& layout, Rank rank) {
    index_t end = 0;
    layout.for_each_piece(rank, [&](const Piece& piece) {
      if (piece.elements() > 0) end = piece.offset(Buffer::shards) + piece.bytes(Buffer::shards);
    });
    return end;
  }
  // The room that chunks [first, last) of a shard take in an inbox.
  [[nodiscard]] constexpr index_t room(index_t bytes, index_t first, index_t last) const noexcept {
    const index_t all = align_up(bytes, rail_alignment);
    return std::min(all, last * chunk_bytes_) - std::min(all, first * chunk_bytes_);
  }
  // Those of nodes [begin, end) together.
  [[nodiscard]] constexpr index_t rooms(index_t begin, index_t end, index_t first, index_t last) const noexcept {
    index_t sum = 0;
    index_t from = 0;
    for (const Alike& alike : alike_) {
      const index_t count = std::min(end, alike.end) - std::max(begin, from);
      if (count > 0) sum += count * room(alike.bytes, first, last);
      from = alike.end;
    }
    return sum;
  }

  // Neighbours whose shards have as many bytes, up to node `end`: a few of each parameter, however many nodes there
  // are.
  struct Alike {
    index_t end;
    index_t bytes;
  };

  index_t chunk_bytes_;
  std::vector<index_t> bytes_;  // of each node's shards, without the padding behind them
  std::vector<Alike> alike_;
};

// Bytes of the largest network inbox that a gather needs, whatever its chunks.
[[nodiscard]] constexpr index_t gather_network_bytes(const LayoutView& layout) {
  index_t largest = 0;
  for (index_t local = 0; layout.mesh.nodes > 1 && local < layout.mesh.ranks_per_node; ++local) {
    const RailRounds rail(layout, local, rail_alignment);
    for (index_t n = 0; n < layout.mesh.nodes; ++n) largest = std::max(largest, rail.inbox_bytes(n));
  }
  return largest;
}

}  // namespace tide::detail
