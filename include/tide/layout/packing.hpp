// SPDX-License-Identifier: Apache-2.0
//
// Packing: how a rank's shards of one group lie back to back in its packed buffers (shards, masters, reduced output).
//
//   TightPacking     |w0 w0 w0|..|b0 b0|..|      starts at multiples of 16 bytes, nothing padded
//   Fsdp2Packing     |w0 w0 w0 --|b0 b0 -|       each shard padded to the chunk, no alignment: PyTorch's own numbers
//
// Laws                                               (tests/layout/packing.test.cpp)
//   disjoint   shards of one rank do not overlap, in group order
//   aligned    every start is a multiple of `start_alignment`
//
// A storage policy says the same of whole parameters in a slot: `DenseStorage`.

#pragma once

#include <tide/core/tags.hpp>  // Bytes

#include <concepts>
#include <cstdint>

namespace tide {

/// Whether starts may be multiples of that many bytes: a power of two, at most 1 GiB.
[[nodiscard]] constexpr bool is_alignment(index_t bytes) noexcept {
  return bytes > 0 && bytes <= (index_t{1} << 30) && (bytes & (bytes - 1)) == 0;
}

/// A packing as a value.
struct PackingRule {
  enum class Padding : std::uint8_t {
    none,      ///< a shard takes the bytes of its rows
    to_chunk,  ///< a shard takes the bytes of the largest shard of its parameter
  };

  index_t start_alignment = 1;  ///< bytes
  Padding padding = Padding::none;

  [[nodiscard]] friend constexpr bool operator==(const PackingRule&, const PackingRule&) = default;
};

/// A type that names a packing: `P::rule` is its value.
template <class P>
concept Packing = requires {
  { P::rule } -> std::convertible_to<PackingRule>;
};

/// Tide's default: shards start at multiples of 16 bytes, so that every kernel may use 16-byte accesses at starts.
struct TightPacking {
  static constexpr PackingRule rule{16, PackingRule::Padding::none};
};

/// PyTorch FSDP2's packing. Choose it to exchange packed buffers with PyTorch; else `TightPacking`. Nothing reads or
/// writes the padding, where PyTorch has zeros.
struct Fsdp2Packing {
  static constexpr PackingRule rule{1, PackingRule::Padding::to_chunk};
};

static_assert(Packing<TightPacking> && Packing<Fsdp2Packing>);

/// Each parameter dense in its slot, starting at a multiple of `Alignment` bytes.
template <class Alignment = Bytes<256>>
struct DenseStorage {
  static_assert(detail::is_tag<Bytes, Alignment>, "tide::DenseStorage: Alignment must be Bytes<N>.");
  static_assert(is_alignment(Alignment::value) && Alignment::value >= 16,
                "tide::DenseStorage: the alignment must be a power of two from 16 bytes to 1 GiB.");
  static constexpr index_t alignment = Alignment::value;
};

}  // namespace tide
