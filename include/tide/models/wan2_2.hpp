// SPDX-License-Identifier: Apache-2.0
//
// Wan2.2's video transformers: each block is a unit, everything else is the root unit. T2V-A14B has two such models,
// one for each range of noise; this is one of them.
//
// Test: tests/models/wan2_2.test.cpp

#pragma once

#include <tide/models/model.hpp>  // Unit, Model

#include <array>

namespace tide::detail {

// `channels` go in and come out of patches of 1 x 2 x 2.
[[nodiscard]] constexpr auto wan2_2_root(index_t width, index_t channels) noexcept {
  return group(  // clang-format off
      param<bf16>("patch_embedding.weight", {width, channels, 1, 2, 2}),
      param<bf16>("patch_embedding.bias", {width}),
      param<bf16>("text_embedding.0.weight", {width, 4096}),
      param<bf16>("text_embedding.0.bias", {width}),
      param<bf16>("text_embedding.2.weight", {width, width}),
      param<bf16>("text_embedding.2.bias", {width}),
      param<bf16>("time_embedding.0.weight", {width, 256}),
      param<bf16>("time_embedding.0.bias", {width}),
      param<bf16>("time_embedding.2.weight", {width, width}),
      param<bf16>("time_embedding.2.bias", {width}),
      param<bf16>("time_projection.1.weight", {6 * width, width}),
      param<bf16>("time_projection.1.bias", {6 * width}),
      param<bf16>("head.head.weight", {4 * channels, width}),
      param<bf16>("head.head.bias", {4 * channels}),
      param<bf16>("head.modulation", {1, 2, width}));  // clang-format on
}

[[nodiscard]] constexpr auto wan2_2_block(index_t width, index_t feed_forward) noexcept {
  return group(  // clang-format off
      param<bf16>("self_attn.q.weight", {width, width}),  param<bf16>("self_attn.q.bias", {width}),
      param<bf16>("self_attn.k.weight", {width, width}),  param<bf16>("self_attn.k.bias", {width}),
      param<bf16>("self_attn.v.weight", {width, width}),  param<bf16>("self_attn.v.bias", {width}),
      param<bf16>("self_attn.o.weight", {width, width}),  param<bf16>("self_attn.o.bias", {width}),
      param<bf16>("self_attn.norm_q.weight", {width}),    param<bf16>("self_attn.norm_k.weight", {width}),
      param<bf16>("norm3.weight", {width}),               param<bf16>("norm3.bias", {width}),
      param<bf16>("cross_attn.q.weight", {width, width}), param<bf16>("cross_attn.q.bias", {width}),
      param<bf16>("cross_attn.k.weight", {width, width}), param<bf16>("cross_attn.k.bias", {width}),
      param<bf16>("cross_attn.v.weight", {width, width}), param<bf16>("cross_attn.v.bias", {width}),
      param<bf16>("cross_attn.o.weight", {width, width}), param<bf16>("cross_attn.o.bias", {width}),
      param<bf16>("cross_attn.norm_q.weight", {width}),   param<bf16>("cross_attn.norm_k.weight", {width}),
      param<bf16>("ffn.0.weight", {feed_forward, width}), param<bf16>("ffn.0.bias", {feed_forward}),
      param<bf16>("ffn.2.weight", {width, feed_forward}), param<bf16>("ffn.2.bias", {width}),
      param<bf16>("modulation", {1, 6, width}));  // clang-format on
}

[[nodiscard]] constexpr std::array<Unit, 2> wan2_2_units(GroupView root, index_t blocks, GroupView block) noexcept {
  return {Unit{"root", 1, "", root}, Unit{"blocks.0", blocks, "blocks.0.", block}};
}

}  // namespace tide::detail

namespace tide::models::wan2_2_t2v_a14b {
inline constexpr auto root = detail::wan2_2_root(5120, 16);
inline constexpr auto block = detail::wan2_2_block(5120, 13824);
inline constexpr auto units = detail::wan2_2_units(root.view(), 40, block.view());
inline constexpr Model model{"wan2.2-t2v-a14b", units};
}  // namespace tide::models::wan2_2_t2v_a14b

namespace tide::models::wan2_2_ti2v_5b {
inline constexpr auto root = detail::wan2_2_root(3072, 48);
inline constexpr auto block = detail::wan2_2_block(3072, 14336);
inline constexpr auto units = detail::wan2_2_units(root.view(), 30, block.view());
inline constexpr Model model{"wan2.2-ti2v-5b", units};
}  // namespace tide::models::wan2_2_ti2v_5b
