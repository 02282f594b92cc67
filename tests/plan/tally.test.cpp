// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <tide/plan/tally.hpp>

#include <array>

namespace {

using tide::Buffer;
using tide::index_t;
using tide::OwnBlock;
using tide::Rank;
using tide_test::Planned;

// What a rank owns, without padding: bytes of a buffer, and elements.
constexpr index_t owned_bytes(const tide::LayoutView& layout, Rank rank, Buffer buffer) {
  index_t sum = 0;
  layout.for_each_piece(rank, [&](const tide::Piece& piece) { sum += piece.bytes(buffer); });
  return sum;
}

constexpr index_t all_bytes(const tide::LayoutView& layout, Buffer buffer) {
  index_t sum = 0;
  for (index_t r = 0; r < layout.mesh.ranks(); ++r) sum += owned_bytes(layout, Rank{r}, buffer);
  return sum;
}

// snippet: bytes-written
// Bytes that the plan of a rank writes, on all ranks: W ranks on one node, S gathered bytes owned, G of all gradients'
// bytes.
constexpr index_t unicast_gather_bytes(const tide::LayoutView& layout, Rank rank, OwnBlock own) {
  const index_t W = layout.mesh.ranks();
  const index_t S = owned_bytes(layout, rank, Buffer::shards);
  return own == OwnBlock::in_place ? (W - 1) * S : W * S;
}

constexpr index_t multicast_gather_bytes(const tide::LayoutView& layout, Rank rank, OwnBlock own) {
  const index_t W = layout.mesh.ranks();
  const index_t S = owned_bytes(layout, rank, Buffer::shards);
  const index_t apart = own == OwnBlock::copy || own == OwnBlock::cast ? S : 0;  // the own block, before it is sent
  return (W > 1 ? W * S : 0) + (W == 1 && own == OwnBlock::multicast ? S : apart);
}

constexpr index_t reduce_bytes(const tide::LayoutView& layout, Rank rank) {
  const index_t pushed = all_bytes(layout, Buffer::gradients) - owned_bytes(layout, rank, Buffer::gradients);
  return pushed + owned_bytes(layout, rank, Buffer::output);
}
// end: bytes-written

constexpr std::array worlds = {1, 2, 3, 4, 5, 8};
constexpr std::array groups = {tide_test::odd_group.view(), tide_test::mixed_group.view()};

template <class Transport, class Formula>
void check_gathers(const std::vector<OwnBlock>& owns, Formula formula) {
  for (const tide::GroupView& group : groups) {
    for (const index_t ranks : worlds) {
      for (const OwnBlock own : owns) {
        const Planned gather = tide_test::planned_gather<Transport>(group, ranks, own);
        for (const tide::Plan& plan : gather.plans) {
          CAPTURE(ranks);
          CAPTURE(tide::name(own));
          CAPTURE(plan.rank.value);
          CHECK(tide::tally(gather.collective, plan).bytes_written ==
                formula(gather.collective.layout, plan.rank, own));
        }
      }
    }
  }
}

TEST_CASE("tally: a gather by unicast writes each owned byte once per rank, own block in place: once per peer") {
  check_gathers<tide::UnicastTransport>({OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast}, unicast_gather_bytes);
}

TEST_CASE(
    "tally: a gather by multicast writes each owned byte once per rank, and once more if it is copied or cast first") {
  check_gathers<tide::MulticastTransport>({OwnBlock::multicast, OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast},
                                          multicast_gather_bytes);
}

TEST_CASE("tally: a multicast reads each owned byte once, unicast once per target") {
  const Planned multicast = tide_test::planned_gather<tide::MulticastTransport>(tide_test::odd_group.view(), 4);
  const Planned unicast = tide_test::planned_gather<tide::UnicastTransport>(tide_test::odd_group.view(), 4);
  const index_t owned = owned_bytes(unicast.collective.layout, Rank{1}, Buffer::shards);
  CHECK(tide::tally(multicast.collective, multicast.plans[1]).bytes_read == owned);
  CHECK(tide::tally(unicast.collective, unicast.plans[1]).bytes_read == 4 * owned);
}

TEST_CASE("tally: a reduce writes each gradient byte that another rank sums once, and its own sums in f32") {
  for (const tide::GroupView& group : groups) {
    for (const index_t ranks : worlds) {
      const Planned reduce = tide_test::planned_reduce<tide::Ring<tide::Chunks<3>, tide::Bytes<8192>>>(group, ranks);
      for (const tide::Plan& plan : reduce.plans) {
        CAPTURE(ranks);
        CAPTURE(plan.rank.value);
        CHECK(tide::tally(reduce.collective, plan).bytes_written == reduce_bytes(reduce.collective.layout, plan.rank));
      }
    }
  }
}

TEST_CASE("tally: sums read all inputs, and the output if it is added to") {
  for (const tide::Finish finish : {tide::Finish::store, tide::Finish::accumulate}) {
    const Planned reduce = tide_test::planned_reduce(tide_test::odd_group.view(), 4, finish);
    const tide::LayoutView& layout = reduce.collective.layout;
    const index_t own = owned_bytes(layout, Rank{1}, Buffer::gradients);
    const index_t pushed = all_bytes(layout, Buffer::gradients) - own;
    const index_t added_to = finish == tide::Finish::accumulate ? owned_bytes(layout, Rank{1}, Buffer::output) : 0;
    CHECK(tide::tally(reduce.collective, reduce.plans[1]).bytes_read == pushed + 4 * own + added_to);
  }
}

// ---- driver calls
// ----------------------------------------------------------------------------------------------------

constexpr tide::Block flat(index_t kind = 0) {
  return {tide::ParameterIndex{0}, 0, 0, 64, 64, 1, 0, 0, static_cast<std::uint8_t>(kind)};
}

// A collective over 4 ranks with kernels for two casts and one sum.
constexpr tide::Collective with_kernels() {
  tide::Collective collective;
  collective.layout.mesh = {1, 4};
  collective.kernels = {{tide::Kernel::Kind::cast, tide::Element::f32, tide::Element::bf16},
                        {tide::Kernel::Kind::cast, tide::Element::f32, tide::Element::f16},
                        {tide::Kernel::Kind::sum, tide::Element::bf16, tide::Element::f32, tide::Finish::store, 4}};
  return collective;
}

template <class Write>
constexpr tide::Tally tally_of(Write write) {
  const tide::Collective collective = with_kernels();
  tide::PlanBuilder builder(collective, tide::Rank{0});
  write(builder, collective.words());
  return tide::tally(collective, std::move(builder).finish());
}

constexpr tide::LaneIndex caller = tide::PlanBuilder::caller();

static_assert(tally_of([](tide::PlanBuilder& plan, tide::SignalWords words) {
                for (index_t p = 1; p < 4; ++p) plan.wait(caller, words.word(tide::WordKind::arrived, p));
              }) == tide::Tally{.waits = 3, .driver_calls = 1});
static_assert(tally_of([](tide::PlanBuilder& plan, tide::SignalWords words) {
                for (index_t l = 1; l < 4; ++l) plan.wait(caller, words.word(tide::WordKind::event, l));
              }) == tide::Tally{.waits = 3, .driver_calls = 3});
static_assert(tally_of([](tide::PlanBuilder& plan, tide::SignalWords words) {
                plan.wait(caller, words.word(tide::WordKind::arrived, 1));
                plan.wait(caller, words.word(tide::WordKind::event, 1));
                plan.wait(caller, words.word(tide::WordKind::arrived, 2));
              }) == tide::Tally{.waits = 3, .driver_calls = 3});
static_assert(tally_of([](tide::PlanBuilder& plan, tide::SignalWords words) {
                const tide::LaneIndex push = plan.lane(tide::LaneKind::push, 1);
                plan.wait(caller, words.word(tide::WordKind::arrived, 1));
                plan.wait(push, words.word(tide::WordKind::ready, 1));  // another lane's op does not part a batch
                plan.wait(caller, words.word(tide::WordKind::arrived, 2));
              }) == tide::Tally{.waits = 3, .driver_calls = 2});
static_assert(tally_of([](tide::PlanBuilder& plan, tide::SignalWords words) {
                plan.signal(caller, tide::Rank{1}, words.word(tide::WordKind::arrived, 0));
                plan.signal(caller, tide::Rank{0}, words.word(tide::WordKind::event, 0));
                plan.exit(tide::ExitKind::complete, caller);
              }) == tide::Tally{.signals = 2, .driver_calls = 3});
static_assert(tally_of([](tide::PlanBuilder& plan, tide::SignalWords) {
                plan.cast(caller, flat(0));
                plan.cast(caller, flat(0));
                plan.cast(caller, flat(1));
                plan.reduce(caller, 0, flat(2), 0, 0);
                plan.reduce(caller, 0, flat(2), 0, 64);
              }) == tide::Tally{.bytes_read = 3 * 64 + 2 * 4 * 64,
                                .bytes_written = 3 * 32 + 2 * 128,
                                .casts = 3,
                                .reduces = 2,
                                .launches = 3,
                                .driver_calls = 3});
static_assert(tally_of([](tide::PlanBuilder& plan, tide::SignalWords) {
                plan.copy(caller, tide::Rank{1}, tide::Space::shards, tide::Space::slot, flat());
                plan.copy(caller, tide::Rank{1}, tide::Space::shards, tide::Space::slot, flat());
                plan.multicast(caller, tide::Space::shards, tide::Space::slot, flat());
              }) == tide::Tally{.copies = 3, .bytes_read = 192, .bytes_written = 384, .driver_calls = 3});

TEST_CASE("tally: driver calls of a gather are its ops, waits for peers' words batched, and its exit") {
  const Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 2);
  const tide::Tally cost = tide::tally(gather.collective, gather.plans[0]);
  // ready, start | copies of the own block | arrived | done of push 1 | exit   and on push 1: start | ready | copies |
  // arrived | done
  CHECK(cost.driver_calls == 2 + cost.copies / 2 + 1 + 1 + 1 + 1 + 1 + cost.copies / 2 + 1 + 1);
  CHECK(tide::driver_calls(gather.collective, gather.plans) >= cost.driver_calls);
}

TEST_CASE("tally: the driver calls of a set of plans are those of the rank that makes the most") {
  Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 3);
  const index_t most = tide::driver_calls(gather.collective, gather.plans);
  const index_t first = tide::tally(gather.collective, gather.plans[0]).driver_calls;
  CHECK(most >= first);
  for (int i = 0; i < 100; ++i) gather.plans[0].exits.push_back({});
  CHECK(tide::driver_calls(gather.collective, gather.plans) == first + 100);
}

TEST_CASE("tally: the cost of a set of plans is the sum of their costs") {
  const Planned reduce = tide_test::planned_reduce(tide_test::mixed_group.view(), 3);
  tide::Tally sum;
  for (const tide::Plan& plan : reduce.plans) sum += tide::tally(reduce.collective, plan);
  CHECK(tide::tally(reduce.collective, reduce.plans) == sum);
  CHECK(sum.signals > 0);
  CHECK(sum.waits > 0);
  CHECK(sum.launches <= sum.reduces);
}

}  // namespace
