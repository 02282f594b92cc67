// SPDX-License-Identifier: Apache-2.0
//
// compile: -O3 -march=native
//
// The second build is the one in which a compiler could fuse a multiplication and an addition.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>

#include "support/host_ranks.hpp"
#include "support/random_group.hpp"
#include "support/reduce_rank.hpp"

using namespace tide_test;

namespace {

/// Gradients of every element, of one size or mixed.
tide::DynamicGroup group_of(const std::vector<Element>& elements, index_t ranks) {
  tide::DynamicGroup group;
  int number = 0;
  for (const Element element : elements) {
    const std::string name = "p" + std::to_string(number++) + ".";
    group.add(name + "w", {37, 6}, Element::bf16, element);
    group.add(name + "b", {13}, Element::bf16, element);
    group.add(name + "few", {2, 5}, Element::bf16, element);
    group.add(name + "empty", {0, 4}, Element::bf16, element);
    group.add(name + "columns", {3, 2 * ranks, 5}, Element::bf16, element, tide::shard(1));
    group.add(name + "ruled", {9, 11}, Element::bf16, element, tide::shard_by<LastTakesRest>());
  }
  return group;
}

using Small = tide::Ring<tide::Chunks<3>, tide::Bytes<(1 << 15)>>;

/// Reduces from storage and from a table, and compares with the tree.
template <class Epilogue>
void reduce_each_way(const tide::DynamicLayout& layout, tide::HostOptions options = {}) {
  const index_t ranks = layout.mesh().ranks();
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  HostRanks{options}.run(ranks, [&](tide::HostFabric& fabric) {
    ReduceRank<HostRanks, tide::DynamicLayout, tide::CopyEngineReducer<tide::Burst, Epilogue>, Small> reduce(
        fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    std::uint64_t seed = 1;
    for (const From from : {From::storage, From::table, From::table, From::storage, From::storage}) {
      reduce.step(from, seed++, stream);
    }
    reduce.scale(0.1F);
    reduce.step(From::storage, seed, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = reduce.verdict();
  });
  for (index_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[static_cast<std::size_t>(rank)] == "");
  }
}

const std::vector<std::vector<Element>> element_sets = {{Element::bf16},
                                                        {Element::f16},
                                                        {Element::f32},
                                                        {Element::f64},
                                                        {Element::f8_e4m3},
                                                        {Element::f8_e5m2},
                                                        {Element::bf16, Element::f32, Element::f8_e4m3, Element::f64}};

}  // namespace

TEST_CASE("ReduceScatter: the data of these tests tells the tree from other orders of adding") {
  for (const index_t ranks : {3, 4, 5, 8}) {
    CAPTURE(ranks);
    const tide::DynamicLayout layout(group_of({Element::bf16}, ranks), {1, ranks});
    const CollectiveOracle oracle(layout.view());
    CHECK(oracle.order_sensitive(1) * 20 > oracle.elements());
  }
}

TEST_CASE("ReduceScatter: shards are the scaled sum along the tree, from storage and from a table") {
  for (const index_t ranks : {1, 2, 3, 4, 5, 8}) {
    for (const std::vector<Element>& elements : element_sets) {
      CAPTURE(ranks);
      CAPTURE(tide::name(elements.front()));
      reduce_each_way<tide::Store>(tide::DynamicLayout(group_of(elements, ranks), {1, ranks}));
    }
  }
}

TEST_CASE("ReduceScatter: Accumulate adds the scaled sum, rounded, to what is there") {
  for (const index_t ranks : {1, 2, 3, 5, 8}) {
    for (const tide::PackingRule packing : {tide::TightPacking::rule, tide::Fsdp2Packing::rule}) {
      CAPTURE(ranks);
      reduce_each_way<tide::Accumulate>(tide::DynamicLayout(group_of({Element::bf16}, ranks), {1, ranks}, packing));
    }
  }
  reduce_each_way<tide::Accumulate>(tide::DynamicLayout(group_of(element_sets.back(), 3), {1, 3}));
}

TEST_CASE("ReduceScatter: lanes merged into one thread give the same bits") {
  for (const index_t ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    const tide::DynamicLayout layout(group_of({Element::bf16}, ranks), {1, ranks});
    reduce_each_way<tide::Store>(layout, {.lanes = tide::HostLanes::merged});
  }
}
