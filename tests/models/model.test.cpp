// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/models/model.hpp>

#include <array>

namespace {

using tide::Model;
using tide::param;
using tide::ParameterIndex;
using tide::Unit;

constexpr auto root = tide::group(param<tide::bf16>("embed.weight", {10, 4}), param<tide::bf16>("norm.weight", {4}));
constexpr auto block = tide::group(tide::repeat<2>("experts.{}.", param<tide::bf16>("w", {4, 3})));
constexpr std::array units = {Unit{"root", 1, "", root.view()}, Unit{"layers.0", 12, "layers.0.", block.view()}};
constexpr Model model{"tiny", units};

static_assert(units[0].elements() == 44 && units[1].elements() == 12 * 24 && model.elements() == 44 + 12 * 24);
static_assert(Model{}.elements() == 0);

TEST_CASE("Unit: prefix and parameter make the checkpoint's name, of any repetition") {
  CHECK(units[0].checkpoint_name(ParameterIndex{1}) == "norm.weight");
  CHECK(units[1].checkpoint_name(ParameterIndex{1}) == "layers.0.experts.1.w");
  CHECK(units[1].checkpoint_name(ParameterIndex{0}, 0) == "layers.0.experts.0.w");
  CHECK(units[1].checkpoint_name(ParameterIndex{0}, 11) == "layers.11.experts.0.w");
}

}  // namespace
