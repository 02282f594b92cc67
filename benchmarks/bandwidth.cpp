// SPDX-License-Identifier: Apache-2.0
//
// bandwidth: gather and reduce over worlds and sizes, tide and the flat path in turns, in one run.

#include "../examples/support/args.hpp"
#include "../examples/support/files.hpp"
#include "../examples/support/gather_pair.hpp"
#include "../examples/support/model_choice.hpp"
#include "../examples/support/program.hpp"
#include "../examples/support/progress.hpp"
#include "../examples/support/reduce_pair.hpp"
#include "../examples/support/table.hpp"

#include <tide/transport/unicast_transport.hpp>

#include <iomanip>
#include <sstream>

namespace tide_example {
namespace {

using Json = nlohmann::ordered_json;
using Inbox = tide::Ring<tide::Chunks<4>, tide::Bytes<(64 << 20)>>;

constexpr std::string_view usage =
    R"(bandwidth [--samples N] [--most-bytes N] [--json FILE]

Times gather and reduce of groups of eight bf16 matrices on 2, 4 and 8 CPU ranks, and of a Llama-3.1-8B block on 4,
beside the flat path on the same ranks and memory. Medians of pairs; results of the warm-up are compared with the oracle.

  --samples N     pairs of each, 5 if not given
  --most-bytes N  the largest group, 268435456 if not given; the Llama block has 436224000
  --json FILE     writes JSON, too; - is standard output, and the table is left out

  exit code  0 right, 1 a result is wrong, 2 bad usage, 3 an error, named on standard error
)";

struct Row {
  std::string group;
  std::string operation;
  index_t ranks;
  index_t bytes;  ///< of the whole group
  std::vector<double> tide_ms{};
  std::vector<double> flat_ms{};
};

Row gather(const std::string& name, const tide::DynamicGroup& group, index_t bytes, index_t ranks, index_t samples) {
  GatherPair pair(tide::UnicastTransport{}, group, {1, ranks}, FlatGather::Source::shards, {});
  Row row{name, "gather", ranks, bytes};
  Findings findings;
  for (index_t sample = 0; sample <= samples; ++sample) {  // number 0 warms up
    row.tide_ms.push_back(pair.tide());
    if (sample == 0) pair.check(findings, "tide gather");
    if (sample == 0) pair.scribble();
    row.flat_ms.push_back(pair.flat());
    if (sample == 0) pair.check(findings, "flat gather");
    findings.require_right();
    pair.release();
  }
  return row;
}

Row reduce(const std::string& name, const tide::DynamicGroup& group, index_t bytes, index_t ranks, index_t samples) {
  ReducePair<Inbox> pair(group, {1, ranks}, {});
  Row row{name, "reduce", ranks, bytes};
  Findings findings;
  pair.scribble();
  for (index_t sample = 0; sample <= samples; ++sample) {  // number 0 warms up
    row.tide_ms.push_back(pair.tide());
    row.flat_ms.push_back(pair.flat());
    if (sample > 0) continue;
    pair.check(findings);
    pair.check_flat(findings);
    findings.require_right();
  }
  return row;
}

// Eight equal matrices.  @pre bytes is a multiple of 64 KiB
tide::DynamicGroup matrices(index_t bytes) {
  tide::DynamicGroup group;
  for (int i = 0; i < 8; ++i) {
    group.add("matrix." + std::to_string(i), {bytes / 8 / 128, 64}, tide::Element::bf16, tide::Element::bf16);
  }
  return group;
}

std::string fixed(double number, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << number;
  return text.str();
}

int bandwidth(const Args& args) {
  if (!args.words().empty()) throw UsageError("'" + args.words().front() + "' is not expected");
  const index_t samples = args.number("--samples", 5, 1, 1000);
  const index_t most = args.number("--most-bytes", index_t{256} << 20, index_t{1} << 16, index_t{1} << 40);
  const std::string json = args.text("--json", "");
  if (!json.empty()) write_file(json, [](std::ostream&) {});  // refused now rather than at the end

  std::vector<Row> rows;
  try {
    const Progress progress;
    for (index_t bytes = index_t{1} << 16; bytes <= most; bytes *= 8) {
      for (const index_t ranks : {2, 4, 8}) {
        progress.say("matrices of " + grouped(bytes) + " bytes on " + std::to_string(ranks) + " ranks");
        rows.push_back(gather("matrices", matrices(bytes), bytes, ranks, samples));
        rows.push_back(reduce("matrices", matrices(bytes), bytes, ranks, samples));
      }
    }
    progress.say("a Llama-3.1-8B block");
    const FileModel llama = named_model(tide::models::llama3_1_8b::model);
    const tide::DynamicGroup& block = llama.units[1].parameters;
    index_t bytes = 0;
    for (const tide::Parameter& parameter : block.view().parameters) bytes += 2 * parameter.shape.elements();
    rows.push_back(gather("llama3.1-8b block", block, bytes, 4, samples));
    rows.push_back(reduce("llama3.1-8b block", block, bytes, 4, samples));
  } catch (const WrongResult& wrong) {
    std::cerr << "bandwidth: " << wrong.what() << '\n';
    return violated;
  }

  Table table({"group", "operation", "ranks", "bytes", "tide ms", "flat ms", "tide GB/s", "tide / flat"});
  Json list = Json::array();
  for (Row& row : rows) {
    row.tide_ms.erase(row.tide_ms.begin());
    row.flat_ms.erase(row.flat_ms.begin());
    const double tide = median(row.tide_ms);
    const double flat = median(row.flat_ms);
    const double rate = static_cast<double>(row.bytes * row.ranks) / tide / 1e6;
    table.add({row.group, row.operation, std::to_string(row.ranks), grouped(row.bytes), fixed(tide, 2), fixed(flat, 2),
               fixed(rate, 2), fixed(tide / flat, 2)});
    list.push_back({{"group", row.group},
                    {"operation", row.operation},
                    {"ranks", row.ranks},
                    {"bytes", row.bytes},
                    {"tide_samples_ms", row.tide_ms},
                    {"flat_samples_ms", row.flat_ms},
                    {"tide_median_ms", tide},
                    {"flat_median_ms", flat}});
  }
  if (json != "-") std::cout << table << "\nGB/s: bytes of the group on all ranks, in tide's median time\n";
  if (!json.empty()) {
    write_file(json, [&](std::ostream& out) { out << Json{{"samples", samples}, {"rows", list}}.dump(2) << '\n'; });
  }
  return right;
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::bandwidth(
        Args(argc, argv, {{"--samples", Args::value}, {"--most-bytes", Args::value}, {"--json", Args::value}}));
  });
}
