// SPDX-License-Identifier: Apache-2.0
//
// Llama 3.1, 70B and 8B: as their checkpoints store them (q, k and v apart) and as torchtitan trains them (one `wqkv`).
//
// Test: tests/models/llama3_1.test.cpp

#pragma once

#include <tide/models/detail/decoder.hpp>  // decoder_units, torchtitan_units

namespace tide::detail {

inline constexpr index_t llama3_vocabulary = 128256;
inline constexpr index_t llama3_key_value = 1024;  // 8 heads of 128

[[nodiscard]] constexpr auto llama3_block(index_t width, index_t feed_forward) noexcept {
  return group(  // clang-format off
      param<bf16>("self_attn.q_proj.weight", {width, width}),
      param<bf16>("self_attn.k_proj.weight", {llama3_key_value, width}),
      param<bf16>("self_attn.v_proj.weight", {llama3_key_value, width}),
      param<bf16>("self_attn.o_proj.weight", {width, width}),
      param<bf16>("mlp.gate_proj.weight", {feed_forward, width}),
      param<bf16>("mlp.up_proj.weight", {feed_forward, width}),
      param<bf16>("mlp.down_proj.weight", {width, feed_forward}),
      param<bf16>("input_layernorm.weight", {width}),
      param<bf16>("post_attention_layernorm.weight", {width}));  // clang-format on
}

[[nodiscard]] constexpr auto llama3_torchtitan_block(index_t width, index_t feed_forward) noexcept {
  return group(  // clang-format off
      param<bf16>("attention.qkv_linear.wqkv.weight", {width + 2 * llama3_key_value, width}),
      param<bf16>("attention.wo.weight", {width, width}),
      param<bf16>("feed_forward.w1.weight", {feed_forward, width}),
      param<bf16>("feed_forward.w2.weight", {width, feed_forward}),
      param<bf16>("feed_forward.w3.weight", {feed_forward, width}),
      param<bf16>("attention_norm.weight", {width}),
      param<bf16>("ffn_norm.weight", {width}));  // clang-format on
}

}  // namespace tide::detail

namespace tide::models::llama3_1_70b {
inline constexpr auto embedding = detail::decoder_embedding(detail::llama3_vocabulary, 8192);
inline constexpr auto block = detail::llama3_block(8192, 28672);
inline constexpr auto head = detail::decoder_head(detail::llama3_vocabulary, 8192);
inline constexpr auto units = detail::decoder_units(embedding.view(), 80, block.view(), head.view());
inline constexpr Model model{"llama3.1-70b", units};
}  // namespace tide::models::llama3_1_70b

namespace tide::models::llama3_1_8b {
inline constexpr auto embedding = detail::decoder_embedding(detail::llama3_vocabulary, 4096);
inline constexpr auto block = detail::llama3_block(4096, 14336);
inline constexpr auto head = detail::decoder_head(detail::llama3_vocabulary, 4096);
inline constexpr auto units = detail::decoder_units(embedding.view(), 32, block.view(), head.view());
inline constexpr Model model{"llama3.1-8b", units};
}  // namespace tide::models::llama3_1_8b

namespace tide::models::llama3_1_70b_torchtitan {
inline constexpr auto embedding = detail::torchtitan_embedding(detail::llama3_vocabulary, 8192);
inline constexpr auto block = detail::llama3_torchtitan_block(8192, 28672);
inline constexpr auto head = detail::torchtitan_head(detail::llama3_vocabulary, 8192);
inline constexpr auto units = detail::torchtitan_units(embedding.view(), 80, block.view(), head.view());
inline constexpr Model model{"llama3.1-70b.torchtitan", units};
}  // namespace tide::models::llama3_1_70b_torchtitan

namespace tide::models::llama3_1_8b_torchtitan {
inline constexpr auto embedding = detail::torchtitan_embedding(detail::llama3_vocabulary, 4096);
inline constexpr auto block = detail::llama3_torchtitan_block(4096, 14336);
inline constexpr auto head = detail::torchtitan_head(detail::llama3_vocabulary, 4096);
inline constexpr auto units = detail::torchtitan_units(embedding.view(), 32, block.view(), head.view());
inline constexpr Model model{"llama3.1-8b.torchtitan", units};
}  // namespace tide::models::llama3_1_8b_torchtitan
