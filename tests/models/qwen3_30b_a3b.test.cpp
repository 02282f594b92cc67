// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/layout/shard_layout.hpp>
#include <tide/models/qwen3_30b_a3b.hpp>

#include <type_traits>

namespace {

namespace models = tide::models;
using tide::Mesh;
using tide::ShardLayout;
using tide::TensorView;

// However the experts are stored, they are the same parameters.
static_assert(models::qwen3_30b_a3b::model.elements() == 30'532'122'624);
static_assert(models::qwen3_30b_a3b_stacked::model.elements() == 30'532'122'624);
static_assert(models::qwen3_30b_a3b_torchtitan::model.elements() == 30'532'122'624);

static_assert(models::qwen3_30b_a3b::block.parameters.size() == 393);
static_assert(models::qwen3_30b_a3b_stacked::block.parameters.size() == 11);
static_assert(models::qwen3_30b_a3b_torchtitan::block.parameters.size() == 10);

using Apart = ShardLayout<models::qwen3_30b_a3b::block, Mesh<1, 8>>;
static_assert(std::is_same_v<Apart::tensor<"mlp.experts.127.down_proj.weight">, TensorView<tide::bf16, 2048, 768>>);
using Stacked = ShardLayout<models::qwen3_30b_a3b_stacked::block, Mesh<1, 8>>;
static_assert(std::is_same_v<Stacked::tensor<"mlp.experts.gate_up_proj">, TensorView<tide::bf16, 128, 1536, 2048>>);
static_assert(Apart::slot_bytes == Stacked::slot_bytes);

}  // namespace
