// SPDX-License-Identifier: Apache-2.0
//
// GPT-2, 124 million parameters, as its checkpoint stores it: weights are [in, out], the head is the embedding.
//
// Test: tests/models/gpt2.test.cpp

#pragma once

#include <tide/models/model.hpp>  // Unit

#include <array>

namespace tide::models::gpt2 {
inline constexpr auto root = group(  // clang-format off
    param<bf16>("transformer.wte.weight", {50257, 768}),
    param<bf16>("transformer.wpe.weight", {1024, 768}),
    param<bf16>("transformer.ln_f.weight", {768}),
    param<bf16>("transformer.ln_f.bias", {768}),
    alias("lm_head.weight", "transformer.wte.weight"));
inline constexpr auto block = group(
    param<bf16>("ln_1.weight", {768}),
    param<bf16>("ln_1.bias", {768}),
    param<bf16>("attn.c_attn.weight", {768, 2304}),
    param<bf16>("attn.c_attn.bias", {2304}),
    param<bf16>("attn.c_proj.weight", {768, 768}),
    param<bf16>("attn.c_proj.bias", {768}),
    param<bf16>("ln_2.weight", {768}),
    param<bf16>("ln_2.bias", {768}),
    param<bf16>("mlp.c_fc.weight", {768, 3072}),
    param<bf16>("mlp.c_fc.bias", {3072}),
    param<bf16>("mlp.c_proj.weight", {3072, 768}),
    param<bf16>("mlp.c_proj.bias", {768}));  // clang-format on
inline constexpr std::array units = {Unit{"root", 1, "", root.view()},
                                     Unit{"transformer.h.0", 12, "transformer.h.0.", block.view()}};
inline constexpr Model model{"gpt2", units};
}  // namespace tide::models::gpt2
