// SPDX-License-Identifier: Apache-2.0
//
// RaggedShard: any row counts, one per rank.
//
//   RaggedShard<3, 0, 2>       row   0  1  2 | 3  4
//                              rank  0       | 2        (rank 1 owns nothing)
//
// Laws: those of ShardRule for rows == the sum of the counts and ranks == their number
//                                                    (tests/layout/ragged_shard.test.cpp)

#pragma once

#include <tide/layout/shard_rule.hpp>  // ShardRule, Sharding

#include <array>

namespace tide {

/// Row counts known at compile time; `ragged(counts)` takes them at run time.
///
/// Choose it when shards follow something other than row numbers, experts of unequal size say; else `EvenShard`.
template <index_t... Rows>
struct RaggedShard {
  static_assert(((Rows >= 0) && ...), "tide::RaggedShard: row counts must not be negative.");

  static constexpr std::array<index_t, sizeof...(Rows)> rows_of_rank{Rows...};

  /// First row of `rank`.  @pre 0 <= rank <= sizeof...(Rows)
  [[nodiscard]] static constexpr index_t begin(index_t, index_t, index_t rank) noexcept {
    index_t sum = 0;
    for (index_t r = 0; r < rank && r < static_cast<index_t>(sizeof...(Rows)); ++r) {
      sum += rows_of_rank[static_cast<std::size_t>(r)];
    }
    return sum;
  }
};

static_assert(ShardRule<RaggedShard<3, 0, 2>>);

/// Cuts dimension 0 by one row count per rank.  @pre `rows_of_rank` outlives the parameter
[[nodiscard]] constexpr Sharding ragged(std::span<const index_t> rows_of_rank) noexcept {
  return {Sharding::Kind::ragged, 0, nullptr, rows_of_rank};
}

/// Cuts dimension 0 as `RaggedShard<Rows...>` says.
template <index_t... Rows>
[[nodiscard]] constexpr Sharding ragged() noexcept {
  return ragged(std::span<const index_t>(RaggedShard<Rows...>::rows_of_rank));
}

}  // namespace tide
