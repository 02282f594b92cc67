// SPDX-License-Identifier: Apache-2.0
//
// The interval map under verify, against a memory that knows every byte apart.

#include <doctest/doctest.h>

#include <tide/plan/detail/cells.hpp>

#include "support/sanitizer.hpp"
#include "support/seeds.hpp"

#include <array>
#include <vector>

namespace {

using tide::index_t;
using tide::detail::ByteContent;
using tide::detail::Cell;
using tide::detail::Cells;

TEST_CASE("Cells: every byte is what was written to it last, however cells split and vanish") {
  for (const std::uint64_t seed : tide_test::seeds(static_cast<std::uint64_t>(tide_test::sized(60, 10)))) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const index_t size = random.between(1, 3000);
    std::vector<index_t> model(static_cast<std::size_t>(size));  // offset of what each byte holds
    for (std::size_t i = 0; i < model.size(); ++i) model[i] = static_cast<index_t>(i);
    Cells cells;
    cells.assign(std::array{Cell{}}, size);
    bool same = true;
    for (int step = 0; step < 600; ++step) {
      const index_t begin = random.between(0, size - 1);
      const index_t end = random.between(begin + 1, random.once_in(8) ? size : std::min(size, begin + 20));
      index_t next = begin;
      const Cells::Position first = cells.visit(begin, end, [&](const Cell& cell, index_t cell_end) {
        same = same && cell.begin == next && cell_end > cell.begin && cell_end <= end;
        for (index_t i = cell.begin; i < cell_end; ++i) {
          same = same && model[static_cast<std::size_t>(i)] == cell.content.offset + i - cell.begin;
        }
        next = cell_end;
      });
      REQUIRE(same);
      REQUIRE(next == end);
      if (random.once_in(2)) continue;
      std::vector<Cell> by;
      for (index_t at = begin; at < end;) {
        const index_t part = random.between(1, end - at);
        Cell cell;
        cell.begin = at;
        cell.content.offset = random.between(0, 1 << 20);
        for (index_t i = 0; i < part; ++i) model[static_cast<std::size_t>(at + i)] = cell.content.offset + i;
        by.push_back(cell);
        at += part;
      }
      cells.replace(first, end, by);
    }
  }
}

}  // namespace
