// SPDX-License-Identifier: Apache-2.0
//
// Plans as people read them: one line per op, lane by lane, with its place in the rank's issue order.
//
//   push 1
//       3  wait       event[0] >= 1
//       5  copy       shards[0 +512 x 3 pitch 512] -> rank 1 slot[1024 pitch 2048]  'q_proj.weight'
//       6  signal     rank 1 arrived[0] = 1
//
// A memory reads space[offset +bytes of a row x rows pitch bytes], a word word[source] with its value, counted from the
// start of the run: "credit[2] >= 0 of 3" was met by the end of the run before, in which the word grew by 3, too.
//
// Test: tests/plan/print.test.cpp

#pragma once

#include <tide/plan/detail/describe.hpp>  // left, right, operands
#include <tide/plan/plan.hpp>             // Plan

#include <ostream>
#include <string>

namespace tide {

/// An op in one line, without its number: "copy shards[0 +512] -> rank 2 slot[1024]  'q_proj.weight'".
[[nodiscard]] inline std::string describe(const Collective& collective, const Op& op) {
  return std::string(name(op.kind)) + " " + detail::operands(collective, op);
}

/// Whom a wait for a word of `rank` waits for: "the own lane push 1", "rank 2", "rank 6 of node 3, round 1". Round k of
/// a gather is the exchange with the nodes at distance 2^k.
[[nodiscard]] inline std::string describe_source(MeshShape mesh, Operation operation, const Plan& plan, index_t word) {
  const SignalWords words{mesh.ranks()};
  const index_t source = words.index(word);
  if (words.kind(word) == WordKind::event) {
    const auto lane = static_cast<std::size_t>(source);
    return "the own lane " + (lane < plan.lanes.size() ? plan.lanes[lane].name() : std::to_string(source));
  }
  std::string text = "rank " + std::to_string(source);
  if (source >= mesh.ranks()) return text;
  const index_t away = mesh.node(plan.rank) - mesh.node(Rank{source});
  if (away == 0) return text;
  text += " of node " + std::to_string(mesh.node(Rank{source}));
  if (operation != Operation::gather) return text;
  // Blocks come from nodes before this one, all else from nodes behind it.
  const index_t distance = ((words.kind(word) == WordKind::arrived ? away : -away) + mesh.nodes) % mesh.nodes;
  index_t round = 0;
  while ((index_t{1} << round) < distance) ++round;
  return text + ", round " + std::to_string(round);
}

/// Writes a plan for people to read.
inline std::ostream& print(std::ostream& out, const Collective& collective, const Plan& plan) {
  const MeshShape mesh = collective.layout.mesh;
  out << "rank " << plan.rank.value << " of " << mesh.nodes << "x" << mesh.ranks_per_node << ": "
      << name(collective.operation) << " of " << collective.layout.group.size() << " parameters, " << plan.ops.size()
      << " ops on " << plan.lanes.size() << " lanes\n";
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const LaneIndex lane{static_cast<index_t>(l)};
    index_t position = 0;
    const auto exits = [&] {
      for (const Exit& exit : plan.exits) {
        if (exit.lane == lane && exit.position == position)
          out << "         "
              << "exit       " << name(exit.kind) << "\n";
      }
    };
    out << "  " << plan.lanes[l].name() << "\n";
    exits();
    for (std::size_t seq = 0; seq < plan.ops.size(); ++seq) {
      const Op& op = plan.ops[seq];
      if (op.lane != lane.value) continue;
      out << detail::right(std::to_string(seq), 7) << "  " << detail::left(name(op.kind), 11)
          << detail::operands(collective, op) << "\n";
      ++position;
      exits();
    }
  }
  return out;
}

}  // namespace tide
