// SPDX-License-Identifier: Apache-2.0
//
// Which handshakes the rounds of a rail need, and no more: before the first put of a round its target must be known to
// have begun the run (its inbox is free), and before put i it must be known that put i - limit has come.
//
//   wave w    arrivals: for each round k, wait for chunk w - 1 - k        ready    from a target that says: begun
//             puts:     for each round k, put chunk w - k                 credit   from a target that says: come so far
//
// What comes tells what its sender knew when it sent it. So much is known without being said: of five nodes, the target
// of the last round is one whose block has come in the first; of two, each put tells that the other has taken what was
// put two waves before. This plays the waves of all nodes and keeps, for each node, how far it knows each other to be.

#pragma once

#include <tide/transport/detail/rail_rounds.hpp>  // RailRounds

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tide::detail {

// Something for each node and round.
template <class T>
class OfRounds {
 public:
  constexpr OfRounds(index_t nodes, index_t rounds, const T& value = {})
      : rounds_(rounds), all_(static_cast<std::size_t>(nodes * rounds), value) {}

  [[nodiscard]] constexpr T& operator()(index_t n, index_t k) {
    return all_[static_cast<std::size_t>(n * rounds_ + k)];
  }
  [[nodiscard]] constexpr const T& operator()(index_t n, index_t k) const {
    return all_[static_cast<std::size_t>(n * rounds_ + k)];
  }

 private:
  index_t rounds_;
  std::vector<T> all_;
};

class RailPace {
 public:
  static constexpr index_t none = -1;

  constexpr RailPace(const RailRounds& rail, index_t puts_in_flight)
      : nodes_(rail.nodes()),
        rounds_(rail.rounds()),
        chunks_(rail.chunks()),
        limit_(puts_in_flight),
        puts_(nodes_, rounds_),
        ready_(nodes_, rounds_, 0),
        credits_(nodes_, rounds_) {
    bool bounded = false;
    for (index_t n = 0; n < nodes_; ++n) {
      for (index_t k = 0; k < rounds_; ++k) {
        std::vector<index_t>& ends = puts_(n, k);
        for (index_t c = 0; c < chunks_; ++c) {
          ends.push_back((c > 0 ? ends.back() : 0) + rail.put_count(n, k, c));
        }
        bounded = bounded || (chunks_ > 0 && ends.back() > limit_);
        credits_(n, k).resize(ends.empty() ? 0 : static_cast<std::size_t>(ends.back()), none);
      }
    }
    play(rail, bounded);
  }

  [[nodiscard]] constexpr index_t waves() const noexcept { return chunks_ + rounds_; }

  // How many puts node n makes in a round of the chunks up to `chunk`, it included; of all chunks.
  [[nodiscard]] constexpr index_t puts(index_t n, index_t k, index_t chunk) const {
    return chunk < 0 ? 0 : puts_(n, k)[static_cast<std::size_t>(chunk)];
  }
  [[nodiscard]] constexpr index_t puts(index_t n, index_t k) const { return puts(n, k, chunks_ - 1); }
  [[nodiscard]] constexpr bool any(index_t n, index_t k, index_t chunk) const {
    return chunk >= 0 && chunk < chunks_ && puts(n, k, chunk) > puts(n, k, chunk - 1);
  }

  // Whether node n has to be told by the target of its round k that it has begun.
  [[nodiscard]] constexpr bool needs_ready(index_t n, index_t k) const { return ready_(n, k) != 0; }
  // The chunk that must have come, and which the target has to say, before put i of a round of node n; `none` mostly.
  [[nodiscard]] constexpr index_t needs_credit(index_t n, index_t k, index_t put) const {
    return credits_(n, k)[static_cast<std::size_t>(put)];
  }
  // Whether node n's target of round k has to say that `chunk` has come, and how often it says so of the chunks up to
  // it.
  [[nodiscard]] constexpr bool gives_credit(index_t n, index_t k, index_t chunk) const {
    const std::vector<index_t>& all = credits_(n, k);
    return std::find(all.begin(), all.end(), chunk) != all.end();
  }
  [[nodiscard]] constexpr index_t credits(index_t n, index_t k, index_t chunk) const {
    index_t count = 0;
    for (index_t c = 0; c <= chunk; ++c) count += gives_credit(n, k, c) ? 1 : 0;
    return count;
  }
  [[nodiscard]] constexpr index_t credits(index_t n, index_t k) const { return credits(n, k, chunks_ - 1); }

 private:
  // Of each node, a time that it is known to have reached; -1: none.
  using Clock = std::vector<std::int32_t>;

  // The begin of a run is 0; then the arrivals and the puts of each wave, round by round.
  [[nodiscard]] constexpr std::int32_t time(index_t wave, bool puts, index_t k) const noexcept {
    return static_cast<std::int32_t>(1 + (2 * wave + (puts ? 1 : 0)) * rounds_ + k);
  }

  static constexpr void learn(Clock& clock, const Clock& other) {
    for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  }

  constexpr void play(const RailRounds& rail, bool bounded) {
    std::vector<Clock> clocks(static_cast<std::size_t>(nodes_), Clock(static_cast<std::size_t>(nodes_), -1));
    OfRounds<Clock> sent(nodes_, rounds_);                // what a node knew when it last put in a round
    OfRounds<std::vector<Clock>> taken(nodes_, rounds_);  // what it knew when it had a chunk of a round; if bounded
    for (index_t n = 0; n < nodes_; ++n) {
      clocks[static_cast<std::size_t>(n)][static_cast<std::size_t>(n)] = 0;
      for (index_t k = 0; k < rounds_ && bounded; ++k) taken(n, k).resize(static_cast<std::size_t>(chunks_));
    }
    for (index_t wave = 0; wave < waves(); ++wave) {
      for (index_t n = 0; n < nodes_; ++n) {
        Clock& clock = clocks[static_cast<std::size_t>(n)];
        for (index_t k = 0; k < rounds_; ++k) {
          const index_t chunk = wave - 1 - k;
          if (!any(rail.source(n, k), k, chunk)) continue;
          learn(clock, sent(rail.source(n, k), k));
          clock[static_cast<std::size_t>(n)] = time(wave, false, k);
          if (bounded) taken(n, k)[static_cast<std::size_t>(chunk)] = clock;
        }
      }
      std::vector<Clock> after = clocks;  // puts of this wave are seen in the next
      for (index_t n = 0; n < nodes_; ++n) {
        for (index_t k = 0; k < rounds_; ++k) {
          if (any(n, k, wave - k)) put(rail, n, k, wave - k, after[static_cast<std::size_t>(n)], taken);
          sent(n, k) = after[static_cast<std::size_t>(n)];
        }
      }
      clocks = std::move(after);
    }
  }

  // The puts of a chunk in a round: what they need beside what the clock says.
  constexpr void put(const RailRounds& rail, index_t n, index_t k, index_t chunk, Clock& clock,
                     const OfRounds<std::vector<Clock>>& taken) {
    const index_t target = rail.target(n, k);
    std::int32_t& known = clock[static_cast<std::size_t>(target)];
    if (puts(n, k, chunk - 1) == 0 && known < 0) {
      ready_(n, k) = 1;
      known = 0;
    }
    for (index_t i = std::max(puts(n, k, chunk - 1), limit_); i < puts(n, k, chunk); ++i) {
      index_t come = 0;  // the chunk of put i - limit
      while (puts(n, k, come) <= i - limit_) ++come;
      if (known >= time(come + k + 1, false, k)) continue;
      credits_(n, k)[static_cast<std::size_t>(i)] = come;
      learn(clock, taken(target, k)[static_cast<std::size_t>(come)]);
    }
    clock[static_cast<std::size_t>(n)] = time(chunk + k, true, k);
  }

  index_t nodes_;
  index_t rounds_;
  index_t chunks_;
  index_t limit_;
  OfRounds<std::vector<index_t>> puts_;  // by chunk: puts up to its end
  OfRounds<char> ready_;
  OfRounds<std::vector<index_t>> credits_;  // by put
};

}  // namespace tide::detail
