// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/group.hpp>

#include <string>
#include <vector>

namespace {

using tide::alias;
using tide::Element;
using tide::param;
using tide::ParameterIndex;
using tide::repeat;
using tide::Shape;

// ---- Shape -------------------------------------------------------------------------------------------------------

static_assert(Shape{2, 3, 4}.rank == 3 && Shape{2, 3, 4}[1] == 3 && Shape{2, 3, 4}.elements() == 24);
static_assert(Shape{2, 3, 4}.product(1, 3) == 12 && Shape{2, 3, 4}.product(3, 3) == 1);
static_assert(Shape{}.rank == 0 && Shape{7, 0}.elements() == 0);
static_assert(Shape{262144, 8960, 4}.elements() == 9'395'240'960);
static_assert(Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}.rank == 9);  // too many; kept, so that the check can say so

// ---- param -------------------------------------------------------------------------------------------------------

constexpr tide::Parameter plain = param<tide::bf16>("w", {4, 8});
static_assert(plain.gathered == Element::bf16 && plain.gradient == Element::bf16 && plain.name.reads("w"));
static_assert(plain.sharding.kind == tide::Sharding::Kind::chunked && plain.sharding.dimension == 0);

constexpr tide::Parameter mixed = param<tide::f8_e4m3, tide::bf16>("w", {4, 8}, tide::shard(1));
static_assert(mixed.gathered == Element::f8_e4m3 && mixed.gradient == Element::bf16);
static_assert(mixed.sharding.dimension == 1);

// ---- group, repeat, alias ----------------------------------------------------------------------------------------

constexpr auto group = tide::group(
    param<tide::bf16>("attn.weight", {64, 64}),
    repeat<12>("experts.{}.", param<tide::bf16>("up.weight", {128, 64}), param<tide::f32>("down.weight", {64, 128})),
    param<tide::f16>("norm.weight", {64}), alias("head.weight", "attn.weight"),
    alias("first.up", "experts.0.up.weight"));
static_assert(group.parameters.size() == 26 && group.aliases.size() == 2);
static_assert(group.view().size() == 26);
static_assert(group.view()[ParameterIndex{2}].gathered == Element::f32);
static_assert(group.view()[ParameterIndex{2}].shape[1] == 128);

static_assert(group.view().find("attn.weight") == ParameterIndex{0});
static_assert(group.view().find("experts.0.up.weight") == ParameterIndex{1});
static_assert(group.view().find("experts.11.down.weight") == ParameterIndex{24});
static_assert(group.view().find("norm.weight") == ParameterIndex{25});

// A tied name finds the parameter that owns the storage.
static_assert(group.view().find("head.weight") == ParameterIndex{0});
static_assert(group.view().find("first.up") == ParameterIndex{1});

static_assert(!group.view().find("experts.12.up.weight") && !group.view().find("attn") && !group.view().find(""));
static_assert(!group.view().find("experts.{}.up.weight"));

static_assert(tide::group().view().size() == 0);
static_assert(tide::group(repeat<3>("a.{}.")).parameters.empty());
static_assert(tide::group(repeat<0>("a.{}.", plain)).parameters.empty());

TEST_CASE("Group: repeated parameters come in turns, numbered from 0") {
  std::vector<std::string> names;
  for (const tide::Parameter& parameter : group.view().parameters) names.push_back(parameter.name.str());
  std::vector<std::string> expected = {"attn.weight"};
  for (int i = 0; i < 12; ++i) {
    expected.push_back("experts." + std::to_string(i) + ".up.weight");
    expected.push_back("experts." + std::to_string(i) + ".down.weight");
  }
  expected.push_back("norm.weight");
  CHECK(names == expected);
}

}  // namespace
