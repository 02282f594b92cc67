// SPDX-License-Identifier: Apache-2.0
//
// OwnBlockView: a rank's own rows inside a slot, where a caller writes them to gather in place.
//
// Test: tests/pipeline/own_block.test.cpp

#pragma once

#include <tide/core/error.hpp>           // raise
#include <tide/core/text.hpp>            // text
#include <tide/layout/fixed_string.hpp>  // FixedString
#include <tide/layout/layout_rules.hpp>  // require_parameter
#include <tide/layout/layout_view.hpp>   // Piece

#include <cstddef>
#include <utility>

namespace tide {

/// `rows` runs of `width` elements, `pitch` elements apart: a piece inside a dense parameter.
template <class T>
struct StridedRows {
  T* data = nullptr;
  index_t rows = 0;
  index_t width = 0;
  index_t pitch = 0;

  /// Element `column` of run `row`, unchecked.
  [[nodiscard]] T& operator()(index_t row, index_t column) const noexcept { return data[row * pitch + column]; }

  /// The same.  @throws Error (Errc::argument) when it is not one of these: it may be another rank's
  [[nodiscard]] T& at(index_t row, index_t column) const {
    if (row < 0 || row >= rows || column < 0 || column >= width) {
      raise(Errc::argument, detail::text({"tide::OwnBlockView: a row and a column must be among the own ones; row ",
                                          row, " of ", rows, ", column ", column, " of ", width, "."}));
    }
    return (*this)(row, column);
  }
};

/// The own rows of every parameter in one slot.
template <class Layout>
class OwnBlockView {
 public:
  OwnBlockView(std::byte* slot, Layout layout, Rank rank) : slot_(slot), layout_(std::move(layout)), rank_(rank) {}

  /// The own rows of the parameter called `Text`; no rows where this rank owns none.
  template <FixedString Text>
  [[nodiscard]] auto get() const {
    return rows_as<typename Layout::template tensor<Text>::element_type>(Layout::template index<Text>());
  }
  /// Those of number `number` of the parameters that are written `Text` in the group, "experts.{}.w" say.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text>
  [[nodiscard]] auto get(index_t number) const {
    return rows_as<typename Layout::template tensor<Text>::element_type>(Layout::template index<Text>(number));
  }

  /// The same in bytes, for layouts read at run time.
  /// @throws Error (Errc::argument) when there is no such position
  [[nodiscard]] StridedRows<std::byte> rows_of(ParameterIndex parameter) const {
    detail::require_parameter(layout_.view(), parameter);
    const Piece piece = layout_.view().piece(parameter, rank_);
    const index_t size = piece.size(Buffer::slot);
    const index_t rows = piece.width > 0 ? piece.outer : 0;
    return {slot_ + piece.offset(Buffer::slot), rows, piece.width * size, piece.pitch * size};
  }

 private:
  template <class T>
  [[nodiscard]] StridedRows<T> rows_as(ParameterIndex parameter) const {
    const StridedRows<std::byte> raw = rows_of(parameter);
    constexpr auto size = static_cast<index_t>(sizeof(T));
    return {reinterpret_cast<T*>(raw.data), raw.rows, raw.width / size, raw.pitch / size};
  }

  std::byte* slot_;
  Layout layout_;
  Rank rank_;
};

}  // namespace tide
