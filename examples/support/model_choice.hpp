// SPDX-License-Identifier: Apache-2.0
//
// `--model NAME` or `--model-file FILE`, and `--group NAME`: the groups that a program works on.

#pragma once

#include "args.hpp"
#include "model_file.hpp"

#include <tide/layout/dynamic_layout.hpp>
#include <tide/models/registry.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tide_example {

/// The names that `--model` takes, separated by commas.
[[nodiscard]] inline std::string model_names() {
  std::string names;
  for (const tide::Model& model : tide::all_models) names += (names.empty() ? "" : ", ") + std::string(model.name);
  return names;
}

/// A model that tide knows, with the parameters' names of the first repetition.
[[nodiscard]] inline FileModel named_model(const tide::Model& model) {
  FileModel chosen;
  chosen.name = model.name;
  for (const tide::Unit& unit : model.units) {
    FileUnit group;
    group.name = unit.name;
    group.repeat = unit.repeat;
    for (tide::index_t i = 0; i < unit.group.size(); ++i) {
      const tide::Parameter& parameter = unit.group[tide::ParameterIndex{i}];
      std::vector<tide::index_t> extents;
      for (int d = 0; d < parameter.shape.rank; ++d) extents.push_back(parameter.shape[d]);
      group.parameters.add(unit.checkpoint_name(tide::ParameterIndex{i}), extents, parameter.gathered,
                           parameter.gradient, parameter.sharding);
    }
    for (const tide::Alias& alias : unit.group.aliases) {
      group.parameters.add_alias(std::string(unit.prefix) + std::string(alias.name),
                                 std::string(unit.prefix) + std::string(alias.target));
    }
    chosen.units.push_back(std::move(group));
  }
  return chosen;
}

/// The model that a command line names; its name is that of `--model`, or of the file without ".json": several files
/// may hold groupings of one model.
/// @throws UsageError when it names none, two, or one that tide does not know; tide::Error when a file cannot be read
[[nodiscard]] inline FileModel choose_model(const Args& args) {
  const auto name = args.text("--model");
  const auto file = args.text("--model-file");
  if (name.has_value() == file.has_value()) throw UsageError("give either --model NAME or --model-file FILE");
  if (file) {
    FileModel chosen = read_model_file(*file);
    chosen.name = std::filesystem::path(*file).stem().string();
    return chosen;
  }
  const tide::Model* known = tide::find_model(*name);
  if (known == nullptr) {
    const std::string hint = name->ends_with(".json") ? "; a file is given as --model-file" : "";
    throw UsageError("--model takes one of " + model_names() + ", not '" + *name + "'" + hint);
  }
  return named_model(*known);
}

}  // namespace tide_example
