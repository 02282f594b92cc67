// SPDX-License-Identifier: Apache-2.0
// timeout: 300
//
// Reduce-scatters whose sums over nodes a switch adds, on host ranks: of whole numbers the sums are exact, whatever
// comes late, so each input is seen to be added once; of others they are as near as any order of adding is.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/node_reduces.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"
#include "support/sanitizer.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace switch_reduce_test {

using namespace tide_test;

using Layout = tide::DynamicLayout;
using Inter = tide::RdmaDoublingTransport<>;

template <index_t Count, index_t Budget>
using RingOf = tide::Ring<tide::Chunks<Count>, tide::Bytes<Budget>>;

/// Some reduces of whole numbers.
template <class Inbox, class Epilogue = tide::Store>
void reduce_on(tide::MeshShape mesh, const std::vector<Element>& elements, int steps, tide::HostOptions options = {}) {
  check_node_reduces<tide::SwitchReducer<tide::Burst, Epilogue>, Inter, Inbox>(mesh, elements, Values::whole, steps,
                                                                               std::move(options));
}

/// Fills what is allocated from now on with a number that no sum absorbs: bytes 0x7F, 3.4e38 as f32.
void poison_new_memory() {
#if defined(M_PERTURB)
  mallopt(M_PERTURB, 0x80);
#endif
}

constexpr tide::MeshShape meshes[] = {{2, 2}, {3, 2}, {2, 3}, {5, 2}, {4, 1}, {3, 4}};

TEST_CASE("SwitchReducer: over nodes, shards are the scaled sum of all gradients, each added once") {
  poison_new_memory();
  for (const tide::MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    reduce_on<RingOf<3, 1 << 17>>(mesh, {Element::bf16}, 6);
    reduce_on<RingOf<1, 1 << 14>, tide::Accumulate>(mesh, {Element::f32}, 6);
    reduce_on<RingOf<2, 1 << 15>>(mesh, {Element::bf16, Element::f32, Element::f8_e4m3}, 6);
  }
}

TEST_CASE("SwitchReducer: shards that are padded hold the same sums") {
  poison_new_memory();
  for (const tide::MeshShape mesh : meshes) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    check_node_reduces<tide::SwitchReducer<>, Inter, RingOf<2, 1 << 15>>(
        mesh, {Element::bf16, Element::f8_e4m3}, Values::whole, 4, {}, tide::Fsdp2Packing::rule);
  }
}

TEST_CASE("SwitchReducer: on one node it asks for no switch") {
  reduce_on<RingOf<3, 1 << 17>>({1, 3}, {Element::bf16}, 3, {.multicast = tide::HostMulticast::missing});
}

TEST_CASE("SwitchReducer: late ops, late puts and merged lanes change no sum") {
  poison_new_memory();
  for (const tide::MeshShape mesh : {tide::MeshShape{3, 2}, tide::MeshShape{2, 3}, tide::MeshShape{5, 2}}) {
    CAPTURE(mesh.nodes);
    CAPTURE(mesh.ranks_per_node);
    for (const std::uint64_t seed : {1U, 2U}) {
      tide::HostOptions options{.deadline = 60s, .hook = random_delays(seed, 8)};
      options.network_hook = [seed](const tide::HostHookPoint& point) {
        const std::uint64_t bits = mix(seed, point.run, static_cast<std::uint64_t>(point.seq));
        return tide::HostDelivery{std::chrono::microseconds(bits % 300)};
      };
      reduce_on<RingOf<2, 1 << 15>>(mesh, {Element::bf16}, 4, options);
      reduce_on<RingOf<3, 1 << 15>, tide::Accumulate>(mesh, {Element::bf16}, 4, options);
    }
    reduce_on<RingOf<1, 1 << 14>>(mesh, {Element::bf16}, 4, {.lanes = tide::HostLanes::merged});
    reduce_on<RingOf<3, 1 << 15>>(mesh, {Element::bf16}, 4, {.lanes = tide::HostLanes::merged});
  }
}

TEST_CASE("SwitchReducer: hundreds of reduces with changing data, places used again and again") {
  poison_new_memory();
  const int steps = sized(300, 30);
  reduce_on<RingOf<2, 6144>>({3, 2}, {Element::bf16}, steps);
  reduce_on<RingOf<1, 6144>>({2, 2}, {Element::bf16}, steps);
}

float spread_gradient(index_t rank, index_t element) {
  std::byte stored[2];
  store(stored, Element::bf16,
        gradient_value(Element::bf16, mix(5, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(element))));
  return load(stored, Element::bf16);
}

TEST_CASE("SwitchReducer: of any numbers, sums are as near as some order of adding is") {
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 2}, tide::MeshShape{5, 2}, tide::MeshShape{3, 4}}) {
    CAPTURE(mesh.nodes);
    tide::DynamicGroup group;
    group.add("w", {40, 24}, Element::bf16, Element::bf16);
    const Layout layout(group, mesh);
    std::vector<float> all(40 * 24);
    HostRanks ranks{{.deadline = 60s}, mesh.ranks_per_node};
    check_no_error(errors_of(ranks, mesh.ranks(), [&](tide::HostFabric& fabric) {
      tide::ReduceScatter<Layout, tide::SwitchReducer<>, tide::RdmaDirectTransport, RingOf<2, 1 << 14>> reduce(fabric,
                                                                                                               layout);
      tide::Gradients<Layout> gradients(fabric, layout);
      fabric.init();
      tide::HostStream stream = fabric.stream();
      const tide::Piece piece = layout.view().piece(tide::ParameterIndex{0}, fabric.rank());
      std::vector<float> shard(static_cast<std::size_t>(piece.elements()) + 1);
      reduce.scale(1.0F);
      for (index_t i = 0; i < 40 * 24; ++i) {
        store(gradients.data() + 2 * i, Element::bf16, spread_gradient(fabric.rank().value, i));
      }
      reduce.enqueue(gradients, {shard.data(), layout, fabric.rank()}, stream).shards_ready.synchronize();
      fabric.close();
      std::copy_n(shard.begin(), piece.elements(), all.begin() + piece.first);
    }));
    // W - 1 additions, each off by 2^-24 of what it makes, which is at most the sum of all magnitudes, and a little
    // more.
    const double part = 0x1p-24 * static_cast<double>(mesh.ranks());
    for (index_t i = 0; i < 40 * 24; ++i) {
      double exact = 0;
      double magnitudes = 0;
      for (index_t rank = 0; rank < mesh.ranks(); ++rank) {
        exact += spread_gradient(rank, i);
        magnitudes += std::abs(spread_gradient(rank, i));
      }
      CHECK(std::abs(all[static_cast<std::size_t>(i)] - exact) <= part * magnitudes);
    }
  }
}

// ---- constants

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {4096, 512}));
template <index_t Nodes, index_t Ranks>
using Reduce = tide::ReduceScatter<tide::ShardLayout<weights, tide::Mesh<Nodes, Ranks>>, tide::SwitchReducer<>, Inter,
                                   RingOf<4, 1 << 20>>;
static_assert(Reduce<2, 8>::inbox_bytes <= 1 << 20 && Reduce<16, 8>::inbox_bytes <= 1 << 20);
static_assert(Reduce<16, 8>::inbox_bytes > 1 << 19);

TEST_CASE("SwitchReducer: a fabric without a switch, or without a network, refuses it by name") {
  const Layout layout(node_group({Element::bf16}, 4), {2, 2});
  const auto check_refused = [&](tide::HostOptions options, const char* words) {
    check_same_error(errors_of(HostRanks{std::move(options), 2}, 4,
                               [&](tide::HostFabric& fabric) {
                                 tide::ReduceScatter<Layout, tide::SwitchReducer<>, Inter> reduce(fabric, layout);
                               }),
                     {"tide::Transport: the fabric must have what the policy needs", words});
  };
  check_refused({.multicast = tide::HostMulticast::missing}, "switch needs sums in the switch");
  check_refused({.network = tide::HostNetwork::missing}, "needs one-sided puts");
}

}  // namespace switch_reduce_test
