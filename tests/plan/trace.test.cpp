// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/small_plans.hpp"

#include <nlohmann/json.hpp>
#include <tide/plan/trace.hpp>

#include <cstdint>
#include <limits>
#include <sstream>
#include <vector>

namespace {

using tide::OpTime;
using tide_test::Planned;

nlohmann::json traced(const Planned& planned, const std::vector<OpTime>& times) {
  std::ostringstream out;
  tide::write_trace(out, planned.collective, planned.plans, times);
  return nlohmann::json::parse(out.str());
}

TEST_CASE("write_trace: a process per rank, a thread per lane, an event per time") {
  const Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 3);
  std::vector<OpTime> times;
  for (const tide::Plan& plan : gather.plans) {
    for (std::size_t seq = 0; seq < plan.ops.size(); ++seq) {
      const double begin = static_cast<double>(seq) + 0.25;
      times.push_back({plan.rank.value, plan.ops[seq].lane, static_cast<std::int32_t>(seq), begin, begin + 0.5});
    }
  }
  const nlohmann::json trace = traced(gather, times);
  std::size_t processes = 0;
  std::size_t threads = 0;
  std::size_t ops = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const auto kind = event.at("ph").get<std::string>();
    if (kind == "M") {
      (event.at("name") == "process_name" ? processes : threads) += 1;
    } else {
      CHECK(kind == "X");
      CHECK(event.at("dur") == 0.5);
      CHECK(event.at("ts").get<double>() == event.at("args").at("seq").get<double>() + 0.25);
      ++ops;
    }
  }
  CHECK(processes == 3);
  CHECK(threads == 9);
  CHECK(ops == times.size());
}

TEST_CASE("write_trace: names come through, control characters as they are printed") {
  constexpr auto group = tide::group(tide::param<tide::bf16>("a\"b\\c\n\x01 é", {4}));
  const Planned gather = tide_test::planned_gather(group.view(), 2);
  const nlohmann::json trace = traced(gather, {{0, 0, 2, 0, 1}});
  CHECK(trace.at("traceEvents").back().at("name").get<std::string>() ==
        "copy shards[0 +4] -> rank 0 slot[0]  'a\"b\\c\\x0a\\x01 é'");
}

TEST_CASE("write_trace: a trace without times is one, and odd times are numbers") {
  const Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 2);
  CHECK(traced(gather, {}).at("traceEvents").size() == 2 + 4);
  const double infinity = std::numeric_limits<double>::infinity();
  const nlohmann::json trace = traced(gather, {{0, 0, 0, -1.0625, 2e12}, {0, 0, 1, infinity, infinity - infinity}});
  const nlohmann::json& events = trace.at("traceEvents");
  CHECK(events[events.size() - 2].at("ts").get<double>() == doctest::Approx(-1.063));
  CHECK(events.back().at("ts") == 0);
}

TEST_CASE("write_trace: a time that names no op is refused") {
  const Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 2);
  const auto refused = [&](OpTime time) {
    CHECK_THROWS_WITH_AS(traced(gather, {time}), doctest::Contains("tide::write_trace: every time must name an op"),
                         tide::Error);
  };
  refused({2, 0, 0, 0, 1});
  refused({-1, 0, 0, 0, 1});
  refused({0, 0, -1, 0, 1});
  refused({0, 0, 1000, 0, 1});
}

TEST_CASE("write_trace: a time on another lane than its op's is refused") {
  const Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 2);
  const std::int32_t lane = gather.plans[1].ops[0].lane;
  CHECK_NOTHROW(traced(gather, {{1, lane, 0, 0, 1}}));
  for (const std::int32_t other : {lane + 1, -1, 1000, lane + 65536}) {
    CHECK_THROWS_WITH_AS(traced(gather, {{1, other, 0, 0, 1}}), doctest::Contains("op of the plans, and its lane"),
                         tide::Error);
  }
}

TEST_CASE("write_trace: what is refused has written nothing") {
  const Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 2);
  const std::vector<OpTime> times = {{0, gather.plans[0].ops[0].lane, 0, 0, 1}, {0, 0, 1000, 0, 1}};
  std::ostringstream out;
  CHECK_THROWS_AS(tide::write_trace(out, gather.collective, gather.plans, times), tide::Error);
  CHECK(out.str() == "");
}

TEST_CASE("write_trace: plans may be some, in any order, but not two of one rank, or of a rank that there is not") {
  Planned gather = tide_test::planned_gather(tide_test::odd_group.view(), 3);
  gather.plans = {gather.plans[2], gather.plans[1]};
  const nlohmann::json trace = traced(gather, {{1, gather.plans[1].ops[0].lane, 0, 0, 1}});
  CHECK(trace.at("traceEvents").back().at("pid") == 1);
  for (const tide::index_t rank : {1, 3, -1}) {
    gather.plans[0].rank = tide::Rank{rank};
    CHECK_THROWS_WITH_AS(traced(gather, {}), doctest::Contains("plans must be of different ranks of the collective"),
                         tide::Error);
  }
}

}  // namespace
