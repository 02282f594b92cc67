// SPDX-License-Identifier: Apache-2.0
//
// verify: how long the proof of large plans takes, and how much memory: gather and reduce of a Llama-3.1-70B block and
// of a Qwen3-30B-A3B block, one tensor per expert, on 64 ranks of one node or on any mesh.

#include "../examples/support/args.hpp"
#include "../examples/support/files.hpp"
#include "../examples/support/mesh.hpp"
#include "../examples/support/program.hpp"
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

#include <chrono>
#include <iomanip>
#include <iostream>
#include <sstream>

#include <sys/resource.h>

namespace tide_example {
namespace {

constexpr std::string_view usage =
    R"(verify [--mesh NODESxRANKS] [--model NAME] [--json FILE]

Times tide::verify on the plans of a mesh, 1x64 if not given. Memory is the largest that the process has taken so far.

  exit code  0 every plan holds, 1 a law is violated, 2 bad usage, 3 an error, named on standard error
)";

struct Row {
  std::string model;
  std::string operation;
  tide::index_t ops = 0;
  double seconds = 0;
  double megabytes = 0;
  bool holds = false;
};

Row prove(const tide::Model& model, tide::Operation operation, tide::MeshShape mesh) {
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
  std::vector<tide::Plan> plans;
  for (tide::index_t r = 0; r < mesh.ranks(); ++r) {
    plans.push_back(operation == tide::Operation::gather
                        ? Inter::gather<tide::UnicastTransport>(collective, tide::Rank{r})
                        : tide::CopyEngineReducer<>::reduce_over_nodes(collective, tide::Rank{r}));
  }
  const auto begin = std::chrono::steady_clock::now();
  const tide::Verdict verdict = tide::verify(collective, plans);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return {std::string(model.name),
          std::string(name(operation)),
          verdict.ops,
          took.count(),
          static_cast<double>(use.ru_maxrss) / 1024,
          verdict.holds()};
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

int run(const Args& args) {
  const std::string given = args.text("--mesh", "1x64");
  const auto mesh = parse_mesh(given, 1024, 128);
  if (!mesh) throw UsageError("--mesh takes NODESxRANKS, as in 128x8, not '" + given + "'");
  std::vector<Row> rows;
  for (const char* model : {"llama3.1-70b", "qwen3-30b-a3b"}) {
    if (args.text("--model", model) != model) continue;
    for (const tide::Operation operation : {tide::Operation::gather, tide::Operation::reduce}) {
      rows.push_back(prove(*tide::find_model(model), operation, *mesh));
    }
  }
  Table table({"model", "operation", "ops", "seconds", "peak MiB", "holds"});
  nlohmann::ordered_json json{{"mesh", given}, {"rows", nlohmann::ordered_json::array()}};
  bool holds = true;
  for (const Row& row : rows) {
    table.add({row.model, row.operation, std::to_string(row.ops), fixed(row.seconds, 2), fixed(row.megabytes, 0),
               row.holds ? "yes" : "no"});
    json["rows"].push_back({{"model", row.model},
                            {"operation", row.operation},
                            {"ops", row.ops},
                            {"seconds", row.seconds},
                            {"peak_mib", row.megabytes},
                            {"holds", row.holds}});
    holds = holds && row.holds;
  }
  if (args.text("--json", "") != "-") std::cout << table;
  if (args.has("--json")) write_file(args.text("--json", ""), [&](std::ostream& out) { out << json.dump(1) << "\n"; });
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::run(
        Args(argc, argv, {{"--mesh", Args::value}, {"--model", Args::value}, {"--json", Args::value}}));
  });
}
