// SPDX-License-Identifier: Apache-2.0
//
// ShardRule: how the rows of a tensor's sharded dimension are cut over ranks.
//
// Laws, for every rows >= 0, ranks > 0 and rank r:   (tests/layout/shard_rule.test.cpp, tests/conformance/)
//   in order   begin(r) <= begin(r + 1)
//   complete   begin(0) == 0 and begin(ranks) == rows
//
// Cost: one call per parameter and rank when a plan is written; none in a step.
// Models: EvenShard (even_shard.hpp), RaggedShard (ragged_shard.hpp), and the user's own
// (examples/06_own_shard_rule.cpp).

#pragma once

#include <tide/core/math.hpp>  // index_t

#include <concepts>
#include <cstdint>
#include <span>

namespace tide {

/// A type with a static constexpr `begin(rows, ranks, rank)`: the first row of `rank`; of rank `ranks`: `rows`.
template <class R>
concept ShardRule = requires(index_t rows, index_t ranks, index_t rank) {
  { R::begin(rows, ranks, rank) }
  noexcept->std::same_as<index_t>;
};

/// How one parameter is cut: which dimension, by which rule. A value, so that groups read at run time have it too.
struct Sharding {
  using Begin = index_t (*)(index_t rows, index_t ranks, index_t rank);

  enum class Kind : std::uint8_t {
    chunked,  ///< equal chunks, the last may be short (`EvenShard`); on a dimension other than 0 only even splits
    ruled,    ///< the user's rule
    ragged,   ///< `rows_of_rank` says it
  };

  Kind kind = Kind::chunked;
  int dimension = 0;
  Begin rule = nullptr;                        ///< of `ruled`
  std::span<const index_t> rows_of_rank = {};  ///< of `ragged`: one count per rank; must outlive the sharding
};

}  // namespace tide
