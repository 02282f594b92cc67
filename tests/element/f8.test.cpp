// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/element/f8.hpp>

#include <support/rounding.hpp>
#include <support/storage_laws.hpp>

#include <cstdint>
#include <type_traits>

namespace {

using tide::f8_e4m3;
using tide::f8_e5m2;

static_assert(tide_test::PlainStorage<f8_e4m3>);
static_assert(f8_e4m3{}.bits == 0);
static_assert(f8_e4m3::from_bits(0x38) == f8_e4m3(1.0F));
static_assert(!(f8_e4m3(0.0F) == f8_e4m3(-0.0F)), "equality is of bits: the zeros differ");
static_assert(f8_e4m3::from_bits(0x7F) == f8_e4m3::from_bits(0x7F), "and a NaN equals itself");

template <f8_e4m3 Value>
struct TagE4m3 {};
static_assert(std::is_same_v<TagE4m3<f8_e4m3(1.0F)>, TagE4m3<f8_e4m3(1.0)>>, "usable as a template argument");

static_assert(f8_e4m3(448.0F).bits == 0x7E && f8_e4m3(-448.0F).bits == 0xFE);
static_assert(f8_e4m3(464.0F).bits == 0x7E, "half a step above the largest number: a tie, to even");
static_assert(f8_e4m3(464.00003F).bits == 0x7F, "overflow is NaN and does not saturate");
static_assert(f8_e4m3(-465.0F).bits == 0xFF && f8_e4m3(1e30F).bits == 0x7F && f8_e4m3(1e300).bits == 0x7F);
static_assert(f8_e4m3(tide_test::float_of(0x7F800000)).bits == 0x7F &&
              f8_e4m3(tide_test::float_of(0xFF800000)).bits == 0xFF);
static_assert(f8_e4m3(tide_test::float_of(0x7F800001)).bits == 0x7F &&
              f8_e4m3(tide_test::float_of(0xFFFFFFFF)).bits == 0xFF);
static_assert(f8_e4m3(256.0F).bits == 0x78, "the highest exponent holds numbers");
static_assert(f8_e4m3(0x1p-9F).bits == 0x01 && f8_e4m3(0x1p-10F).bits == 0 && f8_e4m3(-0x1p-11F).bits == 0x80);
static_assert(f8_e4m3(0x3p-10F).bits == 0x02 && f8_e4m3(0x1p-6F).bits == 0x08);
static_assert(f8_e4m3(1.0625F).bits == 0x38 && f8_e4m3(1.1875F).bits == 0x3A, "ties go to even");
static_assert(f8_e4m3(1.0625 + 0x1p-40).bits == 0x39, "above a tie, though not as a float");
static_assert(static_cast<float>(f8_e4m3::from_bits(0x81)) == -0x1p-9F);

static_assert(tide_test::PlainStorage<f8_e5m2>);
static_assert(f8_e5m2{}.bits == 0);
static_assert(f8_e5m2::from_bits(0x3C) == f8_e5m2(1.0F));
static_assert(!(f8_e5m2(0.0F) == f8_e5m2(-0.0F)), "equality is of bits: the zeros differ");
static_assert(f8_e5m2::from_bits(0x7E) == f8_e5m2::from_bits(0x7E), "and a NaN equals itself");

template <f8_e5m2 Value>
struct TagE5m2 {};
static_assert(std::is_same_v<TagE5m2<f8_e5m2(1.0F)>, TagE5m2<f8_e5m2(1.0)>>, "usable as a template argument");

static_assert(f8_e5m2(57344.0F).bits == 0x7B && f8_e5m2(-57344.0F).bits == 0xFB);
static_assert(f8_e5m2(61439.996F).bits == 0x7B, "the last float that stays finite");
static_assert(f8_e5m2(61440.0F).bits == 0x7C, "the first that overflows, to infinity");
static_assert(f8_e5m2(-1e30F).bits == 0xFC && f8_e5m2(1e300).bits == 0x7C);
static_assert(f8_e5m2(tide_test::float_of(0x7F800000)).bits == 0x7C &&
              f8_e5m2(tide_test::float_of(0xFF800000)).bits == 0xFC);
static_assert(f8_e5m2(tide_test::float_of(0x7F800001)).bits == 0x7E &&
              f8_e5m2(tide_test::float_of(0xFFFFFFFF)).bits == 0xFF);
static_assert(f8_e5m2(0x1p-16F).bits == 0x01 && f8_e5m2(0x1p-17F).bits == 0 && f8_e5m2(-0x1p-18F).bits == 0x80);
static_assert(f8_e5m2(1.125F).bits == 0x3C && f8_e5m2(1.375F).bits == 0x3E, "ties go to even");
static_assert(f8_e5m2(1.125 + 0x1p-40).bits == 0x3D, "above a tie, though not as a float");
static_assert(static_cast<float>(f8_e5m2::from_bits(0x83)) == -0x3p-16F);

template <class T>
consteval bool each_number_comes_back(unsigned numbers) {
  for (unsigned magnitude = 0; magnitude < numbers; ++magnitude) {
    for (const unsigned sign : {0x00U, 0x80U}) {
      const T stored = T::from_bits(static_cast<std::uint8_t>(magnitude | sign));
      if (!(T(static_cast<float>(stored)) == stored)) return false;
    }
  }
  return true;
}
static_assert(each_number_comes_back<f8_e4m3>(0x80));
static_assert(each_number_comes_back<f8_e5m2>(0x7D));

TEST_CASE("f8_e4m3: each of the 256 values has its exact float and comes back") {
  tide_test::check_every_value<f8_e4m3>(tide_test::RoundingTable(tide_test::f8_e4m3_format), 0x7);
}

TEST_CASE("f8_e4m3: each midpoint of neighbours goes to the even one, its neighbours to their own side") {
  tide_test::check_ties<f8_e4m3>(tide_test::RoundingTable(tide_test::f8_e4m3_format));
}

TEST_CASE("f8_e4m3: at and beside every number and midpoint the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::f8_e4m3_format);
  tide_test::check_nearest<f8_e4m3>(table, tide_test::critical_points(table));
}

TEST_CASE("f8_e4m3: of random floats and doubles the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::f8_e4m3_format);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    tide_test::check_nearest<f8_e4m3>(table, tide_test::random_points(table, 200'000, seed));
  }
}

TEST_CASE("f8_e4m3: NaN stays NaN, quiet, with its sign and leading payload") {
  tide_test::check_nan<f8_e4m3>(tide_test::RoundingTable(tide_test::f8_e4m3_format), 0x7, 4);
}

TEST_CASE("f8_e4m3: the processor's rounding mode changes nothing") {
  tide_test::check_rounding_modes<f8_e4m3>(tide_test::RoundingTable(tide_test::f8_e4m3_format));
}

TEST_CASE("f8_e5m2: each of the 256 values has its exact float and comes back") {
  tide_test::check_every_value<f8_e5m2>(tide_test::RoundingTable(tide_test::f8_e5m2_format), 0x2);
}

TEST_CASE("f8_e5m2: each midpoint of neighbours goes to the even one, its neighbours to their own side") {
  tide_test::check_ties<f8_e5m2>(tide_test::RoundingTable(tide_test::f8_e5m2_format));
}

TEST_CASE("f8_e5m2: at and beside every number and midpoint the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::f8_e5m2_format);
  tide_test::check_nearest<f8_e5m2>(table, tide_test::critical_points(table));
}

TEST_CASE("f8_e5m2: of random floats and doubles the nearest number is found") {
  const tide_test::RoundingTable table(tide_test::f8_e5m2_format);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    tide_test::check_nearest<f8_e5m2>(table, tide_test::random_points(table, 200'000, seed));
  }
}

TEST_CASE("f8_e5m2: NaN stays NaN, quiet, with its sign and leading payload") {
  tide_test::check_nan<f8_e5m2>(tide_test::RoundingTable(tide_test::f8_e5m2_format), 0x2, 4);
}

TEST_CASE("f8_e5m2: the processor's rounding mode changes nothing") {
  tide_test::check_rounding_modes<f8_e5m2>(tide_test::RoundingTable(tide_test::f8_e5m2_format));
}

}  // namespace
