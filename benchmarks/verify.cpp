// SPDX-License-Identifier: Apache-2.0
//
// verify: how long the proof of large plans takes, and how much memory: gather and reduce of a Llama-3.1-70B block and
// of a Qwen3-30B-A3B block, one tensor per expert, on 64 ranks of one node or on any mesh. Limits are judged where
// there are some.

#include "../examples/support/args.hpp"
#include "../examples/support/files.hpp"
#include "../examples/support/median.hpp"
#include "../examples/support/mesh.hpp"
#include "../examples/support/program.hpp"
#include "../examples/support/progress.hpp"
#include "../examples/support/table.hpp"

#include <tide/models/registry.hpp>
#include <tide/plan/kernels.hpp>
#include <tide/plan/verify.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/node_exchange.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>

#include <sys/resource.h>

namespace tide_example {
namespace {

constexpr std::string_view usage =
    R"(verify [--mesh NODESxRANKS] [--model NAME] [--samples N] [--json FILE]

Times tide::verify on the plans of a mesh, 1x64 if not given; seconds are the median of the samples, 3 if not given.
Memory is the largest that the process has taken so far.

  limits     1x64    llama3.1-70b     2 s
             1x64    qwen3-30b-a3b   20 s   2 GB
             128x8   llama3.1-70b    60 s   8 GB

  exit code  0 every plan holds, 1 a law is violated or a limit reached, 2 bad usage, 3 an error, named on standard error
)";

/// What a proof has to stay below.
struct Limit {
  std::string_view mesh;
  std::string_view model;
  double seconds;
  double gigabytes;
};
constexpr double any = std::numeric_limits<double>::infinity();
constexpr Limit limits[] = {
    {"1x64", "llama3.1-70b", 2, any}, {"1x64", "qwen3-30b-a3b", 20, 2}, {"128x8", "llama3.1-70b", 60, 8}};

struct Row {
  std::string model;
  std::string operation;
  tide::index_t ops = 0;
  std::vector<double> seconds;
  double gigabytes = 0;
  bool holds = false;
};

/// What is wrong with a row, nothing if all is right.
std::string complaint(const Row& row, const std::string& mesh) {
  std::ostringstream text;
  if (!row.holds) text << "a law is violated; ";
  for (const Limit& limit : limits) {
    if (limit.mesh != mesh || limit.model != row.model) continue;
    if (median(row.seconds) >= limit.seconds)
      text << median(row.seconds) << " s, the limit is " << limit.seconds << " s; ";
    if (row.gigabytes >= limit.gigabytes) text << row.gigabytes << " GB, the limit is " << limit.gigabytes << " GB; ";
  }
  const std::string all = text.str();
  return all.substr(0, all.empty() ? 0 : all.size() - 2);
}

Row prove(const tide::Model& model, tide::Operation operation, tide::MeshShape mesh, std::size_t samples,
          const Progress& progress) {
  const tide::Unit* most = &model.units.front();
  for (const tide::Unit& unit : model.units) most = unit.repeat > most->repeat ? &unit : most;
  tide::Collective collective;
  collective.layout = {most->group, mesh, tide::TightPacking::rule};
  collective.operation = operation;
  using Inter = tide::RdmaDoublingTransport<>;
  if (operation == tide::Operation::reduce) {
    using Ring = tide::Ring<tide::Chunks<4>, tide::Bytes<(64 << 20)>>;
    const tide::ReduceMemory memory = Ring::memory(collective.layout, tide::exchange_of<Inter>);
    collective.inbox = memory.inbox;
    collective.network = memory.network;
  } else {
    collective.network = Inter::network(collective.layout);
  }
  tide::fill_kernels_over_nodes(collective);
  Row row{std::string(model.name), std::string(name(operation)), 0, {}, 0, true};
  const std::string what = row.operation + " of " + row.model;
  std::vector<tide::Plan> plans;
  for (tide::index_t r = 0; r < mesh.ranks(); ++r) {
    progress.say(what + ": plan " + std::to_string(r + 1) + " of " + std::to_string(mesh.ranks()));
    plans.push_back(operation == tide::Operation::gather
                        ? Inter::gather<tide::UnicastTransport>(collective, tide::Rank{r})
                        : tide::CopyEngineReducer<>::reduce_over_nodes(collective, tide::Rank{r}));
  }
  for (std::size_t i = 0; i < samples; ++i) {
    progress.say(what + ": proof " + std::to_string(i + 1) + " of " + std::to_string(samples));
    const auto begin = std::chrono::steady_clock::now();
    const tide::Verdict verdict = tide::verify(collective, plans);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    row.ops = verdict.ops;
    row.seconds.push_back(took.count());
    row.holds = row.holds && verdict.holds();
  }
  progress.clear();
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  row.gigabytes = static_cast<double>(use.ru_maxrss) * 1024 / 1e9;
  return row;
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

int run(const Args& args) {
  if (!args.words().empty()) throw UsageError("one word too many: '" + args.words().front() + "'");
  const std::string given = args.text("--mesh", "1x64");
  const auto mesh = parse_mesh(given, 1024, 128);
  if (!mesh) throw UsageError("--mesh takes NODESxRANKS, as in 128x8, not '" + given + "'");
  const std::string name = std::to_string(mesh->nodes) + "x" + std::to_string(mesh->ranks_per_node);
  const auto samples = static_cast<std::size_t>(args.number("--samples", 3, 1, 1000));
  const std::vector<std::string_view> known = {"llama3.1-70b", "qwen3-30b-a3b"};
  const std::optional<std::string> only = args.text("--model");
  if (only && std::find(known.begin(), known.end(), *only) == known.end()) {
    throw UsageError("--model takes one of llama3.1-70b, qwen3-30b-a3b, not '" + *only + "'");
  }
  if (args.has("--json")) require_writable(args.text("--json", ""));
  std::vector<Row> rows;
  const Progress progress;
  for (const std::string_view model : known) {
    if (only && *only != model) continue;
    for (const tide::Operation operation : {tide::Operation::gather, tide::Operation::reduce}) {
      rows.push_back(prove(*tide::find_model(model), operation, *mesh, samples, progress));
    }
  }
  Table table({"model", "operation", "ops", "seconds", "peak GB", "holds"});
  nlohmann::ordered_json json{{"mesh", name}, {"rows", nlohmann::ordered_json::array()}};
  bool good = true;
  for (const Row& row : rows) {
    table.add({row.model, row.operation, std::to_string(row.ops), fixed(median(row.seconds), 2),
               fixed(row.gigabytes, 2), row.holds ? "yes" : "no"});
    json["rows"].push_back({{"model", row.model},
                            {"operation", row.operation},
                            {"ops", row.ops},
                            {"samples_s", row.seconds},
                            {"seconds", median(row.seconds)},
                            {"peak_gb", row.gigabytes},
                            {"holds", row.holds}});
    const std::string wrong = complaint(row, name);
    if (!wrong.empty()) std::cerr << "verify: " << row.operation << " of " << row.model << ": " << wrong << '\n';
    good = good && wrong.empty();
  }
  if (args.text("--json", "") != "-") std::cout << table;
  if (args.has("--json")) write_file(args.text("--json", ""), [&](std::ostream& out) { out << json.dump(1) << "\n"; });
  return good ? right : violated;
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::run(
        Args(argc, argv,
             {{"--mesh", Args::value}, {"--model", Args::value}, {"--samples", Args::value}, {"--json", Args::value}}));
  });
}
