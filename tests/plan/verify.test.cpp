// SPDX-License-Identifier: Apache-2.0
//
// timeout: 400
//
// What verify says of plans that are right, of plans that order things in roundabout ways, and of rubbish. Broken plans
// and mutations have files of their own.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>
#include <tide/plan/verify.hpp>

#include "support/interpreter.hpp"
#include "support/random_group.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"
#include "support/small_plans.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {

using namespace tide_test;
using tide::Chunks;
using tide::LaneKind;
using tide::Law;
using tide::Op;
using tide::OpKind;
using tide::OwnBlock;
using tide::Plan;
using tide::Space;
using tide::WordKind;

constexpr auto one_parameter = tide::group(tide::param<tide::bf16>("w", {6, 4}));

static_assert(name(Law::partition) == "partition" && name(Law::no_incast) == "no incast");
static_assert(static_cast<int>(Law::no_incast) == tide::law_count);

/// All that a verdict says.
std::string said(const tide::Verdict& verdict) {
  std::string text;
  for (const tide::Violation& violation : verdict.violations) text += describe(violation) + "\n";
  return text;
}
std::string said(const Planned& planned) { return said(tide::verify(planned.collective, planned.plans)); }

TEST_CASE("verify: a violation reads as the number and name of its law, and a sentence") {
  CHECK(describe(tide::Violation{Law::order, "a before b", {}, {}}) == "law 4 (order): a before b");
}

TEST_CASE("verify: plans of random groups hold, and do on every schedule what it promises") {
  for (const std::uint64_t seed : seeds(sized(120, 12))) {
    CAPTURE(seed);
    Random random(seed);
    const index_t ranks = random.one_of<index_t>({1, 2, 3, 4, 5, 8});
    CAPTURE(ranks);
    const tide::DynamicGroup group = random_group(random, ranks);
    const tide::PackingRule packing = random.once_in(2) ? tide::TightPacking::rule : tide::Fsdp2Packing::rule;
    std::vector<Planned> all;
    for (const OwnBlock own : {OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast}) {
      all.push_back(planned_gather<tide::UnicastTransport>(group.view(), ranks, own, packing));
    }
    for (const OwnBlock own : {OwnBlock::multicast, OwnBlock::in_place, OwnBlock::cast}) {
      all.push_back(planned_gather<tide::MulticastTransport>(group.view(), ranks, own, packing));
    }
    all.push_back(planned_reduce<tide::Ring<Chunks<2>, tide::Bytes<16384>>>(group.view(), ranks));
    all.push_back(planned_reduce<tide::Ring<Chunks<3>, tide::Bytes<12288>>>(
        group.view(), ranks, tide::Finish::accumulate, tide::GradientSource::table));
    for (const Planned& planned : all) {
      CAPTURE(name(planned.collective.operation));
      CAPTURE(name(planned.collective.own));
      REQUIRE(said(planned) == "");
      REQUIRE(run_schedules(planned.collective, planned.plans, 7, seed) == "");
    }
  }
}

TEST_CASE("verify: a verdict counts all ops and lists a few violations of each law") {
  Planned planned = planned_gather<tide::UnicastTransport>(odd_group.view(), 5);
  std::size_t ops = 0;
  for (const Plan& plan : planned.plans) ops += plan.ops.size();
  CHECK(tide::verify(planned.collective, planned.plans).ops == static_cast<index_t>(ops));
  for (Plan& plan : planned.plans) {
    for (Op& op : plan.ops) op.width = 0;
  }
  const tide::Verdict verdict = tide::verify(planned.collective, planned.plans);
  CHECK(verdict.violations.size() == static_cast<std::size_t>(tide::most_violations));
  CHECK_FALSE(verdict.holds());
}

TEST_CASE("verify: the same fault in both runs is one violation") {
  Planned planned = planned_gather<tide::UnicastTransport>(one_parameter.view(), 2);
  std::erase_if(planned.plans[0].ops, [](const Op& op) { return op.kind == OpKind::copy && op.peer == 1; });
  CHECK(tide::verify(planned.collective, planned.plans).violations.size() == 1);
}

/// A gather in which each rank's lanes are started by a chain of lanes that do nothing else.
Planned relayed(int links) {
  Planned planned = planned_gather_on<tide::UnicastTransport>(odd_group.view(), {2, 2});
  const tide::SignalWords words = planned.collective.words();
  for (Plan& plan : planned.plans) {
    std::vector<Op> ops;
    index_t last = words.word(WordKind::event, 0);
    for (int link = 0; link < links; ++link) {
      const index_t next = words.word(WordKind::event, 4 + link);
      plan.lanes.push_back({LaneKind::net, 1 + link});
      const auto lane = static_cast<std::uint16_t>(plan.lanes.size() - 1);
      for (const OpKind kind : {OpKind::wait, OpKind::signal}) {
        Op op;
        op.kind = kind;
        op.lane = lane;
        op.peer = plan.rank.value;
        op.target = {Space::signals, 0, 0};
        op.target_offset = 8 * (kind == OpKind::wait ? last : next);
        op.width = 1;
        ops.push_back(op);
      }
      last = next;
    }
    bool relayed = false;
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      Op& op = plan.ops[i];
      if (op.word() != words.word(WordKind::event, 0)) continue;
      if (op.kind == OpKind::wait) op.target_offset = 8 * last;
      if (op.kind != OpKind::signal || relayed) continue;
      relayed = true;
      plan.ops.insert(plan.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, ops.begin(), ops.end());
      i += ops.size();
    }
  }
  return planned;
}

TEST_CASE("verify: order goes by way of any number of lanes") {
  for (const int links : {1, 2, 3, 4}) {
    CAPTURE(links);
    Planned planned = relayed(links);
    CHECK(said(planned) == "");
    CHECK(run_schedules(planned.collective, planned.plans, 12) == "");
    // Without one link of the chain the last lane starts from nothing.
    Plan& plan = planned.plans[1];
    const auto link = std::find_if(plan.ops.begin(), plan.ops.end(), [&](const Op& op) {
      return op.kind == OpKind::wait && plan.lanes[op.lane].kind == LaneKind::net && plan.lanes[op.lane].index > 0;
    });
    plan.ops.erase(link);
    const tide::Verdict verdict = tide::verify(planned.collective, planned.plans);
    REQUIRE_FALSE(verdict.holds());
    CHECK(verdict.violations[0].law == Law::order);
    CHECK(verdict.violations[0].text.find("the caller of rank 1 writes shards bytes") == 0);
  }
}

TEST_CASE("verify: a wait may count back into any earlier run") {
  // Rank 0's slot is written by nobody but rank 0 when rank 1 owns nothing; what it waits for is a matter of order
  // only.
  Planned planned = planned_gather<tide::UnicastTransport>(one_parameter.view(), 2);
  for (const index_t back : {0, -1, -5}) {
    CAPTURE(back);
    Planned later = planned;
    Plan& plan = later.plans[0];
    const auto wait =
        std::find_if(plan.ops.begin(), plan.ops.end(), [](const Op& op) { return op.kind == OpKind::wait; });
    Op more = *wait;
    more.width = back;
    plan.ops.insert(wait, more);
    CHECK(said(later) == "");
    CHECK(run_schedules(later.collective, later.plans, 12) == "");
  }
}

TEST_CASE("verify: whatever ops say, it ends with a verdict") {
  for (const std::uint64_t seed : seeds(sized(10'000, 1'500))) {
    CAPTURE(seed);
    Random random(seed);
    const auto number = [&]() -> std::int64_t {
      switch (random.between(0, 3)) {
        case 0:
          return random.between(-2, 8);
        case 1:
          return random.between(-1024, 1024);
        case 2:
          return random.one_of<std::int64_t>({INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, UINT32_MAX, 1LL << 62});
        default:
          return random.between(INT64_MIN / 4, INT64_MAX / 4);
      }
    };
    Planned planned = random.once_in(2) ? planned_gather<tide::UnicastTransport>(odd_group.view(), 2, OwnBlock::cast)
                                        : planned_reduce(odd_group.view(), 2);
    const auto place = [&] {
      return tide::Place{static_cast<Space>(number()), static_cast<std::uint8_t>(number()),
                         static_cast<std::uint16_t>(number())};
    };
    for (std::int64_t n = random.between(1, 6); n > 0; --n) {
      Plan& plan = planned.plans[random.once_in(2) ? 0 : 1];
      Op& op = plan.ops[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(plan.ops.size()) - 1))];
      switch (random.between(0, 15)) {
        case 0:
          op.kind = static_cast<OpKind>(number());
          break;
        case 1:
          op.kernel = static_cast<std::uint8_t>(number());
          break;
        case 2:
          op.lane = static_cast<std::uint16_t>(number());
          break;
        case 3:
          op.peer = static_cast<std::int32_t>(number());
          break;
        case 4:
          op.source = place();
          break;
        case 5:
          op.target = place();
          break;
        case 6:
          op.extra = place();
          break;
        case 7:
          op.rows = static_cast<std::uint32_t>(number());
          break;
        case 8:
          op.source_offset = number();
          break;
        case 9:
          op.target_offset = number();
          break;
        case 10:
          op.extra_offset = number();
          break;
        case 11:
          op.width = number();
          break;
        case 12:
          op.source_pitch = static_cast<std::uint32_t>(number());
          break;
        case 13:
          op.target_pitch = static_cast<std::uint32_t>(number());
          break;
        case 14:
          plan.exits[0] = {static_cast<tide::ExitKind>(number()), tide::LaneIndex{number()},
                           static_cast<std::int32_t>(number())};
          break;
        default:
          plan.lanes[0] = {static_cast<LaneKind>(number()), static_cast<std::int32_t>(number())};
      }
    }
    tide::Collective& collective = planned.collective;
    switch (random.between(0, 12)) {
      case 0:
        collective.layout.mesh = {number(), number()};
        break;
      case 1:
        collective.layout.packing = {number(), static_cast<tide::PackingRule::Padding>(random.between(0, 1))};
        break;
      case 2:
        collective.layout.storage_alignment = number();
        break;
      case 3:
        collective.operation = static_cast<tide::Operation>(number());
        break;
      case 4:
        collective.own = static_cast<OwnBlock>(number());
        break;
      case 5:
        collective.inbox = {number(), number(), number(), number()};
        break;
      case 6:
        collective.inbox.chunk_elements = number();
        break;
      case 7:
        collective.inbox.element_bytes = number();
        break;
      case 8:
        if (!collective.kernels.empty()) collective.kernels[0].input = static_cast<tide::Element>(number());
        break;
      case 9:
        if (!collective.kernels.empty()) collective.kernels[0].output = static_cast<tide::Element>(number());
        break;
      default:
        break;
    }
    const tide::Verdict verdict = tide::verify(collective, planned.plans);
    for (const tide::Violation& violation : verdict.violations) CHECK(describe(violation).size() > 10);
  }
}

TEST_CASE("verify: a plan of more rows than anybody could follow is refused, not followed") {
  // One byte of every two of a slot of 2^40 bytes.
  constexpr auto vast = tide::group(tide::param<tide::bf16>("w", {index_t{1} << 39}));
  Planned planned = planned_gather<tide::UnicastTransport>(vast.view(), 1);
  Op& op = planned.plans[0].ops[0];
  op.width = 1;
  op.rows = UINT32_MAX;
  op.source_pitch = 1;
  op.target_pitch = 2;
  CHECK(said(planned).find("law 6 (bounds): the plans move more than") == 0);
}

TEST_CASE(
    "verify: rows that lie alike count as one of those that it follows, and it ends where it would follow too many") {
  // 64 rows of 16 bytes, of which each of four ranks has 4: copies, sums and puts of 2,580 rows.
  constexpr auto wide = tide::group(tide::param<tide::bf16>("w", {64, 8}, tide::shard(1)));
  const Planned planned = planned_reduce<tide::Ring<tide::Chunks<1>, tide::Bytes<8192>>>(
      wide.view(), tide::MeshShape{2, 2}, tide::Exchange::doubling);
  CHECK(tide::detail::prove(planned.collective, planned.plans, 1000).empty());
  const std::vector<tide::Violation> all = tide::detail::prove(planned.collective, planned.plans, 900);
  REQUIRE(all.size() == 1);
  CHECK(describe(all[0]) == "law 6 (bounds): the plans move more than 900 rows in a run; verify follows no more");
}

TEST_CASE("verify: no plans at all are no plans for a mesh") {
  Planned planned = planned_gather<tide::UnicastTransport>(odd_group.view(), 2);
  planned.plans.clear();
  CHECK(said(planned) == "law 8 (agreement): there are 0 plans for a mesh of 2 ranks\n");
}

}  // namespace
