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
// put two waves before. Where a put may have to wait for another, this plays the waves of all nodes and keeps, for each
// node, how far it knows each other to be; elsewhere it is enough to look who has heard of whom.

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

  // @pre `rail` outlives it
  constexpr RailPace(const RailRounds& rail, index_t puts_in_flight)
      : rail_(&rail),
        nodes_(rail.nodes()),
        rounds_(rail.rounds()),
        chunks_(rail.chunks()),
        limit_(puts_in_flight),
        passed_(nodes_, rounds_, 0) {
    count_passed();
    for (index_t n = 0; n < nodes_ && !bounded_; ++n) {
      for (index_t k = 0; k < rounds_; ++k) bounded_ = bounded_ || puts(n, k) > limit_;
    }
    if (bounded_) play();
  }

  [[nodiscard]] constexpr index_t waves() const noexcept { return chunks_ + rounds_; }

  // How many puts node n makes in a round of the chunks up to `chunk`, it included; of all chunks.
  [[nodiscard]] constexpr index_t puts(index_t n, index_t k, index_t chunk) const {
    return chunk < 0 ? 0 : std::min(chunk + 1, rail_->chunks(n)) + std::min(chunk + 1, passed_(n, k));
  }
  [[nodiscard]] constexpr index_t puts(index_t n, index_t k) const { return puts(n, k, chunks_ - 1); }
  [[nodiscard]] constexpr bool any(index_t n, index_t k, index_t chunk) const {
    return chunk >= 0 && chunk < chunks_with_puts(n, k);
  }

  // Whether node n has to be told by the target of its round k that it has begun.
  [[nodiscard]] constexpr bool needs_ready(index_t n, index_t k) const {
    if (bounded_) return ready_(n, k) != 0;
    return any(n, k, 0) && !hears_of(n, k);
  }
  // The chunk that must have come, and which the target has to say, before put i of a round of node n; `none` mostly.
  [[nodiscard]] constexpr index_t needs_credit(index_t n, index_t k, index_t put) const {
    return bounded_ ? credits_(n, k)[static_cast<std::size_t>(put)] : none;
  }
  // Whether node n's target of round k has to say that `chunk` has come, and how often it says so of the chunks up to
  // it.
  [[nodiscard]] constexpr bool gives_credit(index_t n, index_t k, index_t chunk) const {
    if (!bounded_) return false;
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
  // Chunks of which there are puts in a round: the first ones.
  [[nodiscard]] constexpr index_t chunks_with_puts(index_t n, index_t k) const {
    return std::max(rail_->chunks(n), passed_(n, k));
  }

  // How many chunks each node passes on in each round: those of the longest shard that is in reach. The most of
  // 2^(k+1) - 1 nodes is that of twice 2^k - 1, and the one between.
  constexpr void count_passed() {
    for (index_t k = 0; k + 1 < rounds_; ++k) {
      const index_t far = RailRounds::distance(k);
      for (index_t n = 0; n < nodes_; ++n) {
        const index_t middle = rail_->source(n, k);
        passed_(n, k + 1) = std::max({passed_(n, k), rail_->chunks(middle), passed_(middle, k)});
      }
      if (rail_->reach(k + 1) == 2 * far - 1) continue;
      // Where nodes run out, the last round reaches less far: two ranges that overlap.
      index_t p = k;
      while (RailRounds::distance(p) - 1 > rail_->reach(k + 1)) --p;
      for (index_t n = 0; n < nodes_; ++n) {
        const index_t behind = rail_->wrap(n - rail_->reach(k + 1) + RailRounds::distance(p) - 1);
        passed_(n, k + 1) = std::max(passed_(n, p), passed_(behind, p));
      }
    }
  }

  // Whether node n has heard, before its first put of round k, that the target has begun, where no put ever waits for
  // another. A round's first put is of chunk 0, in wave k.
  //
  // What a node knows behind its put of round k in wave w is that it has begun itself, that the targets of its first
  // puts so far have, and what each node from which something has come knew when it last put that. Looks backwards from
  // n, no node twice with as much; of node s in wave w that is nothing beyond [s - 2^w + 1, s + 2^w].
  [[nodiscard]] constexpr bool hears_of(index_t n, index_t k) const {
    const index_t sought = rail_->target(n, k);
    struct Look {
      index_t node;
      index_t wave;
      index_t round;
    };
    std::vector<Look> looks = {{n, k, k - 1}};
    std::vector<index_t> looked;  // by node: a number that grows with wave and round; empty until something is in reach
    while (!looks.empty()) {
      const Look look = looks.back();
      looks.pop_back();
      const index_t last_target = std::min(look.wave - (look.wave <= look.round ? 0 : 1), rounds_ - 1);
      const index_t ahead = rail_->wrap(sought - look.node);
      const index_t forward = last_target < 0 ? 0 : RailRounds::distance(last_target);
      if (ahead > forward && nodes_ - ahead >= RailRounds::distance(look.wave)) continue;
      if (looked.empty()) looked.resize(static_cast<std::size_t>(nodes_), -1);
      const index_t much = look.wave * (rounds_ + 1) + look.round + 1;
      if (looked[static_cast<std::size_t>(look.node)] >= much) continue;
      looked[static_cast<std::size_t>(look.node)] = much;
      if (ahead == 0) return true;
      for (index_t j = 0; j <= last_target; ++j) {
        if (ahead == RailRounds::distance(j) && any(look.node, j, 0)) return true;
      }
      for (index_t j = 0; j < std::min(look.wave, rounds_); ++j) {
        const index_t from = rail_->source(look.node, j);
        const index_t chunk = std::min(look.wave - 1 - j, chunks_with_puts(from, j) - 1);
        if (chunk >= 0) looks.push_back({from, chunk + j, j});
      }
    }
    return false;
  }

  // Of each node, a time that it is known to have reached; -1: none.
  using Clock = std::vector<std::int32_t>;

  // The begin of a run is 0; then the arrivals and the puts of each wave, round by round.
  [[nodiscard]] constexpr std::int32_t time(index_t wave, bool puts, index_t k) const noexcept {
    return static_cast<std::int32_t>(1 + (2 * wave + (puts ? 1 : 0)) * rounds_ + k);
  }

  static constexpr void learn(Clock& clock, const Clock& other) {
    for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  }

  constexpr void play() {
    ready_ = OfRounds<char>(nodes_, rounds_, 0);
    credits_ = OfRounds<std::vector<index_t>>(nodes_, rounds_);
    for (index_t n = 0; n < nodes_; ++n) {
      for (index_t k = 0; k < rounds_; ++k) credits_(n, k).resize(static_cast<std::size_t>(puts(n, k)), none);
    }
    std::vector<Clock> clocks(static_cast<std::size_t>(nodes_), Clock(static_cast<std::size_t>(nodes_), -1));
    OfRounds<Clock> sent(nodes_, rounds_);                // what a node knew when it last put in a round
    OfRounds<std::vector<Clock>> taken(nodes_, rounds_);  // what it knew when it had a chunk of a round
    for (index_t n = 0; n < nodes_; ++n) {
      clocks[static_cast<std::size_t>(n)][static_cast<std::size_t>(n)] = 0;
      for (index_t k = 0; k < rounds_; ++k) taken(n, k).resize(static_cast<std::size_t>(chunks_));
    }
    for (index_t wave = 0; wave < waves(); ++wave) {
      for (index_t n = 0; n < nodes_; ++n) {
        Clock& clock = clocks[static_cast<std::size_t>(n)];
        for (index_t k = 0; k < rounds_; ++k) {
          const index_t chunk = wave - 1 - k;
          if (!any(rail_->source(n, k), k, chunk)) continue;
          learn(clock, sent(rail_->source(n, k), k));
          clock[static_cast<std::size_t>(n)] = time(wave, false, k);
          taken(n, k)[static_cast<std::size_t>(chunk)] = clock;
        }
      }
      std::vector<Clock> after = clocks;  // puts of this wave are seen in the next
      for (index_t n = 0; n < nodes_; ++n) {
        for (index_t k = 0; k < rounds_; ++k) {
          if (any(n, k, wave - k)) put(n, k, wave - k, after[static_cast<std::size_t>(n)], taken);
          sent(n, k) = after[static_cast<std::size_t>(n)];
        }
      }
      clocks = std::move(after);
    }
  }

  // The puts of a chunk in a round: what they need beside what the clock says.
  constexpr void put(index_t n, index_t k, index_t chunk, Clock& clock, const OfRounds<std::vector<Clock>>& taken) {
    const index_t target = rail_->target(n, k);
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

  const RailRounds* rail_;
  index_t nodes_;
  index_t rounds_;
  index_t chunks_;
  index_t limit_;
  bool bounded_ = false;                          // whether a put has to wait for one before it
  OfRounds<index_t> passed_;                      // how many chunks a node passes on in a round
  OfRounds<char> ready_{0, 0};                    // this and the next only if bounded
  OfRounds<std::vector<index_t>> credits_{0, 0};  // by put
};

}  // namespace tide::detail
