// SPDX-License-Identifier: Apache-2.0
//
// What verify knows of bytes: what they are, and where the first of them belongs.

#pragma once

#include <tide/core/index.hpp>       // index_t
#include <tide/element/element.hpp>  // Element

#include <cstdint>

namespace tide::detail {

// What bytes are. `offset` is where the first of them belongs: gathered and gradient bytes in the whole parameters,
// master bytes at four times their element's number, partial sums at their element's number times its size.
struct ByteContent {
  enum class Kind : std::uint8_t { nothing, padding, gathered, master, gradient, sum, partial, zeros, grid };

  index_t offset = 0;      // of a grid: which (detail/cells.hpp)
  std::int32_t rank = -1;  // whose gradient; of a partial sum: the nodes that it is over, see below
  Kind kind = Kind::nothing;
  std::uint8_t run = 0;            // of the caller's write that they come from; zeros come from before all runs
  Element element = Element::f32;  // of a partial sum: what it is stored as

  // The same bytes from `bytes` on.
  [[nodiscard]] constexpr ByteContent from(index_t bytes) const noexcept {
    return {offset + bytes, rank, kind, run, element};
  }

  // The sum over nodes [first, last) of what is at `offset`.
  [[nodiscard]] static constexpr ByteContent partial(index_t offset, index_t first, index_t last, std::uint8_t run,
                                                     Element element) noexcept {
    const auto nodes = (static_cast<std::uint32_t>(first) << 16U) | static_cast<std::uint32_t>(last);
    return {offset, static_cast<std::int32_t>(nodes), Kind::partial, run, element};
  }
  [[nodiscard]] constexpr index_t first_node() const noexcept { return static_cast<std::uint32_t>(rank) >> 16U; }
  [[nodiscard]] constexpr index_t last_node() const noexcept { return static_cast<std::uint32_t>(rank) & 0xFFFFU; }
  [[nodiscard]] friend constexpr bool operator==(const ByteContent&, const ByteContent&) = default;
};

}  // namespace tide::detail
