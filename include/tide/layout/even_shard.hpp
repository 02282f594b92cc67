// SPDX-License-Identifier: Apache-2.0
//
// EvenShard: a dimension cut into equal chunks, one per rank; the last may be short, several may be empty.
//
//   rows = 5, ranks = 4        chunk = 2
//   row    0  1 | 2  3 | 4    |
//   rank   0    | 1    | 2    | 3 (empty)
//
// Laws: those of ShardRule, and                      (tests/layout/even_shard.test.cpp)
//   bounded   begin(r + 1) - begin(r) <= ceil_div(rows, ranks)

#pragma once

#include <tide/core/math.hpp>          // ceil_div
#include <tide/layout/shard_rule.hpp>  // ShardRule, Sharding

#include <algorithm>

namespace tide {

/// FSDP2's default rule: chunks of ceil(rows / ranks) rows, as torch.chunk cuts them.
///
/// Choose `RaggedShard` when rows must not be split where this rule would split them.
struct EvenShard {
  /// First row of `rank`.  @pre rows >= 0, ranks > 0, 0 <= rank <= ranks
  [[nodiscard]] static constexpr index_t begin(index_t rows, index_t ranks, index_t rank) noexcept {
    return std::min(rank * ceil_div(rows, ranks), rows);
  }
};

static_assert(ShardRule<EvenShard>);

/// Cuts `dimension` into equal chunks. On dimension 0 (the default of every parameter) the last chunks may be short or
/// empty; on others the dimension must be a multiple of the ranks, as FSDP2 demands.
[[nodiscard]] constexpr Sharding shard(int dimension) noexcept {
  return {Sharding::Kind::chunked, dimension, nullptr, {}};
}

/// Cuts `dimension` by the user's `Rule`, a `ShardRule`.
template <class Rule>
[[nodiscard]] constexpr Sharding shard_by(int dimension = 0) noexcept {
  static_assert(ShardRule<Rule>,
                "tide::shard_by: Rule must be a ShardRule; it has a static noexcept begin(rows, ranks, rank).");
  return {Sharding::Kind::ruled, dimension, &Rule::begin, {}};
}

}  // namespace tide
