// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/element/element.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

// The header alone declares the storage types; their sizes need the definitions.
#include <tide/element/bf16.hpp>
#include <tide/element/f16.hpp>
#include <tide/element/f8.hpp>

namespace {

using tide::Element;

template <std::size_t... I>
consteval bool data_to_type_and_back(std::index_sequence<I...>) {
  return ((tide::element_of_v<tide::type_of_t<tide::all_elements[I]>> == tide::all_elements[I]) && ...);
}

template <std::size_t... I>
consteval bool sizes_agree(std::index_sequence<I...>) {
  return ((tide::size_bytes(tide::all_elements[I]) == sizeof(tide::type_of_t<tide::all_elements[I]>)) && ...);
}

consteval bool text_and_back() {
  for (const Element element : tide::all_elements) {
    if (tide::parse_element(tide::name(element)) != element) return false;
  }
  return true;
}

constexpr auto each = std::make_index_sequence<tide::all_elements.size()>{};
static_assert(data_to_type_and_back(each));
static_assert(sizes_agree(each));
static_assert(text_and_back());

static_assert(std::is_same_v<tide::type_of_t<Element::bf16>, tide::bf16>);
static_assert(std::is_same_v<tide::type_of_t<Element::f16>, tide::f16>);
static_assert(std::is_same_v<tide::type_of_t<Element::f32>, float>);
static_assert(std::is_same_v<tide::type_of_t<Element::f64>, double>);
static_assert(std::is_same_v<tide::type_of_t<Element::f8_e4m3>, tide::f8_e4m3>);
static_assert(std::is_same_v<tide::type_of_t<Element::f8_e5m2>, tide::f8_e5m2>);

static_assert(tide::size_bytes(Element::f8_e4m3) == 1 && tide::size_bytes(Element::f8_e5m2) == 1);
static_assert(tide::size_bytes(Element::bf16) == 2 && tide::size_bytes(Element::f16) == 2);
static_assert(tide::size_bytes(Element::f32) == 4 && tide::size_bytes(Element::f64) == 8);

static_assert(tide::ElementType<tide::bf16> && tide::ElementType<tide::f16> && tide::ElementType<tide::f8_e4m3> &&
              tide::ElementType<tide::f8_e5m2> && tide::ElementType<tide::f32> && tide::ElementType<tide::f64>);
static_assert(!tide::ElementType<int> && !tide::ElementType<long double> && !tide::ElementType<bool>);
static_assert(!tide::ElementType<const tide::bf16> && !tide::ElementType<tide::bf16&> && !tide::ElementType<void>);

TEST_CASE("Element: the names are the enumerators' own") {
  CHECK(tide::name(Element::bf16) == "bf16");
  CHECK(tide::name(Element::f16) == "f16");
  CHECK(tide::name(Element::f32) == "f32");
  CHECK(tide::name(Element::f64) == "f64");
  CHECK(tide::name(Element::f8_e4m3) == "f8_e4m3");
  CHECK(tide::name(Element::f8_e5m2) == "f8_e5m2");
}

TEST_CASE("Element: no other text is parsed") {
  for (const char* text : {"", "b", "bf", "bf160", "BF16", " bf16", "bf16 ", "bfloat16", "float", "f8", "f8_e4m3fn"}) {
    CAPTURE(text);
    CHECK(tide::parse_element(text) == std::nullopt);
  }
  CHECK(tide::parse_element(std::string("bf16\0", 5)) == std::nullopt);
}

TEST_CASE("Element: a value that is no enumerator has no name and no bytes") {
  const auto stray = static_cast<Element>(6);
  CHECK(tide::name(stray).empty());
  CHECK(tide::size_bytes(stray) == 0);
}

}  // namespace
