// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatters over several nodes on host ranks: the bits are the tree's, whatever comes late.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/auto_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/node_reduces.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace node_reduce_pipeline_test {

using namespace tide_test;

using Layout = tide::DynamicLayout;

using Doubling = tide::RdmaDoublingTransport<>;
using Direct = tide::RdmaDirectTransport;

const std::vector<std::vector<Element>> element_sets = {
    {Element::bf16}, {Element::f32}, {Element::bf16, Element::f32, Element::f8_e4m3}};

template <class Inter, class Inbox, class Epilogue = tide::Store>
void reduce_on(tide::MeshShape mesh, const std::vector<Element>& elements, tide::HostOptions options = {},
               int steps = 4) {
  check_node_reduces<tide::CopyEngineReducer<tide::Burst, Epilogue>, Inter, Inbox>(mesh, elements, Values::spread,
                                                                                   steps, std::move(options));
}

using NarrowSlot = tide::SlotReuseWithin<tide::Bytes<8192>, tide::Chunks<2>>;

constexpr tide::MeshShape meshes[] = {{2, 1}, {2, 2}, {3, 2}, {5, 1}, {4, 2}, {3, 3}};

template <index_t Count, index_t Budget>
using RingOf = tide::Ring<tide::Chunks<Count>, tide::Bytes<Budget>>;

TEST_CASE("ReduceScatter: an exchange that the bound chooses gives the same sums") {
  for (const tide::MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    reduce_on<tide::AutoTransport<>, RingOf<4, 65536>>(mesh, {Element::bf16});
    reduce_on<tide::AutoTransport<>, NarrowSlot>(mesh, {Element::bf16, Element::f8_e4m3});
  }
}

TEST_CASE("ReduceScatter: over nodes, shards are the scaled sum along the tree, by either exchange") {
  for (const tide::MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const std::vector<Element>& elements : element_sets) {
      CAPTURE(tide::name(elements.front()));
      reduce_on<Doubling, RingOf<3, 1 << 17>>(mesh, elements);
      reduce_on<Direct, RingOf<3, 1 << 17>>(mesh, elements);
    }
    reduce_on<Doubling, tide::SlotReuse>(mesh, element_sets[0]);
    reduce_on<Direct, NarrowSlot>(mesh, element_sets[0]);
    reduce_on<Doubling, NarrowSlot, tide::Accumulate>(mesh, element_sets[0]);
    reduce_on<Doubling, RingOf<2, 1 << 17>, tide::Accumulate>(mesh, element_sets[0]);
    reduce_on<Direct, RingOf<1, 1 << 17>, tide::Accumulate>(mesh, element_sets[0]);
  }
}

TEST_CASE("ReduceScatter: over nodes, shards that are padded hold the same sums") {
  for (const tide::MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    const auto reduce = [&]<class Inter, class Inbox>(const std::vector<Element>& elements) {
      check_node_reduces<tide::CopyEngineReducer<>, Inter, Inbox>(mesh, elements, Values::spread, 3, {},
                                                                  tide::Fsdp2Packing::rule);
    };
    for (const std::vector<Element>& elements : element_sets) {
      reduce.operator()<Doubling, RingOf<2, 1 << 15>>(elements);
      reduce.operator()<Direct, RingOf<1, 1 << 15>>(elements);
    }
    reduce.operator()<Doubling, NarrowSlot>(element_sets[0]);
  }
}

TEST_CASE("ReduceScatter: over nodes, late ops, late puts and merged lanes change no bit") {
  for (const tide::MeshShape mesh : {tide::MeshShape{3, 2}, tide::MeshShape{4, 1}, tide::MeshShape{2, 3}}) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const std::uint64_t seed : {1U, 2U}) {
      tide::HostOptions options{.deadline = 60s, .hook = random_delays(seed, 8)};
      options.network_hook = [seed](const tide::HostHookPoint& point) {
        const std::uint64_t bits = mix(seed, point.run, static_cast<std::uint64_t>(point.seq));
        return tide::HostDelivery{std::chrono::microseconds(bits % 300)};
      };
      reduce_on<Doubling, RingOf<2, 1 << 15>>(mesh, element_sets[0], options, 3);
      reduce_on<Direct, RingOf<3, 1 << 15>>(mesh, element_sets[0], options, 3);
      reduce_on<Doubling, NarrowSlot>(mesh, element_sets[0], options, 3);
      reduce_on<Direct, NarrowSlot>(mesh, element_sets[0], options, 3);
    }
    reduce_on<Doubling, RingOf<2, 1 << 15>>(mesh, element_sets[0], {.lanes = tide::HostLanes::merged}, 3);
    reduce_on<Direct, RingOf<1, 1 << 14>>(mesh, element_sets[0], {.lanes = tide::HostLanes::merged}, 3);
    reduce_on<Doubling, NarrowSlot>(mesh, element_sets[0], {.lanes = tide::HostLanes::merged}, 3);
  }
}

/// The shards of all ranks, summed over a bf16 wire: of one bf16 parameter of 40 x 24 whose gradients are `gradient`.
template <class Inter, class Inbox>
std::vector<float> summed_over_bf16(tide::MeshShape mesh, float (*gradient)(index_t rank, index_t element)) {
  tide::DynamicGroup group;
  group.add("w", {40, 24}, Element::bf16, Element::bf16);
  const Layout layout(group, mesh);
  std::vector<float> all(40 * 24);
  check_no_error(
      errors_of(HostRanks{{.deadline = 60s}, mesh.ranks_per_node}, mesh.ranks(), [&](tide::HostFabric& fabric) {
        tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
        tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, tide::Bf16Wire<Inter>, Inbox> reduce(fabric, pool,
                                                                                                    layout);
        tide::Gradients<Layout> gradients(fabric, layout);
        fabric.init();
        tide::HostStream stream = fabric.stream();
        const tide::Piece piece = layout.view().piece(tide::ParameterIndex{0}, fabric.rank());
        std::vector<float> shard(static_cast<std::size_t>(piece.elements()) + 1);
        reduce.scale(1.0F);
        for (index_t i = 0; i < 40 * 24; ++i) {
          store(gradients.data() + 2 * i, Element::bf16, gradient(fabric.rank().value, i));
        }
        const tide::ReduceTicket ticket = reduce.enqueue(gradients, {shard.data(), layout, fabric.rank()}, stream);
        ticket.shards_ready.synchronize();
        fabric.close();
        std::copy_n(shard.begin(), piece.elements(), all.begin() + piece.first);
      }));
  return all;
}

float spread_gradient(index_t rank, index_t element) {
  std::byte stored[2];
  store(stored, Element::bf16,
        gradient_value(Element::bf16, mix(5, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(element))));
  return load(stored, Element::bf16);
}

TEST_CASE("Bf16Wire: the error is within the bound that its page states, and the bits repeat") {
  for (const tide::MeshShape mesh :
       {tide::MeshShape{2, 2}, tide::MeshShape{4, 2}, tide::MeshShape{3, 2}, tide::MeshShape{5, 1}}) {
    CAPTURE(mesh.nodes);
    const auto doubling = summed_over_bf16<Doubling, RingOf<2, 1 << 14>>(mesh, spread_gradient);
    const auto direct = summed_over_bf16<Direct, RingOf<2, 1 << 14>>(mesh, spread_gradient);
    double rounds = 0;
    while ((index_t{1} << static_cast<int>(rounds)) < mesh.nodes) ++rounds;
    index_t differ = 0;
    for (index_t i = 0; i < 40 * 24; ++i) {
      double exact = 0;
      double nodes = 0;  // |S_0| + |S_1| + ...
      double parts = 0;
      for (index_t node = 0; node < mesh.nodes; ++node) {
        double sum = 0;
        for (index_t local = 0; local < mesh.ranks_per_node; ++local) {
          const double g = spread_gradient(node * mesh.ranks_per_node + local, i);
          sum += g;
          parts += std::abs(g);
        }
        exact += sum;
        nodes += std::abs(sum);
      }
      const double additions = parts * 0x1p-20;
      const auto at = static_cast<std::size_t>(i);
      CHECK(std::abs(doubling[at] - exact) <= rounds * 0x1p-8 * std::pow(1 + 0x1p-8, rounds - 1) * nodes + additions);
      CHECK(std::abs(direct[at] - exact) <= 0x1p-8 * nodes + additions);
      differ += std::abs(direct[at] - exact) > additions ? 1 : 0;
    }
    if (mesh.ranks_per_node > 1) CHECK(differ > 100);
    if (mesh.ranks_per_node == 1) CHECK(differ == 0);
    CHECK(summed_over_bf16<Doubling, NarrowSlot>(mesh, spread_gradient) == doubling);
    CHECK(summed_over_bf16<Direct, tide::SlotReuse>(mesh, spread_gradient) == direct);
  }
}

/// How long after the start of a reduce its gradients are free and its shards ready, where each put takes `delay`.
struct Ends {
  std::chrono::nanoseconds gradients_free;
  std::chrono::nanoseconds shards_ready;
};
template <class Inbox>
Ends ends_of(std::chrono::milliseconds delay) {
  constexpr tide::MeshShape mesh{2, 2};
  const Layout layout(node_group({Element::bf16}, mesh.ranks()), mesh);
  const CollectiveOracle oracle(layout.view());
  HostRanks all{{.deadline = 60s}, mesh.ranks_per_node};
  all.options.network_hook = [delay](const tide::HostHookPoint&) { return tide::HostDelivery{delay}; };
  std::vector<Ends> ends(static_cast<std::size_t>(mesh.ranks()));
  check_no_error(errors_of(all, mesh.ranks(), [&](tide::HostFabric& fabric) {
    ReduceRank<HostRanks, Layout, tide::CopyEngineReducer<>, Inbox, Doubling> reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    for (std::uint64_t step = 0; step < 2; ++step) {
      stream.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      const tide::ReduceTicket ticket = reduce.start(From::storage, step, stream);
      Ends& own = ends[static_cast<std::size_t>(fabric.rank().value)];
      ticket.gradients_free.synchronize();
      own.gradients_free = std::chrono::steady_clock::now() - begin;
      ticket.shards_ready.synchronize();
      own.shards_ready = std::chrono::steady_clock::now() - begin;
      reduce.read(ticket, step, stream);
    }
    fabric.close();
    if (!reduce.verdict().empty()) tide::raise(tide::Errc::operation, reduce.verdict());
  }));
  return ends[0];
}

TEST_CASE(
    "ReduceScatter: through a slot, gradients are free without waiting for the network; through a ring they wait") {
  const Ends slot = ends_of<NarrowSlot>(80ms);
  CHECK(slot.gradients_free < 80ms);
  CHECK(slot.shards_ready >= 80ms);
  const Ends ring = ends_of<RingOf<1, 1 << 11>>(20ms);
  CHECK(ring.gradients_free >= 20ms);
}

}  // namespace node_reduce_pipeline_test
