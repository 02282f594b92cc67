// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatters over nodes on host ranks, whichever the reducer.

#pragma once

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>

#include "support/host_ranks.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tide_test {

/// A group whose chunks are many, of uneven, even and empty parameters, with gradients of one element or of several.
inline tide::DynamicGroup node_group(const std::vector<Element>& elements, index_t ranks) {
  tide::DynamicGroup group;
  int number = 0;
  for (const Element element : elements) {
    const std::string name = "p" + std::to_string(number++) + ".";
    group.add(name + "w", {37, 16}, Element::bf16, element);
    group.add(name + "b", {301}, Element::bf16, element);
    group.add(name + "none", {0, 4}, Element::bf16, element);
    group.add(name + "few", {2, 5}, Element::bf16, element);
    group.add(name + "columns", {3, 2 * ranks, 5}, Element::bf16, element, tide::shard(1));
  }
  return group;
}

/// Some reduces, from storage and from a table; says where a byte of an output is wrong.
template <class Reducer, class Inter, class Inbox>
void check_node_reduces(tide::MeshShape mesh, const std::vector<Element>& elements, Values values, int steps,
                        tide::HostOptions options = {}, tide::PackingRule packing = tide::TightPacking::rule) {
  const tide::DynamicLayout layout(node_group(elements, mesh.ranks()), mesh, packing);
  const CollectiveOracle oracle(layout.view(), values);
  std::vector<std::string> wrong(static_cast<std::size_t>(mesh.ranks()));
  HostRanks all{std::move(options), mesh.ranks_per_node};
  check_no_error(errors_of(all, mesh.ranks(), [&](tide::HostFabric& fabric) {
    ReduceRank<HostRanks, tide::DynamicLayout, Reducer, Inbox, Inter> reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream reader = fabric.stream();
    for (int step = 0; step < steps; ++step) {
      const auto seed = static_cast<std::uint64_t>(step);
      // The gradients are written over the moment that they are free.
      reduce.read(reduce.start(step % 2 == 0 ? From::storage : From::table, seed, stream), seed, reader);
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = reduce.verdict();
  }));
  for (const std::string& text : wrong) CHECK(text == "");
}

}  // namespace tide_test
