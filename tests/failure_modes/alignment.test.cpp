// SPDX-License-Identifier: Apache-2.0
//
// No access is wider than what base, offset and length prove on that rank, and none leaves the planned range.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>

#include "support/collectives.hpp"

using namespace tide_test;
using tide::DynamicLayout;

TEST_CASE("Alignment: 8k + 1 elements a rank, from memory 0 to 14 bytes off, are gathered; odd addresses are refused") {
  for (index_t ranks = 2; ranks <= 8; ++ranks) {
    const DynamicLayout layout(group_of({{ranks * 17 - 1}, {517, 3}}, Element::bf16, Element::bf16), {1, ranks});
    for (std::size_t shift = 0; shift < 16; shift += 2) {
      CAPTURE(ranks);
      CAPTURE(shift);
      // Masters are f32: their memory may be off by multiples of four.
      const bool masters = shift % 4 == 0;
      check_right(gather_on(
          layout, {}, masters ? std::vector{Source::shards, Source::masters} : std::vector{Source::shards}, shift));
    }
    for (std::size_t shift = 1; shift < 16; shift += 2) {
      const CollectiveOracle oracle(layout.view());
      const auto texts = errors_of(HostRanks{}, ranks, [&](tide::HostFabric& fabric) {
        tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
        GatherRank<HostRanks, DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout, oracle, {}, shift);
        fabric.init();
        tide::HostStream stream = fabric.stream();
        static_cast<void>(gather.start(pool, Source::shards, 1, stream));
      });
      check_same_error(texts, {"tide::ShardsView: shards must be aligned to their elements; parameter 'p0'"});
    }
  }
}

TEST_CASE("Alignment: 1 to 70 elements in blocks of exactly their size: no tail is dropped, no byte outside is read") {
  for (index_t elements = 1; elements <= 70; elements += elements < 20 ? 1 : 7) {
    CAPTURE(elements);
    for (const index_t ranks : {1, 3}) {
      for (const Element element : {Element::bf16, Element::f8_e4m3, Element::f32}) {
        const DynamicLayout layout(group_of({{elements}}, element, element), {1, ranks});
        check_right(gather_on(layout));
        check_right(reduce_on(layout));
      }
    }
  }
}

TEST_CASE("Alignment: packing that aligns nothing, elements of unlike size: byte-wise sources work at any offset") {
  tide::DynamicGroup group;
  group.add("a", {7}, Element::f8_e4m3, Element::f8_e5m2);
  group.add("b", {5}, Element::f32, Element::f32);
  group.add("c", {3}, Element::f8_e5m2, Element::f8_e4m3);
  group.add("d", {9}, Element::f64, Element::f64);
  group.add("e", {11, 3}, Element::bf16, Element::bf16);
  for (index_t ranks = 1; ranks <= 5; ++ranks) {
    CAPTURE(ranks);
    const DynamicLayout layout(group, {1, ranks}, tide::Fsdp2Packing::rule);
    check_right(gather_on(layout));
    check_right(reduce_on(layout));
  }
}
