// SPDX-License-Identifier: Apache-2.0
//
// Model: the FSDP units of a named model, as data: what one collective handles together, and how often it is there.
//
//   unit                 repeat  prefix             group: names that follow the prefix
//   model.embed_tokens      1                       model.embed_tokens.weight
//   model.layers.0         32    model.layers.0.    self_attn.q_proj.weight  self_attn.k_proj.weight  ...
//   model.norm+lm_head      1                       model.norm.weight  lm_head.weight
//
// Test: tests/models/model.test.cpp

#pragma once

#include <tide/layout/group.hpp>  // GroupView

#include <span>
#include <string>
#include <string_view>

namespace tide {

/// One FSDP unit: a group of parameters that the model has `repeat` times, with numbers 0, 1, 2, ... in the names.
struct Unit {
  std::string_view name = {};  ///< of the first repetition
  index_t repeat = 1;
  std::string_view prefix = {};  ///< of the first repetition's names; ends in "0." where the unit is repeated
  GroupView group = {};

  /// Number of elements of all repetitions.
  [[nodiscard]] constexpr index_t elements() const noexcept {
    index_t sum = 0;
    for (const Parameter& parameter : group.parameters) sum += parameter.shape.elements();
    return repeat * sum;
  }

  /// The name of a parameter in the checkpoint.  @pre 0 <= repetition < repeat
  [[nodiscard]] std::string checkpoint_name(ParameterIndex parameter, index_t repetition = 0) const {
    const std::string text = group[parameter].name.str();
    if (repeat == 1) return std::string(prefix) + text;
    return std::string(prefix.substr(0, prefix.size() - 2)) + std::to_string(repetition) + "." + text;
  }
};

/// A model: every parameter of it belongs to one unit. Parameters travel in bf16, whatever the checkpoint stores.
struct Model {
  std::string_view name = {};
  std::span<const Unit> units = {};

  /// Number of elements of the whole model.
  [[nodiscard]] constexpr index_t elements() const noexcept {
    index_t sum = 0;
    for (const Unit& unit : units) sum += unit.elements();
    return sum;
  }
};

}  // namespace tide
