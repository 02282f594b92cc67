// SPDX-License-Identifier: Apache-2.0
//
// What can be said of a collective and of plans before their ops: laws 1 and 8.

#pragma once

#include <tide/core/math.hpp>                  // checked_product
#include <tide/core/text.hpp>                  // printable
#include <tide/layout/layout_rules.hpp>        // check
#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace tide::detail {

// Whether the numbers of a layout can be computed with at all; nothing else may be asked of one where they cannot.
[[nodiscard]] inline bool check_layout(const Collective& collective, VerifyReport& report) {
  constexpr index_t most_alignment = index_t{1} << 30;
  const LayoutView& layout = collective.layout;
  const MeshShape mesh = layout.mesh;
  if (mesh.nodes <= 0 || mesh.ranks_per_node <= 0 || mesh.ranks_per_node > max_ranks / mesh.nodes) {
    report.add(Law::partition, "the mesh is " + std::to_string(mesh.nodes) + "x" + std::to_string(mesh.ranks_per_node) +
                                   "; both sizes must be positive and make at most 65535 ranks");
    return false;
  }
  const LayoutFault fault = check(layout.group, mesh.ranks());
  if (fault.rule != LayoutRule::none) {
    report.add(Law::partition, describe(fault, layout.group));
    return false;
  }
  index_t elements = 0;
  for (const Parameter& parameter : layout.group.parameters) {
    elements += parameter.shape.elements();
    if (size_bytes(parameter.gathered) == 0 || size_bytes(parameter.gradient) == 0) {
      report.add(Law::partition, "'" + printable(parameter.name.str()) + "' has an element that does not exist");
      return false;
    }
  }
  const auto possible = [](index_t alignment) { return alignment > 0 && alignment <= most_alignment; };
  if (elements > max_group_elements || !possible(layout.storage_alignment) ||
      !possible(layout.packing.start_alignment)) {
    report.add(Law::partition, "a group must have fewer than 2^44 elements, and alignments be 1 to 2^30");
    return false;
  }
  return true;
}

[[nodiscard]] inline bool check_inbox(const Collective& collective, VerifyReport& report) {
  const InboxShape& inbox = collective.inbox;
  const index_t pieces = collective.layout.mesh.ranks_per_node - 1;
  const index_t widest = checked_product(inbox.chunk_elements, inbox.element_bytes);
  const index_t chunk = checked_product(inbox.piece_room > 0 ? inbox.piece_room : widest, inbox.pieces);
  if (inbox.pieces != pieces || inbox.chunks <= 0 || inbox.chunks > 256 || inbox.chunk_elements <= 0 ||
      inbox.element_bytes <= 0 || widest < 0 || inbox.piece_room < 0 || inbox.slot_bytes < 0 ||
      inbox.place > InboxPlace::slot || chunk < 0 || checked_product(chunk, inbox.chunks) < 0) {
    report.add(Law::agreement, "the inbox has " + std::to_string(inbox.chunks) + " chunks of " +
                                   std::to_string(inbox.pieces) + " pieces of " + std::to_string(inbox.chunk_elements) +
                                   " elements of " + std::to_string(inbox.element_bytes) +
                                   " bytes; it needs 1 to 256 chunks of " + std::to_string(pieces) + " pieces");
    return false;
  }
  return true;
}

[[nodiscard]] inline bool check_network(const Collective& collective, VerifyReport& report) {
  const NetworkShape& network = collective.network;
  if (collective.layout.mesh.nodes == 1) {
    if (network == NetworkShape{}) return true;
    report.add(Law::agreement, "a mesh of one node has nothing on a network");
    return false;
  }
  const auto instances = [](index_t bytes, index_t count) {
    return count >= 1 && count <= 256 && checked_product(bytes, count) >= 0;
  };
  if (!instances(network.inbox_bytes, network.inbox_instances) ||
      !instances(network.partials_bytes, network.partials_instances) || network.piece_bytes < 0 ||
      network.puts_in_flight < 0 || network.exchange > Exchange::in_switch || size_bytes(network.wire) == 0) {
    report.add(Law::agreement,
               "the network has " + std::to_string(network.inbox_instances) + " inboxes of " +
                   std::to_string(network.inbox_bytes) + " bytes, " + std::to_string(network.partials_instances) +
                   " partials of " + std::to_string(network.partials_bytes) + " bytes, pieces of " +
                   std::to_string(network.piece_bytes) + " bytes and " + std::to_string(network.puts_in_flight) +
                   " puts in flight; none may be negative, and there are 1 to 256 of each memory");
    return false;
  }
  return true;
}

[[nodiscard]] inline bool check_collective(const Collective& collective, VerifyReport& report) {
  const bool known = collective.operation <= Operation::reduce && collective.own <= OwnBlock::multicast &&
                     collective.gradients <= GradientSource::table && collective.finish <= Finish::accumulate;
  if (!known) {
    report.add(Law::agreement,
               "the collective is of an operation, own block, gradient source or finish that does not exist");
    return false;
  }
  return check_layout(collective, report) &&
         (collective.operation == Operation::gather || check_inbox(collective, report)) &&
         check_network(collective, report);
}

inline void check_lanes(const Plan& plan, std::size_t p, const Collective& collective, VerifyReport& report) {
  const std::string rank = "rank " + std::to_string(p);
  if (plan.rank.value != static_cast<std::int32_t>(p)) {
    report.add(Law::agreement, "the plan in place " + std::to_string(p) + " says that it is of rank " +
                                   std::to_string(plan.rank.value));
  }
  if (plan.lanes.empty() || plan.lanes[0] != Lane{LaneKind::caller, 0}) {
    report.add(Law::agreement, rank + ": lane 0 must be the caller's");
  }
  const index_t most = collective.words().stride();  // as many as have an event
  if (static_cast<index_t>(plan.lanes.size()) > most) {
    report.add(Law::agreement, rank + " has " + std::to_string(plan.lanes.size()) + " lanes; at most " +
                                   std::to_string(most) + " have an event");
    return;
  }
  const MeshShape mesh = collective.layout.mesh;
  for (std::size_t i = 0; i < plan.lanes.size(); ++i) {
    const Lane& lane = plan.lanes[i];
    const bool push = lane.kind == LaneKind::push && (lane.index < 0 || lane.index >= mesh.ranks_per_node);
    const bool sum = lane.kind == LaneKind::sum && collective.operation == Operation::gather;
    const bool net = lane.kind == LaneKind::net && mesh.nodes == 1;
    if (push || sum || net) {
      report.add(Law::agreement, rank + ": lane '" + lane.name() + "' has no place in a " +
                                     std::string(name(collective.operation)) + " over " + std::to_string(mesh.nodes) +
                                     "x" + std::to_string(mesh.ranks_per_node) + " ranks");
    }
    if (lane.kind > LaneKind::net || std::count(plan.lanes.begin(), plan.lanes.end(), lane) > 1) {
      report.add(Law::agreement,
                 rank + ": lane " + std::to_string(i) + " must be of a known kind and differ from the others");
    }
  }
}

inline void check_exits(const Plan& plan, std::size_t p, const Collective& collective, VerifyReport& report) {
  const std::string rank = "rank " + std::to_string(p);
  std::vector<index_t> sizes(plan.lanes.size(), 0);
  for (const Op& op : plan.ops) {
    if (op.lane < sizes.size()) ++sizes[op.lane];
  }
  const auto check_kind = [&](ExitKind kind, bool wanted) {
    const auto found =
        std::count_if(plan.exits.begin(), plan.exits.end(), [&](const Exit& e) { return e.kind == kind; });
    if (found != (wanted ? 1 : 0)) {
      report.add(Law::agreement, rank + " has " + std::to_string(found) + " exits " + std::string(name(kind)) + "; a " +
                                     std::string(name(collective.operation)) + " has " + (wanted ? "one" : "none"));
    }
  };
  const bool gather = collective.operation == Operation::gather;
  check_kind(ExitKind::complete, gather);
  check_kind(ExitKind::gradients_free, !gather);
  check_kind(ExitKind::shards_ready, !gather);
  for (const Exit& exit : plan.exits) {
    if (exit.kind > ExitKind::shards_ready) {
      report.add(Law::agreement, rank + " has an exit of a kind that does not exist");
      continue;
    }
    const auto lane = static_cast<std::size_t>(exit.lane.value);
    if (exit.lane.value < 0 || lane >= sizes.size() || exit.position < 0 || exit.position > sizes[lane]) {
      report.add(Law::bounds, rank + ": exit " + std::string(name(exit.kind)) + " is after op " +
                                  std::to_string(exit.position) + " of " + report.lane(p, exit.lane.value) +
                                  ", which has fewer ops");
    }
  }
}

inline void check_plans(const Collective& collective, std::span<const Plan> plans, VerifyReport& report) {
  if (static_cast<index_t>(plans.size()) != collective.ranks()) {
    report.add(Law::agreement, "there are " + std::to_string(plans.size()) + " plans for a mesh of " +
                                   std::to_string(collective.ranks()) + " ranks");
    return;
  }
  index_t ops = 0;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    check_lanes(plans[p], p, collective, report);
    ops += static_cast<index_t>(plans[p].ops.size());
  }
  if (ops > (index_t{1} << 29)) report.add(Law::bounds, "the plans have more than 2^29 ops");
}

inline void check_exits(const Collective& collective, std::span<const Plan> plans, VerifyReport& report) {
  for (std::size_t p = 0; p < plans.size(); ++p) check_exits(plans[p], p, collective, report);
}

}  // namespace tide::detail
