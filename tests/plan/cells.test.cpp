// SPDX-License-Identifier: Apache-2.0
//
// The map of a memory under verify, against a memory that knows every byte apart.

#include <doctest/doctest.h>

#include <tide/plan/detail/cells.hpp>

#include "support/sanitizer.hpp"
#include "support/seeds.hpp"

#include <array>
#include <set>
#include <utility>
#include <vector>

namespace {

using tide::index_t;
using tide::detail::ByteContent;
using tide::detail::Cell;
using tide::detail::Cells;
using tide::detail::Column;
using tide::detail::NodeIndex;
using tide::detail::OpRows;
using tide::detail::Part;
using tide::detail::QueueIndex;
using tide::detail::ReaderLists;

/// A byte that knows all.
struct Byte {
  index_t offset = 0;
  NodeIndex writer = tide::detail::no_node;
  std::set<std::pair<QueueIndex, NodeIndex>> readers{};
};

/// Rows of a memory: often as others before, so that they meet as grids, sometimes as nothing before.
OpRows random_rows(tide_test::Random& random, index_t size) {
  OpRows rows;
  rows.width = random.between(1, std::min<index_t>(size, random.once_in(8) ? size : 24));
  rows.pitch = random.once_in(3) ? rows.width : random.once_in(6) ? random.between(rows.width, 200) : 48;
  if (rows.pitch < rows.width) rows.pitch = rows.width;
  rows.rows = random.once_in(2) ? 1 : random.between(1, (size - rows.width) / rows.pitch + 1);
  const index_t last = size - rows.width - (rows.rows - 1) * rows.pitch;
  rows.offset = random.once_in(2) ? std::min(last, random.between(0, 3) * 12) : random.between(0, last);
  return rows;
}

/// Whether a list says of a byte that a node has read it.
bool has(const ReaderLists& lists, ReaderLists::List list, QueueIndex queue, NodeIndex node) {
  bool found = false;
  lists.for_each(list, [&](const ReaderLists::Readers& r) {
    found = found || (r.queue == queue && r.first <= node && node <= r.last);
  });
  return found;
}

TEST_CASE("Cells: every byte is what was written to it last, and knows who has read it since, whichever rows meet it") {
  for (const std::uint64_t seed : tide_test::seeds(static_cast<std::uint64_t>(tide_test::sized(60, 10)))) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const index_t size = random.between(1, 3000);
    std::vector<Byte> model(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < model.size(); ++i) model[i].offset = static_cast<index_t>(i);
    const auto byte = [&](index_t i) -> Byte& { return model[static_cast<std::size_t>(i)]; };
    ReaderLists lists;
    Cells cells(lists);
    cells.assign(std::array{Cell{}}, size);
    for (NodeIndex now = 0; now < 600; ++now) {
      const OpRows rows = random_rows(random, size);
      CAPTURE(now);
      const auto queue = static_cast<QueueIndex>(random.between(0, 3));
      const bool reads = random.once_in(2);
      std::vector<int> met(model.size(), 0);
      bool same = true;
      cells.visit(rows, [&](Cell& cell, const Part& part) {
        for (index_t row = part.first; row < part.first + part.rows; ++row) {
          for (index_t i = 0; i < part.bytes; ++i) {
            const index_t at = rows.begin(row) + part.from + i;
            ++met[static_cast<std::size_t>(at)];
            same = same && byte(at).offset == part.row(row - part.first).offset + i && byte(at).writer == cell.writer;
            for (const auto& [q, node] : byte(at).readers) same = same && has(lists, cell.readers, q, node);
            if (reads) byte(at).readers.insert({queue, now});
          }
        }
        if (reads) lists.add(cell.readers, now, now, queue, random.once_in(8));
      });
      REQUIRE(same);
      for (index_t row = 0; row < rows.rows; ++row) {
        for (index_t i = rows.begin(row); i < rows.begin(row) + rows.width; ++i) --met[static_cast<std::size_t>(i)];
      }
      REQUIRE(met == std::vector<int>(model.size(), 0));  // each byte of the access once, and no other
      if (reads) continue;
      std::vector<Column> by;
      for (index_t at = 0; at < rows.width;) {
        const index_t part = random.between(1, rows.width - at);
        Column column;
        column.cell.begin = at;
        column.cell.writer = now;
        column.cell.content.offset = random.between(0, 1 << 20);
        column.step = random.once_in(2) ? rows.pitch : random.between(0, 1 << 10);
        for (index_t row = 0; row < rows.rows; ++row) {
          for (index_t i = 0; i < part; ++i) {
            byte(rows.begin(row) + at + i) = {column.cell.content.offset + row * column.step + i, now, {}};
          }
        }
        by.push_back(column);
        at += part;
      }
      cells.replace(rows, by);
    }
    index_t next = 0;
    std::vector<int> met(model.size(), 0);
    cells.visit_cells(0, size, [&](const Cell& cell, const OpRows& rows) {
      for (index_t row = 0; row < rows.rows; ++row) {
        for (index_t i = rows.begin(row); i < rows.begin(row) + rows.width; ++i) {
          next += ++met[static_cast<std::size_t>(i)] == 1 && byte(i).writer == cell.writer ? 1 : 0;
        }
      }
    });
    CHECK(next == size);
    for (index_t i = 0; i < size; ++i) REQUIRE(cells.at(i).offset == byte(i).offset);
  }
}

TEST_CASE("Cells: rows that are written together are one thing for those who meet them alike") {
  ReaderLists lists;
  Cells cells(lists);
  cells.assign(std::array{Cell{}}, 6400);
  const auto count = [&](const OpRows& rows) {
    int parts = 0;
    cells.visit(rows, [&](const Cell&, const Part&) { ++parts; });
    return parts;
  };
  const auto write = [&](const OpRows& rows, index_t offset, index_t step) {
    Column column;
    column.cell.content.offset = offset;
    column.step = step;
    cells.replace(rows, {&column, 1});
  };
  write({0, 16, 64, 100}, 0, 1000);   // strided
  write({16, 48, 64, 100}, 7, 1000);  // the columns beside it
  CHECK(count({0, 64, 64, 100}) == 2);
  CHECK(count({4, 8, 64, 100}) == 1);
  CHECK(count({4, 8, 640, 10}) == 1);  // each tenth row
  CHECK(count({4, 4, 100, 3}) == 3);   // not along the rows
  CHECK(count({0, 640, 0, 1}) == 20);  // ten rows in one
  CHECK(cells.at(64 * 5 + 3).offset == 5003);
  write({640, 64, 0, 1}, 0, 0);  // one row of a hundred
  CHECK(count({0, 64, 64, 100}) == 5);
  CHECK(cells.at(64 * 11 + 3).offset == 11003);
  write({0, 64, 64, 100}, 0, 64);  // without gaps, and their content, too
  CHECK(count({0, 6400, 0, 1}) == 1);
}

TEST_CASE("ReaderLists: of each lane from which node to which, in lists that are apart when they were copied") {
  ReaderLists lists;
  ReaderLists::List list = ReaderLists::none;
  lists.add(list, 1, 1, 7, false);
  lists.add(list, 4, 5, 8, false);
  ReaderLists::List other = lists.copy(list);
  lists.add(list, 9, 9, 7, false);
  lists.add(list, 10, 10, 7, true);
  CHECK(has(lists, list, 7, 1));
  CHECK(has(lists, list, 7, 9));
  CHECK(has(lists, list, 7, 10));
  CHECK(has(lists, other, 8, 5));
  CHECK_FALSE(has(lists, other, 7, 9));
  int stale = 0;
  lists.for_each(list, [&](const ReaderLists::Readers& r) { stale += r.stale ? 1 : 0; });
  CHECK(stale == 1);
  lists.drop(other);
  CHECK(other == ReaderLists::none);
  CHECK(has(lists, list, 8, 5));
}

}  // namespace
