// SPDX-License-Identifier: Apache-2.0
//
// shard_model: shards a model over CPU ranks, gathers it, reduces its gradients, checks every byte, and measures all of
// it beside the flat path that FSDP2 takes.

#include "support/args.hpp"
#include "support/files.hpp"
#include "support/gather_pair.hpp"
#include "support/mesh.hpp"
#include "support/model_choice.hpp"
#include "support/planning.hpp"
#include "support/program.hpp"
#include "support/progress.hpp"
#include "support/reduce_pair.hpp"
#include "support/table.hpp"

#include <tide/plan/bound.hpp>
#include <tide/plan/tally.hpp>

#include <iomanip>
#include <sstream>

namespace tide_example {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view usage =
    R"(shard_model [MODEL] [FLAG...]

Shards one unit of a model over CPU ranks, gathers it, reduces its gradients, compares every byte with what it must be,
and prints times and costs beside those of the flat path: what FSDP2 does, on the same ranks and memory.

  MODEL, --model NAME             a model that tide knows; llama3.1-8b if not given
  --model-file F.json             a model from a file
  --group NAME                    a unit of it; by default the one that it has most often: the block
  --list                          prints the models and their units, and does no more
  --ranks N                       1 to 256 on one node, 4 if not given
  --mesh NODESxRANKS              the same on several nodes, up to 256 ranks in all: packed shards and partial sums cross
  --seed N                        of weights and gradients, 1 if not given
  --source shards|masters         what is gathered: shards as they travel, or f32 masters, which tide and flat path cast
  --transport unicast|multicast   of tide's gather
  --lanes separate|merged         a thread for each lane of a rank, or one for all; merged from 17 ranks on, if not given
  --samples N                     how often each is timed, tide and flat in turns, behind one warm-up; 5 if not given
  --no-flat                       leaves the flat path out
  --deadline-ms N                 of every wait, 60000 if not given
  --json FILE                     writes JSON, too, with "wrong" if a result is; - is standard output, and the table is
                                  left out
  --flip-bit gather|reduce        spoils a result before it is compared, to show that this is seen

Times are those of all ranks together. Bytes written, copies and buffer bytes are sums over ranks; buffers are what an
operation needs beside its inputs and f32 results. The bound is the time that tide's plan needs at least on a machine
that copies as fast as this one did at its best.

  exit code  0 right, 1 a result is wrong, 2 bad usage, 3 an error, named on standard error
)";

struct Options {
  FileModel model;
  FileUnit unit;
  tide::MeshShape mesh{1, 4};
  index_t samples = 5;
  FlatGather::Source source = FlatGather::Source::shards;
  TransportChoice transport = TransportChoice::unicast;
  std::string json;
  std::string flip;  // the operation whose result is spoiled
  PairOptions pair;
};

FileUnit chosen_unit(const Args& args, const FileModel& model) {
  const std::optional<std::string> name = args.text("--group");
  std::string known;
  const FileUnit* most = &model.units.front();
  for (const FileUnit& unit : model.units) {
    if (unit.name == name) return unit;
    if (unit.repeat > most->repeat) most = &unit;
    known += (known.empty() ? "" : ", ") + unit.name;
  }
  if (!name) return *most;
  throw UsageError("--group: " + model.name + " has no group '" + *name + "'; it has " + known);
}

FileModel chosen_model(const Args& args) {
  const std::vector<std::string>& words = args.words();
  if (words.size() > 1) throw UsageError("'" + words[1] + "' is one word too many");
  if (words.empty() && (args.has("--model") || args.has("--model-file"))) return choose_model(args);
  if (args.has("--model") || args.has("--model-file")) {
    throw UsageError("give one of MODEL, --model NAME and --model-file FILE");
  }
  const std::string name = words.empty() ? "llama3.1-8b" : words[0];
  const tide::Model* known = tide::find_model(name);
  if (known == nullptr) throw UsageError("MODEL is one of " + model_names() + ", not '" + name + "'");
  return named_model(*known);
}

tide::MeshShape chosen_mesh(const Args& args) {
  if (!args.has("--mesh")) return {1, args.number("--ranks", 4, 1, 256)};
  if (args.has("--ranks")) throw UsageError("give one of --ranks N and --mesh NODESxRANKS");
  const std::string given = args.text("--mesh", "");
  const auto mesh = parse_mesh(given, 256, 256);
  if (!mesh || mesh->ranks() > 256) {
    throw UsageError("--mesh takes NODESxRANKS of at most 256 ranks, as in 2x4, not '" + given + "'");
  }
  return *mesh;
}

Options parse(const Args& args) {
  Options options;
  options.mesh = chosen_mesh(args);
  options.samples = args.number("--samples", 5, 1, 1000);
  options.source = static_cast<FlatGather::Source>(args.choice("--source", {"shards", "masters"}));
  options.transport = static_cast<TransportChoice>(args.choice("--transport", {"unicast", "multicast"}));
  options.json = args.text("--json", "");
  if (args.has("--flip-bit")) options.flip = args.choice("--flip-bit", {"gather", "reduce"}) == 0 ? "gather" : "reduce";
  options.pair.flat = !args.has("--no-flat");
  options.pair.seed = static_cast<std::uint64_t>(args.number("--seed", 1, 0, INT64_MAX));
  options.pair.host.lanes = static_cast<tide::HostLanes>(args.choice("--lanes", {"separate", "merged"}));
  if (!args.has("--lanes") && options.mesh.ranks() > 16) options.pair.host.lanes = tide::HostLanes::merged;
  options.pair.host.memory_bytes = available_memory();
  options.pair.host.deadline = std::chrono::milliseconds(args.number("--deadline-ms", 60'000, 1, INT32_MAX));
  options.model = chosen_model(args);
  options.unit = chosen_unit(args, options.model);
  return options;
}

int list() {
  Table table({"model", "unit", "repeat", "parameters", "elements"});
  for (const tide::Model& model : tide::all_models) {
    for (const tide::Unit& unit : model.units) {
      table.add({std::string(model.name), std::string(unit.name), grouped(unit.repeat), grouped(unit.group.size()),
                 grouped(unit.elements() / unit.repeat)});
    }
  }
  std::cout << table;
  return right;
}

/// One line of the report.
struct Row {
  std::string name;
  std::vector<double> samples_ms{};
  index_t bytes_written = 0;
  index_t copies = 0;
  index_t buffer_bytes = 0;
  PlanFile file{};  ///< of tide's rows: what has a bound

  void cost(const FlatCost& flat) {
    bytes_written = flat.bytes_written;
    copies = flat.copies;
    buffer_bytes = flat.buffer_bytes;
  }
};

struct Report {
  index_t checked_bytes = 0;
  CopyRate rate;
  std::vector<Row> rows;

  /// The least time that a row's plans need, in seconds; 0 where there are none.
  [[nodiscard]] double bound(const Row& row) const {
    if (row.file.plans.empty()) return 0;
    const tide::Machine machine = tide::machines::cpu(rate.bytes_per_second());
    return tide::lower_bound(row.file.collective, row.file.plans, machine).seconds;
  }
};

/// Counts what the plans of tide's operation do, and compares the count inside nodes with the formula of
/// plan/tally.hpp, where there is one.
/// @throws WrongResult
void count(Row& row, const Options& options, PlanChoices choices, std::optional<index_t> formula) {
  choices.mesh = options.mesh;
  row.file = make_plans(options.model.name, options.unit.name, options.unit.parameters, choices);
  const tide::Tally tally = tide::tally(row.file.collective, row.file.plans);
  row.bytes_written = tally.bytes_written;
  row.copies = tally.copies;
  index_t crossed = 0;  // packed shards with the gaps between them: no formula in parameters' bytes
  for (const tide::Plan& plan : row.file.plans) {
    for (const tide::Op& op : plan.ops) crossed += op.kind == tide::OpKind::put ? op.bytes() : 0;
  }
  if (!formula || tally.bytes_written - crossed == *formula) return;
  throw WrongResult(row.name + " writes " + std::to_string(tally.bytes_written - crossed) +
                    " bytes inside nodes, the formula says " + std::to_string(*formula));
}

/// Bytes of all parameters, or of all gradients, of one rank.
[[nodiscard]] index_t group_bytes(const tide::GroupView& group, tide::Element tide::Parameter::*element) {
  index_t bytes = 0;
  for (const tide::Parameter& parameter : group.parameters) {
    bytes += parameter.shape.elements() * static_cast<index_t>(size_bytes(parameter.*element));
  }
  return bytes;
}

[[nodiscard]] index_t group_elements(const tide::GroupView& group) {
  index_t elements = 0;
  for (const tide::Parameter& parameter : group.parameters) elements += parameter.shape.elements();
  return elements;
}

template <class Transport>
void gather(Transport transport, const Options& options, const Progress& progress, Report& report) {
  progress.say("gather: filling the shards");
  GatherPair pair(transport, options.unit.parameters, options.mesh, options.source, options.pair);
  Row tide{"tide.gather"};
  Row flat{"flat.gather"};
  Findings findings;
  for (index_t sample = 0; sample <= options.samples; ++sample) {  // number 0 warms up
    progress.say("gather: sample " + std::to_string(sample) + " of " + std::to_string(options.samples));
    const bool last = sample == options.samples;
    const bool checked = sample == 0 || last;
    tide.samples_ms.push_back(pair.tide());
    if (last && options.flip == "gather") pair.flip_bit();
    if (checked) pair.check(findings, "tide gather");
    if (options.pair.flat) {
      if (checked) pair.scribble();
      flat.samples_ms.push_back(pair.flat());
      if (checked) pair.check(findings, "flat gather");
    }
    findings.require_right();
    pair.measure_copies(report.rate);
    if (sample + 1 == options.samples) pair.scribble();  // the last one is checked again
    pair.release();
  }
  report.checked_bytes += findings.bytes();

  PlanChoices choices;
  const bool cast = options.source == FlatGather::Source::masters;
  choices.transport = options.transport;
  choices.own = cast ? tide::OwnBlock::cast : Transport::own_block;
  const bool twice = cast && options.mesh.ranks_per_node > 1 && options.transport == TransportChoice::multicast;
  const bool packed = cast && options.mesh.nodes > 1;
  const index_t gathered = group_bytes(options.unit.parameters.view(), &tide::Parameter::gathered);
  count(tide, options, choices, (options.mesh.ranks() + (twice ? 1 : 0) + (packed ? 1 : 0)) * gathered);
  tide.buffer_bytes = pair.buffer_bytes();
  report.rows.push_back(std::move(tide));
  if (!options.pair.flat) return;
  flat.cost(pair.flat_cost());
  report.rows.push_back(std::move(flat));
}

void reduce(const Options& options, const Progress& progress, Report& report) {
  using Chunks = tide::Chunks<4>;
  using Bytes = tide::Bytes<(64 << 20)>;
  progress.say("reduce: filling the gradients");
  ReducePair<tide::Ring<Chunks, Bytes>> pair(options.unit.parameters, options.mesh, options.pair);
  Row tide{"tide.reduce"};
  Row flat{"flat.reduce"};
  Findings findings;
  for (index_t sample = 0; sample <= options.samples; ++sample) {  // number 0 warms up
    progress.say("reduce: sample " + std::to_string(sample) + " of " + std::to_string(options.samples));
    const bool last = sample == options.samples;
    const bool checked = sample == 0 || last;
    if (checked) pair.scribble();
    tide.samples_ms.push_back(pair.tide());
    if (options.pair.flat) flat.samples_ms.push_back(pair.flat());
    if (last && options.flip == "reduce") pair.flip_bit();
    if (checked) pair.check(findings);
    if (checked && options.pair.flat) pair.check_flat(findings);
    findings.require_right();
    pair.measure_copies(report.rate);
  }
  report.checked_bytes += findings.bytes();

  PlanChoices choices;
  choices.operation = tide::Operation::reduce;
  choices.inbox_chunks = Chunks::value;
  choices.inbox_bytes = Bytes::value;
  const tide::GroupView group = options.unit.parameters.view();
  std::optional<index_t> formula;
  if (options.mesh.nodes == 1) {
    formula = (options.mesh.ranks() - 1) * group_bytes(group, &tide::Parameter::gradient) + 4 * group_elements(group);
  }
  count(tide, options, choices, formula);
  tide.buffer_bytes = pair.buffer_bytes();
  report.rows.push_back(std::move(tide));
  if (!options.pair.flat) return;
  flat.cost(pair.flat_cost());
  report.rows.push_back(std::move(flat));
}

std::string fixed(double number, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << number;
  return text.str();
}

void print(const Options& options, const Report& report) {
  const tide::GroupView group = options.unit.parameters.view();
  const bool separate = options.pair.host.lanes == tide::HostLanes::separate;
  std::cout << printable(options.unit.name) << " of " << printable(options.model.name) << ": " << grouped(group.size())
            << " parameters, " << grouped(group_elements(group)) << " elements, on " << text(options.mesh)
            << " ranks of " << (separate ? options.mesh.ranks_per_node + (options.mesh.nodes > 1 ? 3 : 1) : 1)
            << " threads; the flat path uses one\n"
            << grouped(report.checked_bytes) << " bytes compared, all right\n\n";
  Table table({"", "median ms", "best ms", "bytes written", "copies", "buffer bytes", "of the bound"});
  for (const Row& row : report.rows) {
    const double middle = median(row.samples_ms);
    const double bound = report.bound(row);
    table.add({row.name, fixed(middle, 1), fixed(*std::min_element(row.samples_ms.begin(), row.samples_ms.end()), 1),
               grouped(row.bytes_written), grouped(row.copies), grouped(row.buffer_bytes),
               bound > 0 ? fixed(1e5 * bound / middle, 0) + " %" : ""});
  }
  std::cout << table << '\n';
  for (std::size_t i = 0; i + 1 < report.rows.size() && options.pair.flat; i += 2) {
    const double share = median(report.rows[i].samples_ms) / median(report.rows[i + 1].samples_ms);
    std::cout << report.rows[i].name << " takes " << fixed(share, 2) << " of the time of " << report.rows[i + 1].name
              << '\n';
  }
  std::cout << "the machine copies " << fixed(report.rate.bytes_per_second() / 1e9, 1) << " GB/s\n";
}

/// What is asked for, and what has come of it.
void write_json(std::ostream& out, const Options& options, const Json& found) {
  Json json = {{"model", options.model.name},
               {"group", options.unit.name},
               {"ranks", options.mesh.ranks()},
               {"mesh", text(options.mesh)},
               {"seed", options.pair.seed}};
  json.update(found);
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

Json measured(const Report& report) {
  Json rows = Json::array();
  for (const Row& row : report.rows) {
    Json entry = {{"name", row.name},
                  {"samples_ms", row.samples_ms},
                  {"median_ms", median(row.samples_ms)},
                  {"bytes_written", row.bytes_written},
                  {"copies", row.copies},
                  {"buffer_bytes", row.buffer_bytes}};
    if (!row.file.plans.empty()) entry["bound_ms"] = 1e3 * report.bound(row);
    rows.push_back(std::move(entry));
  }
  return {{"checked_bytes", report.checked_bytes},
          {"copied_bytes_per_second", report.rate.bytes_per_second()},
          {"rows", std::move(rows)}};
}

int shard_model(const Args& args) {
  const Options options = parse(args);
  if (args.has("--list")) return list();
  require_sensible(options.unit.parameters.view(), options.mesh, options.unit.name);
  if (!options.json.empty()) require_writable(options.json);  // refused now rather than at the end
  const auto to_json = [&](const Json& found) {
    if (!options.json.empty()) write_file(options.json, [&](std::ostream& out) { write_json(out, options, found); });
  };
  Report report;
  try {
    const Progress progress;
    if (options.transport == TransportChoice::multicast) {
      gather(tide::MulticastTransport{}, options, progress, report);
    } else {
      gather(tide::UnicastTransport{}, options, progress, report);
    }
    reduce(options, progress, report);
  } catch (const WrongResult& wrong) {
    std::cerr << "shard_model: " << printable(options.unit.name) << " of " << printable(options.model.name) << ": "
              << printable(wrong.what()) << '\n';
    to_json({{"wrong", wrong.what()}});
    return violated;
  }
  for (Row& row : report.rows) row.samples_ms.erase(row.samples_ms.begin());  // the warm-up
  if (options.json != "-") print(options, report);
  to_json(measured(report));
  return right;
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::shard_model(Args(argc, argv,
                                          {{"--model", Args::value},
                                           {"--model-file", Args::value},
                                           {"--group", Args::value},
                                           {"--list", Args::alone},
                                           {"--ranks", Args::value},
                                           {"--mesh", Args::value},
                                           {"--seed", Args::value},
                                           {"--source", Args::value},
                                           {"--transport", Args::value},
                                           {"--lanes", Args::value},
                                           {"--samples", Args::value},
                                           {"--no-flat", Args::alone},
                                           {"--deadline-ms", Args::value},
                                           {"--json", Args::value},
                                           {"--flip-bit", Args::value}}));
  });
}
