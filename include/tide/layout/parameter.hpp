// SPDX-License-Identifier: Apache-2.0
//
// Parameter: one tensor of a model: its name, shape, elements and the way it is cut.
//
// Test: tests/layout/group.test.cpp

#pragma once

#include <tide/element/element.hpp>    // Element, element_of_v
#include <tide/layout/even_shard.hpp>  // shard
#include <tide/layout/name.hpp>        // Name

#include <array>
#include <initializer_list>
#include <string_view>

namespace tide {

/// The most dimensions that a parameter may have.
inline constexpr int max_dimensions = 8;

/// Extents of a tensor, row-major. `rank` is what was asked for, also when it is more than `max_dimensions`.
struct Shape {
  std::array<index_t, max_dimensions> extents{};
  int rank = 0;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<index_t> list) noexcept : rank(static_cast<int>(list.size())) {
    int i = 0;
    for (const index_t extent : list) {
      if (i < max_dimensions) extents[static_cast<std::size_t>(i)] = extent;
      ++i;
    }
  }

  [[nodiscard]] constexpr index_t operator[](int i) const noexcept { return extents[static_cast<std::size_t>(i)]; }

  /// The product of the extents [from, to); 1 for an empty range.
  [[nodiscard]] constexpr index_t product(int from, int to) const noexcept {
    index_t p = 1;
    for (int i = from; i < to; ++i) p *= (*this)[i];
    return p;
  }

  /// Number of elements.
  [[nodiscard]] constexpr index_t elements() const noexcept { return product(0, rank); }
};

/// One tensor of a group. Made by `param`; checked by `ShardLayout`.
struct Parameter {
  Name name = {};
  Shape shape = {};
  Element gathered = Element::bf16;  ///< what a gather delivers
  Element gradient = Element::bf16;  ///< what a reduce-scatter reads
  Sharding sharding = {};
};

/// A parameter whose shards are f32 master weights, gathered as `Gathered`, with gradients of type `Gradient`.
///
/// @param name      unique in its group; must outlive the group (a string literal does)
/// @param shape     row-major extents; a scalar is given the shape {1}
/// @param sharding  how it is cut over ranks; by default dimension 0 in equal chunks
template <class Gathered, class Gradient = Gathered>
[[nodiscard]] constexpr Parameter param(std::string_view name, Shape shape, Sharding sharding = {}) noexcept {
  static_assert(ElementType<Gathered> && ElementType<Gradient>,
                "tide::param: Gathered and Gradient must be bf16, f16, float, double, f8_e4m3 or f8_e5m2.");
  return {Name{{}, 0, name}, shape, element_of_v<Gathered>, element_of_v<Gradient>, sharding};
}

/// A second name of a parameter that shares its storage: a tied weight. It is gathered and reduced once.
struct Alias {
  std::string_view name = {};
  std::string_view target = {};
};

/// Declares that `name` is tied to the parameter `target` of the same group.
[[nodiscard]] constexpr Alias alias(std::string_view name, std::string_view target) noexcept { return {name, target}; }

}  // namespace tide
