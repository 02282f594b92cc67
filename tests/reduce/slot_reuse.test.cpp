// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/models/llama3_1.hpp>
#include <tide/models/wan2_2.hpp>
#include <tide/plan/verify.hpp>
#include <tide/reduce/slot_reuse.hpp>

#include "conformance/inbox.hpp"
#include "support/interpreter.hpp"
#include "support/raised.hpp"

#include <string>

namespace slot_reuse_test {

using namespace tide;
using tide_test::Planned;

constexpr LayoutView on(const GroupView& group, index_t ranks) { return {group, {1, ranks}, TightPacking::rule}; }

constexpr auto even = group(param<bf16>("w", {64, 48}), param<bf16>("b", {64}));
constexpr auto wide = group(param<bf16>("w", {64, 48}), param<bf16, float>("b", {64}));

// The pieces of even shards fit the slot of the gather, in as many chunks as there may be.
constexpr bool fits(const LayoutView& layout) { return slot_bytes_with_reuse(layout) == layout.bytes(Buffer::slot); }
static_assert(fits(on(even.view(), 2)) && fits(on(even.view(), 4)) && fits(on(even.view(), 8)));
static_assert(SlotReuse::shape(on(even.view(), 4)).chunks == SlotReuse::least_chunks);
static_assert(fits_slot(even.view()) && !fits_slot(wide.view()));
static_assert(slot_bytes_with_reuse(on(wide.view(), 4)) == on(wide.view(), 4).bytes(Buffer::slot));

// One row on eight ranks: seven pieces of it have to wait on one rank.
constexpr LayoutView row = on(tide_test::single_row.view(), 8);
static_assert(slot_bytes_with_reuse(row) == 768 && row.bytes(Buffer::slot) == 256 && 7 * 40 * 2 <= 768);

static_assert(!reuses_slots<Ring<Chunks<4>, Bytes<4096>>> && reuses_slots<SlotReuse>);
static_assert(slots_needed<SlotReuse>(1) == 3 && slots_needed<Ring<Chunks<4>, Bytes<4096>>>(1) == 2);

TEST_CASE("SlotReuse: keeps the laws of an inbox") {
  tide_test::check_inbox<SlotReuse>([](const LayoutView& layout) { return slot_bytes_with_reuse(layout); });
}

TEST_CASE("SlotReuse: the blocks of large models need no larger slots") {
  for (const index_t ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    CHECK(fits(on(models::llama3_1_70b::block.view(), ranks)));
    CHECK(fits(on(models::wan2_2_t2v_a14b::block.view(), ranks)));
  }
}

TEST_CASE("SlotReuse: over nodes of eight ranks, gradients and sums of large models fit the slots, too") {
  for (const index_t nodes : {2, 4, 8}) {
    CAPTURE(nodes);
    CHECK(fits({models::llama3_1_70b::block.view(), {nodes, 8}, TightPacking::rule}));
    CHECK(fits({models::wan2_2_t2v_a14b::block.view(), {nodes, 8}, TightPacking::rule}));
    for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
      const ReduceMemory memory =
          SlotReuse::memory({models::llama3_1_70b::block.view(), {nodes, 8}, TightPacking::rule}, exchange);
      CHECK(memory.network.bytes() <= 64 << 20);
    }
  }
}

// A pool does not know by which exchange, in which wire and within which budget its slots will be reduced from.
template <class Box>
void check_fits(const LayoutView& layout) {
  for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
    for (const Element wire : {Element::f32, Element::bf16}) {
      CHECK(Box::memory(layout, exchange, wire).inbox.bytes() <= slot_bytes_with_reuse(layout));
    }
  }
}

TEST_CASE("SlotReuse: a slot of a pool has room for any exchange, wire and budget") {
  for (const GroupView& group : {models::llama3_1_8b::block.view(), tide_test::odd_group.view(), even.view()}) {
    for (const MeshShape mesh : {MeshShape{8, 1}, {2, 2}, {3, 1}, {3, 2}, {5, 1}, {5, 3}, {2, 8}, {64, 1}, {64, 8}}) {
      CAPTURE(mesh.nodes);
      CAPTURE(mesh.ranks_per_node);
      const LayoutView layout{group, mesh, TightPacking::rule};
      check_fits<SlotReuse>(layout);
      check_fits<SlotReuseWithin<Bytes<1>, Chunks<1>>>(layout);
      check_fits<SlotReuseWithin<Bytes<(16 << 20)>>>(layout);
      check_fits<SlotReuseWithin<Bytes<(256 << 20)>, Chunks<255>>>(layout);
    }
  }
}

TEST_CASE("SlotReuse: a gradient that is wider than its parameter is refused with both elements") {
  CHECK(tide_test::text_of([] { static_cast<void>(SlotReuse::shape(on(wide.view(), 2))); }) ==
        "tide::SlotReuse: no gradient element may be wider than its gathered one; use Ring. 'b' has f32 gradients of "
        "bf16 parameters.");
}

TEST_CASE("SlotReuse: plans hold, and give the oracle's bytes while the slot is overwritten between runs") {
  for (const GroupView& group : {tide_test::odd_group.view(), tide_test::narrow_group.view(), even.view()}) {
    for (const index_t ranks : {1, 2, 3, 5}) {
      CAPTURE(ranks);
      for (const GradientSource source : {GradientSource::storage, GradientSource::table}) {
        const Planned planned = tide_test::planned_reduce<SlotReuse>(group, ranks, Finish::accumulate, source);
        CHECK(tide_test::first_violation(planned) == "");
        CHECK(tide_test::run_schedules(planned.collective, planned.plans, 8) == "");
      }
    }
  }
}

TEST_CASE("SlotReuse: nobody gives a credit, and nobody waits for one") {
  const Planned planned = tide_test::planned_reduce<SlotReuse>(even.view(), 4);
  for (const Plan& plan : planned.plans) {
    for (const Op& op : plan.ops) {
      if (op.kind != OpKind::signal && op.kind != OpKind::wait) continue;
      CHECK(planned.collective.words().kind(op.word()) != WordKind::credit);
    }
  }
}

}  // namespace slot_reuse_test
