// SPDX-License-Identifier: Apache-2.0
//
// What decoders have in common, in the names of published checkpoints (`model.layers.0.`) and in those that torchtitan
// trains (`layers.0.`): three units, cut as torchtitan cuts them: embedding, each block, final norm with the head.

#pragma once

#include <tide/models/model.hpp>  // Unit

#include <array>

namespace tide::detail {

[[nodiscard]] constexpr auto decoder_embedding(index_t vocabulary, index_t width) noexcept {
  return group(param<bf16>("model.embed_tokens.weight", {vocabulary, width}));
}

[[nodiscard]] constexpr auto decoder_head(index_t vocabulary, index_t width) noexcept {
  return group(param<bf16>("model.norm.weight", {width}), param<bf16>("lm_head.weight", {vocabulary, width}));
}

[[nodiscard]] constexpr std::array<Unit, 3> decoder_units(GroupView embedding, index_t blocks, GroupView block,
                                                          GroupView head) noexcept {
  return {Unit{"model.embed_tokens", 1, "", embedding}, Unit{"model.layers.0", blocks, "model.layers.0.", block},
          Unit{"model.norm+lm_head", 1, "", head}};
}

[[nodiscard]] constexpr auto torchtitan_embedding(index_t vocabulary, index_t width) noexcept {
  return group(param<bf16>("tok_embeddings.weight", {vocabulary, width}));
}

[[nodiscard]] constexpr auto torchtitan_head(index_t vocabulary, index_t width) noexcept {
  return group(param<bf16>("norm.weight", {width}), param<bf16>("lm_head.weight", {vocabulary, width}));
}

[[nodiscard]] constexpr std::array<Unit, 3> torchtitan_units(GroupView embedding, index_t blocks, GroupView block,
                                                             GroupView head) noexcept {
  return {Unit{"tok_embeddings", 1, "", embedding}, Unit{"layers.0", blocks, "layers.0.", block},
          Unit{"norm+lm_head", 1, "", head}};
}

}  // namespace tide::detail
