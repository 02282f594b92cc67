// SPDX-License-Identifier: Apache-2.0
//
// compile: -O3 -march=native

#include <doctest/doctest.h>

#include <tide/element/convert.hpp>

#include <support/rounding.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

namespace {

using tide::bf16;
using tide::convert;
using tide::f16;
using tide::f32;
using tide::f64;
using tide::f8_e4m3;
using tide::f8_e5m2;

constexpr f32 float_with(std::uint32_t bits) { return std::bit_cast<f32>(bits); }
constexpr f64 double_with(std::uint64_t bits) { return std::bit_cast<f64>(bits); }
constexpr std::uint32_t bits_of(f32 x) { return std::bit_cast<std::uint32_t>(x); }
constexpr std::uint64_t bits_of(f64 x) { return std::bit_cast<std::uint64_t>(x); }

static_assert(convert<bf16>(1.0F).bits == 0x3F80 && convert<f16>(1.0F).bits == 0x3C00);
static_assert(convert<f32>(bf16::from_bits(0x4049)) == 3.140625F && convert<f64>(f16::from_bits(0x0001)) == 0x1p-24);
static_assert(convert<bf16>(bf16::from_bits(0x7F81)).bits == 0x7F81, "identity keeps a signalling NaN");
static_assert(bits_of(convert<f32>(float_with(0xFFA00001))) == 0xFFA00001);
static_assert(convert<f16>(bf16::from_bits(0x7F7F)).bits == 0x7C00, "what f16 cannot hold overflows");
static_assert(convert<bf16>(f16(65504.0F)).bits == 0x4780, "65504 has 11 digits, bf16 has 8");
static_assert(convert<f8_e4m3>(f8_e5m2(57344.0F)).bits == 0x7F && convert<f8_e5m2>(f8_e4m3(448.0F)).bits == 0x5F);
static_assert(noexcept(convert<bf16>(1.0F)));

// double to float, in constant expressions too where a cast that overflows is ill-formed
static_assert(convert<f32>(0.1) == 0.1F && convert<f32>(-0.0) == 0.0F && bits_of(convert<f32>(-0.0)) == 0x80000000);
static_assert(bits_of(convert<f32>(1e300)) == 0x7F800000 && bits_of(convert<f32>(-1e300)) == 0xFF800000);
static_assert(bits_of(convert<f32>(0x1.FFFFFEFFFFFFFp127)) == 0x7F7FFFFF, "the last double that stays finite");
static_assert(bits_of(convert<f32>(0x1.FFFFFFp127)) == 0x7F800000, "the first that overflows");
static_assert(bits_of(convert<f32>(0x1p-149)) == 1 && bits_of(convert<f32>(0x1p-150)) == 0);
static_assert(bits_of(convert<f32>(0x1.0000000000001p-150)) == 1 && bits_of(convert<f32>(0x3p-150)) == 2);
static_assert(bits_of(convert<f32>(double_with(0x7FF0000000000001))) == 0x7FC00000);
static_assert(bits_of(convert<f32>(double_with(0xFFF4000000000000))) == 0xFFE00000);
static_assert(bits_of(convert<f64>(float_with(0xFFA00001))) == 0xFFF4000020000000, "widening keeps a payload as it is");
static_assert(convert<f64>(float_with(1)) == 0x1p-149 && convert<f64>(float_with(0x807FFFFF)) == -0x7FFFFFp-149);

// bits_as: the bits are the same, there and back
static_assert(tide::detail::bits_as<std::uint32_t>(tide::detail::bits_as<f32>(0x7FA00001U)) == 0x7FA00001U);

using Small = std::tuple<bf16, f16, f8_e4m3, f8_e5m2>;

template <class T>
tide_test::RoundingTable table_of() {
  if constexpr (std::is_same_v<T, bf16>) return tide_test::RoundingTable(tide_test::bf16_format);
  if constexpr (std::is_same_v<T, f16>) return tide_test::RoundingTable(tide_test::f16_format);
  if constexpr (std::is_same_v<T, f8_e4m3>) return tide_test::RoundingTable(tide_test::f8_e4m3_format);
  if constexpr (std::is_same_v<T, f8_e5m2>) return tide_test::RoundingTable(tide_test::f8_e5m2_format);
}

template <class Visit>
void for_each_small_type(Visit visit) {
  std::apply([&](auto... element) { (visit(element), ...); }, Small{});
}

template <class To, class From>
void check_small_to_small() {
  const auto to = table_of<To>();
  const auto from = table_of<From>();
  for (std::uint32_t bits = 0; bits < 2 * from.format().sign; ++bits) {
    const From source = From::from_bits(static_cast<decltype(From::bits)>(bits));
    const std::uint32_t result = convert<To>(source).bits;
    CAPTURE(bits);
    if (from.is_nan(bits)) {
      const bool same_sign = ((bits & from.format().sign) != 0) == ((result & to.format().sign) != 0);
      CHECK_MESSAGE((to.is_nan(result) && same_sign), "a NaN lost its sign or became a number");
    } else {
      CHECK(result == to.nearest(from.value(bits)));
    }
  }
}

TEST_CASE("convert: between any two of the small types every value becomes the nearest one") {
  for_each_small_type([](auto to) {
    for_each_small_type([](auto from) {
      if constexpr (!std::is_same_v<decltype(to), decltype(from)>) {
        check_small_to_small<decltype(to), decltype(from)>();
      }
    });
  });
}

TEST_CASE("convert: to its own type every value keeps its bits, NaN included") {
  for_each_small_type([](auto element) {
    using T = decltype(element);
    for (std::uint32_t bits = 0; bits < (std::uint32_t{1} << (8 * sizeof(T))); ++bits) {
      const T source = T::from_bits(static_cast<decltype(T::bits)>(bits));
      CHECK(std::uint32_t{convert<T>(source).bits} == bits);
    }
  });
}

TEST_CASE("convert: float and double hold every value of the small types, which come back") {
  for_each_small_type([](auto element) {
    using T = decltype(element);
    const auto table = table_of<T>();
    for (std::uint32_t bits = 0; bits < 2 * table.format().sign; ++bits) {
      const T source = T::from_bits(static_cast<decltype(T::bits)>(bits));
      const f32 as_float = convert<f32>(source);
      const f64 as_double = convert<f64>(source);
      CAPTURE(bits);
      if (table.is_nan(bits)) {
        const bool negative = (bits & table.format().sign) != 0;
        CHECK_MESSAGE((std::isnan(as_float) && std::isnan(as_double)), "a NaN became a number");
        CHECK_MESSAGE((std::signbit(as_float) == negative && std::signbit(as_double) == negative),
                      "a NaN lost its sign");
      } else {
        CHECK(bits_of(as_double) == bits_of(table.value(bits)));
        CHECK(bits_of(static_cast<f64>(as_float)) == bits_of(table.value(bits)));
        CHECK_MESSAGE((convert<T>(as_float) == source && convert<T>(as_double) == source), "it did not come back");
      }
    }
  });
}

TEST_CASE("convert: floats and doubles are rounded once, to the nearest small value") {
  for_each_small_type([](auto element) {
    using T = decltype(element);
    const auto table = table_of<T>();
    for (const f64 x : tide_test::critical_points(table)) {
      const f32 f = static_cast<f32>(x);
      CAPTURE(x);
      CHECK(convert<T>(x).bits == table.nearest(x));
      CHECK(convert<T>(f).bits == table.nearest(f));
    }
  });
}

TEST_CASE("convert: a loop over an array, which compilers vectorise, gives the same numbers") {
  for_each_small_type([](auto element) {
    using T = decltype(element);
    const auto table = table_of<T>();
    std::vector<f32> floats;
    for (const f64 x : tide_test::critical_points(table)) floats.push_back(static_cast<f32>(x));
    std::vector<T> narrow(floats.size());
    std::vector<f32> wide(floats.size());
    for (std::size_t i = 0; i < floats.size(); ++i) narrow[i] = convert<T>(floats[i]);
    for (std::size_t i = 0; i < floats.size(); ++i) wide[i] = convert<f32>(narrow[i]);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      CAPTURE(floats[i]);
      const std::uint32_t nearest = table.nearest(floats[i]);
      CHECK(std::uint32_t{narrow[i].bits} == nearest);
      if (!table.is_nan(nearest)) CHECK(static_cast<f64>(wide[i]) == table.value(nearest));
    }
  });
}

TEST_CASE("convert: double to float is the processor's cast, at ties and everywhere") {
  const std::uint64_t seed = 8;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<f64> points;
  for (int i = 0; i < 300'000; ++i) {
    points.push_back(double_with(random()));
    // A float of any exponent, the midpoint to the next one and the doubles beside it.
    const f32 lower = float_with(static_cast<std::uint32_t>(random() % 0x7F7FFFFF));
    const f64 middle = (static_cast<f64>(lower) + static_cast<f64>(float_with(bits_of(lower) + 1))) / 2;
    for (const f64 x : {static_cast<f64>(lower), middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e300)}) {
      points.push_back(x);
      points.push_back(-x);
    }
  }
  for (const f64 x : points) {
    if (std::isnan(x)) continue;
    CAPTURE(x);
    CHECK(bits_of(convert<f32>(x)) == bits_of(static_cast<f32>(x)));
  }
}

TEST_CASE("convert: float to double is exact and comes back") {
  const std::uint64_t seed = 9;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1'000'000; ++i) {
    const f32 x = float_with(static_cast<std::uint32_t>(i % 4 == 0 ? random() & 0x807FFFFF : random()));
    if (std::isnan(x)) continue;
    CAPTURE(x);
    CHECK(bits_of(convert<f64>(x)) == bits_of(static_cast<f64>(x)));
    CHECK(bits_of(convert<f32>(convert<f64>(x))) == bits_of(x));
  }
}

}  // namespace
