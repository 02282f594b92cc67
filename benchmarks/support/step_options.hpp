// SPDX-License-Identifier: Apache-2.0
//
// What bench_step is told, and what it has to say of the times that it took: all of it that needs no GPU.
//
// Test: tests/programs/bench_step.test.cpp

#pragma once

#include "report.hpp"

#include "../../examples/support/args.hpp"
#include "../../examples/support/program.hpp"

#include <tide/core/math.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tide_benchmark {

using tide::index_t;

inline constexpr std::string_view step_usage =
    R"(bench_step [FLAG...]

Measures a training step of Llama-3.1-70B blocks on two GPUs of this machine: forward, backward and a plain optimizer,
sharded by tide, by FSDP2's way over NCCL (stock, and with symmetric memory), and compute alone. All results are
compared with training that is not sharded, before and after. Times are medians over turns in which every path comes
once; a sample is one step of the slower GPU, from idle to all done.

  --layers N         blocks: 2 or 4 (default)
  --tokens N         of each rank, a multiple of 64; 8192 if not given
  --hidden N         width of a block, a multiple of 1024; 8192, Llama-3.1-70B's, if not given, and what else a block
                     has in proportion
  --samples N        turns that are measured, 15 if not given
  --warmup N         turns before them, 3 if not given
  --inbox slots|ring where gradients wait on tide: in vacated slots (default), or in a ring of 4 chunks in 256 MiB
  --prefetch N       groups that tide gathers ahead: 1 (default) or 2; FSDP2 has 1
  --groups blocks|halves
                     what tide gathers and reduces at once: a block (default), as FSDP2 does, or its attention and then
                     its feed-forward part
  --without PATHS    leaves out some of tide,stock,symmetric
  --one-gpu          both ranks on GPU 0, to see that results are right; needs NCCL 2.32
  --pytorch COMMAND  measures FSDP2 itself, too, after everything else: what starts pytorch_fsdp2.py on two GPUs, as in
                     "torchrun --nproc-per-node 2 benchmarks/pytorch_fsdp2.py"
  --json FILE        writes what was measured; - for standard output

exit code: 0 all results right, 1 a wrong result, 2 bad usage, 3 a named error
)";

/// The paths that are sharded, and can be left out.
inline constexpr std::array<std::string_view, 3> sharded_paths{"tide", "stock", "symmetric"};

struct StepOptions {
  index_t layers = 4;
  index_t tokens = 8192;
  index_t hidden = 8192;
  int samples = 15;
  int warmup = 3;
  index_t prefetch = 1;
  bool ring = false;
  bool halves = false;
  bool one_gpu = false;
  std::vector<std::string> without{};
  std::string pytorch{};
  std::string json{};

  [[nodiscard]] bool has(std::string_view path) const {
    return std::find(without.begin(), without.end(), path) == without.end();
  }
};

/// @throws tide_example::UsageError
[[nodiscard]] inline StepOptions parse_step(int argc, char** argv) {
  using tide_example::Args;
  using tide_example::UsageError;
  const Args args(argc, argv,
                  {{"--layers", Args::value},
                   {"--tokens", Args::value},
                   {"--hidden", Args::value},
                   {"--samples", Args::value},
                   {"--warmup", Args::value},
                   {"--inbox", Args::value},
                   {"--prefetch", Args::value},
                   {"--groups", Args::value},
                   {"--without", Args::value},
                   {"--one-gpu", Args::alone},
                   {"--pytorch", Args::value},
                   {"--json", Args::value}});
  if (!args.words().empty()) throw UsageError("unexpected '" + args.words().front() + "'");
  const auto multiple = [&](std::string_view flag, index_t of, index_t most) {
    const index_t number = args.number(flag, 8192, of, most);
    if (number % of != 0) {
      throw UsageError(std::string(flag) + " takes a multiple of " + std::to_string(of) + ", not " +
                       std::to_string(number));
    }
    return number;
  };
  StepOptions options;
  options.layers = args.choice("--layers", {"4", "2"}) == 0 ? 4 : 2;
  options.tokens = multiple("--tokens", 64, 65536);
  options.hidden = multiple("--hidden", 1024, 16384);
  options.samples = static_cast<int>(args.number("--samples", 15, 1, 1000));
  options.warmup = static_cast<int>(args.number("--warmup", 3, 0, 1000));
  options.ring = args.choice("--inbox", {"slots", "ring"}) == 1;
  options.prefetch = args.choice("--prefetch", {"1", "2"}) == 0 ? 1 : 2;
  options.halves = args.choice("--groups", {"blocks", "halves"}) == 1;
  options.one_gpu = args.has("--one-gpu");
  options.pytorch = args.text("--pytorch", "");
  options.json = args.text("--json", "");
  std::string list = args.text("--without", "");
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string path = list.substr(0, comma);
    if (std::find(sharded_paths.begin(), sharded_paths.end(), path) == sharded_paths.end()) {
      throw UsageError("--without takes some of tide,stock,symmetric, not '" + path + "'");
    }
    options.without.push_back(path);
    list.erase(0, comma + 1);
  }
  if (options.one_gpu && !options.pytorch.empty()) throw UsageError("--pytorch needs two GPUs, --one-gpu has one");
  return options;
}

/// Median of a path's samples over those of another, turn by turn.  @pre as many of both, at least one
[[nodiscard]] inline double paired_ratio(const std::vector<double>& path, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < path.size(); ++i) ratios.push_back(path[i] / other[i]);
  return median(ratios);
}

/// Something that a step of tide is meant to reach.
struct StepTarget {
  std::string words;
  double ratio;  ///< tide over what it is compared with
  bool holds;
};

/// What is known of the targets from samples by path.
[[nodiscard]] inline std::vector<StepTarget> step_targets(const std::map<std::string, std::vector<double>>& samples) {
  std::vector<StepTarget> targets;
  const auto tide = samples.find("tide");
  const auto add = [&](const char* path, const char* words, auto holds) {
    const auto other = samples.find(path);
    if (tide == samples.end() || other == samples.end()) return;
    const double ratio = paired_ratio(tide->second, other->second);
    targets.push_back({words, ratio, holds(ratio)});
  };
  add("compute", "at most 4 % above compute alone", [](double ratio) { return ratio <= 1.04; });
  add("compute", "aim: at most 2 % above compute alone", [](double ratio) { return ratio <= 1.02; });
  add("stock", "at least 8 % below stock", [](double ratio) { return ratio <= 0.92; });
  add("symmetric", "below symmetric", [](double ratio) { return ratio < 1; });
  return targets;
}

/// How tide's terms, added up, compare with what it reserves and with what the device gave for that.
[[nodiscard]] inline std::string memory_words(std::int64_t terms, std::int64_t reserved, std::int64_t taken) {
  const auto over = [&](std::int64_t bytes) { return static_cast<double>(bytes - terms) / static_cast<double>(terms); };
  const bool agree = std::abs(over(reserved)) <= 0.02 && std::abs(over(taken)) <= 0.02;
  return "it reserves " + fixed(100 * over(reserved), 2) + " % more than its terms add up to, the device gave " +
         fixed(100 * over(taken), 2) + " % more; within 2 %: " + (agree ? "holds" : "does not hold");
}

/// The rows of FSDP2 itself, as `pytorch_fsdp2.py --step` writes them.
/// @throws nlohmann::json::exception when they are not what it writes
[[nodiscard]] inline std::vector<Row> pytorch_rows(const nlohmann::json& written, const Row& like) {
  std::vector<Row> rows;
  for (const nlohmann::json& one : written.at("rows")) {
    Row row = like;
    row.path = one.at("path").get<std::string>();
    row.policy = one.at("policy").get<std::string>();
    row.samples_ms = one.at("samples_ms").get<std::vector<double>>();
    if (one.contains("peak_bytes")) row.peak_bytes = one["peak_bytes"].get<std::int64_t>();
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tide_benchmark
