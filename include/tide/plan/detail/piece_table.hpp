// SPDX-License-Identifier: Apache-2.0
//
// What a layout says, asked often: every rank's pieces, and which parameter, element or gradient a byte belongs to.

#pragma once

#include <tide/plan/collective.hpp>  // Collective

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace tide::detail {

class PieceTable {
 public:
  explicit PieceTable(const Collective& collective) : layout_(collective.layout) {
    const auto ranks = static_cast<std::size_t>(collective.ranks());
    pieces_.resize(ranks);
    space_bytes_.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      const Rank rank{static_cast<index_t>(r)};
      pieces_[r].reserve(static_cast<std::size_t>(layout_.group.size()));
      layout_.for_each_piece(rank, [&](const Piece& piece) { pieces_[r].push_back(piece); });
      for (std::size_t s = 0; s < space_count; ++s) {
        space_bytes_[r][s] = collective.space_bytes(static_cast<Space>(s), rank);
      }
    }
    elements_before_.push_back(0);
    for (const Parameter& parameter : layout_.group.parameters) {
      elements_before_.push_back(elements_before_.back() + parameter.shape.elements());
    }
  }

  [[nodiscard]] const LayoutView& layout() const noexcept { return layout_; }
  [[nodiscard]] index_t parameters() const noexcept { return layout_.group.size(); }

  // Bytes of one instance of a space.
  [[nodiscard]] index_t bytes(Rank rank, Space space) const noexcept {
    return space_bytes_[static_cast<std::size_t>(rank.value)][static_cast<std::size_t>(space)];
  }

  // Whether any rank has bytes of a space.
  [[nodiscard]] bool any_bytes(Space space) const noexcept {
    return std::any_of(space_bytes_.begin(), space_bytes_.end(),
                       [space](const auto& bytes) { return bytes[static_cast<std::size_t>(space)] > 0; });
  }

  [[nodiscard]] std::span<const Piece> pieces(Rank rank) const noexcept {
    return pieces_[static_cast<std::size_t>(rank.value)];
  }

  // Elements of all parameters before `parameter`: a number for every element of the group, gaps left out.
  [[nodiscard]] index_t elements_before(index_t parameter) const noexcept {
    return elements_before_[static_cast<std::size_t>(parameter)];
  }

  // The parameter that an element of that number belongs to.
  [[nodiscard]] index_t parameter_of_element(index_t element) const noexcept {
    const auto found = std::upper_bound(elements_before_.begin(), elements_before_.end(), element);
    return static_cast<index_t>(found - elements_before_.begin()) - 1;
  }

  struct Range {
    index_t begin = 0;
    index_t end = 0;

    [[nodiscard]] constexpr bool holds(index_t at) const noexcept { return begin <= at && at < end; }
  };

  // The bytes of a whole parameter in the slot or the gradients.
  [[nodiscard]] Range dense(Buffer buffer, index_t parameter) const noexcept {
    const Piece& piece = pieces_[0][static_cast<std::size_t>(parameter)];
    const index_t start = piece.start[static_cast<std::size_t>(buffer)];
    return {start, start + piece.outer * piece.pitch * piece.size(buffer)};
  }

  // The last parameter that starts at or before a byte of one of a rank's buffers; -1 where there is none.
  [[nodiscard]] index_t parameter_at(Rank rank, Buffer buffer, index_t byte) const noexcept {
    const std::span<const Piece> list = pieces(rank);
    const auto b = static_cast<std::size_t>(buffer);
    const auto found = std::upper_bound(list.begin(), list.end(), byte,
                                        [b](index_t at, const Piece& piece) { return at < piece.start[b]; });
    return static_cast<index_t>(found - list.begin()) - 1;
  }

  // The runs that bytes [begin, end) of a rank's packed buffer consist of, each dense in the whole parameter too:
  // calls f(piece, first byte, elements, first element in the parameter). False where a byte is padding.
  template <class F>
  bool for_each_run(Rank rank, Buffer packed, index_t begin, index_t end, F f) const {
    for (index_t at = begin; at < end;) {
      const index_t p = parameter_at(rank, packed, at);
      if (p < 0) return false;
      const Piece& piece = pieces(rank)[static_cast<std::size_t>(p)];
      const index_t size = piece.size(packed);
      const index_t element = (at - piece.offset(packed)) / size;
      if (element >= piece.elements()) return false;
      const index_t inside = element % piece.width;
      const index_t left =
          piece.outer == 1 || piece.width == piece.pitch ? piece.elements() - element : piece.width - inside;
      const index_t count = std::min(left, ceil_div(end - at, size));
      f(piece, at, count, piece.first + element / piece.width * piece.pitch + inside);
      at += count * size;
    }
    return true;
  }

 private:
  LayoutView layout_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<std::array<index_t, space_count>> space_bytes_;
  std::vector<index_t> elements_before_;
};

// Whether a space holds what ops pass on to other ops, and nothing of the caller's.
[[nodiscard]] constexpr bool is_passed_through(Space space) noexcept {
  return space == Space::inbox || space == Space::network_inbox || space == Space::partials;
}

// The buffer of the layout that a space holds; what is passed through is none.
[[nodiscard]] constexpr bool buffer_of(Space space, Buffer& buffer) noexcept {
  switch (space) {
    case Space::master:
      buffer = Buffer::masters;
      return true;
    case Space::shards:
      buffer = Buffer::shards;
      return true;
    case Space::slot:
      buffer = Buffer::slot;
      return true;
    case Space::gradients:
      buffer = Buffer::gradients;
      return true;
    case Space::output:
      buffer = Buffer::output;
      return true;
    default:
      return false;
  }
}

}  // namespace tide::detail
