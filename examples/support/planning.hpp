// SPDX-License-Identifier: Apache-2.0
//
// From the choices of a command line to the plans of all ranks.

#pragma once

#include "memory.hpp"
#include "plan_file.hpp"
#include "table.hpp"

#include <tide/plan/kernels.hpp>
#include <tide/plan/most_rows.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <algorithm>
#include <string>
#include <utility>

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
  bool proved = false;                                 ///< by verify
};

/// What plans are, about.
struct PlanSize {
  tide::index_t ops = 0;   ///< of a rank
  tide::index_t rows = 0;  ///< that verify follows on a rank in a reduce over nodes: of sums, puts and what lands
};

[[nodiscard]] inline PlanSize plan_size(const tide::Collective& collective, const PlanChoices& choices) {
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
  PlanSize size{blocks * ranks, 0};
  if (!gather) {
    const index_t output = collective.layout.max_bytes(tide::Buffer::output) / 4;
    const index_t chunks = tide::ceil_div(output, std::max<index_t>(1, collective.inbox.chunk_elements));
    size.ops += 5 * chunks * ranks;
    if (mesh.nodes > 1) {  // to each local peer, a sum for each owner, rounds
      if (choices.exchange != tide::Exchange::doubling) rounds = mesh.nodes;
      size.ops = chunks * (5 * mesh.ranks_per_node + 8 * rounds) + (chunks + blocks) * mesh.nodes;
      size.rows = (chunks + blocks) * mesh.nodes * (mesh.ranks_per_node + 3);
    }
  } else if (mesh.nodes > 1) {  // rounds of chunks, spread to the peers of a node
    const index_t chunks = tide::ceil_div(collective.layout.max_bytes(tide::Buffer::shards), choices.rails.chunk_bytes);
    size.ops = (blocks * (1 + rounds) + 4 * rounds * chunks) * mesh.ranks_per_node;
  }
  return size;
}

/// Refuses to write plans that would not fit into the memory that is left, or that verify would not follow.
/// @throws tide::Error (Errc::capacity)
inline void require_memory(const tide::Collective& collective, const std::string& group, const PlanChoices& choices) {
  using tide::index_t;
  const index_t ranks = collective.ranks();
  const PlanSize size = plan_size(collective, choices);
  if (choices.proved && size.rows * ranks > tide::most_rows) {
    tide::raise(tide::Errc::capacity, "the plans of group '" + group + "' on " + std::to_string(ranks) +
                                          " ranks make verify follow about " + grouped(size.rows * ranks) +
                                          " rows in a run, it follows at most " + grouped(tide::most_rows));
  }
  constexpr auto op_bytes = static_cast<double>(sizeof(tide::Op));
  // A list of ops has room for twice as many; while one grows, it is there a second time. A proof takes a quarter more.
  const double ops = static_cast<double>(2 * ranks + 1) * op_bytes * static_cast<double>(size.ops);
  const double needed = choices.proved ? 1.25 * ops : ops;
  const auto present = static_cast<double>(memory_left());
  if (ranks <= most_planned_ranks && needed <= present) return;
  constexpr double gib = 1 << 30;
  tide::raise(
      tide::Errc::capacity,
      "the plans of group '" + group + "' on " + std::to_string(ranks) + " ranks need about " +
          grouped(static_cast<index_t>(needed / gib) + 1) + " GiB, of which " +
          grouped(static_cast<index_t>(present / gib)) + " are left" +
          (ranks > most_planned_ranks ? "; at most " + grouped(most_planned_ranks) + " ranks are planned" : ""));
}

/// The plan of one rank.
[[nodiscard]] inline tide::Plan make_plan(const tide::Collective& collective, tide::Rank rank,
                                          const PlanChoices& choices) {
  const bool multicast = choices.transport == TransportChoice::multicast;
  if (choices.operation == tide::Operation::reduce) {
    if (choices.exchange == tide::Exchange::in_switch) {
      return tide::SwitchReducer<>::reduce_over_nodes(collective, rank);
    }
    return tide::CopyEngineReducer<>::reduce_over_nodes(collective, rank);
  }
  if (choices.mesh.nodes > 1) {
    const tide::OpKind spreads_by = multicast ? tide::OpKind::multicast : tide::OpKind::copy;
    return tide::gather_on_rails(collective, rank, choices.rails, spreads_by);
  }
  if (multicast) return tide::MulticastTransport::gather(collective, rank);
  return tide::UnicastTransport::gather(collective, rank);
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
  naming_memory("for the plans of group '" + group_name + "' on " + std::to_string(collective.ranks()) + " ranks", [&] {
    for (tide::index_t r = 0; r < collective.ranks(); ++r) {
      file.plans.push_back(make_plan(collective, tide::Rank{r}, choices));
    }
  });
  return file;
}

}  // namespace tide_example
