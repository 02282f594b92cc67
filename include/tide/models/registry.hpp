// SPDX-License-Identifier: Apache-2.0
//
// Every named model, and how to find one by its name.
//
// Test: tests/models/registry.test.cpp

#pragma once

#include <tide/models/awkward.hpp>
#include <tide/models/gpt2.hpp>
#include <tide/models/llama3_1.hpp>
#include <tide/models/model.hpp>  // Model
#include <tide/models/qwen3_30b_a3b.hpp>
#include <tide/models/wan2_2.hpp>

#include <array>

namespace tide {

/// The models that tide knows, in the order of their names.
inline constexpr std::array all_models = {
    models::awkward::model,
    models::gpt2::model,
    models::llama3_1_70b::model,
    models::llama3_1_70b_torchtitan::model,
    models::llama3_1_8b::model,
    models::llama3_1_8b_torchtitan::model,
    models::qwen3_30b_a3b::model,
    models::qwen3_30b_a3b_stacked::model,
    models::qwen3_30b_a3b_torchtitan::model,
    models::wan2_2_t2v_a14b::model,
    models::wan2_2_ti2v_5b::model,
};

/// The model of that name, or null: exact spelling, as in "llama3.1-8b".
[[nodiscard]] constexpr const Model* find_model(std::string_view name) noexcept {
  for (const Model& model : all_models) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

}  // namespace tide
