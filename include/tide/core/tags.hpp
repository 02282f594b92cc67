// SPDX-License-Identifier: Apache-2.0
//
// Named numbers for policy parameters: `Ring<Chunks<4>, Bytes<64 << 20>>` reads as what it means.
//
// Test: tests/core/tags.test.cpp

#pragma once

#include <tide/core/math.hpp>  // index_t

namespace tide {

/// A size in bytes.
template <index_t N>
struct Bytes {
  static_assert(N > 0, "tide::Bytes: a size in bytes must be positive.");
  static constexpr index_t value = N;
};

/// How many chunks an inbox holds at once.
template <index_t N>
struct Chunks {
  static_assert(N > 0 && N <= 255, "tide::Chunks: the number of chunks must be 1 to 255.");
  static constexpr index_t value = N;
};

/// How many puts of a rank may be on their way to one peer.
template <index_t N>
struct PutsInFlight {
  static_assert(N >= 2 && N <= 65535, "tide::PutsInFlight: the number of puts in flight must be 2 to 65535.");
  static constexpr index_t value = N;
};

/// How many slots a pool has.
template <index_t N>
struct Depth {
  static_assert(N > 0 && N <= 255, "tide::Depth: the number of slots must be 1 to 255.");
  static constexpr index_t value = N;
};

/// How many CTAs (thread blocks) a launch policy uses.
template <index_t N>
struct Ctas {
  static_assert(N > 0, "tide::Ctas: the number of CTAs must be positive.");
  static constexpr index_t value = N;
};

/// How many groups are gathered ahead of the one that is computed with.
template <index_t N>
struct Prefetch {
  static_assert(N >= 0 && N <= 254, "tide::Prefetch: the number of groups gathered ahead must be 0 to 254.");
  static constexpr index_t value = N;
};

/// How often a model has the groups of one layout.
template <index_t N>
struct Repeat {
  static_assert(N > 0, "tide::Repeat: the number of groups must be positive.");
  static constexpr index_t value = N;
};

/// How many gradient memories take turns.
template <index_t N>
struct Buffers {
  static_assert(N >= 0 && N <= 255, "tide::Buffers: the number of gradient memories must be 0 to 255.");
  static constexpr index_t value = N;
};

namespace detail {

// Whether a type is a `Tag<N>` for some N.
template <template <index_t> class Tag, class T>
inline constexpr bool is_tag = false;
template <template <index_t> class Tag, index_t N>
inline constexpr bool is_tag<Tag, Tag<N>> = true;

}  // namespace detail

}  // namespace tide
