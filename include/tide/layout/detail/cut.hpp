// SPDX-License-Identifier: Apache-2.0
//
// The one place that asks a parameter's shard rule where a rank's rows begin.

#pragma once

#include <tide/layout/parameter.hpp>  // Parameter, EvenShard

#include <algorithm>

namespace tide::detail {

// First row of `rank` in the sharded dimension; of rank `ranks`: all rows.
[[nodiscard]] constexpr index_t shard_begin(const Parameter& parameter, index_t ranks, index_t rank) noexcept {
  const Sharding& sharding = parameter.sharding;
  const index_t rows = parameter.shape[sharding.dimension];
  switch (sharding.kind) {
    case Sharding::Kind::chunked:
      return EvenShard::begin(rows, ranks, rank);
    case Sharding::Kind::ruled:
      return sharding.rule(rows, ranks, rank);
    case Sharding::Kind::ragged:
      break;
  }
  index_t sum = 0;
  for (index_t r = 0; r < rank; ++r) sum += sharding.rows_of_rank[static_cast<std::size_t>(r)];
  return sum;
}

// Rows of the largest shard: what FSDP2's packing pads to.
[[nodiscard]] constexpr index_t shard_chunk(const Parameter& parameter, index_t ranks) noexcept {
  if (parameter.sharding.kind == Sharding::Kind::chunked) {
    return ceil_div(parameter.shape[parameter.sharding.dimension], ranks);
  }
  index_t largest = 0;
  for (index_t r = 0; r < ranks; ++r) {
    largest = std::max(largest, shard_begin(parameter, ranks, r + 1) - shard_begin(parameter, ranks, r));
  }
  return largest;
}

}  // namespace tide::detail
