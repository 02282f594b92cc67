// SPDX-License-Identifier: Apache-2.0
//
// The parts of a line about an op.

#pragma once

#include <tide/core/text.hpp>        // printable
#include <tide/plan/collective.hpp>  // Collective
#include <tide/plan/traffic.hpp>     // target_width

#include <string>
#include <string_view>

namespace tide::detail {

[[nodiscard]] inline std::string left(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(text.size() < width ? width - text.size() : 0, ' ');
}

[[nodiscard]] inline std::string right(const std::string& text, std::size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

// "inbox#2", with the instance where the space has several.
[[nodiscard]] inline std::string space_text(const Collective& collective, Place place) {
  const std::string text{name(place.space)};
  return collective.space_instances(place.space) > 1 ? text + "#" + std::to_string(place.instance) : text;
}

// " pitch 2048", where there is more than one row.
[[nodiscard]] inline std::string pitch_text(const Op& op, std::uint32_t pitch) {
  return op.rows > 1 ? " pitch " + std::to_string(pitch) : std::string();
}

[[nodiscard]] inline std::string source_text(const Collective& collective, const Op& op) {
  const std::string rows = op.rows > 1 ? " x " + std::to_string(op.rows) : std::string();
  return space_text(collective, op.source) + "[" + std::to_string(op.source_offset) + " +" + std::to_string(op.width) +
         rows + pitch_text(op, op.source_pitch) + "]";
}

[[nodiscard]] inline std::string target_text(const Collective& collective, const Op& op) {
  const index_t width = op.kernel < collective.kernels.size() ? target_width(collective, op) : op.width;
  const std::string converted = width != op.width ? " +" + std::to_string(width) : std::string();
  return space_text(collective, op.target) + "[" + std::to_string(op.target_offset) + converted +
         pitch_text(op, op.target_pitch) + "]";
}

// "arrived[2]"
[[nodiscard]] inline std::string word_text(const Collective& collective, index_t offset) {
  const SignalWords words = collective.words();
  const index_t word = offset / 8;
  return word >= 0 && word < words.count() ? words.describe(word) : "word[" + std::to_string(word) + "]";
}

// "3 of 6": the value from the start of the run, and how far the word grows in a run where that is not 1.
[[nodiscard]] inline std::string value_text(index_t value, index_t per_run) {
  const std::string text = std::to_string(value);
  return per_run == 1 ? text : text + " of " + std::to_string(per_run);
}

[[nodiscard]] inline std::string parameter_text(const Collective& collective, Place place) {
  const GroupView& group = collective.layout.group;
  if (place.parameter >= group.size()) return "  parameter " + std::to_string(place.parameter);
  return "  '" + printable(group[ParameterIndex{place.parameter}].name.str()) + "'";
}

// The inputs of a reduce: one with a position among others, or, in the switch, places of all ranks of the node.
[[nodiscard]] inline std::string inputs_text(const Collective& collective, const Op& op) {
  const std::string others = " with " + space_text(collective, op.extra) + "[" + std::to_string(op.extra_offset) + "]";
  const bool known = op.kernel < collective.kernels.size();
  if (!known || collective.kernels[op.kernel].kind != Kernel::Kind::switch_sum) {
    return source_text(collective, op) + " as input " + std::to_string(op.peer) + others;
  }
  const std::string node = collective.kernels[op.kernel].inputs > 1 ? others : std::string();
  return source_text(collective, op) + node + " of all ranks of the node";
}

// Everything about an op but its kind.
[[nodiscard]] inline std::string operands(const Collective& collective, const Op& op) {
  const std::string peer = "rank " + std::to_string(op.peer) + " ";
  const std::string arrow = " -> ";
  switch (op.kind) {
    case OpKind::signal: {
      const bool own = collective.words().kind(op.word()) == WordKind::event;
      return (own ? "" : peer) + word_text(collective, op.target_offset) + " = " + value_text(op.value(), op.per_run());
    }
    case OpKind::wait:
      return word_text(collective, op.target_offset) + " >= " + value_text(op.value(), op.per_run());
    case OpKind::copy:
      return source_text(collective, op) + arrow + peer + target_text(collective, op) +
             parameter_text(collective, op.source);
    case OpKind::multicast:
      return source_text(collective, op) + arrow + "node " + target_text(collective, op) +
             parameter_text(collective, op.source);
    case OpKind::put:
      return space_text(collective, op.source) + "[" + std::to_string(op.source_offset) + " +" +
             std::to_string(op.width) + "]" + arrow + peer + target_text(collective, op) + ", " +
             word_text(collective, op.extra_offset) + " = " + value_text(op.source_pitch, op.target_pitch) +
             parameter_text(collective, op.source);
    case OpKind::reduce:
      return inputs_text(collective, op) + arrow + target_text(collective, op) + parameter_text(collective, op.source);
    case OpKind::cast:
      return source_text(collective, op) + arrow + target_text(collective, op) + parameter_text(collective, op.source);
  }
  return {};
}

}  // namespace tide::detail
