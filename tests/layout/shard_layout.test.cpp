// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/shard_layout.hpp>
#include <tide/models/registry.hpp>

#include <string>
#include <type_traits>

#include "support/laws.hpp"
#include "support/raised.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::Buffer;
using tide::dynamic;
using tide::Mesh;
using tide::param;
using tide::ParameterIndex;
using tide::Rank;
using tide::ShardLayout;
using tide::TensorView;

// ---- sizes -------------------------------------------------------------------------------------------------------

using Llama = ShardLayout<tide::models::llama3_1_8b::block, Mesh<1, 4>>;
static_assert(Llama::slot_bytes == 436'224'000 && Llama::gradient_bytes == 436'224'000);
static_assert(Llama().view().bytes(Buffer::shards) == Llama::slot_bytes / 4);
static_assert(Llama().view().bytes(Buffer::masters) == Llama::slot_bytes / 2);

using Qwen = ShardLayout<tide::models::qwen3_30b_a3b::block, Mesh<2, 8>>;
static_assert(Qwen::group.parameters.size() == 393);
static_assert(Qwen::slot_bytes == 1'246'241'280);
static_assert(Qwen::index<"mlp.experts.127.down_proj.weight">() == ParameterIndex{390});
static_assert(std::is_same_v<Qwen::tensor<"mlp.experts.64.up_proj.weight">, TensorView<tide::bf16, 768, 2048>>);

// A layout costs nothing at run time: it is its mesh, and that is known.
static_assert(std::is_trivially_copyable_v<Llama> && sizeof(Llama) <= 2 * sizeof(tide::index_t));

// ---- 512 parameters, within the compilers' default limits ----------------------------------------------------------

constexpr auto many = tide::group(
    param<tide::bf16>("model.decoder.embedding.weight", {1000, 64}),
    tide::repeat<170>("model.decoder.mixture.experts.{}.", param<tide::bf16>("gate_projection.weight", {96, 64}),
                      param<tide::bf16>("up_projection.weight", {96, 64}),
                      param<tide::bf16>("down_projection.weight", {64, 96})),
    param<tide::bf16>("model.decoder.norm.weight", {64}), tide::alias("head.weight", "model.decoder.embedding.weight"),
    tide::alias("last.weight", "model.decoder.mixture.experts.169.down_projection.weight"));
static_assert(many.parameters.size() == 512);
using Many = ShardLayout<many, Mesh<9, 8>, tide::Fsdp2Packing>;
static_assert(Many::slot_bytes == 128'000 + 170 * 3 * 96 * 64 * 2 + 256);
static_assert(Many().view().piece(ParameterIndex{511}, Rank{63}).count == 1);
static_assert(Many().view().bytes(Buffer::shards, Rank{71}) == Many().view().bytes(Buffer::shards, Rank{0}));
static_assert(Many::index<"last.weight">() == ParameterIndex{510});
static_assert(std::is_same_v<Many::tensor<"last.weight">, TensorView<tide::bf16, 64, 96>>);

// ---- names, ties and elements --------------------------------------------------------------------------------------

constexpr auto mixed_elements =
    tide::group(param<tide::f8_e4m3, tide::bf16>("embed", {100, 8}), param<tide::f16>("norm", {8}),
                param<tide::f32>("empty", {0, 3}), tide::alias("head", "embed"));
using Mixed = ShardLayout<mixed_elements, Mesh<1, 3>>;
static_assert(Mixed::index<"norm">() == ParameterIndex{1});
static_assert(Mixed::index<"head">() == Mixed::index<"embed">());
static_assert(std::is_same_v<Mixed::tensor<"embed">, TensorView<tide::f8_e4m3, 100, 8>>);
static_assert(std::is_same_v<Mixed::gradient_tensor<"embed">, TensorView<tide::bf16, 100, 8>>);
static_assert(std::is_same_v<Mixed::tensor<"head">, Mixed::tensor<"embed">>);
static_assert(std::is_same_v<Mixed::tensor<"norm">, TensorView<tide::f16, 8>>);
static_assert(std::is_same_v<Mixed::tensor<"empty">, TensorView<float, 0, 3>>);

// Tied names take no storage; each buffer counts in its own element.
static_assert(Mixed::slot_bytes == 1024 + 256 && Mixed::gradient_bytes == 1792 + 256);
static_assert(laws::layout(Mixed().view()));

// ---- static and dynamic meshes -------------------------------------------------------------------------------------

using HalfDynamic = ShardLayout<mixed_elements, Mesh<dynamic, 3>>;
using Dynamic =
    ShardLayout<mixed_elements, Mesh<dynamic, dynamic>, tide::Fsdp2Packing, tide::DenseStorage<tide::Bytes<64>>>;
static_assert(HalfDynamic::slot_bytes == Mixed::slot_bytes && Dynamic::slot_bytes == 832 + 64);
static_assert(std::is_default_constructible_v<Mixed> && !std::is_default_constructible_v<HalfDynamic>);
static_assert(HalfDynamic(Mesh<dynamic, 3>(2, 3)).mesh() == tide::MeshShape{2, 3});
static_assert(Dynamic::on({3, 5}).view().mesh.ranks() == 15 && Dynamic::on({3, 5}).view().storage_alignment == 64);
static_assert(Dynamic::on({3, 5}).view().packing == tide::Fsdp2Packing::rule);
static_assert(laws::layout(Dynamic::on({3, 5}).view()));
static_assert(Mixed::on({1, 3}).mesh() == Mixed().mesh());

// Where a parameter starts in a dense buffer, whatever the mesh.
static_assert(Mixed::dense_start<"embed", tide::Buffer::slot> == 0);
static_assert(Mixed::dense_start<"norm", tide::Buffer::slot> == 1024);
static_assert(Mixed::dense_start<"norm", tide::Buffer::gradients> == 1792);
static_assert(Dynamic::dense_start<"norm", tide::Buffer::slot> == 832);

constexpr auto column_group = tide::group(param<tide::bf16>("w", {4, 6}, tide::shard(1)));

TEST_CASE("ShardLayout: a mesh given at run time is checked in the words of the compile error") {
  using Columns = ShardLayout<column_group, Mesh<1, dynamic>>;
  CHECK(Columns::on({1, 3}).view().mesh.ranks() == 3);
  const auto error = tide_test::raised([] { Columns(Mesh<1, dynamic>(1, 4)); });
  REQUIRE(error.has_value());
  CHECK(error->code() == tide::Errc::layout);
  CHECK(error->what() == std::string("tide::ShardLayout: a sharded dimension other than 0 must be a multiple of the "
                                     "ranks; cut dimension 0. Parameter 'w'."));
}

TEST_CASE("ShardLayout: the mesh of a fabric must be the static one") {
  const auto error = tide_test::raised([] { (void)Llama::on({2, 2}); });
  REQUIRE(error.has_value());
  CHECK(error->code() == tide::Errc::mismatch);
}

TEST_CASE("ShardLayout: one layout of every world agrees with the one known at compile time") {
  const auto known = Qwen().view();
  const auto given = ShardLayout<tide::models::qwen3_30b_a3b::block, Mesh<dynamic, dynamic>>::on({2, 8}).view();
  for (tide::index_t rank = 0; rank < 16; ++rank) {
    CHECK(known.blocks(Rank{rank}, Buffer::shards, Buffer::slot) ==
          given.blocks(Rank{rank}, Buffer::shards, Buffer::slot));
  }
}

}  // namespace
