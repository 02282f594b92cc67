// SPDX-License-Identifier: Apache-2.0
//
// Writes a PlanFile; plan_json.hpp says how it looks.

#pragma once

#include "json_text.hpp"
#include "plan_file.hpp"

#include <tide/plan/plan.hpp>

#include <algorithm>
#include <ostream>

namespace tide_example {

/// The layout of a plan, so that it can be built again.
/// @throws tide::Error (Errc::argument) for a packing or a cut that the format has no words for
[[nodiscard]] inline JsonText layout_json(const PlanFile& file) {
  const tide::LayoutView& layout = file.collective.layout;
  const NamedPacking* packing = std::find_if(std::begin(packings), std::end(packings),
                                             [&](const NamedPacking& named) { return named.rule == layout.packing; });
  if (packing == std::end(packings)) tide::raise(tide::Errc::argument, "a plan file has no word for this packing");
  std::vector<JsonText> parameters;
  for (tide::index_t i = 0; i < layout.group.size(); ++i) {
    const tide::Parameter& parameter = layout.group[tide::ParameterIndex{i}];
    std::vector<JsonText> shape;
    for (int d = 0; d < parameter.shape.rank; ++d) shape.emplace_back(parameter.shape[d]);
    std::vector<JsonField> entry = {{"name", parameter.name.str()},
                                    {"shape", list(shape)},
                                    {"gathered", name(parameter.gathered)},
                                    {"gradient", name(parameter.gradient)}};
    if (parameter.sharding.dimension != 0) entry.emplace_back("dimension", parameter.sharding.dimension);
    if (parameter.sharding.kind != tide::Sharding::Kind::chunked) {
      if (parameter.sharding.dimension != 0) {
        tide::raise(tide::Errc::argument, "a plan file has no words for how '" + parameter.name.str() + "' is cut");
      }
      std::vector<JsonText> rows;
      for (tide::index_t r = 0; r < layout.mesh.ranks(); ++r) {
        rows.emplace_back(layout.piece(tide::ParameterIndex{i}, tide::Rank{r}).count);
      }
      entry.emplace_back("rows", list(rows));
    }
    parameters.push_back(object(entry));
  }
  std::vector<JsonText> tied;
  for (const tide::Alias& alias : layout.group.aliases) {
    tied.push_back(object({{"name", alias.name}, {"target", alias.target}}));
  }
  return object({{"model", file.model},
                 {"group", file.group},
                 {"packing", packing->name},
                 {"storage_alignment", layout.storage_alignment},
                 {"params", list(parameters)},
                 {"tied", list(tied)}});
}

namespace detail {

inline void write_place(std::ostream& out, const char* key, tide::Place place, tide::index_t offset,
                        std::uint32_t pitch) {
  out << ", \"" << key << "\": {\"space\": \"" << name(place.space) << '"';
  if (place.instance != 0) out << ", \"instance\": " << static_cast<int>(place.instance);
  out << ", \"offset\": " << offset;
  if (pitch != 0) out << ", \"pitch\": " << pitch;
  out << '}';
}

inline void write_op(std::ostream& out, const tide::Collective& collective, const tide::Op& op, std::size_t seq) {
  using tide::OpKind;
  const auto peer = [&](const char* key) { out << ", \"" << key << "\": " << op.peer; };
  const auto word = [&](tide::index_t offset, tide::index_t value, tide::index_t per_run) {
    out << ", \"word\": \"" << collective.words().describe(offset / 8) << "\", \"value\": " << value
        << ", \"per_run\": " << per_run;
  };
  const bool kernel = op.kind == OpKind::reduce || op.kind == OpKind::cast;
  out << "{\"op\": \"" << name(op.kind) << "\", \"seq\": " << seq;
  if (op.kind == OpKind::copy || op.kind == OpKind::put || op.kind == OpKind::signal) peer("peer");
  if (op.kind == OpKind::reduce) peer("position");
  if (kernel) out << ", \"kernel\": " << static_cast<int>(op.kernel);
  if (op.moves()) {
    const bool put = op.kind == OpKind::put;  // whose pitches mean something else
    out << ", \"param\": " << op.source.parameter;
    write_place(out, "source", op.source, op.source_offset, put ? 0 : op.source_pitch);
    if (op.kind == OpKind::reduce) write_place(out, "pieces", op.extra, op.extra_offset, 0);
    write_place(out, "target", op.target, op.target_offset, put ? 0 : op.target_pitch);
    out << ", \"width\": " << op.width;
    if (op.rows != 1) out << ", \"rows\": " << op.rows;
    if (put) word(op.extra_offset, op.source_pitch, op.target_pitch);
  } else {
    word(op.target_offset, op.value(), op.per_run());
  }
  out << '}';
}

inline void write_exits(std::ostream& out, const tide::Plan& plan) {
  const char* separator = "";
  for (const tide::Exit& exit : plan.exits) {
    std::ptrdiff_t after = -1;
    tide::index_t passed = 0;
    for (std::size_t seq = 0; seq < plan.ops.size() && passed < exit.position; ++seq) {
      if (plan.ops[seq].lane != exit.lane.value) continue;
      after = static_cast<std::ptrdiff_t>(seq);
      ++passed;
    }
    out << separator << "{\"exit\": \"" << name(exit.kind) << "\", \"lane\": \""
        << plan.lanes[static_cast<std::size_t>(exit.lane.value)].name() << "\", \"after\": " << after << '}';
    separator = ", ";
  }
}

inline void write_lane(std::ostream& out, const tide::Collective& collective, const tide::Plan& plan,
                       std::size_t lane) {
  out << "{\"name\": \"" << plan.lanes[lane].name() << "\", \"ops\": [";
  const char* separator = "\n";
  for (std::size_t seq = 0; seq < plan.ops.size(); ++seq) {
    if (plan.ops[seq].lane != lane) continue;
    out << separator;
    write_op(out, collective, plan.ops[seq], seq);
    separator = ",\n";
  }
  out << "]}";
}

}  // namespace detail

/// Writes a plan with `constants` and `bound`, which are for readers and not read again.
inline void write_plan(std::ostream& out, const PlanFile& file, const JsonText& constants, const JsonText& bound) {
  const tide::Collective& collective = file.collective;
  out << "{\"layout\": " << layout_json(file).text() << ",\n\"mesh\": \"" << text(collective.layout.mesh)
      << "\",\n\"op\": \"" << name(collective.operation) << "\",\n";
  if (collective.operation == tide::Operation::gather) {
    out << "\"own\": \"" << name(collective.own) << "\",\n";
  } else {
    const tide::InboxShape& inbox = collective.inbox;
    out << "\"gradients\": \"" << (collective.gradients == tide::GradientSource::storage ? "storage" : "table")
        << "\",\n\"finish\": \"" << (collective.finish == tide::Finish::store ? "store" : "accumulate")
        << "\",\n\"inbox\": {\"chunks\": " << inbox.chunks << ", \"pieces\": " << inbox.pieces
        << ", \"chunk_elements\": " << inbox.chunk_elements << ", \"element_bytes\": " << inbox.element_bytes;
    if (inbox.piece_room != 0) out << ", \"piece_room\": " << inbox.piece_room;
    if (inbox.place != tide::InboxPlace::ring) out << ", \"place\": \"" << name(inbox.place) << '"';
    if (inbox.slot_bytes != 0) out << ", \"slot_bytes\": " << inbox.slot_bytes;
    out << "},\n";
  }
  const tide::NetworkShape& network = collective.network;
  if (collective.layout.mesh.nodes > 1) {
    out << "\"network\": {\"inbox_bytes\": " << network.inbox_bytes
        << ", \"inbox_instances\": " << network.inbox_instances << ", \"partials_bytes\": " << network.partials_bytes
        << ", \"partials_instances\": " << network.partials_instances << ", \"piece_bytes\": " << network.piece_bytes
        << ", \"puts_in_flight\": " << network.puts_in_flight;
    if (collective.operation == tide::Operation::reduce) out << ", \"exchange\": \"" << name(network.exchange) << '"';
    if (network.wire != tide::Element::f32) out << ", \"wire\": \"" << name(network.wire) << '"';
    out << "},\n";
  }
  std::vector<JsonText> kernels;
  for (const tide::Kernel& kernel : collective.kernels) {
    kernels.push_back(object({{"kind", name(kernel.kind)},
                              {"input", name(kernel.input)},
                              {"output", name(kernel.output)},
                              {"finish", finish_names[static_cast<std::size_t>(kernel.finish)]},
                              {"inputs", kernel.inputs}}));
  }
  out << "\"kernels\": " << list(kernels).text() << ",\n\"ranks\": [\n";
  for (const tide::Plan& plan : file.plans) {
    out << (plan.rank.value == file.plans.front().rank.value ? "" : ",\n") << "{\"rank\": " << plan.rank.value
        << ", \"exits\": [";
    detail::write_exits(out, plan);
    out << "], \"lanes\": [\n";
    for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
      if (lane > 0) out << ",\n";
      detail::write_lane(out, collective, plan, lane);
    }
    out << "]}";
  }
  out << "],\n\"constants\": " << constants.text() << ",\n\"bound\": " << bound.text() << "}\n";
}

}  // namespace tide_example
