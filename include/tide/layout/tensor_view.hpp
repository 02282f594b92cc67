// SPDX-License-Identifier: Apache-2.0
//
// TensorView: a parameter inside a slot, as its type says: element and static extents.
//
//   params.get<"k_proj.weight">()   ->   TensorView<bf16, 1024, 8192>
//
// Test: tests/layout/tensor_view.test.cpp

#pragma once

#include <tide/core/error.hpp>  // raise
#include <tide/core/index.hpp>  // index_t
#include <tide/core/text.hpp>   // text

#include <array>
#include <cstddef>
#include <span>

namespace tide {

/// A dense row-major tensor that somebody else owns.
///
/// @tparam T        element; const for a view that only reads
/// @tparam Extents  static extents, all >= 0
template <class T, index_t... Extents>
class TensorView {
 public:
  using element_type = T;

  constexpr explicit TensorView(T* data) noexcept : data_(data) {}

  [[nodiscard]] static constexpr int rank() noexcept { return static_cast<int>(sizeof...(Extents)); }
  /// Number of elements.
  [[nodiscard]] static constexpr index_t size() noexcept { return (Extents * ... * 1); }
  /// Extent of one dimension.  @pre 0 <= dimension < rank()
  [[nodiscard]] static constexpr index_t extent(int dimension) noexcept {
    constexpr std::array<index_t, sizeof...(Extents)> extents{Extents...};
    return extents[static_cast<std::size_t>(dimension)];
  }

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::span<T> elements() const noexcept { return {data_, static_cast<std::size_t>(size())}; }

  /// One element, unchecked, as in std::mdspan; `at` checks.  @pre one index per dimension, each in range
  template <class... I>
  [[nodiscard]] constexpr T& operator()(I... indices) const noexcept {
    static_assert(sizeof...(I) == sizeof...(Extents), "tide::TensorView: give one index per dimension.");
    index_t offset = 0;
    ((offset = offset * Extents + static_cast<index_t>(indices)), ...);
    return data_[offset];
  }

  /// One element.
  /// @throws Error (Errc::argument) when an index is outside of its extent
  template <class... I>
  [[nodiscard]] constexpr T& at(I... indices) const {
    static_assert(sizeof...(I) == sizeof...(Extents), "tide::TensorView: give one index per dimension.");
    int dimension = 0;
    (require_inside(static_cast<index_t>(indices), Extents, dimension++), ...);
    return (*this)(indices...);
  }

 private:
  static constexpr void require_inside(index_t index, index_t extent, int dimension) {
    if (index >= 0 && index < extent) return;
    raise(Errc::argument, detail::text({"tide::TensorView: an index must be inside of its extent; index ", dimension,
                                        " is ", index, " of ", extent, "."}));
  }

  T* data_;
};

}  // namespace tide
