// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/layout/shard_layout.hpp>
#include <tide/models/llama3_1.hpp>

#include <type_traits>

namespace {

namespace models = tide::models;
using tide::Mesh;
using tide::ShardLayout;
using tide::TensorView;

// The counts that were published with the models; fusing q, k and v changes none.
static_assert(models::llama3_1_70b::model.elements() == 70'553'706'496);
static_assert(models::llama3_1_70b_torchtitan::model.elements() == 70'553'706'496);
static_assert(models::llama3_1_8b::model.elements() == 8'030'261'248);
static_assert(models::llama3_1_8b_torchtitan::model.elements() == 8'030'261'248);

// Groups are what layouts take.
using Block = ShardLayout<models::llama3_1_70b::block, Mesh<2, 8>>;
static_assert(Block::slot_bytes == 1'711'308'800);
static_assert(std::is_same_v<Block::tensor<"self_attn.k_proj.weight">, TensorView<tide::bf16, 1024, 8192>>);
static_assert(std::is_same_v<Block::tensor<"mlp.down_proj.weight">, TensorView<tide::bf16, 8192, 28672>>);
using Head = ShardLayout<models::llama3_1_8b::head, Mesh<1, 3>>;
static_assert(std::is_same_v<Head::tensor<"lm_head.weight">, TensorView<tide::bf16, 128256, 4096>>);
using Fused = ShardLayout<models::llama3_1_8b_torchtitan::block, Mesh<1, 3>>;
static_assert(std::is_same_v<Fused::tensor<"attention.qkv_linear.wqkv.weight">, TensorView<tide::bf16, 6144, 4096>>);

}  // namespace
