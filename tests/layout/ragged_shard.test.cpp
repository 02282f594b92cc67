// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/layout_view.hpp>
#include <tide/layout/ragged_shard.hpp>
#include <tide/layout/shard_layout.hpp>

#include <vector>

#include "support/laws.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::index_t;
using tide::RaggedShard;

static_assert(laws::shard_rule<RaggedShard<3, 0, 2>>(5, 3));
static_assert(laws::shard_rule<RaggedShard<0, 0, 0>>(0, 3) && laws::shard_rule<RaggedShard<7>>(7, 1));
static_assert(!laws::shard_rule<RaggedShard<3, 0, 2>>(6, 3) && !laws::shard_rule<RaggedShard<3, 0, 2>>(5, 2));
static_assert(RaggedShard<3, 0, 2>::begin(5, 3, 1) == 3 && RaggedShard<3, 0, 2>::begin(5, 3, 2) == 3);

// Counts at compile time, by the type or by its rule, and counts at run time say the same.
constexpr auto uneven_rows =
    tide::group(tide::param<tide::bf16>("by_counts", {5, 3}, tide::ragged<3, 0, 2>()),
                tide::param<tide::bf16>("by_rule", {5, 3}, tide::shard_by<RaggedShard<3, 0, 2>>()));
using Layout = tide::ShardLayout<uneven_rows, tide::Mesh<1, 3>>;
static_assert(laws::layout(Layout().view()));
static_assert(Layout().view().piece(tide::ParameterIndex{0}, tide::Rank{2}).begin == 3);
static_assert(Layout().view().piece(tide::ParameterIndex{1}, tide::Rank{2}).begin == 3);
static_assert(Layout().view().piece(tide::ParameterIndex{0}, tide::Rank{1}).count == 0);

TEST_CASE("RaggedShard: counts given at run time cut where they say, rank by rank") {
  const std::vector<index_t> rows = {4, 0, 0, 9, 1, 2};
  const tide::Parameter parameter = tide::param<tide::bf16>("w", {16, 5}, tide::ragged(rows));
  const tide::LayoutView view{{{&parameter, 1}, {}}, {2, 3}};
  CHECK(laws::layout(view));
  index_t before = 0;
  for (index_t rank = 0; rank < 6; ++rank) {
    const tide::Piece piece = view.piece(tide::ParameterIndex{0}, tide::Rank{rank});
    CHECK(piece.begin == before);
    CHECK(piece.count == rows[static_cast<std::size_t>(rank)]);
    CHECK(piece.width == 5 * piece.count);
    before += piece.count;
  }
}

}  // namespace
