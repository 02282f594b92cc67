// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/ragged_shard.hpp>
#include <tide/plan/verify.hpp>

#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "../../examples/support/plan_json.hpp"
#include "support/raised.hpp"
#include "support/seeds.hpp"
#include "support/small_plans.hpp"

namespace {

using nlohmann::json;
using tide::OwnBlock;
using tide_example::PlanFile;
using tide_example::PlanReader;
using tide_test::Planned;
using tide_test::text_of;

std::string written(const Planned& planned) {
  const PlanFile file{"model", "group", {}, planned.collective, planned.plans, {}};
  std::ostringstream out;
  tide_example::write_plan(out, file, tide_example::object({}), tide_example::object({}));
  return out.str();
}

json document(const Planned& planned) { return json::parse(written(planned)); }

Planned small_gather() { return tide_test::planned_gather(tide_test::odd_group.view(), 3); }
Planned small_reduce() {
  return tide_test::planned_reduce<tide::Ring<tide::Chunks<2>, tide::Bytes<768>>>(tide_test::odd_group.view(), 3);
}

// The ops of a lane.
json& ops(json& plan, std::size_t rank, std::size_t lane) { return plan["ranks"][rank]["lanes"][lane]["ops"]; }

TEST_CASE("plan file: what was written is read, with all that it is judged by") {
  constexpr auto ragged = tide::group(tide::param<tide::bf16>("w", {6, 2}, tide::ragged<3, 0, 3>()),
                                      tide::param<float>("v", {4, 3}, tide::shard(1)), tide::alias("head", "w"));
  std::vector<Planned> all = {
      tide_test::planned_gather(ragged.view(), 3),
      small_gather(),
      small_reduce(),
      tide_test::planned_gather(tide_test::odd_group.view(), 3, OwnBlock::in_place, tide::Fsdp2Packing::rule),
      tide_test::planned_gather_on(tide_test::odd_group.view(), {3, 2}, OwnBlock::cast),
      tide_test::planned_reduce(tide_test::odd_group.view(), {3, 2}, tide::Exchange::doubling),
      tide_test::planned_reduce(tide_test::mixed_group.view(), {2, 1}, tide::Exchange::direct),
      tide_test::planned_switch_reduce(tide_test::odd_group.view(), {3, 2}),
      tide_test::planned_reduce<tide::SlotReuse>(tide_test::odd_group.view(), 3),
      tide_test::planned_reduce(tide_test::odd_group.view(), {3, 2}, tide::Exchange::direct, tide::Finish::store,
                                tide::GradientSource::table, tide::Element::bf16)};
  for (const tide::Exchange exchange : {tide::Exchange::doubling, tide::Exchange::direct}) {
    all.push_back(tide_test::planned_reduce<tide::SlotReuseWithin<tide::Bytes<1600>, tide::Chunks<1>>>(
        tide_test::narrow_group.view(), {3, 2}, exchange));
    REQUIRE(all.back().collective.inbox.slot_bytes > 0);
  }
  for (const tide::index_t ranks : {1, 2, 4}) {
    all.push_back(tide_test::planned_gather(tide_test::mixed_group.view(), ranks, OwnBlock::cast));
    all.push_back(tide_test::planned_gather<tide::MulticastTransport>(tide_test::mixed_group.view(), ranks));
    all.push_back(tide_test::planned_reduce(tide_test::mixed_group.view(), ranks, tide::Finish::accumulate));
  }
  for (const Planned& planned : all) {
    const PlanFile read = PlanReader::read(document(planned));
    CHECK(read.plans == planned.plans);
    const tide::Collective& collective = read.collective;
    CHECK(collective.operation == planned.collective.operation);
    CHECK(collective.own == planned.collective.own);
    CHECK(collective.finish == planned.collective.finish);
    CHECK(collective.gradients == planned.collective.gradients);
    CHECK(collective.inbox == planned.collective.inbox);
    CHECK(collective.network == planned.collective.network);
    CHECK(collective.kernels == planned.collective.kernels);
    CHECK(collective.layout.packing == planned.collective.layout.packing);
    CHECK(collective.layout.mesh == planned.collective.layout.mesh);
    CHECK(collective.layout.storage_alignment == planned.collective.layout.storage_alignment);
    CHECK(tide::verify(collective, read.plans).holds());
    // Written again, it is the same text.
    PlanFile again = read;
    again.model = "model";
    std::ostringstream out;
    tide_example::write_plan(out, again, tide_example::object({}), tide_example::object({}));
    CHECK(out.str() == written(planned));
  }
}

TEST_CASE("plan file: the order of ops is that of their numbers, wherever they stand, and numbers may be missing") {
  json plan = document(small_reduce());
  const PlanFile before = PlanReader::read(plan);
  for (json& rank : plan["ranks"]) {
    for (json& lane : rank["lanes"]) {
      std::reverse(lane["ops"].begin(), lane["ops"].end());
      for (json& op : lane["ops"]) op["seq"] = 10 * op["seq"].get<int>();
    }
    for (json& exit : rank["exits"]) exit["after"] = 10 * exit["after"].get<int>() + 5;
    std::reverse(rank["lanes"].begin() + 1, rank["lanes"].end());
  }
  std::reverse(plan["ranks"].begin(), plan["ranks"].end());
  const PlanFile after = PlanReader::read(plan);
  CHECK(tide::verify(after.collective, after.plans).holds());
  REQUIRE(after.plans.size() == before.plans.size());
  for (std::size_t r = 0; r < after.plans.size(); ++r) {
    REQUIRE(after.plans[r].ops.size() == before.plans[r].ops.size());
    CHECK(after.seqs[r].back() == 10 * before.seqs[r].back());
    for (std::size_t i = 0; i < after.plans[r].ops.size(); ++i) {
      tide::Op op = after.plans[r].ops[i];
      CHECK(after.plans[r].lanes[op.lane] == before.plans[r].lanes[before.plans[r].ops[i].lane]);
      op.lane = before.plans[r].ops[i].lane;
      CHECK(op == before.plans[r].ops[i]);
    }
  }
}

TEST_CASE("plan file: with any one op removed it is readable, and refused by a law") {
  for (const Planned& planned : {small_gather(), small_reduce()}) {
    const json plan = document(planned);
    for (std::size_t r = 0; r < plan["ranks"].size(); ++r) {
      for (std::size_t l = 0; l < plan["ranks"][r]["lanes"].size(); ++l) {
        for (std::size_t i = 0; i < plan["ranks"][r]["lanes"][l]["ops"].size(); ++i) {
          json fewer = plan;
          ops(fewer, r, l).erase(i);
          const PlanFile read = PlanReader::read(fewer);
          CHECK_FALSE(tide::verify(read.collective, read.plans).holds());
        }
      }
    }
  }
}

TEST_CASE("plan file: whole lanes, or all ops of a rank, may be missing too") {
  json plan = document(small_gather());
  plan["ranks"][1]["lanes"] = json::array();
  const PlanFile read = PlanReader::read(plan);
  CHECK(read.plans[1].ops.empty());
  CHECK(read.plans[1].lanes[0] == tide::Lane{tide::LaneKind::caller, 0});
  CHECK_FALSE(tide::verify(read.collective, read.plans).holds());
}

// What reading says of a plan that `alter` has changed.
std::string said(const std::function<void(json&)>& alter, const Planned& planned = small_gather()) {
  json plan = document(planned);
  alter(plan);
  return text_of([&] { (void)PlanReader::read(plan); });
}

TEST_CASE("plan file: what cannot be read is named, with rank, lane and op") {
  CHECK(said([](json&) {}).empty());
  CHECK(said([](json& p) { ops(p, 1, 1)[2].erase("width"); }) ==
        "rank 1, lane 'push 1', op 2 of it: the key 'width' is missing");
  CHECK(said([](json& p) { ops(p, 1, 1)[2]["width"] = "wide"; }) ==
        "rank 1, lane 'push 1', op 2 of it: 'width' must be a whole number from -1152921504606846976 to "
        "1152921504606846976");
  CHECK(said([](json& p) { ops(p, 0, 0)[0]["op"] = "send"; }) ==
        "rank 0, lane 'caller', op 0 of it: 'op' must be one of copy, multicast, put, signal, wait, reduce, cast, not "
        "'send'");
  CHECK(said([](json& p) { ops(p, 0, 0)[0]["wrod"] = 1; }) == "rank 0, lane 'caller', op 0 of it: unknown key 'wrod'");
  CHECK(said([](json& p) { ops(p, 0, 0)[0]["word"] = "raedy[0]"; }) ==
        "rank 0, lane 'caller', op 0 of it: 'word' must be ready[N], arrived[N], credit[N], event[N] or landed[N] with "
        "N up to 6, "
        "not 'raedy[0]'");
  CHECK(said([](json& p) { ops(p, 0, 0)[0]["word"] = "ready[7]"; }).find("not 'ready[7]'") != std::string::npos);
  CHECK(said([](json& p) { ops(p, 2, 0)[1]["seq"] = 0; }) == "rank 2: two ops have \"seq\": 0");
  CHECK(said([](json& p) { ops(p, 2, 0)[1] = 5; }) ==
        "rank 2, lane 'caller', op 1 of it: an object with the key 'op' is needed");
  CHECK(said([](json& p) { p["ranks"][2]["lanes"][1]["name"] = "push 2"; }) == "rank 2: lane 'push 2' is there twice");
  CHECK(said([](json& p) { p["ranks"][2]["lanes"][1]["name"] = "pull 2"; }) ==
        "rank 2: a lane is called caller, push N, sum, sum N, net or net N, not 'pull 2'");
  CHECK(said([](json& p) { p["ranks"][2]["exits"][0]["lane"] = "pull"; }).find("rank 2: a lane is called") == 0);
  CHECK(said([](json& p) { p["ranks"][2]["rank"] = 1; }) == "ranks, entry 2: rank 1 is there twice");
  CHECK(said([](json& p) { p["ranks"].erase(2); }) == "'ranks' must hold the 3 ranks of the mesh, not 2");
  CHECK(said([](json& p) { p["mesh"] = "3"; }) == "'mesh' must be NODESxRANKS, as in \"1x8\", not '3'");
  CHECK(said([](json& p) { p.erase("layout"); }) == "the key 'layout' is missing");
  CHECK(said([](json& p) { p["layout"]["params"][1].erase("shape"); }) ==
        "layout, parameter 1: the key 'shape' is missing");
  CHECK(said([](json& p) { p["layout"]["params"][1]["gathered"] = "bf17"; }).find("layout, parameter 1: 'gathered'") ==
        0);
  CHECK(said([](json& p) { p["kernels"] = json::array(); }, small_reduce()).find("kernels: they must be") == 0);
  CHECK(said([](json& p) { p["inbox"]["pieces"] = 5; }, small_reduce()) == "inbox: 'pieces' must be one per peer");
  CHECK(said([](json& p) { p = 3; }) == "an object is needed");
}

TEST_CASE("plan file: a layout that breaks a rule is refused in the rule's words") {
  CHECK(said([](json& p) {
          p["layout"]["params"][0]["shape"] = json::array();
        }).find("tide::ShardLayout: a parameter needs") != std::string::npos);
  CHECK(said([](json& p) {
          p["layout"]["params"][1]["name"] = "w";
        }).find("tide::ShardLayout: names in a group must differ") != std::string::npos);
}

TEST_CASE("plan file: absurd sizes are refused before anything is made of them") {
  const auto big = std::numeric_limits<std::int64_t>::max();
  CHECK_FALSE(said([&](json& p) { p["layout"]["params"][0]["shape"] = {big, big}; }).empty());
  CHECK_FALSE(said([&](json& p) { p["layout"]["params"][0]["shape"] = {1 << 30, 1 << 29}; }).empty());
  CHECK_FALSE(said([&](json& p) { ops(p, 0, 0)[0]["seq"] = std::numeric_limits<std::uint64_t>::max(); }).empty());
  CHECK_FALSE(said([&](json& p) { ops(p, 0, 0)[0]["seq"] = 1e3; }).empty());
  CHECK_FALSE(said([&](json& p) { p["layout"]["storage_alignment"] = big; }).empty());
  CHECK_FALSE(said([&](json& p) { p["inbox"]["chunk_elements"] = big; }, small_reduce()).empty());
  CHECK(said([](json& p) { p["mesh"] = "1x65535"; }) == "'mesh' has more than 4096 ranks");
  CHECK(said([](json& p) { p["mesh"] = "1x99999999999"; }).find("'mesh' must be NODESxRANKS") == 0);
}

// ---- files that nobody wrote on purpose
// ------------------------------------------------------------------------------

// A value somewhere inside a document.
json& any_value(json& value, tide_test::Random& random) {
  if (!value.is_structured() || value.empty() || random.once_in(6)) return value;
  auto it = value.begin();
  std::advance(it, random.between(0, static_cast<std::int64_t>(value.size()) - 1));
  return any_value(*it, random);
}

json any_replacement(tide_test::Random& random) {
  const std::vector<json> values = {nullptr,
                                    true,
                                    0,
                                    1,
                                    2,
                                    -1,
                                    255,
                                    65536,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min(),
                                    std::numeric_limits<std::uint64_t>::max(),
                                    1e300,
                                    "",
                                    "slot",
                                    "inbox",
                                    "wait",
                                    "cast",
                                    "event[0]",
                                    "push 1",
                                    "1x2",
                                    json::array(),
                                    json::object()};
  return values[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(values.size()) - 1))];
}

// Reads and judges; how either ends does not matter, that it ends does.
void read_and_judge(const json& plan) {
  try {
    const PlanFile read = PlanReader::read(plan);
    (void)tide::verify(read.collective, read.plans);
  } catch (const tide::Error&) {
  }
}

TEST_CASE("plan file: whatever is changed in it, reading ends with a plan that can be judged or with an error") {
  const json plans[] = {document(small_gather()), document(small_reduce()),
                        document(tide_test::planned_gather(tide_test::mixed_group.view(), 2, OwnBlock::cast))};
  for (const std::uint64_t seed : tide_test::seeds(3000)) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    json plan = plans[seed % 3];
    for (auto changes = random.between(1, 3); changes > 0; --changes) {
      json& value = any_value(plan, random);
      if (value.is_object() && !value.empty() && random.once_in(2)) {
        value.erase(value.begin());
      } else if (value.is_number_integer() && random.once_in(2)) {
        value = value.get<std::int64_t>() ^ (std::int64_t{1} << random.between(0, 40));
      } else {
        value = any_replacement(random);
      }
    }
    read_and_judge(plan);
  }
}

TEST_CASE("plan file: text with bytes changed is refused or read") {
  const std::string text = written(small_gather());
  for (const std::uint64_t seed : tide_test::seeds(1000)) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    std::string changed =
        text.substr(0, random.once_in(4) ? static_cast<std::size_t>(random.between(0, 5000)) : text.size());
    for (auto changes = random.between(1, 4); changes > 0 && !changed.empty(); --changes) {
      changed[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(changed.size()) - 1))] =
          static_cast<char>(random.between(0, 255));
    }
    const json plan = json::parse(changed, nullptr, false);
    if (!plan.is_discarded()) read_and_judge(plan);
  }
}

}  // namespace
