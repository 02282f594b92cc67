// SPDX-License-Identifier: Apache-2.0
//
// Qwen3-30B-A3B, a mixture of 128 experts a block, in the three ways that its experts are stored:
//
//   qwen3_30b_a3b             each expert's matrices apart: 393 parameters a block      (checkpoints, transformers 4)
//   qwen3_30b_a3b_stacked     experts along dimension 0, gate and up fused: 11          (transformers 5)
//   qwen3_30b_a3b_torchtitan  experts along dimension 0, q, k and v fused: 10           (torchtitan's grouped experts)
//
// Test: tests/models/qwen3_30b_a3b.test.cpp

#pragma once

#include <tide/models/detail/decoder.hpp>  // decoder_units, torchtitan_units

namespace tide::models::qwen3_30b_a3b {
inline constexpr auto embedding = detail::decoder_embedding(151936, 2048);
inline constexpr auto block = group(  // clang-format off
    param<bf16>("self_attn.q_proj.weight", {4096, 2048}),
    param<bf16>("self_attn.k_proj.weight", {512, 2048}),
    param<bf16>("self_attn.v_proj.weight", {512, 2048}),
    param<bf16>("self_attn.o_proj.weight", {2048, 4096}),
    param<bf16>("self_attn.q_norm.weight", {128}),
    param<bf16>("self_attn.k_norm.weight", {128}),
    param<bf16>("mlp.gate.weight", {128, 2048}),
    repeat<128>("mlp.experts.{}.",
        param<bf16>("gate_proj.weight", {768, 2048}),
        param<bf16>("up_proj.weight", {768, 2048}),
        param<bf16>("down_proj.weight", {2048, 768})),
    param<bf16>("input_layernorm.weight", {2048}),
    param<bf16>("post_attention_layernorm.weight", {2048}));  // clang-format on
inline constexpr auto head = detail::decoder_head(151936, 2048);
inline constexpr auto units = detail::decoder_units(embedding.view(), 48, block.view(), head.view());
inline constexpr Model model{"qwen3-30b-a3b", units};
}  // namespace tide::models::qwen3_30b_a3b

namespace tide::models::qwen3_30b_a3b_stacked {
inline constexpr auto embedding = detail::decoder_embedding(151936, 2048);
inline constexpr auto block = group(  // clang-format off
    param<bf16>("self_attn.q_proj.weight", {4096, 2048}),
    param<bf16>("self_attn.k_proj.weight", {512, 2048}),
    param<bf16>("self_attn.v_proj.weight", {512, 2048}),
    param<bf16>("self_attn.o_proj.weight", {2048, 4096}),
    param<bf16>("self_attn.q_norm.weight", {128}),
    param<bf16>("self_attn.k_norm.weight", {128}),
    param<bf16>("mlp.gate.weight", {128, 2048}),
    param<bf16>("mlp.experts.gate_up_proj", {128, 1536, 2048}),
    param<bf16>("mlp.experts.down_proj", {128, 2048, 768}),
    param<bf16>("input_layernorm.weight", {2048}),
    param<bf16>("post_attention_layernorm.weight", {2048}));  // clang-format on
inline constexpr auto head = detail::decoder_head(151936, 2048);
inline constexpr auto units = detail::decoder_units(embedding.view(), 48, block.view(), head.view());
inline constexpr Model model{"qwen3-30b-a3b.stacked", units};
}  // namespace tide::models::qwen3_30b_a3b_stacked

namespace tide::models::qwen3_30b_a3b_torchtitan {
inline constexpr auto embedding = detail::torchtitan_embedding(151936, 2048);
inline constexpr auto block = group(  // clang-format off
    param<bf16>("attention.qkv_linear.wqkv.weight", {5120, 2048}),
    param<bf16>("attention.wo.weight", {2048, 4096}),
    param<bf16>("attention.q_norm.weight", {128}),
    param<bf16>("attention.k_norm.weight", {128}),
    param<bf16>("moe.routed_experts.inner_experts.w1_EFD", {128, 768, 2048}),
    param<bf16>("moe.routed_experts.inner_experts.w2_EDF", {128, 2048, 768}),
    param<bf16>("moe.routed_experts.inner_experts.w3_EFD", {128, 768, 2048}),
    param<bf16>("moe.router.gate.weight", {128, 2048}),
    param<bf16>("attention_norm.weight", {2048}),
    param<bf16>("ffn_norm.weight", {2048}));  // clang-format on
inline constexpr auto head = detail::torchtitan_head(151936, 2048);
inline constexpr auto units = detail::torchtitan_units(embedding.view(), 48, block.view(), head.view());
inline constexpr Model model{"qwen3-30b-a3b.torchtitan", units};
}  // namespace tide::models::qwen3_30b_a3b_torchtitan
