// SPDX-License-Identifier: Apache-2.0
//
// The rounds of a rail and their handshakes, beside sums and a play of who has heard of whom that a child can read.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/detail/rail_pace.hpp>

#include <random>
#include <set>
#include <vector>

namespace rail_pace_test {

using tide::index_t;
using tide::detail::RailPace;
using tide::detail::RailRounds;

// One rank a node; a row is 8 bytes.
tide::DynamicLayout with_rows(const std::vector<index_t>& rows) {
  index_t all = 0;
  for (const index_t count : rows) all += count;
  tide::DynamicGroup group;
  group.add("w", {all, 2}, tide::Element::f32, tide::Element::f32, {}, rows);
  return {group, tide::MeshShape{static_cast<index_t>(rows.size()), 1}};
}

// Ready signals, by node and round: the puts of all waves one after the other, where none waits for another.
std::vector<std::vector<bool>> readies_by_play(const RailRounds& rail) {
  const auto nodes = static_cast<std::size_t>(rail.nodes());
  const auto rounds = static_cast<std::size_t>(rail.rounds());
  const auto at = [](index_t i) { return static_cast<std::size_t>(i); };
  std::vector<std::vector<bool>> readies(nodes, std::vector<bool>(rounds));
  std::vector<std::vector<bool>> has_put(nodes, std::vector<bool>(rounds));
  std::vector<std::set<index_t>> knows(nodes);
  std::vector<std::vector<std::set<index_t>>> sent(nodes, std::vector<std::set<index_t>>(rounds));
  for (index_t n = 0; n < rail.nodes(); ++n) knows[at(n)] = {n};
  const auto puts = [&](index_t n, index_t k, index_t chunk) {
    return chunk >= 0 && chunk < rail.chunks() && !rail.puts(n, k, chunk).empty();
  };
  for (index_t wave = 0; wave < rail.chunks() + rail.rounds(); ++wave) {
    for (index_t n = 0; n < rail.nodes(); ++n) {
      for (index_t k = 0; k < rail.rounds(); ++k) {
        const index_t from = rail.source(n, k);
        if (puts(from, k, wave - 1 - k))
          knows[at(n)].insert(sent[at(from)][at(k)].begin(), sent[at(from)][at(k)].end());
      }
    }
    for (index_t n = 0; n < rail.nodes(); ++n) {
      for (index_t k = 0; k < rail.rounds(); ++k) {
        if (puts(n, k, wave - k) && !has_put[at(n)][at(k)]) {
          has_put[at(n)][at(k)] = true;
          readies[at(n)][at(k)] = knows[at(n)].insert(rail.target(n, k)).second;
        }
        sent[at(n)][at(k)] = knows[at(n)];
      }
    }
  }
  return readies;
}

void check(const std::vector<index_t>& rows, index_t chunk_bytes) {
  const tide::DynamicLayout layout = with_rows(rows);
  const RailRounds rail(layout.view(), 0, chunk_bytes);
  const auto room = [&](index_t m, index_t chunk) {
    const index_t begin = chunk * chunk_bytes;
    const index_t padded = tide::align_up(8 * rows[static_cast<std::size_t>(m)], tide::detail::rail_alignment);
    return std::min(std::max<index_t>(padded - begin, 0), chunk_bytes);
  };
  for (index_t n = 0; n < rail.nodes(); ++n) {  // chunk by chunk, in a circle
    index_t at = 0;
    for (index_t chunk = 0; chunk < rail.chunks(); ++chunk) {
      for (index_t m = rail.wrap(n + 1); m != n; m = rail.wrap(m + 1)) {
        CHECK(rail.offset(n, chunk, m) == at);
        at += room(m, chunk);
      }
    }
    CHECK(rail.inbox_bytes(n) == at);
  }
  const RailPace pace(rail, 1'000'000);
  const auto readies = readies_by_play(rail);
  for (index_t n = 0; n < rail.nodes(); ++n) {
    for (index_t k = 0; k < rail.rounds(); ++k) {
      CAPTURE(n);
      CAPTURE(k);
      index_t puts = 0;
      for (index_t chunk = 0; chunk < rail.chunks(); ++chunk) {
        const auto more = static_cast<index_t>(rail.puts(n, k, chunk).size());
        puts += more;
        CHECK(pace.puts(n, k, chunk) == puts);
        CHECK(pace.any(n, k, chunk) == (more > 0));
        CHECK_FALSE(pace.gives_credit(n, k, chunk));
      }
      CHECK(pace.needs_ready(n, k) == readies[static_cast<std::size_t>(n)][static_cast<std::size_t>(k)]);
    }
  }
}

TEST_CASE("RailRounds and RailPace: offsets, puts and ready signals are those of a play by hand") {
  for (std::size_t nodes = 2; nodes <= 20; ++nodes) {
    CAPTURE(nodes);
    check(std::vector<index_t>(nodes, 5), 16);
    check(std::vector<index_t>(nodes, 4), 1 << 20);
  }
  std::mt19937 random(5);
  for (int seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::vector<index_t> rows(2 + random() % 17);
    for (index_t& count : rows) count = random() % 2 == 0 ? 0 : static_cast<index_t>(random() % 9);
    rows[random() % rows.size()] = 1 + static_cast<index_t>(random() % 9);
    check(rows, seed % 3 == 0 ? 1 << 20 : 16);
  }
}

}  // namespace rail_pace_test
