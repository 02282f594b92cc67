// SPDX-License-Identifier: Apache-2.0
//
// Shard rules that each break one law.

#pragma once

#include <tide/core/math.hpp>  // index_t

#include <algorithm>

namespace tide_test {

struct StartsLate {
  static constexpr tide::index_t begin(tide::index_t rows, tide::index_t, tide::index_t rank) noexcept {
    return std::min(rank + 1, rows);
  }
};

struct GoesBack {
  static constexpr tide::index_t begin(tide::index_t rows, tide::index_t ranks, tide::index_t rank) noexcept {
    return rank == ranks || rank == 1 ? rows : 0;
  }
};

struct LosesRows {
  static constexpr tide::index_t begin(tide::index_t rows, tide::index_t ranks, tide::index_t rank) noexcept {
    return rows / ranks * rank;
  }
};

}  // namespace tide_test
