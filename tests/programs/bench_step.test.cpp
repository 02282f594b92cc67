// SPDX-License-Identifier: Apache-2.0
//
// The parts of bench_step that need no GPU: its command line, which targets hold of some samples, and FSDP2's rows.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../../benchmarks/support/step_options.hpp"

namespace bench_step_test {

using tide_benchmark::median;
using tide_benchmark::memory_words;
using tide_benchmark::paired_ratio;
using tide_benchmark::parse_step;
using tide_benchmark::pytorch_rows;
using tide_benchmark::Row;
using tide_benchmark::step_targets;
using tide_benchmark::StepOptions;
using tide_benchmark::StepTarget;

StepOptions parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "bench_step");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_step(static_cast<int>(argv.size()), argv.data());
}

std::string refused(const std::vector<std::string>& words) {
  try {
    static_cast<void>(parsed(words));
  } catch (const tide_example::UsageError& error) {
    return error.what();
  }
  return "nothing";
}

TEST_CASE("bench_step: without flags it measures what the targets speak of") {
  const StepOptions options = parsed({});
  CHECK(options.layers == 4);
  CHECK(options.tokens == 8192);
  CHECK(options.hidden == 8192);
  CHECK(options.prefetch == 1);
  CHECK_FALSE(options.ring);
  CHECK_FALSE(options.halves);
  CHECK_FALSE(options.one_gpu);
  for (const std::string_view path : tide_benchmark::sharded_paths) CHECK(options.has(path));
}

TEST_CASE("bench_step: flags say what they say") {
  const StepOptions options =
      parsed({"--layers", "2",         "--tokens=128",    "--hidden",  "1024",       "--samples", "1",
              "--warmup", "0",         "--inbox",         "ring",      "--prefetch", "2",         "--groups",
              "halves",   "--without", "stock,symmetric", "--one-gpu", "--json",     "x.json"});
  CHECK(options.layers == 2);
  CHECK(options.tokens == 128);
  CHECK(options.hidden == 1024);
  CHECK(options.samples == 1);
  CHECK(options.warmup == 0);
  CHECK(options.ring);
  CHECK(options.halves);
  CHECK(options.prefetch == 2);
  CHECK(options.has("tide"));
  CHECK_FALSE(options.has("stock"));
  CHECK_FALSE(options.has("symmetric"));
  CHECK(options.one_gpu);
  CHECK(options.json == "x.json");
}

TEST_CASE("bench_step: what it cannot measure is refused by name") {
  CHECK(refused({"--layers", "3"}) == "--layers takes one of 4, 2, not '3'");
  CHECK(refused({"--tokens", "100"}) == "--tokens takes a multiple of 64, not 100");
  CHECK(refused({"--tokens", "0"}) == "--tokens takes a whole number from 64 to 65536, not '0'");
  CHECK(refused({"--hidden", "1536"}) == "--hidden takes a multiple of 1024, not 1536");
  CHECK(refused({"--samples", "0"}) == "--samples takes a whole number from 1 to 1000, not '0'");
  CHECK(refused({"--inbox", "none"}) == "--inbox takes one of slots, ring, not 'none'");
  CHECK(refused({"--prefetch", "3"}) == "--prefetch takes one of 1, 2, not '3'");
  CHECK(refused({"--without", "tide,compute"}) == "--without takes some of tide,stock,symmetric, not 'compute'");
  CHECK(refused({"--without", "tide,,stock"}) == "--without takes some of tide,stock,symmetric, not ''");
  CHECK(refused({"--one-gpu", "--pytorch", "torchrun"}) == "--pytorch needs two GPUs, --one-gpu has one");
  CHECK(refused({"tide"}) == "unexpected 'tide'");
  CHECK(refused({"--layer", "2"}) == "unknown flag '--layer'");
}

TEST_CASE("bench_step: samples are compared turn by turn, so that a drift of clocks cancels") {
  // Every turn is half as long again as the one before, and tide 3 % longer than compute in each.
  const std::vector<double> compute{100, 150, 225};
  const std::vector<double> tide{103, 154.5, 231.75};
  CHECK(paired_ratio(tide, compute) == doctest::Approx(1.03));
  CHECK(paired_ratio({103, 154.5, 900}, compute) == doctest::Approx(1.03));  // one turn that was disturbed
}

TEST_CASE("bench_step: a target holds or does not, and is not mentioned where a path was left out") {
  const auto holds = [](double tide, double stock, double symmetric) {
    std::vector<bool> list;
    for (const StepTarget& target :
         step_targets({{"compute", {100}}, {"tide", {tide}}, {"stock", {stock}}, {"symmetric", {symmetric}}})) {
      list.push_back(target.holds);
    }
    return list;
  };
  CHECK(holds(102, 115, 110) == std::vector<bool>{true, true, true, true});
  CHECK(holds(103, 115, 110) == std::vector<bool>{true, false, true, true});
  CHECK(holds(105, 115, 110) == std::vector<bool>{false, false, true, true});
  CHECK(holds(102, 110, 110) == std::vector<bool>{true, true, false, true});
  CHECK(holds(102, 115, 102) == std::vector<bool>{true, true, true, false});
  CHECK(step_targets({{"compute", {100}}, {"stock", {110}}}).empty());
  CHECK(step_targets({{"tide", {100}}, {"stock", {110}}}).size() == 1);
}

TEST_CASE("bench_step: memory agrees where both measures are within two in a hundred of the terms") {
  const auto agrees = [](std::int64_t reserved, std::int64_t taken) {
    return memory_words(10'000, reserved, taken).ends_with("within 2 %: holds");
  };
  CHECK(agrees(10'000, 10'200));
  CHECK(agrees(9'800, 10'000));
  CHECK_FALSE(agrees(10'201, 10'000));
  CHECK_FALSE(agrees(10'000, 10'201));
  CHECK_FALSE(agrees(10'000, 9'799));
}

TEST_CASE("bench_step: FSDP2's rows become rows of the report, and anything else is an error") {
  Row like;
  like.operation = "step";
  like.model = "llama3.1-70b";
  const auto rows = pytorch_rows(
      nlohmann::json::parse(
          R"({"rows": [{"path": "pytorch_fsdp2", "policy": "SGD", "samples_ms": [3, 1, 2], "peak_bytes": 7},
                       {"path": "pytorch_compute", "policy": "none", "samples_ms": [1]}]})"),
      like);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].path == "pytorch_fsdp2");
  CHECK(rows[0].model == "llama3.1-70b");
  CHECK(rows[0].median_ms() == 2);
  CHECK(rows[0].peak_bytes == 7);
  CHECK(rows[1].policy == "none");
  CHECK_FALSE(rows[1].peak_bytes.has_value());
  CHECK_THROWS_AS(static_cast<void>(pytorch_rows(nlohmann::json::parse(R"({"kernels": []})"), like)),
                  nlohmann::json::exception);
}

}  // namespace bench_step_test
