// SPDX-License-Identifier: Apache-2.0
//
// What the constructors of pipelines refuse, and buffers of another layout.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>

#include "support/collectives.hpp"

using namespace tide_test;
using tide::DynamicLayout;

namespace {

inline constexpr auto group = tide::group(tide::param<tide::bf16>("w", {10, 3}));

template <class Inbox = tide::Ring<tide::Chunks<4>, tide::Bytes<(1 << 20)>>>
using Reduce = tide::ReduceScatter<DynamicLayout, tide::CopyEngineReducer<>, tide::SingleNode, Inbox>;
using Gather = tide::AllGather<DynamicLayout, tide::UnicastTransport>;
using Pool = tide::SlotPool<tide::Depth<1>, DynamicLayout>;

DynamicLayout layout_of(index_t rows, tide::MeshShape mesh) {
  return {group_of({{rows, 3}, {7}}, Element::bf16, Element::bf16), mesh};
}

}  // namespace

TEST_CASE("AllGather, ReduceScatter: the mesh of the layout must be that of the fabric") {
  const DynamicLayout other = layout_of(10, {1, 3});
  const std::string words =
      "tide::LayoutView: the mesh of the layout must be that of the fabric; layout 1x3, fabric 1x2.";
  check_same_error(errors_of(HostRanks{}, 2,
                             [&](tide::HostFabric& fabric) {
                               Pool pool(fabric, other);
                               Gather gather(fabric, pool, other);
                             }),
                   {words});
  check_same_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) { Reduce<> reduce(fabric, other); }),
                   {words});
  using Static = tide::ShardLayout<group, tide::Mesh<1, 3>>;
  check_same_error(errors_of(HostRanks{}, 2, [](tide::HostFabric& fabric) { tide::Shards<Static> shards(fabric); }),
                   {"tide::Mesh: sizes given at run time must equal the static ones; static 1x3, given 1x2."});
}

TEST_CASE("AllGather, ReduceScatter: SingleNode on several nodes is refused") {
  const DynamicLayout layout = layout_of(10, {2, 2});
  tide::HostCluster cluster({2, 2});
  std::vector<std::string> texts(8);
  cluster.run([&](tide::HostFabric& fabric) {
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    Pool pool(fabric, layout);
    try {
      Gather gather(fabric, pool, layout);
    } catch (const tide::Error& error) {
      texts[2 * rank] = error.what();
    }
    try {
      Reduce<> reduce(fabric, layout);
    } catch (const tide::Error& error) {
      texts[2 * rank + 1] = error.what();
    }
  });
  check_same_error(texts, {"tide::SingleNode: the mesh must have one node; for several name RdmaDoublingTransport<>."});
}

TEST_CASE("ReduceScatter: an inbox that is too small for the mesh is refused on all ranks, with the numbers") {
  using Tiny = tide::Ring<tide::Chunks<2>, tide::Bytes<511>>;
  const DynamicLayout layout = layout_of(10, {1, 3});
  const auto texts = errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) { Reduce<Tiny> reduce(fabric, layout); });
  check_same_error(texts, {"tide::Ring: Bytes must hold one unit", "512 bytes, has 511."});
}

TEST_CASE("AllGather, ReduceScatter: buffers of another layout are refused on all ranks, and the right ones work") {
  const DynamicLayout layout = layout_of(10, {1, 2});
  const DynamicLayout equal = layout_of(10, {1, 2});  // made apart, from the same description
  const DynamicLayout other = layout_of(16, {1, 2});
  std::vector<std::string> gathers(2), storages(2), tables(2), outputs(2);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    Pool pool(fabric, layout);
    Gather gather(fabric, pool, layout);
    Reduce<> reduce(fabric, layout);
    tide::Shards<DynamicLayout> wrong_shards(fabric, other);
    tide::Shards<DynamicLayout> shards(fabric, equal);
    tide::Gradients<DynamicLayout> wrong_gradients(fabric, other);
    tide::Gradients<DynamicLayout> gradients(fabric, equal);
    tide::MasterShards<DynamicLayout> wrong_sums(fabric, other);
    tide::MasterShards<DynamicLayout> sums(fabric, equal);
    tide::GradientTable<DynamicLayout> wrong_table(other);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    const auto refused = [&](std::string& text, auto call) {
      try {
        call();
      } catch (const tide::Error& error) {
        text = error.what();
        text.replace(text.find("on rank "), 9, "on a rank");  // both refuse, and each may be first
      }
    };
    refused(gathers[rank], [&] { static_cast<void>(gather.enqueue(wrong_shards, stream)); });
    refused(storages[rank], [&] { static_cast<void>(reduce.enqueue(wrong_gradients, sums, stream)); });
    refused(tables[rank], [&] { static_cast<void>(reduce.enqueue(wrong_table, sums, stream)); });
    refused(outputs[rank], [&] { static_cast<void>(reduce.enqueue(gradients, wrong_sums, stream)); });
    std::memset(gradients.data(), 0, static_cast<std::size_t>(layout.view().bytes(tide::Buffer::gradients)));
    std::memset(shards.data(), 0, static_cast<std::size_t>(layout.view().bytes(tide::Buffer::shards, fabric.rank())));
    gather.enqueue(shards, stream).release(stream);
    static_cast<void>(reduce.enqueue(gradients, sums, stream));
    fabric.close();
  }));
  const std::string words = "tide::LayoutView: a buffer must have the layout of the pipeline; ";
  check_same_error(gathers, {words + "gather of 'p0'"});
  check_same_error(storages, {words + "reduce of 'p0'"});
  check_same_error(tables, {words + "reduce of 'p0'"});
  check_same_error(outputs, {words + "reduce of 'p0'"});
}
