// SPDX-License-Identifier: Apache-2.0
//
// Element: the number format that a tensor is stored in, as data, and the C++ type of each.
//
//   Element     bytes   C++ type         exponent + mantissa bits
//   bf16          2     tide::bf16           8 +  7
//   f16           2     tide::f16            5 + 10
//   f32           4     float                8 + 23
//   f64           8     double              11 + 52    (for oracles)
//   f8_e4m3       1     tide::f8_e4m3        4 +  3    (no infinity)
//   f8_e5m2       1     tide::f8_e5m2        5 +  2
//
// Laws, for every Element e and every ElementType T:       (tests/element/element.test.cpp)
//   data to type and back   element_of_v<type_of_t<e>> == e, and type_of_t<element_of_v<T>> is T
//   text and back           parse_element(name(e)) == e; no other text is parsed
//   size                    size_bytes(element_of_v<T>) == sizeof(T)
//
// The storage types are only declared here; bf16.hpp, f16.hpp and f8.hpp define them.

#pragma once

#include <tide/core/config.hpp>  // TIDE_HOST_DEVICE

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace tide {

struct bf16;
struct f16;
struct f8_e4m3;
struct f8_e5m2;

/// The number format of a tensor, for groups that are described at run time.
enum class Element : std::uint8_t { bf16, f16, f32, f64, f8_e4m3, f8_e5m2 };

using f32 = float;
using f64 = double;

/// Every Element once, in the order of the enumeration.
inline constexpr std::array<Element, 6> all_elements = {Element::bf16, Element::f16,     Element::f32,
                                                        Element::f64,  Element::f8_e4m3, Element::f8_e5m2};

/// Bytes of one element; 0 for a value that is no enumerator, which a file read at run time could hold.
[[nodiscard]] TIDE_HOST_DEVICE constexpr std::size_t size_bytes(Element element) noexcept {
  switch (element) {
    case Element::f8_e4m3:
    case Element::f8_e5m2:
      return 1;
    case Element::bf16:
    case Element::f16:
      return 2;
    case Element::f32:
      return 4;
    case Element::f64:
      return 8;
  }
  return 0;
}

/// The enumerator's own spelling, as in "bf16"; empty for a value that is no enumerator.
[[nodiscard]] constexpr std::string_view name(Element element) noexcept {
  switch (element) {
    case Element::bf16:
      return "bf16";
    case Element::f16:
      return "f16";
    case Element::f32:
      return "f32";
    case Element::f64:
      return "f64";
    case Element::f8_e4m3:
      return "f8_e4m3";
    case Element::f8_e5m2:
      return "f8_e5m2";
  }
  return {};
}

/// The Element of that name, or nothing: exact spelling, no other library's names.
[[nodiscard]] constexpr std::optional<Element> parse_element(std::string_view text) noexcept {
  for (const Element element : all_elements) {
    if (name(element) == text) return element;
  }
  return std::nullopt;
}

namespace detail {

template <class... Types>
struct TypeList {
  /// Where `T` stands among the types; their number if it is none of them.
  template <class T>
  static constexpr std::size_t position = [] {
    std::size_t at = 0;
    for (const bool same : {std::is_same_v<T, Types>...}) {
      if (same) break;
      ++at;
    }
    return at;
  }();

  template <std::size_t Position>
  using At = std::tuple_element_t<Position, std::tuple<Types...>>;
};

using ElementTypes = TypeList<bf16, f16, f32, f64, f8_e4m3, f8_e5m2>;  // in the order of all_elements

}  // namespace detail

/// A C++ type that stores one element: bf16, f16, float, double, f8_e4m3 or f8_e5m2, without const or volatile.
template <class T>
concept ElementType = detail::ElementTypes::position<T> < all_elements.size();

namespace detail {

template <class T>
struct ElementOf {
  static_assert(ElementType<T>,
                "tide::element_of_v: T must be bf16, f16, float, double, f8_e4m3 or f8_e5m2; remove const, volatile "
                "and references first.");
  static constexpr Element value = static_cast<Element>(ElementTypes::position<T>);
};

template <Element E>
struct TypeOf {
  static_assert(size_bytes(E) != 0, "tide::type_of_t: E must be an enumerator of tide::Element.");
  using type = ElementTypes::At<static_cast<std::size_t>(E)>;
};

}  // namespace detail

/// The Element that `T` stores.
template <class T>
inline constexpr Element element_of_v = detail::ElementOf<T>::value;

/// The C++ type that stores `E`; incomplete until its own header is included.
template <Element E>
using type_of_t = typename detail::TypeOf<E>::type;

static_assert(sizeof(f32) == 4 && sizeof(f64) == 8);

}  // namespace tide
