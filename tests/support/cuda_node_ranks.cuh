// SPDX-License-Identifier: Apache-2.0
//
// Collectives over nodes on GPUs, each rank in a process of its own: logical nodes, or nodes of NCCL, which
// support/cluster starts on one host. Whatever the policy between nodes.

#pragma once

#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/cuda_process.cuh"
#include "support/gather_rank.hpp"
#include "support/node_reduces.hpp"
#include "support/reduce_rank.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace tide_test {

/// Nodes are those of the environment, `TIDE_NODES`.
inline tide::MeshShape node_mesh() {
  const char* nodes = std::getenv("TIDE_NODES");
  const index_t count = nodes != nullptr ? std::atoll(nodes) : 1;
  return {count, CudaProcess::world() / count};
}

/// Whether NCCL finds no nodes, so that there are logical ones.
inline bool nodes_are_logical() { return std::getenv("NCCL_HOSTID") == nullptr; }

/// Where NCCL finds no nodes, logical ones; with `TIDE_INTERLEAVED` not of consecutive ranks.
inline CudaProcess node_ranks(tide::CudaMulticast multicast = tide::CudaMulticast::missing) {
  CudaProcess process;
  process.options.multicast = multicast;
  if (nodes_are_logical()) process.options.nodes = node_mesh().nodes;
  if (std::getenv("TIDE_INTERLEAVED") != nullptr) process.options.grouping = tide::CudaGrouping::interleaved;
  return process;
}

/// Runs the program of the own rank, which says what was wrong; then all ranks tell each other, or what they raised.
template <class Program>
void check_everybody(const CudaProcess& process, const Program& program) {
  std::string wrong;
  try {
    process.run(CudaProcess::world(), [&](tide::CudaFabric& fabric) { wrong = program(fabric); });
  } catch (const tide::Error& error) {
    wrong = error.what();
  }
  for (const std::string& text : CudaProcess::everybody(wrong)) CHECK(text == "");
}

/// Odd rows, nothing at all, another dimension, several elements, and a parameter of many chunks.
inline tide::DynamicLayout awkward_node_layout() {
  const index_t n = CudaProcess::world();
  tide::DynamicGroup group;
  group.add("odd", {7, 13}, tide::Element::bf16, tide::Element::bf16);
  group.add("none", {0, 4}, tide::Element::bf16, tide::Element::bf16);
  group.add("columns", {5, 2 * n}, tide::Element::bf16, tide::Element::bf16, tide::shard(1));
  group.add("large", {1000, 96}, tide::Element::bf16, tide::Element::bf16);
  group.add("single", {33, 3}, tide::Element::f32, tide::Element::f32);
  return {group, node_mesh()};
}

/// Gathers from each source in turn, the ranks delayed in turn; every byte of slots and around them is compared.
template <class Intra, class Inter>
void check_gathers_over_nodes(const CudaProcess& process, int turns) {
  const tide::DynamicLayout layout = awkward_node_layout();
  const CollectiveOracle oracle(layout.view());
  check_everybody(process, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, tide::DynamicLayout> pool(fabric, layout);
    Guarded<CudaProcess> guarded(fabric);
    GatherRank<CudaProcess, tide::DynamicLayout, Intra, Inter> gather(fabric, pool, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    std::uint64_t seed = 1;
    for (int turn = 0; turn < turns; ++turn) {
      for (const Source source : {Source::shards, Source::masters, Source::in_place}) {
        if (turn % 3 == fabric.rank().value % 3) CudaProcess::occupy(stream, 500us);
        gather.step(pool, source, seed++, stream);
      }
      // Ranks need not have their blocks in the same place.
      gather.step(pool, (fabric.rank().value + turn) % 2 == 0 ? Source::shards : Source::in_place, seed++, stream);
    }
    guarded.check(pool, stream);
    fabric.close();
    return gather.verdict() + guarded.verdict();
  });
}

/// Reduces from storage and from a table in turn; gradients are written over the moment that they are free.
template <class Reducer, class Inter, class Inbox>
void check_reduces_over_nodes(const CudaProcess& process, const std::vector<tide::Element>& elements, Values values,
                              int steps) {
  const tide::DynamicLayout layout(node_group(elements, CudaProcess::world()), node_mesh());
  const CollectiveOracle oracle(layout.view(), values);
  check_everybody(process, [&](tide::CudaFabric& fabric) {
    ReduceRank<CudaProcess, tide::DynamicLayout, Reducer, Inbox, Inter> reduce(fabric, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    tide::CudaStream reader = fabric.stream();
    for (int step = 0; step < steps; ++step) {
      const auto seed = static_cast<std::uint64_t>(step);
      if (step % 5 == fabric.rank().value % 5) CudaProcess::occupy(stream, 500us);
      reduce.read(reduce.start(step % 2 == 0 ? From::storage : From::table, seed, stream), seed, reader);
    }
    fabric.close();
    return reduce.verdict();
  });
}

/// Storing and adding, doubling and direct, through rings and slots: all that a way between nodes must serve.
/// `first_steps` are of the first one; the others take 10.
template <class Doubling, class Direct, class Inbox>
void check_each_reduce_over_nodes(int first_steps) {
  using tide::Element;
  using Reducer = tide::CopyEngineReducer<>;
  using Add = tide::CopyEngineReducer<tide::Burst, tide::Accumulate>;
  check_reduces_over_nodes<Reducer, Doubling, Inbox>(node_ranks(), {Element::bf16}, Values::spread, first_steps);
  check_reduces_over_nodes<Add, Doubling, tide::SlotReuse>(node_ranks(), {Element::bf16, Element::f16}, Values::spread,
                                                           10);
  check_reduces_over_nodes<Add, Direct, Inbox>(node_ranks(), {Element::bf16, Element::f32}, Values::spread, 10);
  check_reduces_over_nodes<Reducer, Direct, tide::SlotReuse>(node_ranks(), {Element::f16}, Values::spread, 10);
}

/// What a rank raises, and how long it takes, when the process of the last rank ends in the middle of a gather.
struct Lost {
  std::string error{};
  std::chrono::steady_clock::duration took{};
};
template <class Inter>
Lost lose_a_rank(const CudaProcess& process) {
  const index_t lost = CudaProcess::world() - 1;
  const tide::DynamicLayout layout = awkward_node_layout();
  const CollectiveOracle oracle(layout.view());
  Lost found;
  process.run(CudaProcess::world(), [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, tide::DynamicLayout> pool(fabric, layout);
    GatherRank<CudaProcess, tide::DynamicLayout, tide::UnicastTransport, Inter> gather(fabric, pool, layout, oracle,
                                                                                       "the group");
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<CudaProcess>(pool, stream);
    for (std::uint64_t step = 1; step <= 3; ++step) gather.step(pool, Source::shards, step, stream);
    stream.synchronize();
    static_cast<void>(CudaProcess::everybody(""));
    if (fabric.rank().value == lost) std::_Exit(0);
    const auto begun = std::chrono::steady_clock::now();
    try {
      gather.step(pool, Source::shards, 4, stream);
      stream.synchronize();
    } catch (const tide::Error& thrown) {
      found.error = thrown.what();
    }
    found.took = std::chrono::steady_clock::now() - begun;
  });
  return found;
}

}  // namespace tide_test
