// SPDX-License-Identifier: Apache-2.0
//
// Reads a PlanFile; plan_json.hpp says how it looks. A file comes from anywhere: what it lacks, what it has too much,
// and what does not fit is refused by name, with rank, lane and op. What can be read is not judged here: `verify` does
// that.

#pragma once

#include "args.hpp"
#include "mesh.hpp"
#include "plan_file.hpp"

#include <nlohmann/json.hpp>
#include <tide/core/error.hpp>
#include <tide/plan/kernels.hpp>
#include <tide/plan/plan.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tide_example {

class PlanReader {
 public:
  /// @throws tide::Error (Errc::argument, Errc::layout or Errc::capacity) that names what cannot be read, and where
  [[nodiscard]] static PlanFile read(const nlohmann::json& json) {
    PlanReader reader;
    reader.read_collective(json);
    reader.read_ranks(json);
    return std::move(reader.file_);
  }

 private:
  using Value = nlohmann::json;
  using index_t = tide::index_t;

  static constexpr index_t most = most_bytes;
  static constexpr index_t most_memory = index_t{1} << 48;
  static constexpr index_t most_32 = std::numeric_limits<std::uint32_t>::max();

  // ---- values
  // --------------------------------------------------------------------------------------------------------

  [[noreturn]] void refuse(const std::string& what) const { tide::raise(tide::Errc::argument, where_ + what); }

  const Value& at(const Value& object, const char* key) const {
    if (!object.is_object()) refuse("an object with the key '" + std::string(key) + "' is needed");
    const auto found = object.find(key);
    if (found == object.end()) refuse("the key '" + std::string(key) + "' is missing");
    return *found;
  }

  static bool has(const Value& object, const char* key) { return object.is_object() && object.contains(key); }

  const Value& list(const Value& object, const char* key) const {
    const Value& value = at(object, key);
    if (!value.is_array()) refuse("'" + std::string(key) + "' must be a list");
    return value;
  }

  index_t integer(const Value& value, const char* key, index_t least, index_t largest) const {
    // An unsigned number beyond 63 bits would wrap around.
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most));
    const index_t number = fits ? value.get<index_t>() : 0;
    if (!fits || number < least || number > largest) {
      refuse("'" + std::string(key) + "' must be a whole number from " + std::to_string(least) + " to " +
             std::to_string(largest));
    }
    return number;
  }

  index_t number(const Value& object, const char* key, index_t least, index_t largest) const {
    return integer(at(object, key), key, least, largest);
  }

  index_t number(const Value& object, const char* key, index_t least, index_t largest, index_t otherwise) const {
    return has(object, key) ? number(object, key, least, largest) : otherwise;
  }

  std::string text(const Value& object, const char* key) const {
    const Value& value = at(object, key);
    if (!value.is_string()) refuse("'" + std::string(key) + "' must be a text");
    return value.get<std::string>();
  }

  // The position of a text among some names.
  template <class Names>
  std::size_t choice(const Value& object, const char* key, const Names& names) const {
    const std::string given = text(object, key);
    const auto found = std::find(std::begin(names), std::end(names), given);
    if (found != std::end(names)) return static_cast<std::size_t>(found - std::begin(names));
    std::string all;
    for (const std::string_view candidate : names) all += (all.empty() ? "" : ", ") + std::string(candidate);
    refuse("'" + std::string(key) + "' must be one of " + all + ", not '" + given + "'");
  }

  // The names of an enumeration with `count` values.
  template <class Enum, std::size_t Count>
  static std::array<std::string_view, Count> names() {
    std::array<std::string_view, Count> all;
    for (std::size_t i = 0; i < Count; ++i) all[i] = name(static_cast<Enum>(i));
    return all;
  }

  // Refuses keys that nobody reads: a misspelt one would silently mean its default.
  void only(const Value& object, std::initializer_list<std::string_view> keys) const {
    if (!object.is_object()) refuse("an object is needed");
    for (const auto& item : object.items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) refuse("unknown key '" + item.key() + "'");
    }
  }

  // ---- what has to be achieved
  // ---------------------------------------------------------------------------------------

  tide::MeshShape read_mesh(const Value& json) const {
    const std::string given = text(json, "mesh");
    const auto mesh = parse_mesh(given, tide::max_ranks, tide::max_ranks);
    if (!mesh) refuse("'mesh' must be NODESxRANKS, as in \"1x8\", not '" + given + "'");
    if (mesh->ranks_per_node > most_planned_ranks / mesh->nodes) {
      tide::raise(tide::Errc::capacity,
                  where_ + "'mesh' has more than " + std::to_string(most_planned_ranks) + " ranks");
    }
    return *mesh;
  }

  void read_parameter(const Value& json) {
    only(json, {"name", "shape", "gathered", "gradient", "dimension", "rows"});
    constexpr std::size_t count = tide::all_elements.size();
    std::vector<index_t> shape;
    for (const Value& extent : list(json, "shape")) shape.push_back(integer(extent, "shape", 0, most));
    tide::Sharding sharding;
    sharding.dimension = static_cast<int>(number(json, "dimension", 0, tide::max_dimensions, 0));
    std::vector<index_t> rows;
    if (has(json, "rows")) {
      for (const Value& of_rank : list(json, "rows")) rows.push_back(integer(of_rank, "rows", 0, most));
      if (rows.empty() || sharding.dimension != 0) refuse("'rows' must hold a number per rank, for dimension 0");
    }
    const auto gathered = static_cast<tide::Element>(choice(json, "gathered", names<tide::Element, count>()));
    const auto gradient = static_cast<tide::Element>(choice(json, "gradient", names<tide::Element, count>()));
    file_.parameters.add(text(json, "name"), shape, gathered, gradient, sharding, std::move(rows));
  }

  void read_layout(const Value& json, tide::MeshShape mesh) {
    where_ = "layout: ";
    only(json, {"model", "group", "packing", "storage_alignment", "params", "tied"});
    file_.model = text(json, "model");
    file_.group = text(json, "group");
    std::vector<std::string_view> packing_names;
    for (const NamedPacking& packing : packings) packing_names.push_back(packing.name);
    const tide::PackingRule packing = packings[choice(json, "packing", packing_names)].rule;
    const index_t alignment = number(json, "storage_alignment", 16, 1 << 20);
    if ((alignment & (alignment - 1)) != 0) refuse("'storage_alignment' must be a power of two");
    index_t position = 0;
    for (const Value& parameter : list(json, "params")) {
      where_ = "layout, parameter " + std::to_string(position++) + ": ";
      read_parameter(parameter);
    }
    where_ = "layout: ";
    if (has(json, "tied")) {
      for (const Value& tied : list(json, "tied")) {
        only(tied, {"name", "target"});
        file_.parameters.add_alias(text(tied, "name"), text(tied, "target"));
      }
    }
    const tide::GroupView group = file_.parameters.view();
    require_sensible(group, mesh, file_.group);
    file_.collective.layout = tide::DynamicLayout(file_.parameters, mesh, packing, alignment).view();
    where_.clear();
  }

  void read_inbox(const Value& json) {
    where_ = "inbox: ";
    const Value& inbox = at(json, "inbox");
    only(inbox, {"chunks", "pieces", "chunk_elements", "element_bytes", "piece_room", "place", "slot_bytes"});
    tide::InboxShape& shape = file_.collective.inbox;
    shape.chunks = number(inbox, "chunks", 0, 255);
    shape.pieces = number(inbox, "pieces", 0, tide::max_ranks);
    shape.chunk_elements = number(inbox, "chunk_elements", 0, index_t{1} << 34);
    shape.element_bytes = number(inbox, "element_bytes", 0, 8);
    shape.piece_room = number(inbox, "piece_room", 0, most_memory, 0);
    if (has(inbox, "place")) {
      shape.place = static_cast<tide::InboxPlace>(choice(inbox, "place", names<tide::InboxPlace, 2>()));
    }
    shape.slot_bytes = number(inbox, "slot_bytes", 0, most_memory, 0);
    if (shape.pieces != file_.collective.layout.mesh.ranks_per_node - 1) refuse("'pieces' must be one per peer");
    where_.clear();
  }

  void read_network(const Value& json) {
    if (file_.collective.layout.mesh.nodes == 1) {
      if (has(json, "network")) refuse("'network' is for meshes of several nodes");
      return;
    }
    where_ = "network: ";
    const Value& network = at(json, "network");
    only(network, {"inbox_bytes", "inbox_instances", "partials_bytes", "partials_instances", "piece_bytes",
                   "puts_in_flight", "exchange", "wire"});
    tide::NetworkShape& shape = file_.collective.network;
    shape.inbox_bytes = number(network, "inbox_bytes", 0, most_memory);
    shape.inbox_instances = number(network, "inbox_instances", 1, 256);
    shape.partials_bytes = number(network, "partials_bytes", 0, most_memory);
    shape.partials_instances = number(network, "partials_instances", 1, 256);
    shape.piece_bytes = number(network, "piece_bytes", 0, most_memory);
    shape.puts_in_flight = number(network, "puts_in_flight", 0, most_32);
    if (has(network, "exchange")) {
      shape.exchange = static_cast<tide::Exchange>(choice(network, "exchange", names<tide::Exchange, 3>()));
    }
    if (has(network, "wire")) {
      constexpr std::size_t count = tide::all_elements.size();
      shape.wire = static_cast<tide::Element>(choice(network, "wire", names<tide::Element, count>()));
    }
    where_.clear();
  }

  void read_collective(const Value& json) {
    where_ = "";
    only(json, {"layout", "mesh", "op", "own", "gradients", "finish", "inbox", "network", "kernels", "ranks",
                "constants", "bound"});
    tide::Collective& collective = file_.collective;
    read_layout(at(json, "layout"), read_mesh(json));
    collective.operation = static_cast<tide::Operation>(choice(json, "op", names<tide::Operation, 2>()));
    if (collective.operation == tide::Operation::gather) {
      collective.own = static_cast<tide::OwnBlock>(choice(json, "own", names<tide::OwnBlock, 4>()));
    } else {
      constexpr std::string_view sources[] = {"storage", "table"};
      constexpr std::string_view finishes[] = {"store", "accumulate"};
      collective.gradients = static_cast<tide::GradientSource>(choice(json, "gradients", sources));
      collective.finish = static_cast<tide::Finish>(choice(json, "finish", finishes));
      read_inbox(json);
    }
    read_network(json);
    tide::fill_kernels_over_nodes(collective);
    read_kernels(json);
  }

  // The table follows from the rest; it is in the file for people, and has to be what it says.
  void read_kernels(const Value& json) {
    const Value& kernels = list(json, "kernels");
    where_ = "kernels: ";
    bool same = kernels.size() == file_.collective.kernels.size();
    for (std::size_t i = 0; same && i < kernels.size(); ++i) {
      const tide::Kernel& expected = file_.collective.kernels[i];
      only(kernels[i], {"kind", "input", "output", "finish", "inputs"});
      same = text(kernels[i], "kind") == name(expected.kind) && text(kernels[i], "input") == name(expected.input) &&
             text(kernels[i], "output") == name(expected.output) &&
             text(kernels[i], "finish") == finish_names[static_cast<std::size_t>(expected.finish)] &&
             number(kernels[i], "inputs", 0, tide::max_ranks) == expected.inputs;
    }
    if (!same) refuse("they must be those that the layout and the operation need, in order of first use");
    where_.clear();
  }

  // ---- plans
  // ---------------------------------------------------------------------------------------------------------

  struct NumberedOp {
    index_t seq;
    tide::Op op;
  };

  void read_ranks(const Value& json) {
    const Value& ranks = list(json, "ranks");
    const auto wanted = static_cast<std::size_t>(file_.collective.ranks());
    if (ranks.size() != wanted) {
      refuse("'ranks' must hold the " + std::to_string(wanted) + " ranks of the mesh, not " +
             std::to_string(ranks.size()));
    }
    file_.plans.resize(wanted);
    file_.seqs.resize(wanted);
    std::vector<char> seen(wanted, 0);
    std::size_t position = 0;
    for (const Value& rank : ranks) {
      where_ = "ranks, entry " + std::to_string(position++) + ": ";
      const auto r = static_cast<std::size_t>(number(rank, "rank", 0, static_cast<index_t>(wanted) - 1));
      if (std::exchange(seen[r], 1) != 0) refuse("rank " + std::to_string(r) + " is there twice");
      read_rank(rank, r);
    }
    where_.clear();
  }

  void read_rank(const Value& json, std::size_t r) {
    const std::string rank = "rank " + std::to_string(r);
    where_ = rank + ": ";
    only(json, {"rank", "lanes", "exits"});
    tide::Plan& plan = file_.plans[r];
    plan.rank = tide::Rank{static_cast<index_t>(r)};
    plan.lanes.push_back({tide::LaneKind::caller, 0});  // is there even if all its ops are gone
    std::vector<NumberedOp> ops;
    std::vector<tide::Lane> seen;
    for (const Value& lane_json : list(json, "lanes")) {
      where_ = rank + ": ";
      only(lane_json, {"name", "ops"});
      const std::string name = text(lane_json, "name");
      const tide::Lane lane = parse_lane(name);
      if (std::find(seen.begin(), seen.end(), lane) != seen.end()) refuse("lane '" + name + "' is there twice");
      seen.push_back(lane);
      const std::size_t number = lane_of(plan, lane);
      index_t position = 0;
      for (const Value& op : list(lane_json, "ops")) {
        where_ = rank + ", lane '" + name + "', op " + std::to_string(position++) + " of it: ";
        ops.push_back(read_op(op, r));
        ops.back().op.lane = static_cast<std::uint16_t>(number);
      }
    }
    where_ = rank + ": ";
    std::sort(ops.begin(), ops.end(), [](const NumberedOp& a, const NumberedOp& b) { return a.seq < b.seq; });
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (i > 0 && ops[i].seq == ops[i - 1].seq) refuse("two ops have \"seq\": " + std::to_string(ops[i].seq));
      plan.ops.push_back(ops[i].op);
      file_.seqs[r].push_back(ops[i].seq);
    }
    read_exits(json, r);
  }

  void read_exits(const Value& json, std::size_t r) {
    tide::Plan& plan = file_.plans[r];
    for (const Value& exit : list(json, "exits")) {
      only(exit, {"exit", "lane", "after"});
      const auto kind = static_cast<tide::ExitKind>(choice(exit, "exit", names<tide::ExitKind, 3>()));
      const std::size_t lane = lane_of(plan, parse_lane(text(exit, "lane")));
      const index_t after = number(exit, "after", -1, most);
      std::int32_t position = 0;
      for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        position += plan.ops[i].lane == lane && file_.seqs[r][i] <= after ? 1 : 0;
      }
      plan.exits.push_back({kind, tide::LaneIndex{static_cast<index_t>(lane)}, position});
    }
  }

  // The lane of that name, made when first asked for: a lane without ops may be left out.
  static std::size_t lane_of(tide::Plan& plan, tide::Lane lane) {
    const auto found = std::find(plan.lanes.begin(), plan.lanes.end(), lane);
    const auto position = static_cast<std::size_t>(found - plan.lanes.begin());
    if (found == plan.lanes.end()) plan.lanes.push_back(lane);
    return position;
  }

  tide::Lane parse_lane(const std::string& name) const {
    if (name == "caller") return {tide::LaneKind::caller, 0};
    constexpr std::pair<std::string_view, tide::LaneKind> numbered[] = {
        {"push", tide::LaneKind::push}, {"sum", tide::LaneKind::sum}, {"net", tide::LaneKind::net}};
    for (const auto& [text, kind] : numbered) {
      if (name == text && kind != tide::LaneKind::push) return {kind, 0};
      if (!name.starts_with(std::string(text) + " ")) continue;
      const auto index = parse_number<std::int32_t>(std::string_view(name).substr(text.size() + 1), 0, tide::max_ranks);
      if (index) return {kind, *index};
    }
    refuse("a lane is called caller, push N, sum, sum N, net or net N, not '" + name + "'");
  }

  // ---- ops
  // -----------------------------------------------------------------------------------------------------------

  NumberedOp read_op(const Value& json, std::size_t rank) {
    using tide::OpKind;
    tide::Op op;
    op.kind = static_cast<OpKind>(choice(json, "op", names<OpKind, tide::op_kind_count>()));
    op.peer = static_cast<std::int32_t>(rank);
    const NumberedOp numbered{number(json, "seq", 0, most), {}};
    switch (op.kind) {
      case OpKind::copy:
        only(json, {"op", "seq", "peer", "param", "source", "target", "width", "rows"});
        op.peer = read_peer(json, "peer");
        read_move(json, op);
        break;
      case OpKind::multicast:
        only(json, {"op", "seq", "param", "source", "target", "width", "rows"});
        read_move(json, op);
        break;
      case OpKind::put: {
        only(json, {"op", "seq", "peer", "param", "source", "target", "width", "word", "value", "per_run"});
        op.peer = read_peer(json, "peer");
        read_move(json, op);
        op.extra.space = tide::Space::signals;
        op.extra_offset = read_word(json);
        op.source_pitch = static_cast<std::uint32_t>(number(json, "value", 0, most_32));
        op.target_pitch = static_cast<std::uint32_t>(number(json, "per_run", 0, most_32));
        break;
      }
      case OpKind::signal:
        only(json, {"op", "seq", "peer", "word", "value", "per_run"});
        op.peer = read_peer(json, "peer");
        read_synchronisation(json, op);
        break;
      case OpKind::wait:
        only(json, {"op", "seq", "word", "value", "per_run"});
        read_synchronisation(json, op);
        break;
      case OpKind::reduce:
        only(json, {"op", "seq", "position", "kernel", "param", "source", "pieces", "target", "width", "rows"});
        op.peer = read_peer(json, "position");
        op.kernel = static_cast<std::uint8_t>(number(json, "kernel", 0, 255));
        read_move(json, op);
        op.extra_offset = read_place(json, "pieces", op, op.extra, nullptr);
        break;
      case OpKind::cast:
        only(json, {"op", "seq", "kernel", "param", "source", "target", "width", "rows"});
        op.kernel = static_cast<std::uint8_t>(number(json, "kernel", 0, 255));
        read_move(json, op);
        break;
    }
    return {numbered.seq, op};
  }

  std::int32_t read_peer(const Value& json, const char* key) const {
    constexpr index_t last = std::numeric_limits<std::int32_t>::max();
    return static_cast<std::int32_t>(number(json, key, -last, last));
  }

  void read_move(const Value& json, tide::Op& op) const {
    op.source.parameter = static_cast<std::uint16_t>(number(json, "param", 0, 65535));
    op.width = number(json, "width", -most, most);
    op.rows = static_cast<std::uint32_t>(number(json, "rows", 0, most_32, 1));
    op.source_offset = read_place(json, "source", op, op.source, &op.source_pitch);
    op.target_offset = read_place(json, "target", op, op.target, &op.target_pitch);
  }

  // Returns the offset.
  index_t read_place(const Value& json, const char* key, const tide::Op& op, tide::Place& place,
                     std::uint32_t* pitch) const {
    const Value& object = at(json, key);
    only(object, {"space", "instance", "offset", "pitch"});
    place.space = static_cast<tide::Space>(choice(object, "space", names<tide::Space, tide::space_count>()));
    place.instance = static_cast<std::uint8_t>(number(object, "instance", 0, 255, 0));
    place.parameter = op.source.parameter;
    const auto distance = static_cast<std::uint32_t>(number(object, "pitch", 0, most_32, 0));
    if (pitch == nullptr && distance != 0) refuse("'" + std::string(key) + "' has no pitch of its own");
    if (pitch != nullptr) *pitch = distance;
    return number(object, "offset", -most, most);
  }

  void read_synchronisation(const Value& json, tide::Op& op) const {
    op.source.space = tide::Space::signals;
    op.target.space = tide::Space::signals;
    op.target_offset = read_word(json);
    op.width = number(json, "value", -most, most);
    op.rows = static_cast<std::uint32_t>(number(json, "per_run", 0, most_32));
  }

  // "arrived[3]", as an offset in the signals.
  index_t read_word(const Value& json) const {
    const std::string given = text(json, "word");
    const std::size_t open = given.find('[');
    const tide::SignalWords words = file_.collective.words();
    if (open != std::string::npos && given.back() == ']') {
      const auto index = parse_number<index_t>(std::string_view(given).substr(open + 1, given.size() - open - 2), 0,
                                               words.stride() - 1);
      for (int kind = 0; index && kind < tide::word_kind_count; ++kind) {
        const auto candidate = static_cast<tide::WordKind>(kind);
        if (given.substr(0, open) == name(candidate)) return 8 * words.word(candidate, *index);
      }
    }
    refuse("'word' must be ready[N], arrived[N], credit[N], event[N] or landed[N] with N up to " +
           std::to_string(words.stride() - 1) + ", not '" + given + "'");
  }

  PlanFile file_;
  std::string where_;  // what is being read: "rank 1, lane 'push 2', op 3 of it: "
};

}  // namespace tide_example
