// SPDX-License-Identifier: Apache-2.0
//
// timeout: 240
//
// The conformance suites of ShardRule and Packing, for all models that ship and for two of a user's: what is built on
// them are layouts and the plans of gathers.

#include <doctest/doctest.h>

#include <tide/layout/even_shard.hpp>
#include <tide/layout/ragged_shard.hpp>

#include <algorithm>

#include "conformance/packing.hpp"
#include "conformance/shard_rule.hpp"

namespace layout_policies_test {

using tide::index_t;

/// Ranks own whole blocks of 16 rows.
struct WholeBlocks {
  [[nodiscard]] static constexpr index_t begin(index_t rows, index_t ranks, index_t rank) noexcept {
    return std::min(rank * tide::ceil_div(rows, 16) / ranks * 16, rows);
  }
};

/// Every shard starts on a cache line of its own.
struct CacheLinePacking {
  static constexpr tide::PackingRule rule{64, tide::PackingRule::Padding::none};
};

TEST_CASE("ShardRule: the suite holds for the models that ship") {
  tide_test::check_shard_rule<tide::EvenShard>();
  tide_test::check_shard_rule<tide::RaggedShard<3, 0, 2>>(5, 3);
  tide_test::check_shard_rule<tide::RaggedShard<0, 0, 0>>(0, 3);
  tide_test::check_shard_rule<tide::RaggedShard<0, 0, 7, 1>>(8, 4);
  tide_test::check_shard_rule<tide::RaggedShard<9>>(9, 1);
}

TEST_CASE("ShardRule: the suite holds for a rule of one's own") { tide_test::check_shard_rule<WholeBlocks>(); }

TEST_CASE("Packing: the suite holds for the models that ship") {
  tide_test::check_packing<tide::TightPacking>();
  tide_test::check_packing<tide::Fsdp2Packing>();
}

TEST_CASE("Packing: the suite holds for a packing of one's own") { tide_test::check_packing<CacheLinePacking>(); }

}  // namespace layout_policies_test
