// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/layout_rules.hpp>
#include <tide/models/registry.hpp>

#include <algorithm>
#include <string>

#include "support/model_files.hpp"

namespace {

using tide::all_models;
using tide::find_model;

consteval bool every_model_is_found_by_its_name() {
  for (const tide::Model& model : all_models) {
    if (find_model(model.name) != &model) return false;  // and so names differ
  }
  return true;
}
static_assert(every_model_is_found_by_its_name());
static_assert(find_model("") == nullptr && find_model("llama3.1-8") == nullptr && find_model("LLAMA3.1-8B") == nullptr);
static_assert(find_model("wan2.2-ti2v-5b")->units.size() == 2);

consteval bool every_unit_can_be_laid_out() {
  for (const tide::Model& model : all_models) {
    for (const tide::Unit& unit : model.units) {
      if (unit.repeat < 1 || (unit.repeat > 1 && !unit.prefix.ends_with(".0."))) return false;
      if (unit.group.size() < 16 && tide::check(unit.group, 8).rule != tide::LayoutRule::none) return false;
    }
  }
  return true;
}
static_assert(every_unit_can_be_laid_out());

TEST_CASE("models: each equals its list under tests/data/models, tensor by tensor") {
  for (const tide::Model& model : all_models) {
    CAPTURE(model.name);
    const tide_example::FileModel file = tide_test::model_file(std::string(model.name));
    CHECK(file.name == model.name);
    REQUIRE(file.units.size() == model.units.size());
    for (std::size_t u = 0; u < file.units.size(); ++u) {
      const tide::Unit& unit = model.units[u];
      const tide::GroupView listed = file.units[u].parameters.view();
      CHECK(file.units[u].name == unit.name);
      CHECK(file.units[u].repeat == unit.repeat);
      REQUIRE(listed.size() == unit.group.size());
      CHECK(listed.aliases.size() == unit.group.aliases.size());
      for (tide::index_t i = 0; i < listed.size(); ++i) {
        const tide::ParameterIndex index{i};
        CAPTURE(i);
        CHECK(listed[index].name.str() == unit.checkpoint_name(index));
        CHECK(listed[index].shape.rank == unit.group[index].shape.rank);
        CHECK(listed[index].shape.extents == unit.group[index].shape.extents);
        CHECK(listed[index].gathered == unit.group[index].gathered);
        CHECK(listed[index].gradient == unit.group[index].gradient);
      }
      CHECK(tide::check(unit.group, 72).rule == tide::LayoutRule::none);
    }
  }
}

TEST_CASE("models: they are listed in the order of their names") {
  CHECK(std::is_sorted(all_models.begin(), all_models.end(),
                       [](const tide::Model& a, const tide::Model& b) { return a.name < b.name; }));
}

}  // namespace
