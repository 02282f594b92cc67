// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/even_shard.hpp>

#include <vector>

#include "support/laws.hpp"
#include "support/oracle.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::EvenShard;
using tide::index_t;

std::vector<index_t> rows_of_rank(index_t rows, index_t ranks) {
  std::vector<index_t> counts;
  for (index_t rank = 0; rank < ranks; ++rank) {
    counts.push_back(EvenShard::begin(rows, ranks, rank + 1) - EvenShard::begin(rows, ranks, rank));
  }
  return counts;
}

static_assert(EvenShard::begin(5, 4, 0) == 0 && EvenShard::begin(5, 4, 1) == 2 && EvenShard::begin(5, 4, 2) == 4);
static_assert(EvenShard::begin(5, 4, 3) == 5 && EvenShard::begin(5, 4, 4) == 5);

consteval bool keeps_the_laws() {
  for (const index_t rows : {0, 1, 2, 5, 8, 31, 64, 65}) {
    for (const index_t ranks : {1, 2, 3, 4, 5, 8, 72}) {
      if (!laws::shard_rule<EvenShard>(rows, ranks)) return false;
      if (!laws::bounded<EvenShard>(rows, ranks, tide::ceil_div(rows, ranks))) return false;
    }
  }
  return true;
}
static_assert(keeps_the_laws());
static_assert(laws::shard_rule<EvenShard>((index_t{1} << 58) + 1, 72));  // rows beyond 32 bits

TEST_CASE("EvenShard: cuts as torch.chunk does, for all rows up to 257 and ranks up to 9") {
  for (index_t rows = 0; rows <= 257; ++rows) {
    for (index_t ranks = 1; ranks <= 9; ++ranks) {
      CAPTURE(rows);
      CAPTURE(ranks);
      CHECK(rows_of_rank(rows, ranks) == tide_test::oracle::chunk_rows(rows, ranks));
      CHECK(laws::shard_rule<EvenShard>(rows, ranks));
      CHECK(laws::bounded<EvenShard>(rows, ranks, tide::ceil_div(rows, ranks)));
    }
  }
}

TEST_CASE("EvenShard: gives the rows that torch.chunk was seen to give") {
  using Rows = std::vector<index_t>;
  CHECK(rows_of_rank(1, 8) == Rows{1, 0, 0, 0, 0, 0, 0, 0});
  CHECK(rows_of_rank(3, 2) == Rows{2, 1});
  CHECK(rows_of_rank(5, 4) == Rows{2, 2, 1, 0});
  CHECK(rows_of_rank(6, 4) == Rows{2, 2, 2, 0});
  CHECK(rows_of_rank(9, 4) == Rows{3, 3, 3, 0});
  CHECK(rows_of_rank(10, 4) == Rows{3, 3, 3, 1});
  CHECK(rows_of_rank(9, 8) == Rows{2, 2, 2, 2, 1, 0, 0, 0});
  CHECK(rows_of_rank(10, 8) == Rows{2, 2, 2, 2, 2, 0, 0, 0});
  CHECK(rows_of_rank(13, 8) == Rows{2, 2, 2, 2, 2, 2, 1, 0});
  CHECK(rows_of_rank(17, 8) == Rows{3, 3, 3, 3, 3, 2, 0, 0});
  CHECK(rows_of_rank(33, 16) == Rows{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0});
  CHECK(rows_of_rank(100, 8) == Rows{13, 13, 13, 13, 13, 13, 13, 9});
  CHECK(rows_of_rank(0, 4) == Rows{0, 0, 0, 0});
}

TEST_CASE("EvenShard: keeps the laws on the largest mesh") {
  for (const index_t rows : {index_t{0}, index_t{1}, index_t{65534}, index_t{65536}, index_t{1} << 58}) {
    CHECK(laws::shard_rule<EvenShard>(rows, 65535));
  }
}

TEST_CASE("EvenShard: the last of 64 ranks gets no row of 1000") {
  const std::vector<index_t> rows = rows_of_rank(1000, 64);
  CHECK(rows == tide_test::oracle::chunk_rows(1000, 64));
  CHECK(rows[62] == 8);
  CHECK(rows[63] == 0);
}

}  // namespace
