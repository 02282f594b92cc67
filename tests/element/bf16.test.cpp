// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/element/bf16.hpp>

#include <support/rounding.hpp>
#include <support/storage_laws.hpp>

#include <cstdint>
#include <type_traits>

namespace {

using tide::bf16;

static_assert(tide_test::PlainStorage<bf16>);
static_assert(bf16{}.bits == 0);
static_assert(bf16::from_bits(0x3F80) == bf16(1.0F));
static_assert(!(bf16(0.0F) == bf16(-0.0F)), "equality is of bits: the zeros differ");
static_assert(bf16::from_bits(0x7FC0) == bf16::from_bits(0x7FC0), "and a NaN equals itself");

template <bf16 Value>
struct Tag {};
static_assert(std::is_same_v<Tag<bf16(1.0F)>, Tag<bf16(1.0)>>, "usable as a template argument");

static_assert(bf16(1.0F).bits == 0x3F80 && bf16(-2.0F).bits == 0xC000 && bf16(0.0F).bits == 0 &&
              bf16(-0.0F).bits == 0x8000);
static_assert(static_cast<float>(bf16::from_bits(0x4049)) == 3.140625F);

static_assert(bf16(tide_test::float_of(0x3F808000)).bits == 0x3F80, "a tie goes down to even");
static_assert(bf16(tide_test::float_of(0x3F818000)).bits == 0x3F82, "a tie goes up to even");
static_assert(bf16(tide_test::float_of(0x3F808001)).bits == 0x3F81, "just above a tie goes up");
static_assert(bf16(tide_test::float_of(0x3F817FFF)).bits == 0x3F81, "just below a tie goes down");
static_assert(bf16(tide_test::float_of(0x3FFFFFFF)).bits == 0x4000, "a carry moves the exponent");

static_assert(bf16(tide_test::float_of(0x7F7F7FFF)).bits == 0x7F7F, "the last float that stays finite");
static_assert(bf16(tide_test::float_of(0x7F7F8000)).bits == 0x7F80, "the first that overflows");
static_assert(bf16(tide_test::float_of(0x7F7FFFFF)).bits == 0x7F80, "the largest float overflows");
static_assert(bf16(tide_test::float_of(0xFF7FFFFF)).bits == 0xFF80);
static_assert(bf16(tide_test::float_of(0x7F800000)).bits == 0x7F80 &&
              bf16(tide_test::float_of(0xFF800000)).bits == 0xFF80);

static_assert(bf16(tide_test::float_of(0x00000001)).bits == 0 && bf16(tide_test::float_of(0x80000001)).bits == 0x8000);
static_assert(bf16(tide_test::float_of(0x00008000)).bits == 0, "half the smallest number: a tie, to zero");
static_assert(bf16(tide_test::float_of(0x00008001)).bits == 1);
static_assert(bf16(tide_test::float_of(0x007FFFFF)).bits == 0x0080,
              "the largest subnormal float becomes a normal number");

static_assert(bf16(tide_test::float_of(0x7F800001)).bits == 0x7FC0,
              "a payload that is rounded away must not leave infinity");
static_assert(bf16(tide_test::float_of(0x7FFF8C22)).bits == 0x7FFF, "a payload must not carry into the sign");
static_assert(bf16(tide_test::float_of(0xFFFFFFFF)).bits == 0xFFFF);
static_assert(bf16(tide_test::float_of(0xFF800001)).bits == 0xFFC0);

static_assert(bf16(1.00390625).bits == 0x3F80, "1 + 2^-8 is a tie");
static_assert(bf16(1.00390625 + 0x1p-40).bits == 0x3F81, "and this is above it, though not as a float");
static_assert(bf16(1.01171875 - 0x1p-40).bits == 0x3F81, "and this is below the next one");
static_assert(bf16(1e300).bits == 0x7F80 && bf16(-1e-300).bits == 0x8000);

TEST_CASE("bf16: each of the 65,536 values has its exact float and comes back") {
  tide_test::check_every_value<bf16>(tide_test::RoundingTable(tide_test::bf16_format), 0x40);
}

TEST_CASE("bf16: each midpoint of neighbours goes to the even one, its neighbours to their own side") {
  tide_test::check_ties<bf16>(tide_test::RoundingTable(tide_test::bf16_format));
}

TEST_CASE("bf16: at and beside every number and midpoint the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::bf16_format);
  tide_test::check_nearest<bf16>(table, tide_test::critical_points(table));
}

TEST_CASE("bf16: of random floats and doubles the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::bf16_format);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    tide_test::check_nearest<bf16>(table, tide_test::random_points(table, 200'000, seed));
  }
}

TEST_CASE("bf16: NaN stays NaN, quiet, with its sign and leading payload") {
  tide_test::check_nan<bf16>(tide_test::RoundingTable(tide_test::bf16_format), 0x40, 4);
}

TEST_CASE("bf16: the processor's rounding mode changes nothing") {
  tide_test::check_rounding_modes<bf16>(tide_test::RoundingTable(tide_test::bf16_format));
}

}  // namespace
