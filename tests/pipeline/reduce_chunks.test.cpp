// SPDX-License-Identifier: Apache-2.0
//
// compile: -O3 -march=native
//
// Chunks: whatever their size and number, with each set of lanes and with delays, the bits are the tree's.

#include <tide/layout/dynamic_layout.hpp>

#include <doctest/doctest.h>

#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/reduce_rank.hpp"

#include <mutex>
#include <set>

using namespace tide_test;

namespace {

tide::DynamicLayout long_layout(index_t ranks, Element element, bool mixed) {
  tide::DynamicGroup group;
  group.add("w", {ranks * 53 + 1, 67}, Element::bf16, element);
  group.add("b", {301}, Element::bf16, mixed ? Element::f32 : element);
  group.add("columns", {5, ranks * 4, 3}, Element::bf16, element, tide::shard(1));
  for (int i = 0; i < 6; ++i) group.add("expert" + std::to_string(i), {ranks * 2, 33}, Element::bf16, element);
  return {group, {1, ranks}};
}

/// Runs a few reduces through a ring and returns the hashes of all outputs.
template <class Ring>
std::set<std::uint64_t> reduce_through(const tide::DynamicLayout& layout, tide::HostOptions options, int steps = 3) {
  const index_t ranks = layout.mesh().ranks();
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(ranks * steps));
  HostRanks{options}.run(ranks, [&](tide::HostFabric& fabric) {
    ReduceRank<HostRanks, tide::DynamicLayout, tide::CopyEngineReducer<>, Ring> reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    for (int step = 0; step < steps; ++step) {
      reduce.step(step % 2 == 0 ? From::storage : From::table, 1, stream);
      stream.synchronize();
      std::uint64_t hash = rank;
      for (const std::byte byte : reduce.checks().last()) {
        hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211U;
      }
      hashes[rank + static_cast<std::size_t>(step * static_cast<int>(ranks))] = hash;
    }
    fabric.close();
    wrong[rank] = reduce.verdict();
  });
  for (index_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[static_cast<std::size_t>(rank)] == "");
  }
  return {hashes.begin(), hashes.end()};
}

template <index_t Count, index_t Budget>
using RingOf = tide::Ring<tide::Chunks<Count>, tide::Bytes<Budget>>;

// Bytes of the smallest ring for three peers of four ranks: one unit of 64 bf16 of each.
constexpr index_t unit = 3 * 64 * 2;

}  // namespace

TEST_CASE("ReduceScatter: a ring of one chunk, of few and of many, of one unit and of all, give the same bits") {
  const tide::DynamicLayout layout = long_layout(4, Element::bf16, false);
  const auto chunks_of = [&](const tide::InboxShape& shape) {
    return tide::ceil_div(layout.view().max_bytes(tide::Buffer::output) / 4, shape.chunk_elements);
  };
  REQUIRE(chunks_of(RingOf<1, unit>::shape(layout.view())) > 60);
  REQUIRE(chunks_of(RingOf<2, 64 << 20>::shape(layout.view())) == 1);
  const std::set<std::uint64_t> whole = reduce_through<RingOf<2, 64 << 20>>(layout, {});
  CHECK(whole.size() == 4);
  CHECK(reduce_through<RingOf<1, unit>>(layout, {}) == whole);
  CHECK(reduce_through<RingOf<2, 2 * unit>>(layout, {}) == whole);
  CHECK(reduce_through<RingOf<4, 4 * unit>>(layout, {}) == whole);
  CHECK(reduce_through<RingOf<7, 30 * unit>>(layout, {}) == whole);
  CHECK(reduce_through<RingOf<1, unit>>(layout, {.lanes = tide::HostLanes::merged}) == whole);
  CHECK(reduce_through<RingOf<4, 4 * unit>>(layout, {.lanes = tide::HostLanes::merged}) == whole);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    CHECK(reduce_through<RingOf<4, 4 * unit>>(layout, {.hook = random_delays(seed, 40)}, 1) == whole);
    CHECK(reduce_through<RingOf<7, 30 * unit>>(layout, {.hook = random_delays(seed, 4)}, 2) == whole);
  }
}

TEST_CASE("ReduceScatter: elements of unlike size go through small chunks") {
  for (const index_t ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    reduce_through<RingOf<2, 8192>>(long_layout(ranks, Element::bf16, true), {});
    reduce_through<RingOf<3, 8192>>(long_layout(ranks, Element::f8_e5m2, true), {});
  }
}

TEST_CASE("ReduceScatter: hundreds of chunks") {
  tide::DynamicGroup group;
  group.add("w", {2 * 20'000}, Element::f32, Element::f32);
  reduce_through<RingOf<2, 2 * 64 * 4>>(tide::DynamicLayout(group, {1, 2}), {});
}

TEST_CASE("ReduceScatter: a hundred runs, one hash for each rank") {
  CHECK(reduce_through<RingOf<4, 4 * unit>>(long_layout(3, Element::bf16, false), {}, 100).size() == 3);
}
