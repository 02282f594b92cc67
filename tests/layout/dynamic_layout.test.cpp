// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/even_shard.hpp>
#include <tide/layout/ragged_shard.hpp>
#include <tide/layout/shard_layout.hpp>
#include <tide/models/registry.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/laws.hpp"
#include "support/raised.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::Buffer;
using tide::DynamicGroup;
using tide::DynamicLayout;
using tide::Element;
using tide::index_t;
using tide::Rank;

/// The same parameters and ties, put together at run time.
DynamicGroup copy_of(const tide::GroupView& group) {
  DynamicGroup copy;
  for (const tide::Parameter& parameter : group.parameters) {
    const auto& extents = parameter.shape.extents;
    copy.add(parameter.name.str(), {extents.begin(), extents.begin() + parameter.shape.rank}, parameter.gathered,
             parameter.gradient, parameter.sharding);
  }
  for (const tide::Alias& tied : group.aliases) copy.add_alias(std::string(tied.name), std::string(tied.target));
  return copy;
}

/// Whether two views give the same pieces for every rank.
bool same(const tide::LayoutView& a, const tide::LayoutView& b) {
  for (index_t r = 0; r < a.mesh.ranks(); ++r) {
    for (const auto& [source, target] : {std::pair{Buffer::masters, Buffer::slot},
                                         {Buffer::shards, Buffer::slot},
                                         {Buffer::output, Buffer::gradients}}) {
      if (a.blocks(Rank{r}, source, target) != b.blocks(Rank{r}, source, target)) return false;
    }
    for (const Buffer buffer : laws::all_buffers) {
      if (a.bytes(buffer, Rank{r}) != b.bytes(buffer, Rank{r})) return false;
    }
  }
  return true;
}

TEST_CASE("DynamicLayout: a group read at run time is laid out as the compiler lays it out") {
  using namespace tide::models;
  using tide::Mesh;
  using tide::ShardLayout;
  CHECK(same(DynamicLayout(copy_of(llama3_1_8b::block.view()), {1, 5}).view(),
             ShardLayout<llama3_1_8b::block, Mesh<1, 5>>().view()));
  CHECK(same(DynamicLayout(copy_of(qwen3_30b_a3b::block.view()), {3, 8}, tide::Fsdp2Packing::rule).view(),
             ShardLayout<qwen3_30b_a3b::block, Mesh<3, 8>, tide::Fsdp2Packing>().view()));
  CHECK(same(DynamicLayout(copy_of(wan2_2_t2v_a14b::root.view()), {2, 3}, tide::TightPacking::rule, 4096).view(),
             ShardLayout<wan2_2_t2v_a14b::root, Mesh<2, 3>, tide::TightPacking, tide::DenseStorage<tide::Bytes<4096>>>()
                 .view()));
}

TEST_CASE("DynamicLayout: rows, ties and elements given at run time are kept") {
  DynamicGroup group;
  group.add("ragged", {7, 3}, Element::f8_e5m2, Element::f32, {}, {4, 0, 3});
  group.add("columns", {2, 6}, Element::bf16, Element::bf16, tide::shard(1));
  group.add("none", {0, 6}, Element::bf16, Element::bf16);
  group.add_alias("tied", "columns");
  const DynamicLayout layout(group, {1, 3});
  const tide::LayoutView view = layout.view();
  CHECK(layout.mesh() == tide::MeshShape{1, 3});
  CHECK(laws::layout(view));
  CHECK(view.piece(tide::ParameterIndex{0}, Rank{2}).begin == 4);
  CHECK(view.piece(tide::ParameterIndex{1}, Rank{2}).outer == 2);
  CHECK(view.group.find("tied") == tide::ParameterIndex{1});
  CHECK(view.group[tide::ParameterIndex{0}].gathered == Element::f8_e5m2);
  CHECK(view.group[tide::ParameterIndex{0}].gradient == Element::f32);
}

TEST_CASE("DynamicLayout: a broken rule is refused in the words of the compile error, with the parameter's name") {
  const auto text = [](const std::vector<index_t>& shape, tide::Sharding sharding, std::vector<index_t> rows = {}) {
    DynamicGroup group;
    group.add("first", {4}, Element::bf16, Element::bf16);
    group.add("second", shape, Element::bf16, Element::bf16, sharding, std::move(rows));
    return tide_test::text_of([&] { DynamicLayout(group, {2, 2}); });
  };
  CHECK(text({4, 4}, {}).empty());
  CHECK(
      text({}, {}) ==
      "tide::ShardLayout: a parameter needs at least one dimension; give a scalar the shape {1}. Parameter 'second'.");
  CHECK(text({1, 2, 3, 4, 5, 6, 7, 8, 9}, {}) ==
        "tide::ShardLayout: a parameter has at most 8 dimensions; merge neighbouring ones. Parameter 'second'.");
  CHECK(text({4, -4}, {}) == "tide::ShardLayout: extents must not be negative. Parameter 'second'.");
  CHECK(text({4}, tide::shard(1)) ==
        "tide::ShardLayout: the sharded dimension must be one of the parameter's dimensions. Parameter 'second'.");
  CHECK(text({4}, {}, {1, 2, 1}) ==
        "tide::ShardLayout: ragged rows need one count per rank of the mesh. Parameter 'second'.");
  CHECK(text({4}, {}, {1, 2, 1, 1}) ==
        "tide::ShardLayout: ragged rows must not be negative and must add up to dimension 0. Parameter 'second'.");
  CHECK(tide_test::text_of([] {
          DynamicLayout(DynamicGroup(), {1, 1});
        }) == "tide::ShardLayout: a group needs at least one parameter.");
}

TEST_CASE("DynamicGroup: keeps ragged rows, however they are given; a rule beside them is refused") {
  DynamicGroup group;
  std::vector<index_t> rows{3, 1};
  group.add("kept", {4, 2}, Element::bf16, Element::bf16, tide::ragged(rows));
  rows.assign({0, 4});  // the group has its own
  const DynamicLayout layout(group, {1, 2});
  CHECK(layout.view().piece(tide::ParameterIndex{0}, Rank{0}).count == 3);
  CHECK(layout.view().piece(tide::ParameterIndex{0}, Rank{1}).count == 1);
  const auto both = [&] {
    group.add("both", {4}, Element::bf16, Element::bf16, tide::shard_by<tide::EvenShard>(), {2, 2});
  };
  CHECK(tide_test::text_of(both) ==
        "tide::DynamicGroup: a parameter is cut by a rule or by ragged rows, not by both; 'both' has both.");
}

TEST_CASE("DynamicLayout: sizes that no mesh, packing or storage can have are refused") {
  DynamicGroup group;
  group.add("w", {4}, Element::bf16, Element::bf16);
  const auto text = [&](tide::MeshShape mesh, index_t start, index_t storage) {
    return tide_test::text_of([&] { DynamicLayout(group, mesh, {start, tide::PackingRule::Padding::none}, storage); });
  };
  CHECK(text({1, 2}, 16, 256).empty());
  CHECK(text({0, 2}, 16, 256) == "tide::Mesh: Nodes must be positive; or tide::dynamic.");
  CHECK(text({1, -2}, 16, 256) == "tide::Mesh: RanksPerNode must be positive; or tide::dynamic.");
  CHECK(text({70000, 1}, 16, 256) == "tide::Mesh: a mesh has at most 65535 ranks.");
  for (const index_t wrong : {0, -16, 24}) {
    CHECK(text({1, 2}, wrong, 256) ==
          "tide::ShardLayout: the start_alignment of Pack must be a power of two, at most 1 GiB.");
  }
  for (const index_t wrong : {0, 8, 24, -256}) {
    CHECK(text({1, 2}, 16, wrong) ==
          "tide::DenseStorage: the alignment must be a power of two from 16 bytes to 1 GiB.");
  }
}

TEST_CASE("DynamicGroup: a group that grows leaves layouts and copies as they were") {
  DynamicGroup group;
  group.add("w", {6}, Element::bf16, Element::bf16, {}, {2, 4});
  group.add_alias("tied", "w");
  const DynamicGroup before = group;
  std::optional<DynamicLayout> layout(std::in_place, group, tide::MeshShape{1, 2});
  const tide::LayoutView view = layout->view();

  for (int i = 0; i < 100; ++i) group.add("v" + std::to_string(i), {4}, Element::f32, Element::f32);
  group.add_alias("tied too", "v3");
  CHECK(group.view().size() == 101);
  CHECK(before.view().size() == 1);
  CHECK(before.view().aliases.size() == 1);
  CHECK(view.group.size() == 1);
  CHECK(view.bytes(Buffer::shards, Rank{1}) == 8);

  // Nothing of the grown group was left behind with them.
  layout.reset();
  CHECK(group.view().find("tied") == tide::ParameterIndex{0});
  CHECK(group.view().find("tied too") == tide::ParameterIndex{4});
  CHECK(group.view().parameters[0].sharding.rows_of_rank[1] == 4);
  CHECK(laws::layout({group.view(), {1, 2}}));
}

TEST_CASE("DynamicGroup: ragged rows of another dimension are refused, and nothing is added") {
  tide::DynamicGroup group;
  CHECK(tide_test::text_of([&] {
          group.add("w", {4, 6}, Element::bf16, Element::bf16, tide::shard(1), {1, 3});
        }) == "tide::DynamicGroup: ragged rows count along dimension 0; the sharding of 'w' says dimension 1.");
  CHECK(group.view().size() == 0);
}

/// A shard rule that counts how often it is asked.
struct Counting {
  static inline index_t asked = 0;

  [[nodiscard]] static index_t begin(index_t rows, index_t ranks, index_t rank) noexcept {
    ++asked;
    return rows * rank / ranks;
  }
};

TEST_CASE("DynamicLayout: asking for the piece of each parameter walks over the group once, not once for each") {
  constexpr index_t parameters = 300;
  DynamicGroup group;
  for (index_t i = 0; i < parameters; ++i) {
    group.add("w" + std::to_string(i), {40 + i, 3}, Element::bf16, Element::f32,
              {tide::Sharding::Kind::ruled, 0, Counting::begin, {}});
  }
  const DynamicLayout layout(group, {1, 4});
  Counting::asked = 0;
  for (index_t i = 0; i < parameters; ++i) static_cast<void>(layout.view().piece(tide::ParameterIndex{i}, Rank{2}));
  CHECK(Counting::asked <= 8 * parameters);
}

TEST_CASE("DynamicLayout: a piece is the same alone and in the walk, whatever else was asked of the same group") {
  DynamicGroup group = copy_of(tide::models::llama3_1_8b::block.view());
  const auto check = [](const DynamicLayout& layout) {
    for (index_t r = 0; r < layout.mesh().ranks(); ++r) {
      layout.view().for_each_piece(Rank{r}, [&](const tide::Piece& piece) {
        const tide::Piece alone = layout.view().piece(piece.parameter, Rank{r});
        CHECK(alone.start == piece.start);
        CHECK(alone.begin == piece.begin);
        CHECK(alone.count == piece.count);
      });
    }
  };
  const DynamicLayout tight(group, {1, 5});
  const DynamicLayout padded(group, {1, 5}, tide::Fsdp2Packing::rule);
  const DynamicLayout apart(group, {1, 3}, tide::TightPacking::rule, 1024);
  for (const DynamicLayout* layout : {&tight, &padded, &apart, &tight}) check(*layout);
  group.add("more", {11, 2}, Element::f32, Element::f32);  // what was laid out before keeps its own parameters
  check(DynamicLayout(group, {1, 5}));
  check(tight);
  DynamicGroup grows;
  grows.add("a", {8, 2}, Element::bf16, Element::bf16);
  check(DynamicLayout(grows, {1, 2}));
  grows.add("b", {7, 2}, Element::bf16, Element::bf16);
  check(DynamicLayout(grows, {1, 2}));
}

}  // namespace

TEST_CASE("DynamicLayout: a view that is made to show another group says where that group's pieces are") {
  tide::DynamicGroup small;
  small.add("a", {4}, tide::Element::bf16, tide::Element::bf16);
  small.add("b", {4}, tide::Element::bf16, tide::Element::bf16);
  tide::DynamicGroup large;
  for (int i = 0; i < 5; ++i) large.add("w" + std::to_string(i), {64, 64}, tide::Element::f32, tide::Element::f32);
  const tide::DynamicLayout of_small(small, {1, 2});
  const tide::DynamicLayout of_large(large, {1, 2});
  tide::LayoutView exchanged = of_small.view();
  exchanged.group = of_large.view().group;
  const auto start = [](const tide::LayoutView& layout, tide::index_t parameter) {
    return layout.piece(tide::ParameterIndex{parameter}, tide::Rank{1}).start;
  };
  CHECK(start(exchanged, 4) == start(of_large.view(), 4));
  CHECK(start(of_small.view(), 1) == start({of_small.view().group, {1, 2}, tide::TightPacking::rule}, 1));
  CHECK(start(exchanged, 1) == start(of_large.view(), 1));
}
