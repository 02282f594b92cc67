// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/even_shard.hpp>
#include <tide/layout/ragged_shard.hpp>
#include <tide/layout/shard_rule.hpp>

#include "support/broken_rules.hpp"
#include "support/laws.hpp"
#include "support/random_group.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::index_t;
using tide::Sharding;
using tide::ShardRule;

/// A user's rule: ranks own whole blocks of 128 rows, as evenly as blocks can be dealt.
struct WholeBlocks {
  [[nodiscard]] static constexpr index_t begin(index_t rows, index_t ranks, index_t rank) noexcept {
    return std::min(tide::ceil_div(rows, 128) * rank / ranks * 128, rank == ranks ? rows : rows / 128 * 128);
  }
};

struct MayThrow {
  static constexpr index_t begin(index_t, index_t, index_t) { return 0; }
};
struct CountsInInt {
  static constexpr int begin(index_t, index_t, index_t) noexcept { return 0; }
};
struct TakesTwo {
  static constexpr index_t begin(index_t, index_t) noexcept { return 0; }
};

static_assert(ShardRule<tide::EvenShard> && ShardRule<tide::RaggedShard<1, 2>> && ShardRule<WholeBlocks>);
static_assert(!ShardRule<MayThrow> && !ShardRule<CountsInInt> && !ShardRule<TakesTwo> && !ShardRule<int>);

static_assert(laws::shard_rule<WholeBlocks>(1000, 3) && laws::shard_rule<WholeBlocks>(128256, 8));
static_assert(laws::shard_rule<tide_test::LastTakesRest>(5, 8) && laws::shard_rule<tide_test::LastTakesRest>(50, 8));

// The laws name what is broken.
static_assert(laws::shard_rule<tide_test::StartsLate>(8, 4).broken == "complete: begin(0) == 0");
static_assert(laws::shard_rule<tide_test::GoesBack>(8, 4).broken == "in order: begin(r) <= begin(r + 1)");
static_assert(laws::shard_rule<tide_test::GoesBack>(8, 4).rank == 1);
static_assert(laws::shard_rule<tide_test::LosesRows>(9, 4).broken == "complete: begin(ranks) == rows");
static_assert(laws::shard_rule<tide_test::LosesRows>(8, 4));

// A sharding is a value that remembers the rule.
static_assert(Sharding{}.kind == Sharding::Kind::chunked && Sharding{}.dimension == 0);
static_assert(tide::shard(2).kind == Sharding::Kind::chunked && tide::shard(2).dimension == 2);
static_assert(tide::shard_by<WholeBlocks>(1).kind == Sharding::Kind::ruled);
static_assert(tide::shard_by<WholeBlocks>(1).dimension == 1 && tide::shard_by<WholeBlocks>().dimension == 0);
static_assert(tide::shard_by<WholeBlocks>().rule(1000, 3, 1) == WholeBlocks::begin(1000, 3, 1));

TEST_CASE("ShardRule: the shipped rules and a user's rule keep the laws for all small sizes") {
  for (index_t rows = 0; rows <= 300; ++rows) {
    for (index_t ranks = 1; ranks <= 9; ++ranks) {
      CAPTURE(rows);
      CAPTURE(ranks);
      CHECK(laws::shard_rule<tide::EvenShard>(rows, ranks));
      CHECK(laws::shard_rule<WholeBlocks>(rows, ranks));
      CHECK(laws::shard_rule<tide_test::LastTakesRest>(rows, ranks));
    }
  }
}

}  // namespace
