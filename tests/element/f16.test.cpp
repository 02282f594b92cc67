// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/element/f16.hpp>

#include <support/rounding.hpp>
#include <support/storage_laws.hpp>

#include <bit>
#include <cstdint>
#include <random>
#include <type_traits>

namespace {

using tide::f16;

static_assert(tide_test::PlainStorage<f16>);
static_assert(f16{}.bits == 0);
static_assert(f16::from_bits(0x3C00) == f16(1.0F));
static_assert(!(f16(0.0F) == f16(-0.0F)), "equality is of bits: the zeros differ");
static_assert(f16::from_bits(0x7E00) == f16::from_bits(0x7E00), "and a NaN equals itself");

template <f16 Value>
struct F16Tag {};
static_assert(std::is_same_v<F16Tag<f16(1.0F)>, F16Tag<f16(1.0)>>, "usable as a template argument");

static_assert(f16(1.0F).bits == 0x3C00 && f16(-2.0F).bits == 0xC000 && f16(0.0F).bits == 0 &&
              f16(-0.0F).bits == 0x8000);
static_assert(static_cast<float>(f16::from_bits(0x4248)) == 3.140625F);
static_assert(f16(0.1F).bits == 0x2E66 && f16(0.1).bits == 0x2E66);

static_assert(f16(1.0F + 0x1p-11F).bits == 0x3C00, "a tie goes down to even");
static_assert(f16(1.0F + 0x3p-11F).bits == 0x3C02, "a tie goes up to even");
static_assert(f16(1.0F + 0x1p-11F + 0x1p-23F).bits == 0x3C01, "just above a tie goes up");
static_assert(f16(1.0F + 0x3p-11F - 0x1p-23F).bits == 0x3C01, "just below a tie goes down");
static_assert(f16(2.0F - 0x1p-23F).bits == 0x4000, "a carry moves the exponent");

static_assert(f16(65504.0F).bits == 0x7BFF);
static_assert(f16(65519.996F).bits == 0x7BFF, "the last float that stays finite");
static_assert(f16(65520.0F).bits == 0x7C00, "the first that overflows");
static_assert(f16(-65520.0F).bits == 0xFC00 && f16(3e38F).bits == 0x7C00 && f16(-1e300).bits == 0xFC00);
static_assert(f16(tide_test::float_of(0x7F800000)).bits == 0x7C00 &&
              f16(tide_test::float_of(0xFF800000)).bits == 0xFC00);

static_assert(f16(0x1p-14F).bits == 0x0400 && f16(0x1p-15F).bits == 0x0200 && f16(0x1p-24F).bits == 0x0001);
static_assert(f16(0x1p-25F).bits == 0, "half the smallest number: a tie, to zero");
static_assert(f16(0x1.000002p-25F).bits == 1 && f16(-0x1p-26F).bits == 0x8000 && f16(0x1p-149F).bits == 0);
static_assert(f16(0x3p-25F).bits == 2, "a tie between subnormals goes to even");
static_assert(f16(0x1.FFEp-15F).bits == 0x0400, "the largest subnormal rounds up to a normal number");
static_assert(static_cast<float>(f16::from_bits(0x8001)) == -0x1p-24F);
static_assert(static_cast<float>(f16::from_bits(0x03FF)) == 0x3FFp-24F);

static_assert(f16(tide_test::float_of(0x7F800001)).bits == 0x7E00,
              "a payload that is rounded away must not leave infinity");
static_assert(f16(tide_test::float_of(0x7FFF8C22)).bits == 0x7FFC);
static_assert(f16(tide_test::float_of(0xFFFFFFFF)).bits == 0xFFFF);

static_assert(f16(1.0 + 0x1p-11 + 0x1p-40).bits == 0x3C01, "above a tie, though not as a float");
static_assert(f16(1.0 + 0x3p-11 - 0x1p-40).bits == 0x3C01, "below a tie, though not as a float");

TEST_CASE("f16: each of the 65,536 values has its exact float and comes back") {
  tide_test::check_every_value<f16>(tide_test::RoundingTable(tide_test::f16_format), 0x200);
}

TEST_CASE("f16: each midpoint of neighbours goes to the even one, its neighbours to their own side") {
  tide_test::check_ties<f16>(tide_test::RoundingTable(tide_test::f16_format));
}

TEST_CASE("f16: at and beside every number and midpoint the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::f16_format);
  tide_test::check_nearest<f16>(table, tide_test::critical_points(table));
}

TEST_CASE("f16: of random floats and doubles the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::f16_format);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    tide_test::check_nearest<f16>(table, tide_test::random_points(table, 200'000, seed));
  }
}

TEST_CASE("f16: NaN stays NaN, quiet, with its sign and leading payload") {
  tide_test::check_nan<f16>(tide_test::RoundingTable(tide_test::f16_format), 0x200, 4);
}

TEST_CASE("f16: the processor's rounding mode changes nothing") {
  tide_test::check_rounding_modes<f16>(tide_test::RoundingTable(tide_test::f16_format));
}

// The compiler's own half type, where it has one: its conversions come from the compiler's library or the processor.
#if defined(__FLT16_MANT_DIG__)
using CompilerHalf = _Float16;
#else
using CompilerHalf = void;
#endif

template <class Half>
void compare_with(std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1'000'000; ++i) {
    const std::uint64_t drawn = random();
    // Half of the floats anywhere; half with the exponents of f16 and its subnormals, 2^-27 to 2^18.
    const auto anywhere = static_cast<std::uint32_t>(drawn);
    const auto in_range = static_cast<std::uint32_t>((anywhere & 0x807FFFFFU) | ((100 + (drawn >> 32) % 46) << 23));
    const float x = tide_test::float_of(i % 2 == 0 ? anywhere : in_range);
    if (x != x) continue;
    const auto half = static_cast<Half>(x);
    CAPTURE(x);
    CHECK(f16(x).bits == std::bit_cast<std::uint16_t>(half));
  }
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = f16::from_bits(static_cast<std::uint16_t>(bits));
    const auto expected = static_cast<float>(std::bit_cast<Half>(stored));
    const auto wide = static_cast<float>(stored);
    CAPTURE(bits);
    CHECK((wide == expected || (wide != wide && expected != expected)));
  }
}

TEST_CASE("f16: equals the compiler's half over two million floats and all its own values") {
  if constexpr (std::is_void_v<CompilerHalf>) {
    MESSAGE("skipped: this compiler has no half type");
  } else {
    compare_with<CompilerHalf>(5);
    compare_with<CompilerHalf>(6);
  }
}

}  // namespace
