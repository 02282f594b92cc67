// SPDX-License-Identifier: Apache-2.0
//
// From the choices of a command line to the plans of all ranks.

#pragma once

#include "plan_file.hpp"
#include "table.hpp"

#include <tide/plan/kernels.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <unistd.h>

#include <algorithm>
#include <string>

namespace tide_example {

enum class TransportChoice { unicast, multicast };

/// How a collective is carried out.
struct PlanChoices {
  tide::MeshShape mesh{};
  tide::PackingRule packing = tide::TightPacking::rule;
  tide::Operation operation = tide::Operation::gather;
  TransportChoice transport = TransportChoice::unicast;
  tide::OwnBlock own = tide::OwnBlock::copy;
  tide::GradientSource gradients = tide::GradientSource::storage;
  tide::Finish finish = tide::Finish::store;
  tide::index_t inbox_chunks = 4;
  tide::index_t inbox_bytes = 64 << 20;
  tide::RailRules rails{};                             ///< of a gather over nodes
  tide::Exchange exchange = tide::Exchange::doubling;  ///< of a reduce over nodes; in_switch is that of SwitchReducer
};

/// About how many bytes it takes to write and prove the plans of all ranks: those of each op, and, in a reduce over
/// nodes, of each row, since every owner's part of what a rank pushes is followed on its own.
[[nodiscard]] inline double planning_bytes(const tide::Collective& collective, const PlanChoices& choices) {
  using tide::index_t;
  const index_t ranks = collective.ranks();
  const tide::MeshShape mesh = collective.layout.mesh;
  const bool gather = collective.operation == tide::Operation::gather;
  const tide::Buffer target = gather ? tide::Buffer::slot : tide::Buffer::output;
  const tide::Buffer source = gather ? tide::Buffer::shards : tide::Buffer::gradients;
  const auto blocks =
      static_cast<index_t>(tide::coalesce(collective.layout.blocks(tide::Rank{0}, source, target)).size());
  index_t rounds = 0;
  while ((index_t{1} << rounds) < mesh.nodes) ++rounds;
  index_t ops = blocks * ranks;  // of a rank
  index_t rows = 0;
  if (!gather) {
    const index_t output = collective.layout.max_bytes(tide::Buffer::output) / 4;
    const index_t chunks = tide::ceil_div(output, std::max<index_t>(1, collective.inbox.chunk_elements));
    ops += 5 * chunks * ranks;
    if (mesh.nodes > 1) {  // to each local peer, a sum for each owner, rounds
      if (choices.exchange != tide::Exchange::doubling) rounds = mesh.nodes;
      ops = chunks * (5 * mesh.ranks_per_node + 8 * rounds) + (chunks + blocks) * mesh.nodes;
      rows = (chunks + blocks) * ranks;
    }
  } else if (mesh.nodes > 1) {  // rounds of chunks, spread to the peers of a node
    const index_t chunks = tide::ceil_div(collective.layout.max_bytes(tide::Buffer::shards), choices.rails.chunk_bytes);
    ops = (blocks * (1 + rounds) + 4 * rounds * chunks) * mesh.ranks_per_node;
  }
  return static_cast<double>(ranks) * (128.0 * static_cast<double>(ops) + 116.0 * static_cast<double>(rows));
}

/// Refuses to write plans that would not fit into this machine's memory.
/// @throws tide::Error (Errc::capacity)
inline void require_memory(const tide::Collective& collective, const std::string& group, const PlanChoices& choices) {
  using tide::index_t;
  const index_t ranks = collective.ranks();
  const double needed = planning_bytes(collective, choices);
  const double present = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (ranks <= most_planned_ranks && needed <= present) return;
  constexpr double gib = 1 << 30;
  tide::raise(
      tide::Errc::capacity,
      "the plans of group '" + group + "' on " + std::to_string(ranks) + " ranks need about " +
          grouped(static_cast<index_t>(needed / gib) + 1) + " GiB, this machine has " +
          grouped(static_cast<index_t>(present / gib)) +
          (ranks > most_planned_ranks ? "; at most " + grouped(most_planned_ranks) + " ranks are planned" : ""));
}

/// The plans of all ranks for one group.
/// @throws tide::Error when the group cannot be laid out, or its plans do not fit
[[nodiscard]] inline PlanFile make_plans(const std::string& model, const std::string& group_name,
                                         const tide::DynamicGroup& group, const PlanChoices& choices) {
  require_sensible(group.view(), choices.mesh, group_name);
  PlanFile file{model, group_name, group, {}, {}, {}};
  tide::Collective& collective = file.collective;
  collective.layout = tide::DynamicLayout(group, choices.mesh, choices.packing).view();
  collective.operation = choices.operation;
  collective.own = choices.own;
  const bool gather = choices.operation == tide::Operation::gather;
  if (gather) {
    collective.network = tide::gather_network(collective.layout, choices.rails);
  } else {
    const tide::ReduceMemory memory =
        tide::ring_memory(collective.layout, choices.inbox_chunks, choices.inbox_bytes, choices.exchange);
    collective.gradients = choices.gradients;
    collective.finish = choices.finish;
    collective.inbox = memory.inbox;
    collective.network = memory.network;
  }
  tide::fill_kernels_over_nodes(collective);
  require_memory(collective, group_name, choices);
  const bool multicast = choices.transport == TransportChoice::multicast;
  for (tide::index_t r = 0; r < collective.ranks(); ++r) {
    const tide::Rank rank{r};
    if (!gather && choices.exchange == tide::Exchange::in_switch) {
      file.plans.push_back(tide::SwitchReducer<>::reduce_over_nodes(collective, rank));
    } else if (!gather) {
      file.plans.push_back(tide::CopyEngineReducer<>::reduce_over_nodes(collective, rank));
    } else if (choices.mesh.nodes > 1) {
      const tide::OpKind spreads_by = multicast ? tide::OpKind::multicast : tide::OpKind::copy;
      file.plans.push_back(tide::gather_on_rails(collective, rank, choices.rails, spreads_by));
    } else if (multicast) {
      file.plans.push_back(tide::MulticastTransport::gather(collective, rank));
    } else {
      file.plans.push_back(tide::UnicastTransport::gather(collective, rank));
    }
  }
  return file;
}

}  // namespace tide_example
