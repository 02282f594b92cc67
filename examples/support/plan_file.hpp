// SPDX-License-Identifier: Apache-2.0
//
// PlanFile: a collective with the plans of all its ranks, and the names that people know them by.

#pragma once

#include <tide/layout/dynamic_layout.hpp>
#include <tide/plan/most_rows.hpp>
#include <tide/plan/plan.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tide_example {

struct PlanFile {
  std::string model;
  std::string group;
  tide::DynamicGroup parameters;  ///< what the layout's names and shapes belong to
  tide::Collective collective;
  std::vector<tide::Plan> plans;
  std::vector<std::vector<tide::index_t>> seqs;  ///< of a file that was read: the numbers of each plan's ops
};

/// What is refused as absurd before it is counted, multiplied or stored.
inline constexpr tide::index_t most_planned_ranks = 4096;
inline constexpr tide::index_t most_pieces = tide::index_t{1} << 22;    ///< parameters times ranks
inline constexpr tide::index_t most_elements = tide::index_t{1} << 57;  ///< times ranks
inline constexpr tide::index_t most_bytes = tide::index_t{1} << 60;

/// Refuses a group on a mesh when what is said about it would not fit into 64 bits or into memory.
/// @throws tide::Error (Errc::capacity)
inline void require_sensible(const tide::GroupView& group, tide::MeshShape mesh, const std::string& name) {
  const tide::index_t ranks = mesh.ranks();
  const auto refuse = [&](const std::string& what) {
    tide::raise(tide::Errc::capacity, "group '" + name + "' on " + std::to_string(ranks) + " ranks " + what);
  };
  if (group.size() > most_pieces / ranks) {
    refuse("has " + std::to_string(group.size()) + " x " + std::to_string(ranks) + " shards, more than the " +
           std::to_string(most_pieces) + " that this program takes");
  }
  for (const tide::Parameter& parameter : group.parameters) {
    tide::index_t elements = ranks;
    for (int i = 0; i < parameter.shape.rank && i < tide::max_dimensions; ++i) {
      elements = parameter.shape[i] < 1 ? elements : tide::checked_product(elements, parameter.shape[i]);
      if (elements < 0 || elements > most_elements / group.size()) {
        refuse("has more elements than this program counts; parameter '" + parameter.name.str() + "'");
      }
    }
  }
  if (const tide::LayoutFault fault = check(group, ranks); fault.rule != tide::LayoutRule::none) {
    tide::raise(tide::Errc::layout, "group '" + name + "': " + describe(fault, group));
  }
  tide::index_t rows = 0;
  for (const tide::Parameter& parameter : group.parameters) {
    rows += parameter.shape.elements() > 0 ? parameter.shape.product(0, parameter.sharding.dimension) : 0;
    if (ranks <= most_planned_ranks && rows > tide::most_rows / ranks / mesh.ranks_per_node) {
      refuse("has more rows than verify follows; parameter '" + parameter.name.str() + "'");
    }
  }
}

[[nodiscard]] inline std::string text(tide::MeshShape mesh) {
  return std::to_string(mesh.nodes) + "x" + std::to_string(mesh.ranks_per_node);
}

/// What is done with a sum, by the names that programs use; the last of kernels only.
inline constexpr std::string_view finish_names[] = {"store", "accumulate", "partial"};

/// Packings by the names that programs use.
struct NamedPacking {
  std::string_view name;
  tide::PackingRule rule;
};
inline constexpr NamedPacking packings[] = {{"tight", tide::TightPacking::rule}, {"fsdp2", tide::Fsdp2Packing::rule}};

}  // namespace tide_example
