// SPDX-License-Identifier: Apache-2.0
//
// tide_inspect: looks at layouts and plans without running them.

#include "support/args.hpp"
#include "support/files.hpp"
#include "support/mesh.hpp"
#include "support/model_choice.hpp"
#include "support/plan_json.hpp"
#include "support/planning.hpp"
#include "support/program.hpp"
#include "support/progress.hpp"
#include "support/step_memory.hpp"
#include "support/table.hpp"

#include <tide/plan/bound.hpp>
#include <tide/plan/estimate.hpp>
#include <tide/plan/print.hpp>
#include <tide/plan/tally.hpp>
#include <tide/plan/verify.hpp>

#include <chrono>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

namespace tide_example {
namespace {

using tide::index_t;

constexpr std::string_view usage =
    R"(tide_inspect layout|plan|verify|memory --model NAME | --model-file F.json --mesh NODESxRANKS [FLAG...]
       tide_inspect verify --plan F.json [--json FILE]

  layout   what lies where: the shards of every group, or of --group NAME
  plan     what each rank does: the ops of one group, by default the most repeated one
  verify   proves the plans of every distinct group, of --group NAME, or of a file that `plan --json` wrote
  memory   what the collectives of a training step take on a rank, with tide and on flat buffers, term by term

  --op gather|reduce             of plan and verify: gather if not given
  --packing tight|fsdp2          how shards are packed: tide's own way, or PyTorch FSDP2's
  --json FILE                    writes JSON; - is standard output
  --summary                      of plan: constants and bound only
  --estimate                     of plan: also how long list scheduling says that a run takes; in JSON with --summary
  --print                        of plan: every op in words
  --machine h200_node|cpu:N      of plan: the machine of the bound; a CPU copies N GB/s
  --transport unicast|multicast  of a gather
  --own copy|in_place|cast       of a gather: how the own block gets into the own slot; a multicast brings it along, and
                                 takes no copy
  --gradients storage|table      of a reduce: where gradients lie
  --finish store|accumulate      of a reduce: what is done with the sum
  --chunks N, --inbox-bytes N    of a reduce: the ring of the inbox, 4 and 67108864 if not given
  --exchange doubling|direct|in_switch
                                 of a reduce over nodes: how partial sums cross; in_switch is that of SwitchReducer
  --chunk-bytes N                of a gather over nodes: of each shard, what takes a round together; 8388608
  --puts-in-flight N             of a gather over nodes: the most of a rank on their way to one peer; 16
  --prefetch N                   of memory: groups that are gathered ahead; 1
  --gradient-buffers N           of memory: groups whose gradients have memory with tide; 2, as ShardedStep has

  exit code  0 right, 1 a law is violated, 2 bad usage, 3 an error, named on standard error
)";

// ---- what the command line asks for ---------------------------------------------------------------------------------

tide::MeshShape chosen_mesh(const Args& args) {
  const std::optional<std::string> given = args.text("--mesh");
  if (!given) throw UsageError("--mesh NODESxRANKS is missing");
  const auto mesh = parse_mesh(*given, INT32_MAX, INT32_MAX);
  if (!mesh) throw UsageError("--mesh takes NODESxRANKS, as in 1x8, not '" + *given + "'");
  return tide::Mesh<tide::dynamic, tide::dynamic>(mesh->nodes, mesh->ranks_per_node).shape();
}

tide::OwnBlock parse_own(const Args& args, TransportChoice transport) {
  using tide::OwnBlock;
  if (!args.has("--own")) return transport == TransportChoice::multicast ? OwnBlock::multicast : OwnBlock::copy;
  constexpr OwnBlock choices[] = {OwnBlock::copy, OwnBlock::in_place, OwnBlock::cast};
  const OwnBlock own = choices[args.choice("--own", {"copy", "in_place", "cast"})];
  if (own == OwnBlock::copy && transport == TransportChoice::multicast) {
    throw UsageError("--own copy belongs to --transport unicast: a multicast writes the own block, too");
  }
  return own;
}

// Refuses flags that say nothing of what is asked for: whoever gives one means something else.
void refuse_idle_flags(const Args& args, const std::string& command) {
  const bool reduce = args.choice("--op", {"gather", "reduce"}) == 1;
  const auto refuse = [&](bool idle, std::initializer_list<const char*> flags, std::string_view owner) {
    for (const char* flag : flags) {
      if (idle && args.has(flag)) throw UsageError(std::string(flag) + " belongs to " + std::string(owner));
    }
  };
  const auto gathers = {"--transport", "--own", "--chunk-bytes", "--puts-in-flight"};
  const auto reduces = {"--gradients", "--finish", "--chunks", "--inbox-bytes", "--exchange"};
  refuse(command != "plan", {"--summary", "--print", "--machine", "--estimate"}, "plan");
  refuse(command != "verify", {"--plan"}, "verify");
  refuse(command != "memory", {"--prefetch", "--gradient-buffers"}, "memory");
  refuse(command == "memory", {"--op", "--group"}, "the other commands: a step gathers and reduces every group");
  refuse(command == "layout", {"--op"}, "plan and verify: it changes no layout");
  for (const char* looks : {"layout", "memory"}) {
    refuse(command == looks, gathers, "plan and verify: it changes no " + std::string(looks));
    refuse(command == looks, reduces, "plan and verify: it changes no " + std::string(looks));
  }
  refuse(reduce, gathers, "--op gather");
  refuse(!reduce && !args.has("--plan"), reduces, "--op reduce");
}

PlanChoices parse_choices(const Args& args) {
  PlanChoices choices;
  choices.packing = packings[args.choice("--packing", {"tight", "fsdp2"})].rule;
  choices.operation = static_cast<tide::Operation>(args.choice("--op", {"gather", "reduce"}));
  choices.transport = static_cast<TransportChoice>(args.choice("--transport", {"unicast", "multicast"}));
  choices.own = parse_own(args, choices.transport);
  choices.gradients = static_cast<tide::GradientSource>(args.choice("--gradients", {"storage", "table"}));
  choices.finish = static_cast<tide::Finish>(args.choice("--finish", {"store", "accumulate"}));
  choices.inbox_chunks = args.number("--chunks", choices.inbox_chunks, 1, 255);
  choices.inbox_bytes = args.number("--inbox-bytes", choices.inbox_bytes, 1, index_t{1} << 40);
  choices.mesh = chosen_mesh(args);
  for (const char* flag : {"--exchange", "--chunk-bytes", "--puts-in-flight"}) {
    if (choices.mesh.nodes == 1 && args.has(flag)) {
      throw UsageError(std::string(flag) + " belongs to a mesh of several nodes: on one nothing crosses");
    }
  }
  choices.rails.chunk_bytes = args.number("--chunk-bytes", choices.rails.chunk_bytes, 16, index_t{1} << 40);
  choices.rails.puts_in_flight = args.number("--puts-in-flight", choices.rails.puts_in_flight, 2, 65535);
  choices.exchange = static_cast<tide::Exchange>(args.choice("--exchange", {"doubling", "direct", "in_switch"}));
  return choices;
}

std::string machine_name(const Args& args) { return args.text("--machine", "h200_node"); }

tide::Machine parse_machine(const Args& args) {
  const std::string name = machine_name(args);
  if (name == "h200_node") return tide::machines::h200_node();
  std::optional<double> rate;
  if (name.starts_with("cpu:")) rate = parse_number(std::string_view(name).substr(4), 1e-6, 1e6);
  if (!rate) throw UsageError("--machine takes h200_node or cpu:N with N in GB/s, not '" + name + "'");
  return tide::machines::cpu(*rate * 1e9);
}

// The units that --group leaves.
std::vector<FileUnit> chosen_units(const Args& args, FileModel& model) {
  const std::optional<std::string> name = args.text("--group");
  if (!name) return std::move(model.units);
  std::string known;
  for (FileUnit& unit : model.units) {
    if (unit.name == *name) return {std::move(unit)};
    known += (known.empty() ? "" : ", ") + unit.name;
  }
  throw UsageError("--group: " + model.name + " has no group '" + *name + "'; it has " + known);
}

// Whatever takes long begins with this.
void require_writable_json(const Args& args) {
  if (const std::optional<std::string> file = args.text("--json")) require_writable(*file);
}

// JSON where --json says, a table on standard output unless that is taken.
template <class WriteJson, class WriteTable>
void report(const Args& args, WriteJson write_json, WriteTable write_table) {
  const std::optional<std::string> file = args.text("--json");
  if (file) write_file(*file, write_json);
  if (file != "-") write_table(std::cout);
}

// ---- layout ---------------------------------------------------------------------------------------------------------

// The totals of a group, as FSDP2's users count them.
struct Totals {
  explicit Totals(const tide::LayoutView& layout) {
    for (const tide::Parameter& parameter : layout.group.parameters) {
      bytes += parameter.shape.elements() * static_cast<index_t>(size_bytes(parameter.gathered));
    }
    for (index_t r = 0; r < layout.mesh.ranks(); ++r) {
      const index_t packed = layout.bytes(tide::Buffer::shards, tide::Rank{r});
      shard_bytes = std::max(shard_bytes, packed);
      gathered_bytes += packed;
    }
  }

  index_t bytes = 0;
  index_t shard_bytes = 0;     ///< of the largest rank, packed
  index_t gathered_bytes = 0;  ///< of all ranks, packed
};

void write_layout_group(std::ostream& out, const FileUnit& unit, const tide::LayoutView& layout) {
  const Totals totals(layout);
  std::vector<JsonText> aliases;
  for (const tide::Alias& alias : layout.group.aliases) {
    aliases.push_back(object({{"name", std::string(alias.name)}, {"target", std::string(alias.target)}}));
  }
  out << "{"
      << fields({{"name", unit.name},
                 {"repeat", unit.repeat},
                 {"bytes", totals.bytes},
                 {"shard_bytes", totals.shard_bytes},
                 {"gathered_bytes", totals.gathered_bytes},
                 {"pad_bytes", totals.gathered_bytes - totals.bytes}})
      << ", \"params\": [\n";
  std::vector<std::vector<JsonText>> shards(static_cast<std::size_t>(layout.group.size()));
  for (index_t r = 0; r < layout.mesh.ranks(); ++r) {
    layout.for_each_piece(tide::Rank{r}, [&](const tide::Piece& piece) {
      shards[static_cast<std::size_t>(piece.parameter.value)].push_back(
          object({{"rank", r},
                  {"rows", list({piece.begin, piece.begin + piece.count})},
                  {"offset", piece.offset(tide::Buffer::shards)},
                  {"bytes", piece.bytes(tide::Buffer::shards)}}));
    });
  }
  layout.for_each_piece(tide::Rank{0}, [&](const tide::Piece& piece) {
    const auto p = static_cast<std::size_t>(piece.parameter.value);
    const JsonText entry = object({{"name", layout.group[piece.parameter].name.str()},
                                   {"offset", piece.start[static_cast<std::size_t>(tide::Buffer::slot)]},
                                   {"shards", list(shards[p])}});
    out << (p == 0 ? "" : ",\n") << entry.text();
  });
  out << "]" << (aliases.empty() ? "" : ", \"aliases\": " + list(aliases).text()) << "}";
}

// What ranks own of a parameter, ranks that own alike together: "63 x3, 61".
std::string rows_of_ranks(const std::vector<index_t>& rows) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < rows.size(); first = last) {
    while (last < rows.size() && rows[last] == rows[first]) ++last;
    text += (first == 0 ? "" : ", ") + grouped(rows[first]);
    if (last - first > 1) text += " x" + std::to_string(last - first);
  }
  return text;
}

Table parameter_table(const tide::LayoutView& layout) {
  Table table({"parameter", "slot offset", "rows of each rank", "bytes of rank 0", "shard offset"});
  std::vector<std::vector<index_t>> rows(static_cast<std::size_t>(layout.group.size()));
  for (index_t r = 0; r < layout.mesh.ranks(); ++r) {
    layout.for_each_piece(tide::Rank{r}, [&](const tide::Piece& piece) {
      rows[static_cast<std::size_t>(piece.parameter.value)].push_back(piece.count);
    });
  }
  layout.for_each_piece(tide::Rank{0}, [&](const tide::Piece& piece) {
    std::string name = layout.group[piece.parameter].name.str();
    for (const tide::Alias& alias : layout.group.aliases) {
      if (layout.group[piece.parameter].name.reads(alias.target)) name += " = " + std::string(alias.name);
    }
    table.add({name, grouped(piece.start[static_cast<std::size_t>(tide::Buffer::slot)]),
               rows_of_ranks(rows[static_cast<std::size_t>(piece.parameter.value)]),
               grouped(piece.bytes(tide::Buffer::shards)), grouped(piece.offset(tide::Buffer::shards))});
  });
  return table;
}

int layout(const Args& args) {
  const PlanChoices choices = parse_choices(args);
  FileModel model = choose_model(args);
  const std::vector<FileUnit> units = chosen_units(args, model);
  std::vector<tide::DynamicLayout> layouts;
  for (const FileUnit& unit : units) {
    require_sensible(unit.parameters.view(), choices.mesh, unit.name);
    layouts.emplace_back(unit.parameters, choices.mesh, choices.packing);
  }
  const std::string packing = args.text("--packing", "tight");
  report(
      args,
      [&](std::ostream& out) {
        out << "{" << fields({{"model", model.name}, {"mesh", text(choices.mesh)}, {"packing", packing}})
            << ", \"groups\": [\n";
        for (std::size_t i = 0; i < units.size(); ++i) {
          if (i > 0) out << ",\n";
          write_layout_group(out, units[i], layouts[i].view());
        }
        out << "]}\n";
      },
      [&](std::ostream& out) {
        out << printable(model.name) << " on " << text(choices.mesh) << " ranks, packing " << packing << "\n\n";
        Table groups(
            {"group", "repeat", "parameters", "bytes", "shard bytes", "gathered bytes", "padding bytes", "slot bytes"});
        for (std::size_t i = 0; i < units.size(); ++i) {
          const Totals totals(layouts[i].view());
          groups.add({units[i].name, grouped(units[i].repeat), grouped(layouts[i].view().group.size()),
                      grouped(totals.bytes), grouped(totals.shard_bytes), grouped(totals.gathered_bytes),
                      grouped(totals.gathered_bytes - totals.bytes),
                      grouped(layouts[i].view().bytes(tide::Buffer::slot))});
        }
        out << groups;
        if (units.size() > 1) return;
        out << '\n' << parameter_table(layouts[0].view());
      });
  return right;
}

// ---- plan -----------------------------------------------------------------------------------------------------------

Table costs(const PlanFile& file) {
  Table table({"rank", "ops", "copies", "bytes read", "bytes written", "signals", "waits", "casts", "reduces",
               "launches", "driver calls"});
  for (const tide::Plan& plan : file.plans) {
    const tide::Tally cost = tide::tally(file.collective, plan);
    std::vector<std::string> row = {std::to_string(plan.rank.value)};
    for (const index_t count : {static_cast<index_t>(plan.ops.size()), cost.copies, cost.bytes_read, cost.bytes_written,
                                cost.signals, cost.waits, cost.casts, cost.reduces, cost.launches, cost.driver_calls}) {
      row.push_back(grouped(count));
    }
    table.add(row);
  }
  return table;
}

int plan(const Args& args) {
  const PlanChoices choices = parse_choices(args);
  const tide::Machine machine = parse_machine(args);
  FileModel model = choose_model(args);
  const std::vector<FileUnit> units = chosen_units(args, model);
  const auto unit = std::max_element(units.begin(), units.end(),
                                     [](const FileUnit& a, const FileUnit& b) { return a.repeat < b.repeat; });
  require_writable_json(args);
  const Progress progress;
  progress.say(printable(unit->name) + ": planning");
  const PlanFile file = make_plans(model.name, unit->name, unit->parameters, choices);
  const tide::Collective& collective = file.collective;
  const tide::Bound bound = tide::lower_bound(collective, file.plans, machine);
  std::optional<double> estimated;  // seconds
  if (args.has("--estimate")) estimated = tide::estimate(collective, file.plans, machine).seconds;
  progress.clear();
  const double of_bound = estimated && *estimated > 0 ? bound.seconds / *estimated : 1;
  const bool gather = choices.operation == tide::Operation::gather;
  const bool nodes = choices.mesh.nodes > 1;
  const index_t slot_bytes = collective.layout.bytes(tide::Buffer::slot);
  // Over nodes a reduce's ring holds what lands and sums on their way, too; a gather has room beside its slot.
  const index_t inbox_bytes = collective.inbox.bytes() + (gather ? 0 : collective.network.bytes());
  const index_t network_bytes = gather ? tide::slot_network(collective.layout).bytes() : 0;
  const index_t driver_calls = tide::driver_calls(collective, file.plans);
  report(
      args,
      [&](std::ostream& out) {
        std::vector<JsonField> all = {
            {"slot_bytes", slot_bytes}, {"inbox_bytes", inbox_bytes}, {"driver_calls", driver_calls}};
        if (nodes) all.emplace_back("network_bytes", network_bytes);
        const JsonText constants = object(all);
        const JsonText limit =
            object({{"seconds", bound.seconds}, {"machine", machine_name(args)}, {"binding", bound.binding()}});
        if (args.has("--summary")) {
          std::vector<JsonField> summary = {{"constants", constants}, {"bound", limit}};
          if (estimated) {
            summary.emplace_back("estimate", object({{"seconds", *estimated}, {"of_bound", of_bound}}));
          }
          out << object(summary).text() << '\n';
        } else {
          write_plan(out, file, constants, limit);
        }
      },
      [&](std::ostream& out) {
        out << name(choices.operation) << " of " << printable(unit->name) << " of " << printable(model.name) << " on "
            << text(choices.mesh) << " ranks\n\nslot_bytes    " << grouped(slot_bytes) << "\ninbox_bytes   "
            << grouped(inbox_bytes)
            << (nodes && gather ? "\nnetwork_bytes " + grouped(network_bytes) + ", memory beside each slot" : "")
            << "\ndriver_calls  " << grouped(driver_calls) << "\nbound         " << bound.seconds * 1e3 << " ms on "
            << machine_name(args) << ": " << bound.binding() << '\n';
        if (estimated) {
          out << "estimate      " << *estimated * 1e3 << " ms, of which the bound is " << std::lround(100 * of_bound)
              << " %\n";
        }
        if (!args.has("--summary")) out << '\n' << costs(file);
        for (const tide::Plan& of_rank : file.plans) {
          if (args.has("--print")) tide::print(out << '\n', collective, of_rank);
        }
      });
  return right;
}

// ---- verify ---------------------------------------------------------------------------------------------------------

// The plans of one group, judged.
struct Judged {
  tide::DynamicGroup parameters;
  std::vector<std::string> row;  ///< of the table
  index_t ops = 0;
  double seconds = 0;
  std::vector<JsonText> violations;
  std::string complaint;  ///< what is violated, and where
};

// The number of an op in the file that it was read from.
index_t number_in_file(const PlanFile& file, const tide::Side& side) {
  const auto rank = static_cast<std::size_t>(side.rank.value);
  return file.seqs.empty() ? side.seq : file.seqs[rank][static_cast<std::size_t>(side.seq)];
}

JsonText side_json(const PlanFile& file, const tide::Side& side) {
  const tide::Plan& plan = file.plans[static_cast<std::size_t>(side.rank.value)];
  std::vector<JsonField> all = {{"rank", side.rank.value},
                                {"lane", plan.lanes[side.op.lane].name()},
                                {"seq", number_in_file(file, side)},
                                {"op", name(side.op.kind)},
                                {"run", side.run}};
  if (!side.bytes.empty()) {
    const tide::GroupView group = file.collective.layout.group;
    const tide::ParameterIndex parameter{side.bytes.place.parameter};
    const bool named = side.bytes.place.space != tide::Space::signals && parameter.value < group.size();
    if (named) all.emplace_back("param", group[parameter].name.str());
    all.emplace_back("memory", object({{"rank", side.bytes.rank.value},
                                       {"space", name(side.bytes.place.space)},
                                       {"begin", side.bytes.begin},
                                       {"end", side.bytes.end}}));
  }
  return object(all);
}

Judged judge(const PlanFile& file, const Progress& progress) {
  std::size_t planned = 0;
  for (const tide::Plan& of_rank : file.plans) planned += of_rank.ops.size();
  progress.say(printable(file.group) + ": proving " + grouped(static_cast<index_t>(planned)) + " ops");
  const auto start = std::chrono::steady_clock::now();
  const tide::Verdict verdict = naming_memory("to prove the plans of group '" + file.group + "'",
                                              [&] { return tide::verify(file.collective, file.plans); });
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  Judged judged;
  judged.parameters = file.parameters;
  judged.ops = verdict.ops;
  judged.seconds = passed.count();
  std::ostringstream complaint;
  for (const tide::Violation& violation : verdict.violations) {
    complaint << "tide_inspect: " << name(file.collective.operation) << " of " << printable(file.group) << ": "
              << describe(violation) << '\n';
    std::vector<JsonText> ops;
    for (const tide::Side& side : {violation.first, violation.second}) {
      if (!side.is_op()) continue;
      ops.push_back(side_json(file, side));
      if (number_in_file(file, side) == side.seq) continue;
      complaint << "  (op " << side.seq << " of rank " << side.rank.value
                << " has \"seq\": " << number_in_file(file, side) << " in the file)\n";
    }
    judged.violations.push_back(
        object({{"law", name(violation.law)}, {"ops", list(ops)}, {"group", file.group}, {"text", violation.text}}));
  }
  judged.complaint = complaint.str();
  std::ostringstream seconds;
  seconds << std::fixed << std::setprecision(3) << judged.seconds;
  const std::size_t broken = verdict.violations.size();
  judged.row = {file.group,
                std::string(name(file.collective.operation)),
                text(file.collective.layout.mesh),
                grouped(verdict.ops),
                seconds.str(),
                broken == 0 ? "hold" : std::to_string(broken) + (broken == 1 ? " violation" : " violations")};
  return judged;
}

// Whether two groups have the same plans, whatever their parameters are called.
bool same_plans(const tide::GroupView& a, const tide::GroupView& b) {
  return std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(), b.parameters.end(),
                    [](const tide::Parameter& x, const tide::Parameter& y) {
                      using Kind = tide::Sharding::Kind;
                      return x.shape.rank == y.shape.rank && x.shape.extents == y.shape.extents &&
                             x.gathered == y.gathered && x.gradient == y.gradient && x.sharding.kind == Kind::chunked &&
                             y.sharding.kind == Kind::chunked && x.sharding.dimension == y.sharding.dimension;
                    });
}

int verify(const Args& args) {
  std::vector<Judged> all;
  const Progress progress;
  if (const std::optional<std::string> path = args.text("--plan")) {
    for (const char* flag :
         {"--model", "--model-file", "--group", "--mesh", "--op", "--packing", "--transport", "--own", "--gradients",
          "--finish", "--chunks", "--inbox-bytes", "--exchange", "--chunk-bytes", "--puts-in-flight"}) {
      if (args.has(flag)) throw UsageError("the file of --plan says it all; leave out " + std::string(flag));
    }
    require_writable_json(args);
    progress.say("reading " + printable(*path));
    all.push_back(judge(read_plan_file(*path), progress));
  } else {
    PlanChoices choices = parse_choices(args);
    choices.proved = true;
    FileModel model = choose_model(args);
    const std::vector<FileUnit> units = chosen_units(args, model);
    require_writable_json(args);
    for (const FileUnit& unit : units) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const Judged& judged) {
        return same_plans(judged.parameters.view(), unit.parameters.view());
      });
      if (known) continue;
      progress.say(printable(unit.name) + ": planning");
      all.push_back(judge(make_plans(model.name, unit.name, unit.parameters, choices), progress));
    }
  }
  progress.clear();
  index_t ops = 0;
  double seconds = 0;
  std::vector<JsonText> violations;
  Table table({"group", "operation", "mesh", "ops", "seconds", "laws"});
  for (const Judged& judged : all) {
    ops += judged.ops;
    seconds += judged.seconds;
    violations.insert(violations.end(), judged.violations.begin(), judged.violations.end());
    table.add(judged.row);
    std::cerr << judged.complaint << std::flush;
  }
  const bool holds = violations.empty();
  report(
      args,
      [&](std::ostream& out) {
        out << object({{"holds", holds}, {"violations", list(violations)}, {"ops", ops}, {"seconds", seconds}}).text()
            << '\n';
      },
      [&](std::ostream& out) { out << table; });
  return holds ? right : violated;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

int memory(const Args& args) {
  const PlanChoices choices = parse_choices(args);
  StepChoices step;
  step.prefetch = args.number("--prefetch", step.prefetch, 0, 255);
  step.gradient_buffers = args.number("--gradient-buffers", step.gradient_buffers, 1, 255);
  const FileModel model = choose_model(args);
  std::vector<tide::DynamicLayout> layouts;
  std::vector<MemoryPart> parts;
  std::string wide;  // the first group with a gradient that is wider than its parameter
  for (const FileUnit& unit : model.units) {
    require_sensible(unit.parameters.view(), choices.mesh, unit.name);
    parts.push_back({layouts.emplace_back(unit.parameters, choices.mesh, choices.packing).view(), unit.repeat});
    if (wide.empty() && !tide::fits_slot(parts.back().layout.group)) wide = unit.name;
  }
  const std::string no_slots =
      wide.empty() ? "" : "gradients of '" + wide + "' are wider than its parameters, and find no room in a slot";
  std::vector<StepMemory> paths;
  if (wide.empty()) paths.push_back(memory_with_slots(parts, step));
  paths.push_back(memory_with_ring(parts, step));
  paths.push_back(memory_stock(parts, step));
  paths.push_back(memory_symmetric(parts, step));
  report(
      args,
      [&](std::ostream& out) {
        std::vector<JsonText> all;
        for (const StepMemory& path : paths) {
          std::vector<JsonText> terms;
          for (const auto& [term, bytes] : path.terms) terms.push_back(object({{"term", term}, {"bytes", bytes}}));
          all.push_back(object({{"path", path.path}, {"peak_bytes", path.peak()}, {"terms", list(terms)}}));
        }
        out << object({{"model", model.name},
                       {"mesh", text(choices.mesh)},
                       {"prefetch", step.prefetch},
                       {"gradient_buffers", step.gradient_buffers},
                       {"paths", list(all)},
                       {"no_slots", no_slots}})
                   .text()
            << '\n';
      },
      [&](std::ostream& out) {
        Table table({"path", "term", "bytes"});
        for (const StepMemory& path : paths) {
          table.add({path.path, "peak", grouped(path.peak())});
          for (const auto& [term, bytes] : path.terms) table.add({"", term, grouped(bytes)});
        }
        out << "a step of " << printable(model.name) << " on " << text(choices.mesh)
            << " ranks, beside masters, reduced shards and activations\n\n"
            << table;
        if (!no_slots.empty()) out << "\nno tide.slots: " << printable(no_slots) << '\n';
      });
  return right;
}

int inspect(const Args& args) {
  if (args.words().size() != 1) {
    throw UsageError("give one of layout, plan, verify and memory" +
                     (args.words().size() < 2
                          ? ""
                          : ", and a model with --model or --model-file; there is '" + args.words()[1] + "', too"));
  }
  const std::string& command = args.words().front();
  refuse_idle_flags(args, command);
  if (command == "layout") return layout(args);
  if (command == "plan") return plan(args);
  if (command == "verify") return verify(args);
  if (command == "memory") return memory(args);
  throw UsageError("give one of layout, plan, verify and memory, not '" + command + "'");
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using tide_example::Args;
  return tide_example::run_program(argc, argv, tide_example::usage, [&] {
    return tide_example::inspect(Args(argc, argv,
                                      {{"--prefetch", Args::value},
                                       {"--gradient-buffers", Args::value},
                                       {"--model", Args::value},
                                       {"--model-file", Args::value},
                                       {"--group", Args::value},
                                       {"--mesh", Args::value},
                                       {"--op", Args::value},
                                       {"--packing", Args::value},
                                       {"--json", Args::value},
                                       {"--plan", Args::value},
                                       {"--summary", Args::alone},
                                       {"--print", Args::alone},
                                       {"--estimate", Args::alone},
                                       {"--machine", Args::value},
                                       {"--transport", Args::value},
                                       {"--own", Args::value},
                                       {"--gradients", Args::value},
                                       {"--finish", Args::value},
                                       {"--chunks", Args::value},
                                       {"--inbox-bytes", Args::value},
                                       {"--exchange", Args::value},
                                       {"--chunk-bytes", Args::value},
                                       {"--puts-in-flight", Args::value}}));
  });
}
