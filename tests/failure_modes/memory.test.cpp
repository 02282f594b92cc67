// SPDX-License-Identifier: Apache-2.0
//
// One arena for each rank; peak bytes are known before the run and do not grow with steps, nor, beyond a page of words,
// with the number of groups.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>

#include "support/collectives.hpp"

using namespace tide_test;
using tide::DynamicLayout;

namespace {

/// Bytes that a rank's arena has with so many groups of one layout.
index_t arena_bytes(int groups, const DynamicLayout& layout) {
  index_t bytes = 0;
  tide::HostCluster cluster(layout.mesh());
  tide::HostFabric& fabric = cluster.fabric(tide::Rank{0});
  tide::SlotPool<tide::Depth<2>, DynamicLayout> pool(fabric, layout);
  std::vector<tide::AllGather<DynamicLayout, tide::UnicastTransport>> gathers;
  for (int g = 0; g < groups; ++g) gathers.emplace_back(fabric, pool, layout);
  bytes = fabric.reserve(0, 1);
  return bytes;
}

}  // namespace

TEST_CASE("Memory: the arena is two slots, whatever the number of groups; a group adds its words") {
  const DynamicLayout layout(group_of({{1000, 30}}, Element::bf16, Element::bf16), {1, 4});
  const index_t slots = 2 * layout.view().bytes(tide::Buffer::slot);
  const index_t words = tide::SignalWords{4}.bytes();
  for (const int groups : {1, 4, 64}) {
    CAPTURE(groups);
    const index_t bytes = arena_bytes(groups, layout);
    CHECK(bytes >= slots + groups * words);
    CHECK(bytes <= slots + groups * tide::align_up(words, 256));
  }
}

TEST_CASE("Memory: a thousand parameters are offsets in one arena, made and closed many times") {
  const DynamicLayout layout(group_of(std::vector<std::vector<index_t>>(1000, {3}), Element::bf16, Element::bf16),
                             {1, 2});
  for (int cycle = 0; cycle < 5; ++cycle) check_right(gather_on(layout, {}, {Source::shards}));
}

TEST_CASE("Memory: a thousand parameters of unlike size, reduced") {
  std::vector<std::vector<index_t>> shapes;
  for (index_t i = 0; i < 1000; ++i) shapes.push_back({1 + i % 7});
  check_right(reduce_on(DynamicLayout(group_of(shapes, Element::bf16, Element::bf16), {1, 2})));
}
