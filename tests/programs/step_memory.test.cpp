// SPDX-License-Identifier: Apache-2.0
//
// The memory of a step that `tide_inspect memory` prints, beside what a real ShardedStep reserves, and beside sums by
// hand.

#include <doctest/doctest.h>

#include <tide/fabric/host_cluster.hpp>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/sharded_step.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "../../examples/support/model_choice.hpp"
#include "../../examples/support/step_memory.hpp"

#include "support/raised.hpp"

#include <algorithm>
#include <deque>
#include <random>
#include <tuple>
#include <vector>

namespace step_memory_test {

using tide::DynamicLayout;
using tide::Element;
using tide::index_t;
using tide_example::MemoryPart;
using tide_example::StepMemory;

constexpr index_t layers = 3;
constexpr index_t rows = 4096;  // of which every rank has some: the words of signals are small beside

// A larger group that is there once, and smaller ones.
struct Groups {
  tide::DynamicGroup embed{};
  tide::DynamicGroup layer{};

  Groups() {
    embed.add("embed", {3 * rows + 1, 64}, Element::bf16, Element::bf16);
    layer.add("w", {rows, 96}, Element::bf16, Element::bf16);
    layer.add("norm", {96}, Element::f32, Element::f32);
  }
};

using Model =
    tide::Parts<tide::Part<"embed", DynamicLayout>, tide::Part<"layers", DynamicLayout, tide::Repeat<layers>>>;

// What a step reserves in the arena of a rank, and how much of it masters and reduced shards are. Nothing is allocated.
template <class Box, class Inter, class... Options>
void check_against_a_step(const DynamicLayout& embed, const DynamicLayout& layer, const StepMemory& memory) {
  const tide::MeshShape mesh = embed.mesh();
  CAPTURE(mesh.nodes);
  CAPTURE(mesh.ranks_per_node);
  using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, Inter, Box, Options...>;
  tide::HostCluster cluster(mesh);
  tide::HostFabric& fabric = cluster.fabric(tide::Rank{0});
  const Step step(fabric, std::tuple(embed, layer));
  const index_t reserved = fabric.reserve(0, 1);
  const index_t shards =
      embed.view().max_bytes(tide::Buffer::masters) + layers * layer.view().max_bytes(tide::Buffer::masters);
  const index_t expected = memory.peak() + 2 * shards;  // masters and reduced shards
  CAPTURE(reserved);
  CAPTURE(expected);
  CHECK(reserved >= expected);
  CHECK(reserved <= expected + expected / 50);
}

std::vector<MemoryPart> parts_on(const DynamicLayout& embed, const DynamicLayout& layer) {
  return {{embed.view(), 1}, {layer.view(), layers}};
}

TEST_CASE("step memory: the terms are what a step reserves, within two in a hundred") {
  const Groups groups;
  using Rails = tide::RdmaDoublingTransport<>;
  for (const tide::MeshShape mesh : {tide::MeshShape{1, 4}, tide::MeshShape{2, 2}, tide::MeshShape{3, 2}}) {
    const DynamicLayout embed(groups.embed, mesh);
    const DynamicLayout layer(groups.layer, mesh);
    const StepMemory slots = memory_with_slots(parts_on(embed, layer), {1, 2});
    const StepMemory ring = memory_with_ring(parts_on(embed, layer), {1, 2});
    if (mesh.nodes == 1) {
      check_against_a_step<tide::SlotReuse, tide::SingleNode>(embed, layer, slots);
      check_against_a_step<tide::Ring<tide::Chunks<4>, tide::Bytes<(64 << 20)>>, tide::SingleNode>(embed, layer, ring);
    } else {
      check_against_a_step<tide::SlotReuse, Rails>(embed, layer, slots);
      check_against_a_step<tide::Ring<tide::Chunks<4>, tide::Bytes<(64 << 20)>>, Rails>(embed, layer, ring);
    }
  }
  const DynamicLayout embed(groups.embed, {2, 2});
  const DynamicLayout layer(groups.layer, {2, 2});
  check_against_a_step<tide::SlotReuse, Rails, tide::Buffers<1>>(embed, layer,
                                                                 memory_with_slots(parts_on(embed, layer), {1, 1}));
  check_against_a_step<tide::SlotReuse, Rails, tide::Prefetch<9>>(embed, layer,
                                                                  memory_with_slots(parts_on(embed, layer), {9, 2}));
}

TEST_CASE("step memory: flat paths, counted by hand") {
  tide::DynamicGroup small;
  small.add("w", {4, 3}, Element::bf16, Element::bf16);  // 3 ranks: 2, 2, 0 rows; padded to 6
  tide::DynamicGroup large;
  large.add("v", {9, 5}, Element::bf16, Element::bf16);  // 3 rows each
  const DynamicLayout a(small, {1, 3});
  const DynamicLayout b(large, {1, 3});
  const std::vector<MemoryPart> parts = {{a.view(), 2}, {b.view(), 1}};  // forward: a a b

  const StepMemory stock = memory_stock(parts, {1, 2});
  // Turn of b: 90 whole, 36 of the gather of a ahead, 90 of gradients, 180 widened.
  CHECK(stock.peak() == 90 + 36 + 90 + 180);
  // Nothing ahead: the same without the gather.
  CHECK(memory_stock(parts, {0, 2}).peak() == 90 + 90 + 180);
  // Two ahead.
  CHECK(memory_stock(parts, {2, 2}).peak() == 90 + 72 + 90 + 180);
  // In windows: two outputs of the largest.
  CHECK(memory_symmetric(parts, {1, 2}).peak() == 90 + 2 * 90 + 90 + 180);
  // No more is alive at once than there are groups.
  CHECK(memory_stock(parts, {8, 2}).peak() == memory_stock(parts, {2, 2}).peak());
  CHECK(memory_symmetric(parts, {8, 2}).peak() == 90 + 3 * 90 + 90 + 180);
  CHECK(memory_with_ring(parts, {8, 2}).peak() == memory_with_ring(parts, {2, 2}).peak());
  CHECK(memory_with_slots(parts, {8, 2}).peak() == memory_with_slots(parts, {2, 2}).peak());
}

// Turn by turn, over every group of the model.
index_t stock_peak_by_turns(const std::vector<MemoryPart>& parts, index_t prefetch) {
  std::vector<tide_example::detail::FlatGroup> all;
  for (const MemoryPart& part : parts) {
    for (index_t i = 0; i < part.repeat; ++i) all.push_back(tide_example::detail::flat_group(part.layout));
  }
  index_t peak = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    index_t turn = all[i].whole + all[i].gradients;
    for (std::size_t k = 1; k <= static_cast<std::size_t>(prefetch) && k <= i; ++k) turn += all[i - k].flat;
    turn += std::max(all[i].widened, i + 1 < all.size() ? all[i + 1].widened : 0);
    peak = std::max(peak, turn);
  }
  return peak;
}

TEST_CASE("step memory: groups that repeat are counted as if each stood there by itself") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    std::deque<DynamicLayout> layouts;
    std::vector<MemoryPart> parts;
    const auto below = [&](unsigned end) { return static_cast<index_t>(random() % end); };
    for (index_t more = below(5); more >= 0; --more) {
      tide::DynamicGroup group;
      group.add("w", {1 + below(9), 1 + below(5)}, Element::bf16, Element::bf16);
      parts.push_back({layouts.emplace_back(group, tide::MeshShape{1, 3}).view(), 1 + below(6)});
    }
    for (const index_t prefetch : {0, 1, 2, 3, 7, 40}) {
      CAPTURE(prefetch);
      CHECK(memory_stock(parts, {prefetch, 2}).peak() == stock_peak_by_turns(parts, prefetch));
    }
  }
}

TEST_CASE("step memory: many groups take no memory of this program, and what 64 bits do not hold is refused") {
  tide::DynamicGroup small;
  small.add("w", {8, 8}, Element::bf16, Element::bf16);
  const DynamicLayout little(small, {1, 4});
  const std::vector<MemoryPart> many(1000, MemoryPart{little.view(), 1'000'000});
  CHECK(memory_stock(many, {1, 2}).peak() == 128 + 128 + 128 + 256);
  CHECK(memory_symmetric(many, {255, 2}).peak() == 128 + 256 * 128 + 128 + 256);

  tide::DynamicGroup huge;
  huge.add("w", {index_t{1} << 40}, Element::f64, Element::f64);
  const DynamicLayout wide(huge, {1, 4});  // 2^43 bytes
  const std::vector<MemoryPart> parts(1000, MemoryPart{wide.view(), 1'000'000});
  CHECK(memory_with_slots(parts, {1, 2}).peak() > index_t{1} << 43);
  CHECK(memory_symmetric(parts, {1, 2}).peak() == 4 * (index_t{1} << 43) + (index_t{1} << 42));
  const auto refused = [](const auto& call) {
    return tide_test::text_of([&] { static_cast<void>(call().peak()); }) ==
           "a step on this mesh takes more bytes than this program counts";
  };
  const index_t beyond = index_t{1} << 21;  // times 2^43
  CHECK(refused([&] { return memory_with_slots(parts, {1, beyond}); }));
  CHECK(refused([&] { return memory_with_ring(parts, {1, beyond}); }));
  CHECK(refused([&] { return memory_stock(parts, {beyond, 2}); }));
  CHECK(refused([&] { return memory_symmetric(parts, {beyond, 2}); }));
  CHECK(refused([&] { return memory_with_slots(parts, {beyond, 2}); }));
}

TEST_CASE("step memory: reuse of slots takes less than flat buffers, a ring less than symmetric windows") {
  for (const char* name : {"llama3.1-70b", "wan2.2-t2v-a14b"}) {
    const auto model = tide_example::named_model(*tide::find_model(name));
    for (const tide::MeshShape mesh : {tide::MeshShape{2, 8}, tide::MeshShape{4, 8}, tide::MeshShape{8, 8}}) {
      CAPTURE(name);
      CAPTURE(mesh.nodes);
      std::deque<DynamicLayout> layouts;
      std::vector<MemoryPart> parts;
      for (const auto& unit : model.units) {
        parts.push_back({layouts.emplace_back(unit.parameters, mesh).view(), unit.repeat});
      }
      // With gradient memory for one group, as the flat paths have. A second one costs as much as a slot.
      CHECK(memory_with_slots(parts, {1, 1}).peak() < memory_stock(parts, {1, 1}).peak());
      CHECK(memory_with_ring(parts, {1, 2}).peak() < memory_symmetric(parts, {1, 2}).peak());
    }
  }
}

}  // namespace step_memory_test
