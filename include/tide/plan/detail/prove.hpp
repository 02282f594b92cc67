// SPDX-License-Identifier: Apache-2.0
//
// The body of verify: the laws in the order in which each rests on the ones before.

#pragma once

#include <tide/plan/detail/check_ops.hpp>       // OpCheck
#include <tide/plan/detail/check_plans.hpp>     // check_collective, check_plans
#include <tide/plan/detail/incast.hpp>          // check_incast
#include <tide/plan/detail/op_graph.hpp>        // OpGraph
#include <tide/plan/detail/piece_table.hpp>     // PieceTable
#include <tide/plan/detail/progress_proof.hpp>  // ProgressProof
#include <tide/plan/detail/replay.hpp>          // Replay
#include <tide/plan/detail/word_match.hpp>      // WordMatch
#include <tide/plan/most_rows.hpp>              // most_rows

#include <span>
#include <utility>
#include <vector>

namespace tide::detail {

// @param most  how many rows are followed in a run
[[nodiscard]] inline std::vector<Violation> prove(const Collective& collective, std::span<const Plan> plans,
                                                  index_t most = most_rows) {
  VerifyReport report(collective, plans);
  if (check_collective(collective, report)) check_plans(collective, plans, report);
  if (!report.empty()) return std::move(report).take();

  const PieceTable pieces(collective);
  OpCheck(collective, pieces, report).check(plans, most);
  check_exits(collective, plans, report);
  if (!report.empty()) return std::move(report).take();

  check_incast(plans, report);
  OpGraph graph(collective, plans);
  WordMatch(collective, graph, report).match();
  if (!report.empty()) return std::move(report).take();

  ProgressProof progress(graph, report);
  const std::vector<Stretch> order = progress.order();
  if (!report.empty()) return std::move(report).take();
  progress.check_merged();
  VerifyReport found(collective, plans);
  if (!Replay(collective, pieces, graph, found).run(order, most)) {
    report.add_too_many_rows(most);
    return std::move(report).take();
  }
  if (found.empty()) return std::move(report).take();
  // What is wrong is told in the order in which it would happen: there a law is broken for the reason that a person
  // would give.
  const std::size_t before = report.size();
  static_cast<void>(Replay(collective, pieces, graph, report).run(progress.order(Turn::first), most));
  std::vector<Violation> all = std::move(report).take();
  if (all.size() > before) return all;
  for (Violation& violation : std::move(found).take()) all.push_back(std::move(violation));
  return all;
}

}  // namespace tide::detail
