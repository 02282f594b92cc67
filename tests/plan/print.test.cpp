// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <tide/plan/print.hpp>

#include <algorithm>
#include <sstream>

namespace {

using tide::index_t;
using tide_test::Planned;

std::string printed(const Planned& planned, std::size_t rank) {
  std::ostringstream out;
  tide::print(out, planned.collective, planned.plans[rank]);
  return out.str();
}

// snippet: printed-plan
TEST_CASE("print: a gather reads like this") {
  constexpr auto group = tide::group(tide::param<tide::bf16>("w", {5, 4}), tide::param<tide::bf16>("b", {5}));
  CHECK(printed(tide_test::planned_gather(group.view(), 2), 0) ==
        R"(rank 0 of 1x2: gather of 2 parameters, 12 ops on 2 lanes
  caller
      0  signal     rank 1 ready[0] = 1
      1  signal     event[0] = 1
      2  copy       shards[0 +24] -> rank 0 slot[0]  'w'
      3  copy       shards[32 +6] -> rank 0 slot[256]  'b'
     10  wait       arrived[1] >= 1
     11  wait       event[1] >= 1
         exit       complete
  push 1
      4  wait       event[0] >= 1
      5  wait       ready[1] >= 1
      6  copy       shards[0 +24] -> rank 1 slot[0]  'w'
      7  copy       shards[32 +6] -> rank 1 slot[256]  'b'
      8  signal     rank 1 arrived[0] = 1
      9  signal     event[1] = 1
)");
}
// end: printed-plan

TEST_CASE("print: a sum in the switch names its places, of all ranks of the node") {
  constexpr auto group = tide::group(tide::param<tide::bf16>("w", {6, 4}));
  const std::string one = printed(tide_test::planned_switch_reduce(group.view(), {2, 2}), 1);
  INFO(one);
  CHECK(one.find("network_inbox[256 +32] of all ranks of the node -> output[0]  'w'") != std::string::npos);
  const std::string two = printed(tide_test::planned_switch_reduce(group.view(), {3, 2}), 0);
  INFO(two);
  CHECK(two.find("network_inbox[0 +16] with network_inbox[256] of all ranks of the node -> output[0]  'w'") !=
        std::string::npos);
}

TEST_CASE("print: rows, pitches, instances, inputs and values counted in a run are there where they say something") {
  constexpr auto group =
      tide::group(tide::param<tide::bf16>("w", {2, 4, 100}, {tide::Sharding::Kind::chunked, 1, nullptr, {}}));
  const std::string gather = printed(tide_test::planned_gather(group.view(), 2), 0);
  CHECK(gather.find("shards[0 +400 x 2 pitch 400] -> rank 1 slot[0 pitch 800]  'w'") != std::string::npos);
  const Planned reduce = tide_test::planned_reduce<tide::Ring<tide::Chunks<2>, tide::Bytes<256>>>(group.view(), 2);
  const std::string text = printed(reduce, 1);
  INFO(text);
  CHECK(text.find("inbox#1[") != std::string::npos);
  CHECK(text.find("as input 1 with inbox#0[0] -> output[0 +256]") != std::string::npos);
  CHECK(text.find("credit[0] >= 0 of 7") != std::string::npos);
  CHECK(text.find("arrived[0] >= 7 of 7") != std::string::npos);
  CHECK(text.find("exit       gradients_free") != std::string::npos);
  const std::string cast = printed(tide_test::planned_gather(group.view(), 2, tide::OwnBlock::cast), 0);
  CHECK(cast.find("cast       master[0 +800 x 2 pitch 800] -> slot[0 +400 pitch 800]  'w'") != std::string::npos);
  const std::string multicast = printed(tide_test::planned_gather<tide::MulticastTransport>(group.view(), 2), 0);
  CHECK(multicast.find("-> node slot[0 pitch 800]  'w'") != std::string::npos);
}

TEST_CASE("print: every op of every plan has one line, whatever its fields hold") {
  for (const Planned& planned : {tide_test::planned_reduce(tide_test::mixed_group.view(), 3),
                                 tide_test::planned_gather(tide_test::odd_group.view(), 5)}) {
    const std::string text = printed(planned, 2);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    const tide::Plan& plan = planned.plans[2];
    CHECK(lines == static_cast<std::ptrdiff_t>(1 + plan.lanes.size() + plan.ops.size() + plan.exits.size()));
  }
  Planned broken = tide_test::planned_gather(tide_test::odd_group.view(), 2);
  for (int kind = 0; kind < tide::op_kind_count; ++kind) {
    tide::Op op;
    op.kind = static_cast<tide::OpKind>(kind);
    op.kernel = 200;
    op.source.parameter = 999;
    op.target_offset = index_t{1} << 62;
    op.extra_offset = -8;
    broken.plans[0].ops.push_back(op);
  }
  CHECK(printed(broken, 0).find("word[") != std::string::npos);
}

TEST_CASE("describe: names what an op does in one line") {
  const Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 2);
  CHECK(tide::describe(gather.collective, gather.plans[0].ops[0]) == "signal rank 1 ready[0] = 1");
}

}  // namespace
