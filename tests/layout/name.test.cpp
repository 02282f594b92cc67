// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/name.hpp>

#include <string>
#include <string_view>

namespace {

using tide::Name;

constexpr Name unrepeated{{}, 0, "norm.weight"};
constexpr Name repeated{"experts.{}.", 7, "up.weight"};

static_assert(unrepeated.reads("norm.weight") && repeated.reads("experts.7.up.weight"));
static_assert(!unrepeated.reads("norm.weigh") && !unrepeated.reads("norm.weight2") && !unrepeated.reads(""));
static_assert(!repeated.reads("experts.7.up.weigh") && !repeated.reads("experts.17.up.weight"));
static_assert(!repeated.reads("experts.7.") && !repeated.reads("experts.{}.up.weight"));
static_assert(Name{}.reads("") && !Name{}.reads("a"));

// The number has no leading zeros, and stands where the first hole is.
static_assert(Name{"{}", 0, ""}.reads("0") && Name{"{}", 10, ""}.reads("10") && Name{"{}", 127, ""}.reads("127"));
static_assert(Name{"{}.{}.", 3, "w"}.reads("3.{}.w") && Name{"no hole.", 3, "w"}.reads("no hole.w"));
static_assert(Name{"{}", INT64_MAX, ""}.reads("9223372036854775807"));

// Equal text is equal whatever it is made of, and has one hash.
constexpr Name spelled_out{{}, 0, "experts.7.up.weight"};
constexpr Name cut_elsewhere{"experts.{}.up", 7, ".weight"};
static_assert(repeated.reads(spelled_out) && spelled_out.reads(repeated) && repeated.reads(cut_elsewhere));
static_assert(repeated.hash() == spelled_out.hash() && repeated.hash() == cut_elsewhere.hash());
static_assert(repeated.is_repetition_of("experts.{}.up.weight") &&
              cut_elsewhere.is_repetition_of("experts.{}.up.weight"));
static_assert(!repeated.is_repetition_of("experts.7.up.weight") && !repeated.is_repetition_of("experts.{}.up.weigh"));
static_assert(!unrepeated.is_repetition_of("norm.weight") && !repeated.is_repetition_of(""));
static_assert(!repeated.reads(unrepeated) && !repeated.reads(Name{"experts.{}.", 8, "up.weight"}));
static_assert(!repeated.reads(Name{"experts.{}.", 7, "down.weight"}));
static_assert(repeated.hash() != unrepeated.hash() && repeated.hash() != Name{"experts.{}.", 8, "up.weight"}.hash());

TEST_CASE("Name: the text in one piece is the text that it reads as") {
  CHECK(unrepeated.str() == "norm.weight");
  CHECK(Name{}.str().empty());
  for (tide::index_t number : {0, 1, 9, 10, 99, 100, 127, 65535}) {
    const Name name{"mlp.experts.{}.", number, "gate_proj.weight"};
    CHECK(name.str() == "mlp.experts." + std::to_string(number) + ".gate_proj.weight");
    CHECK(name.reads(std::string_view(name.str())));
  }
}

}  // namespace
