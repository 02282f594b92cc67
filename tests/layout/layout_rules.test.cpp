// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/layout_rules.hpp>
#include <tide/layout/ragged_shard.hpp>

#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/broken_rules.hpp"
#include "support/raised.hpp"

namespace {

using tide::alias;
using tide::check;
using tide::index_t;
using tide::LayoutFault;
using tide::LayoutRule;
using tide::param;
using tide::ParameterIndex;
using tide::repeat;

/// Whether a fault is that rule, broken by that parameter.
constexpr bool is(const LayoutFault& fault, LayoutRule rule, int parameter, int alias_index = -1) {
  return fault.rule == rule && fault.parameter.value == parameter && fault.alias == alias_index;
}

// ---- rules of a group, whatever the mesh -------------------------------------------------------------------------

constexpr auto good = param<tide::bf16>("good", {4, 4});
static_assert(is(check(tide::group(good).view()), LayoutRule::none, -1));
static_assert(is(check(tide::group().view()), LayoutRule::no_parameters, -1));
static_assert(is(check(tide::group(good, param<tide::bf16>("w", {})).view()), LayoutRule::scalar, 1));
static_assert(is(check(tide::group(good, param<tide::bf16>("w", {1, 1, 1, 1, 1, 1, 1, 1})).view()), LayoutRule::none,
                 -1));
static_assert(is(check(tide::group(good, param<tide::bf16>("w", {1, 1, 1, 1, 1, 1, 1, 1, 1})).view()),
                 LayoutRule::too_many_dimensions, 1));
static_assert(is(check(tide::group(good, param<tide::bf16>("w", {4, -1})).view()), LayoutRule::negative_extent, 1));
static_assert(is(check(tide::group(good, param<tide::bf16>("w", {0, 5}), param<tide::bf16>("v", {0})).view()),
                 LayoutRule::none, -1));

constexpr tide::Parameter unknown{tide::Name{{}, 0, "w"}, {4}, tide::Element::bf16, static_cast<tide::Element>(6)};
static_assert(is(check(tide::group(good, unknown).view()), LayoutRule::unknown_element, 1));

// Elements: fewer than 2^44 in all, also where a product does not fit into 64 bits or a zero hides it.
constexpr index_t half = index_t{1} << 43;
static_assert(is(check(tide::group(param<tide::f64>("w", {2, half - 1})).view()), LayoutRule::none, -1));
static_assert(is(check(tide::group(param<tide::f64>("w", {2, half})).view()), LayoutRule::too_large, 0));
static_assert(is(check(tide::group(param<tide::f64>("w", {half}), param<tide::f64>("v", {half})).view()),
                 LayoutRule::too_large, 1));
static_assert(is(check(tide::group(param<tide::bf16>("w", {INT64_MAX, INT64_MAX, INT64_MAX})).view()),
                 LayoutRule::too_large, 0));
static_assert(is(check(tide::group(param<tide::bf16>("w", {INT64_MAX, 2, 0})).view()), LayoutRule::too_large, 0));

// Names, spelled out or repeated, of parameters or of ties.
constexpr auto again = param<tide::f32>("good", {1});
static_assert(is(check(tide::group(good, param<tide::bf16>("w", {1}), again).view()), LayoutRule::duplicate_name, 2));
static_assert(is(check(tide::group(good, good, good).view()), LayoutRule::duplicate_name, 1));
static_assert(is(check(tide::group(repeat<12>("e.{}.", good), param<tide::bf16>("e.11.good", {1})).view()),
                 LayoutRule::duplicate_name, 12));
static_assert(is(check(tide::group(repeat<12>("e.{}.", good, good)).view()), LayoutRule::duplicate_name, 1));
static_assert(is(check(tide::group(good, repeat<12>("e.", good)).view()), LayoutRule::pattern_without_number, 1));
static_assert(is(check(tide::group(good, alias("tied", "good")).view()), LayoutRule::none, -1));
static_assert(is(check(tide::group(good, alias("good", "good")).view()), LayoutRule::duplicate_name, -1, 0));
static_assert(is(check(tide::group(good, alias("t", "good"), alias("t", "good")).view()), LayoutRule::duplicate_name,
                 -1, 1));
static_assert(is(check(tide::group(good, alias("tied", "god")).view()), LayoutRule::unknown_alias, -1, 0));
static_assert(is(check(tide::group(good, alias("a", "good"), alias("b", "a")).view()), LayoutRule::unknown_alias, -1,
                 1));
static_assert(is(check(tide::group(repeat<3>("e.{}.", good), alias("tied", "e.2.good")).view()), LayoutRule::none, -1));

static_assert(is(check(tide::group(good, param<tide::bf16>("w", {4, 4}, tide::shard(2))).view()),
                 LayoutRule::sharded_dimension, 1));
static_assert(is(check(tide::group(param<tide::bf16>("w", {4, 4}, tide::shard(-1))).view()),
                 LayoutRule::sharded_dimension, 0));

// ---- rules of a group on a mesh ----------------------------------------------------------------------------------

constexpr auto columns = tide::group(param<tide::bf16>("w", {4, 6}, tide::shard(1)), good);
static_assert(is(check(columns.view(), 3), LayoutRule::none, -1));
static_assert(is(check(columns.view(), 4), LayoutRule::uneven_dimension, 0));
static_assert(is(check(columns.view(), 7), LayoutRule::uneven_dimension, 0));

constexpr auto ragged = tide::group(good, param<tide::bf16>("w", {5, 6}, tide::ragged<3, 0, 2>()));
static_assert(is(check(ragged.view(), 3), LayoutRule::none, -1));
static_assert(is(check(ragged.view(), 2), LayoutRule::ragged_ranks, 1));
static_assert(is(check(ragged.view(), 4), LayoutRule::ragged_ranks, 1));
static_assert(is(check(tide::group(param<tide::bf16>("w", {6}, tide::ragged<3, 0, 2>())).view(), 3),
                 LayoutRule::ragged_rows, 0));
static_assert(is(check(tide::group(param<tide::bf16>("w", {4}, tide::ragged<3, 0, 2>())).view(), 3),
                 LayoutRule::ragged_rows, 0));

constexpr std::array<index_t, 2> negative_rows{6, -1};
constexpr std::array<index_t, 2> huge_rows{INT64_MAX, 1};
constexpr auto negative = tide::group(param<tide::bf16>("w", {5}, tide::ragged(negative_rows)));
constexpr auto huge = tide::group(param<tide::bf16>("w", {5}, tide::ragged(huge_rows)));
static_assert(is(check(negative.view(), 2), LayoutRule::ragged_rows, 0));
static_assert(is(check(huge.view(), 2), LayoutRule::ragged_rows, 0));

struct TakesMore {
  static constexpr index_t begin(index_t rows, index_t, index_t rank) noexcept { return rank * rows; }
};
template <class Rule>
constexpr LayoutFault fault_of(index_t rows, index_t ranks) {
  return check(tide::group(param<tide::bf16>("w", {rows, 3}, tide::shard_by<Rule>())).view(), ranks);
}
static_assert(is(fault_of<tide_test::LosesRows>(8, 4), LayoutRule::none, -1));
static_assert(is(fault_of<tide_test::LosesRows>(9, 4), LayoutRule::broken_rule, 0));
static_assert(is(fault_of<tide_test::StartsLate>(9, 4), LayoutRule::broken_rule, 0));
static_assert(is(fault_of<tide_test::GoesBack>(9, 4), LayoutRule::broken_rule, 0));
static_assert(is(fault_of<TakesMore>(9, 4), LayoutRule::broken_rule, 0));
static_assert(is(fault_of<TakesMore>(9, 1), LayoutRule::none, -1));

// Rules of the group come first.
static_assert(is(check(tide::group(param<tide::bf16>("w", {4, 6}, tide::shard(1)), again, good).view(), 4),
                 LayoutRule::duplicate_name, 2));

// ---- sentences ---------------------------------------------------------------------------------------------------

constexpr LayoutRule all_rules[] = {LayoutRule::no_parameters,
                                    LayoutRule::too_many_parameters,
                                    LayoutRule::scalar,
                                    LayoutRule::too_many_dimensions,
                                    LayoutRule::negative_extent,
                                    LayoutRule::unknown_element,
                                    LayoutRule::too_large,
                                    LayoutRule::pattern_without_number,
                                    LayoutRule::duplicate_name,
                                    LayoutRule::unknown_alias,
                                    LayoutRule::sharded_dimension,
                                    LayoutRule::uneven_dimension,
                                    LayoutRule::ragged_ranks,
                                    LayoutRule::ragged_rows,
                                    LayoutRule::broken_rule};
static_assert(std::size(all_rules) == static_cast<std::size_t>(LayoutRule::broken_rule));
static_assert(tide::sentence(LayoutRule::none).empty());

TEST_CASE("layout rules: the compile errors and the run-time errors are the same sentences") {
  std::ifstream file(TIDE_TESTS_DIR "/../include/tide/layout/detail/static_layout.hpp");
  const std::string header{std::istreambuf_iterator<char>(file), {}};
  for (const LayoutRule rule : all_rules) {
    const std::string sentence(tide::sentence(rule));
    CAPTURE(sentence);
    CHECK(sentence.substr(0, 19) == "tide::ShardLayout: ");
    CHECK(sentence.back() == '.');
    CHECK(header.find('"' + sentence + '"') != std::string::npos);
  }
}

TEST_CASE("layout rules: an error names the parameter or the alias that breaks the rule") {
  constexpr auto twice = tide::group(repeat<3>("e.{}.", good), param<tide::bf16>("e.1.good", {1}));
  const auto error = tide_test::raised([&] { tide::require(twice.view(), 2); });
  REQUIRE(error.has_value());
  CHECK(error->code() == tide::Errc::layout);
  CHECK(error->what() == std::string(tide::sentence(LayoutRule::duplicate_name)) + " Parameter 'e.1.good'.");

  constexpr auto untied = tide::group(good, alias("tied", "god"));
  CHECK(tide_test::text_of([&] { tide::require(untied.view(), 2); }) ==
        std::string(tide::sentence(LayoutRule::unknown_alias)) + " Alias 'tied'.");

  CHECK(tide_test::text_of([&] { tide::require({}, 2); }) == tide::sentence(LayoutRule::no_parameters));
  CHECK(tide_test::text_of([&] { tide::require(columns.view(), 4); }) ==
        std::string(tide::sentence(LayoutRule::uneven_dimension)) + " Parameter 'w'.");
  CHECK(tide_test::text_of([&] { tide::require(columns.view(), 3); }).empty());

  constexpr tide::Sharding no_rule{tide::Sharding::Kind::ruled, 0, nullptr, {}};
  CHECK(is(check(tide::group(param<tide::bf16>("w", {4}, no_rule)).view(), 2), LayoutRule::broken_rule, 0));
}

TEST_CASE("layout rules: 65535 parameters are checked in a moment, 65536 are refused") {
  std::vector<std::string> names;
  for (int i = 0; i < 65536; ++i) names.push_back("p" + std::to_string(i));
  std::vector<tide::Parameter> parameters;
  for (const std::string& name : names) parameters.push_back(param<tide::bf16>(name, {8}));
  CHECK(is(check({parameters, {}}, 8), LayoutRule::too_many_parameters, -1));
  parameters.pop_back();
  CHECK(is(check({parameters, {}}, 8), LayoutRule::none, -1));
  parameters.back().name.text = "p12345";
  CHECK(is(check({parameters, {}}, 8), LayoutRule::duplicate_name, 65534));
}

}  // namespace
