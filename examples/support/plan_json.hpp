// SPDX-License-Identifier: Apache-2.0
//
// Plans as JSON files, one op per line, that hold all that `verify` needs: anyone can alter one and see it judged.
//
//   {"layout": {"model", "group", "packing", "storage_alignment", "params": [{"name", "shape", "gathered", "gradient",
//    "dimension", "rows"}], "tied": [{"name", "target"}]},
//    "mesh": "1x4", "op": "gather", "own": "copy",                        or "op": "reduce", "gradients", "finish", "inbox"
//    "inbox": {"chunks", ..., "piece_room", "place", "slot_bytes"},       of a reduce: an InboxShape
//    "network": {"inbox_bytes", ..., "exchange", "wire"},                 on several nodes: a NetworkShape
//    "kernels": [{"kind", "input", "output", "finish", "inputs"}],
//    "ranks": [{"rank": 0, "exits": [{"exit": "complete", "lane": "caller", "after": 11}],
//               "lanes": [{"name": "push 1", "ops": [{"op": "copy", "seq": 4, ...}]}]}]}
//
// `Collective::ctas`, which changes no byte, is not in it. Where "piece_room", "place", "slot_bytes" or "wire" is
// missing, it is what it is without being asked for: 0, ring, 0, f32.
//
// `seq` is the place of an op in its rank's issue order; numbers may be missing, the rest keeps its order. An exit
// comes when the ops of its lane up to number `after` are done; -1: none.
//
//   op         besides "op" and "seq"; "instance", "pitch" and "rows" only where they are not 0, 0 and 1
//   copy       peer, param, source {space, instance, offset, pitch}, target {...}, width, rows
//   multicast  param, source, target, width, rows
//   put        peer, param, source, target, width, word, value, per_run
//   signal     peer, word ("ready[0]"), value, per_run
//   wait       word, value, per_run
//   reduce     kernel, position, param, source, pieces {space, instance, offset}, target, width, rows
//   cast       kernel, param, source, target, width, rows

#pragma once

#include "files.hpp"
#include "plan_reader.hpp"
#include "plan_writer.hpp"

#include <string>

namespace tide_example {

/// A plan that `write_plan` wrote, altered or not.
/// @throws tide::Error that names the file and what in it cannot be read
[[nodiscard]] inline PlanFile read_plan_file(const std::string& path) {
  const nlohmann::json json = read_json(path);
  try {
    return PlanReader::read(json);
  } catch (const tide::Error& error) {
    tide::raise(error.code(), "'" + path + "': " + error.what());
  }
}

}  // namespace tide_example
