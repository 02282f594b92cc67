// SPDX-License-Identifier: Apache-2.0
//
// The violations that a replay finds. The same fault in both runs is one; a fault of contents counts only where nothing
// races, because what bytes are depends on the order there.

#pragma once

#include <tide/plan/detail/flat_table.hpp>     // FlatTable
#include <tide/plan/detail/op_graph.hpp>       // OpGraph
#include <tide/plan/detail/piece_table.hpp>    // PieceTable
#include <tide/plan/detail/replay_memory.hpp>  // MemoryRegion, AccessConflict
#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

class ReplayFaults {
 public:
  ReplayFaults(const PieceTable& pieces, const OpGraph& graph, VerifyReport& report, Operation operation)
      : pieces_(&pieces), graph_(&graph), report_(&report), gathers_(operation == Operation::gather) {}

  // A node and bytes that it touches. `parameter` names bytes that the layout says nothing of.
  [[nodiscard]] Side side(NodeIndex v, const MemoryRegion& region, index_t begin, index_t end,
                          ParameterIndex parameter = {}) const {
    const OpGraph::Node node = graph_->decode(v);
    Side side = node.role == OpGraph::Role::op || node.role == OpGraph::Role::wire
                    ? report_->bare(static_cast<std::size_t>(node.rank.value), node.seq, node.run)
                    : VerifyReport::caller(node.rank, node.run);
    Buffer buffer{};
    const bool known = buffer_of(region.space, buffer);
    const index_t p = known ? std::max<index_t>(0, pieces_->parameter_at(region.rank, buffer, begin)) : parameter.value;
    side.bytes.rank = region.rank;
    side.bytes.place = {region.space, static_cast<std::uint8_t>(region.instance), static_cast<std::uint16_t>(p)};
    side.bytes.begin = begin;
    side.bytes.end = end;
    return side;
  }

  [[nodiscard]] std::string who(const Side& side) const { return report_->who(side); }
  [[nodiscard]] std::string what(const Side& side) const { return report_->what(side.bytes); }

  // A fault of a node that is one in every order.
  void add(Law law, NodeIndex v, std::string text, const Side& first, const Side& second = {}) {
    if (fresh(law, v)) report_->add(law, std::move(text), first, second);
  }

  // Whether a fault of contents would be new: its text is worth writing.
  [[nodiscard]] bool wants_content(Law law, NodeIndex v) {
    return contents_.size() < static_cast<std::size_t>(most_violations) && fresh(law, v);
  }
  void add_content(Law law, std::string text, const Side& side) {
    contents_.push_back({law, std::move(text), side, {}});
  }

  // Ends the replay: adds the races or, where there are none, the faults of contents.
  void finish(const std::vector<AccessConflict>& races) {
    bool raced = false;
    for (const AccessConflict& race : races) {
      raced = raced || race.kind == AccessConflict::Kind::access;
      switch (race.kind) {
        case AccessConflict::Kind::access:
          add_race(race);
          break;
        case AccessConflict::Kind::in_flight:
          add_in_flight(race);
          break;
        case AccessConflict::Kind::early_exit:
          add_early_exit(race);
          break;
      }
    }
    if (raced) return;
    for (Violation& violation : contents_) report_->add(violation.law, std::move(violation.text), violation.first, {});
  }

 private:
  // Whether this is the first time, in any run, that a node breaks a law.
  [[nodiscard]] bool fresh(Law law, NodeIndex v) {
    return said_.at((static_cast<std::uint64_t>(graph_->in_first_run(v)) << 8) | static_cast<std::uint64_t>(law),
                    0)++ == 0;
  }

  void add_in_flight(const AccessConflict& puts) {
    if (!fresh(Law::bounds, puts.later)) return;
    const Side later = put(puts.later);
    const Side earlier = put(puts.earlier);
    report_->add(Law::bounds,
                 report_->doing(later) + " is issued when " + report_->doing(earlier) +
                     (earlier.run != later.run ? " of the run before" : "") + " may still be on its way to rank " +
                     std::to_string(later.op.peer) + ": more are in flight than the collective allows",
                 earlier, later);
  }

  void add_early_exit(const AccessConflict& pair) {
    if (!fresh(Law::reuse, pair.later)) return;
    const OpGraph::Node node = graph_->decode(pair.later);
    const ExitKind exit = node.role == OpGraph::Role::ready ? ExitKind::shards_ready
                          : gathers_                        ? ExitKind::complete
                                                            : ExitKind::gradients_free;
    report_->add(Law::reuse,
                 "rank " + std::to_string(node.rank.value) + ": exit " + std::string(name(exit)) +
                     " may come before the call of its run, so what waits for it does not wait for what the caller's "
                     "stream did before",
                 VerifyReport::caller(node.rank, node.run));
  }

  [[nodiscard]] Side put(NodeIndex v) const {
    const OpGraph::Node node = graph_->decode(v);
    return report_->side(static_cast<std::size_t>(node.rank.value), node.seq, node.run);
  }

  void add_race(AccessConflict race) {
    // At its exit a gather's caller reads the slot, then gives it away with what lies beside it. Of a write to the
    // slot, the read is what a person looks for.
    const auto gives_away = [&](NodeIndex v) { return graph_->decode(v).role == OpGraph::Role::free; };
    const bool slot = race.bytes.place.space == Space::slot;
    if (slot && race.later_writes && gives_away(race.earlier)) race.earlier_writes = false;
    if (slot && race.earlier_writes && gives_away(race.later)) race.later_writes = false;
    const bool given =
        (race.earlier_writes && gives_away(race.earlier)) || (race.later_writes && gives_away(race.later));
    const bool next = graph_->run_of(race.earlier) != graph_->run_of(race.later);
    // In an inbox, a read that found what it should have has to come before the write; else it has to come after it.
    const bool both_write = race.earlier_writes && race.later_writes;
    const bool inbox = is_passed_through(race.bytes.place.space);
    const Law law =
        next || given || (inbox && (both_write || race.earlier_writes == race.stale)) ? Law::reuse : Law::order;
    // First comes what has to come first: the earlier run, the write that a read waits for, the read before a reuse.
    const bool swapped = next         ? graph_->run_of(race.earlier) > graph_->run_of(race.later)
                         : both_write ? race.earlier > race.later
                                      : race.earlier_writes != (law == Law::order);
    if (swapped) {
      std::swap(race.earlier, race.later);
      std::swap(race.earlier_writes, race.later_writes);
    }
    const std::uint64_t first_run = graph_->in_first_run(race.earlier);
    if (raced_.at(2 * ((first_run << 32) | graph_->in_first_run(race.later)) + (next ? 1 : 0), 0)++ != 0) return;

    const MemoryRegion region{race.bytes.rank, race.bytes.place.space, race.bytes.place.instance};
    const ParameterIndex parameter = named_parameter(race);
    const Side first = side(race.earlier, region, race.bytes.begin, race.bytes.end, parameter);
    const Side second = side(race.later, region, race.bytes.begin, race.bytes.end, parameter);
    report_->add(law,
                 who(first) + (race.earlier_writes ? " writes " : " reads ") + what(first) + ", unordered with " +
                     who(second) + ", which " +
                     (!race.later_writes ? "reads them"
                      : both_write       ? "writes them, too"
                                         : "overwrites them") +
                     (next ? " in the next run" : ""),
                 first, second);
  }

  // The parameter that the ops of a conflict in an inbox name.
  [[nodiscard]] ParameterIndex named_parameter(const AccessConflict& race) const {
    for (const NodeIndex v : {race.earlier, race.later}) {
      const OpGraph::Node node = graph_->decode(v);
      if (node.role == OpGraph::Role::op || node.role == OpGraph::Role::wire) {
        return ParameterIndex{graph_->op(node).source.parameter};
      }
    }
    return {};
  }

  const PieceTable* pieces_;
  const OpGraph* graph_;
  VerifyReport* report_;
  bool gathers_;
  std::vector<Violation> contents_;
  FlatTable<std::uint32_t> said_;
  FlatTable<std::uint32_t> raced_;
};

}  // namespace tide::detail
