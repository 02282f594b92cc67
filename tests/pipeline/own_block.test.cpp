// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>
#include <tide/pipeline/own_block.hpp>

#include <tide/element/bf16.hpp>
#include <tide/layout/shard_layout.hpp>

#include "support/oracle.hpp"
#include "support/raised.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace tide_test;
using tide::index_t;

namespace {

inline constexpr auto own_group =
    tide::group(tide::param<tide::bf16>("rows", {5, 4}), tide::param<float>("columns", {3, 4, 2}, tide::shard(1)),
                tide::param<tide::bf16>("empty", {0, 3}), tide::param<tide::bf16>("few", {1, 6}));

template <index_t Ranks>
void check_on() {
  using Layout = tide::ShardLayout<own_group, tide::Mesh<1, Ranks>>;
  const Layout layout;
  std::vector<std::byte> slot(static_cast<std::size_t>(Layout::slot_bytes));
  const std::vector<oracle::Place> places = oracle::places(layout.view().group, Ranks);
  const std::vector<index_t> starts = oracle::dense_starts(layout.view().group, {2, 4, 2, 2}, 256);
  for (index_t rank = 0; rank < Ranks; ++rank) {
    CAPTURE(rank);
    std::vector<index_t> expected;  // of every own element, the first byte
    for (const oracle::Place& place : places) {
      const index_t size = place.parameter == 1 ? 4 : 2;
      if (place.owner == rank) expected.push_back(starts[place.parameter] + place.dense * size);
    }
    const tide::OwnBlockView<Layout> own(slot.data(), layout, tide::Rank{rank});
    std::vector<index_t> found;
    const auto add = [&](const auto& rows) {
      for (index_t row = 0; row < rows.rows; ++row) {
        for (index_t column = 0; column < rows.width; ++column) {
          found.push_back(reinterpret_cast<const std::byte*>(&rows(row, column)) - slot.data());
        }
      }
    };
    add(own.template get<"rows">());
    add(own.template get<"columns">());
    add(own.template get<"empty">());
    add(own.template get<"few">());
    CHECK(found == expected);
    for (index_t p = 0; p < 4; ++p) {
      const auto raw = own.rows_of(tide::ParameterIndex{p});
      if (raw.width == 0) CHECK(raw.rows == 0);
      CHECK(raw.data >= slot.data());
    }
  }
}

}  // namespace

TEST_CASE("OwnBlockView: the own elements of every parameter, each once, where the slot has them") {
  check_on<1>();
  check_on<2>();
  check_on<4>();
}

TEST_CASE("OwnBlockView: at takes own elements only, and says what they are") {
  using Layout = tide::ShardLayout<own_group, tide::Mesh<1, 4>>;
  std::vector<std::byte> slot(static_cast<std::size_t>(Layout::slot_bytes));
  const tide::OwnBlockView<Layout> own(slot.data(), Layout{}, tide::Rank{1});
  const auto columns = own.get<"columns">();  // 3 times 1 of the 4, with 2 floats each
  for (index_t row = 0; row < 3; ++row) {
    for (index_t column = 0; column < 2; ++column) CHECK(&columns.at(row, column) == &columns(row, column));
  }
  const std::string rule = "tide::OwnBlockView: a row and a column must be among the own ones; ";
  CHECK(text_of([&] { static_cast<void>(columns.at(3, 0)); }) == rule + "row 3 of 3, column 0 of 2.");
  CHECK(text_of([&] { static_cast<void>(columns.at(0, 2)); }) == rule + "row 0 of 3, column 2 of 2.");
  CHECK(text_of([&] { static_cast<void>(columns.at(-1, -1)); }) == rule + "row -1 of 3, column -1 of 2.");
  CHECK(text_of([&] { static_cast<void>(own.get<"empty">().at(0, 0)); }).find(rule + "row 0 of 0") == 0);
}
