// SPDX-License-Identifier: Apache-2.0
//
// timeout: 300

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/layout_view.hpp>
#include <tide/layout/shard_layout.hpp>
#include <tide/models/registry.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/laws.hpp"
#include "support/oracle.hpp"
#include "support/random_group.hpp"

namespace {

namespace laws = tide_test::laws;
namespace oracle = tide_test::oracle;
using tide::Buffer;
using tide::index_t;
using tide::LayoutView;
using tide::Mesh;
using tide::ParameterIndex;
using tide::Piece;
using tide::Rank;
using tide::ShardLayout;

// ---- static ------------------------------------------------------------------------------------------------------

constexpr auto small = tide::group(tide::param<tide::bf16>("w", {5, 3}), tide::param<tide::f32, tide::bf16>("b", {2}),
                                   tide::param<tide::bf16>("columns", {2, 8, 3}, tide::shard(1)),
                                   tide::param<tide::bf16>("none", {4, 0, 2}), tide::param<tide::bf16>("one", {1}));
static_assert(laws::layout(ShardLayout<small, Mesh<1, 1>>().view()));
static_assert(laws::layout(ShardLayout<small, Mesh<2, 4>>().view()));
static_assert(laws::layout(ShardLayout<small, Mesh<1, 4>, tide::Fsdp2Packing>().view()));
static_assert(laws::layout(ShardLayout<tide::models::llama3_1_8b::block, Mesh<1, 5>>().view()));
static_assert(laws::layout(ShardLayout<tide::models::wan2_2_ti2v_5b::block, Mesh<2, 3>, tide::Fsdp2Packing>().view()));

constexpr LayoutView on_four = ShardLayout<small, Mesh<1, 4>>().view();

// Rows 2, 3 of w: 6 elements in one run, behind 6 elements of rank 0.
constexpr Piece second = on_four.piece(ParameterIndex{0}, Rank{1});
static_assert(second.begin == 2 && second.count == 2 && second.outer == 1 && second.width == 6 && second.pitch == 15);
static_assert(second.offset(Buffer::slot) == 12 && second.offset(Buffer::shards) == 0);
static_assert(second.bytes(Buffer::shards) == 12 && second.bytes(Buffer::masters) == 24);

// Columns 4, 5 of two matrices of 8 x 3: two runs of 6 elements, 24 apart; one run where packed.
constexpr Piece column_piece = on_four.piece(ParameterIndex{2}, Rank{2});
static_assert(column_piece.begin == 4 && column_piece.count == 2 && column_piece.outer == 2 && column_piece.width == 6);
static_assert(column_piece.pitch == 24 && column_piece.first == 12 && column_piece.elements() == 12);
constexpr tide::Block two_runs = column_piece.block(Buffer::masters, Buffer::slot);
static_assert(two_runs.rows == 2 && two_runs.source_width == 24 && two_runs.target_width == 12);
static_assert(two_runs.source_pitch == 24 && two_runs.target_pitch == 48);
static_assert(two_runs.source_bytes() == 48 && two_runs.target_bytes() == 24);
static_assert(two_runs.target == column_piece.start[static_cast<std::size_t>(Buffer::slot)] + 24);

// Ranks without rows have no bytes and no blocks.
static_assert(on_four.piece(ParameterIndex{0}, Rank{3}).elements() == 0);
static_assert(on_four.piece(ParameterIndex{4}, Rank{1}).elements() == 0);
static_assert(on_four.blocks(Rank{0}, Buffer::shards, Buffer::slot).size() == 4);
static_assert(on_four.blocks(Rank{3}, Buffer::shards, Buffer::slot).size() == 1);

// Every buffer has the bytes of its own element.
static_assert(on_four.bytes(Buffer::slot) == 4 * 256 && on_four.bytes(Buffer::gradients) == 4 * 256);
static_assert(on_four.bytes(Buffer::shards, Rank{0}) == 16 + 16 + 32 + 2);
static_assert(on_four.bytes(Buffer::masters, Rank{0}) == 32 + 16 + 48 + 4);
static_assert(on_four.max_bytes(Buffer::shards) == 66 && on_four.bytes(Buffer::shards, Rank{3}) == 24);

// ---- sweeps ------------------------------------------------------------------------------------------------------

TEST_CASE("LayoutView: the laws hold for every unit of every model, at worlds that divide and worlds that do not") {
  for (const tide::Model& model : tide::all_models) {
    for (const tide::Unit& unit : model.units) {
      for (const index_t ranks : {1, 2, 3, 4, 5, 8, 24, 72}) {
        CAPTURE(model.name);
        CAPTURE(unit.name);
        CAPTURE(ranks);
        CHECK(laws::layout({unit.group, {1, ranks}, tide::TightPacking::rule}));
        CHECK(laws::layout({unit.group, {1, ranks}, tide::Fsdp2Packing::rule}));
      }
    }
  }
}

/// Source and target byte of every element that the blocks of `rank` carry, sorted.
using Pairs = std::vector<std::pair<index_t, index_t>>;

Pairs pairs_of_blocks(const LayoutView& view, Rank rank, Buffer source, Buffer target) {
  Pairs pairs;
  for (const tide::Block& block : view.blocks(rank, source, target)) {
    const Piece piece = view.piece(block.parameter, rank);
    const index_t elements = block.source_width / piece.size(source);
    CHECK(block.target_width == elements * piece.size(target));
    for (index_t row = 0; row < block.rows; ++row) {
      for (index_t i = 0; i < elements; ++i) {
        pairs.emplace_back(block.source + row * block.source_pitch + i * piece.size(source),
                           block.target + row * block.target_pitch + i * piece.size(target));
      }
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

index_t element_bytes(const tide::Parameter& parameter, Buffer buffer) {
  if (buffer == Buffer::masters || buffer == Buffer::output) return 4;
  const tide::Element element = buffer == Buffer::gradients ? parameter.gradient : parameter.gathered;
  return static_cast<index_t>(tide::size_bytes(element));
}

/// The same pairs from a packed to a dense buffer, from the oracle.
Pairs pairs_of_oracle(const LayoutView& view, Rank rank, Buffer packed, Buffer dense) {
  std::vector<index_t> packed_bytes;
  std::vector<index_t> dense_bytes;
  for (const tide::Parameter& parameter : view.group.parameters) {
    packed_bytes.push_back(element_bytes(parameter, packed));
    dense_bytes.push_back(element_bytes(parameter, dense));
  }
  const bool fsdp2 = view.packing == tide::Fsdp2Packing::rule;
  const auto packed_starts = oracle::packed_starts(view.group, view.mesh.ranks(), rank.value, packed_bytes, fsdp2);
  const auto dense_starts = oracle::dense_starts(view.group, dense_bytes, view.storage_alignment);
  CHECK(view.bytes(packed, rank) == packed_starts.back());
  CHECK(view.bytes(dense) == dense_starts.back());
  Pairs pairs;
  for (const oracle::Place& place : oracle::places(view.group, view.mesh.ranks())) {
    if (place.owner != rank.value) continue;
    pairs.emplace_back(packed_starts[place.parameter] + place.packed * packed_bytes[place.parameter],
                       dense_starts[place.parameter] + place.dense * dense_bytes[place.parameter]);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

void check_against_oracle(const LayoutView& view) {
  CHECK(laws::layout(view));
  for (index_t r = 0; r < view.mesh.ranks(); ++r) {
    CAPTURE(r);
    for (const Buffer packed : {Buffer::masters, Buffer::shards, Buffer::output}) {
      for (const Buffer dense : {Buffer::slot, Buffer::gradients}) {
        const Pairs pairs = pairs_of_blocks(view, Rank{r}, packed, dense);
        CHECK(pairs == pairs_of_oracle(view, Rank{r}, packed, dense));
        Pairs back = pairs_of_blocks(view, Rank{r}, dense, packed);
        for (auto& [source, target] : back) std::swap(source, target);
        std::sort(back.begin(), back.end());
        CHECK(back == pairs);
      }
    }
  }
}

TEST_CASE("LayoutView: every element lies where the oracle finds it, in random groups under both packings") {
  for (const std::uint64_t seed : tide_test::seeds(150)) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const index_t ranks = random.one_of<index_t>({1, 2, 3, 4, 5, 8});
    const tide::DynamicGroup group = tide_test::random_group(random, ranks);
    const index_t alignment = random.one_of<index_t>({16, 64, 256});
    for (const tide::PackingRule packing : {tide::TightPacking::rule, tide::Fsdp2Packing::rule}) {
      check_against_oracle(tide::DynamicLayout(group, {1, ranks}, packing, alignment).view());
    }
  }
}

TEST_CASE("LayoutView: a dimension other than 0 is cut into runs, the same elements as the oracle finds") {
  for (int dimension = 0; dimension < 3; ++dimension) {
    const std::vector<tide::Parameter> group = {tide::param<tide::bf16>("w", {6, 12, 18}, tide::shard(dimension)),
                                                tide::param<tide::f32>("b", {7})};
    for (const index_t ranks : {1, 2, 3, 6}) {
      CAPTURE(dimension);
      CAPTURE(ranks);
      check_against_oracle({{group, {}}, {1, ranks}, tide::TightPacking::rule});
      check_against_oracle({{group, {}}, {1, ranks}, tide::Fsdp2Packing::rule});
    }
  }
}

TEST_CASE("LayoutView: parameters with fewer rows than ranks, and with none, keep the laws") {
  for (index_t rows = 0; rows <= 9; ++rows) {
    const std::vector<tide::Parameter> group = {tide::param<tide::bf16>("w", {rows, 3}),
                                                tide::param<tide::bf16>("b", {1})};
    for (index_t ranks = 1; ranks <= 9; ++ranks) {
      CAPTURE(rows);
      CAPTURE(ranks);
      check_against_oracle({{group, {}}, {1, ranks}, tide::TightPacking::rule});
      check_against_oracle({{group, {}}, {1, ranks}, tide::Fsdp2Packing::rule});
    }
  }
}

TEST_CASE("LayoutView: offsets beyond 32 bits are exact") {
  // 262144 x 8960 elements are 4.7 GB in bf16; a stack of 9 of them has more than 2^32 elements in one parameter.
  const std::vector<tide::Parameter> group = {
      tide::param<tide::bf16>("embed", {262144, 8960}), tide::param<tide::bf16>("stack", {9, 262144, 8960}),
      tide::param<tide::bf16>("columns", {3, 9 * 262144, 8960}, tide::shard(1)), tide::param<tide::bf16>("b", {1})};
  const index_t embed = index_t{262144} * 8960 * 2;
  static_assert(index_t{262144} * 8960 * 2 > index_t{1} << 32);
  const LayoutView view{{group, {}}, {1, 8}, tide::TightPacking::rule};
  CHECK(laws::layout(view));
  CHECK(laws::layout({{group, {}}, {9, 8}, tide::Fsdp2Packing::rule}));

  const Piece last = view.piece(ParameterIndex{0}, Rank{7});
  CHECK(last.offset(Buffer::slot) == embed / 8 * 7);
  CHECK(last.bytes(Buffer::shards) == embed / 8);
  CHECK(last.bytes(Buffer::masters) == embed / 4);
  CHECK(view.piece(ParameterIndex{1}, Rank{4}).offset(Buffer::slot) == embed + 8 * embed);  // row 8 of the stack

  const tide::Block strided = view.piece(ParameterIndex{2}, Rank{7}).block(Buffer::shards, Buffer::slot);
  CHECK(strided.rows == 3);
  CHECK(strided.target == 10 * embed + 9 * embed / 8 * 7);
  CHECK(strided.target_width == 9 * embed / 8);
  CHECK(strided.target_pitch == 9 * embed);
  CHECK(view.bytes(Buffer::slot) == 37 * embed + 256);

  // Rows that are further apart than an op can say are blocks of their own.
  std::vector<tide::Block> rows;
  for (const tide::Block& block : view.blocks(Rank{7}, Buffer::shards, Buffer::slot)) {
    CHECK(block.rows == 1);
    if (block.parameter == ParameterIndex{2}) rows.push_back(block);
  }
  REQUIRE(rows.size() == 3);
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK(rows[row].source == strided.source + static_cast<index_t>(row) * strided.source_pitch);
    CHECK(rows[row].target == strided.target + static_cast<index_t>(row) * strided.target_pitch);
    CHECK(rows[row].target_width == strided.target_width);
  }
}

TEST_CASE("append_within_limits: the parts are within the limits and have the bytes of the block") {
  tide::Block block;
  block.rows = 2 * tide::max_rows + 5;
  block.source_width = block.target_width = 1;
  block.source_pitch = 1;
  block.target_pitch = 3;
  std::vector<tide::Block> parts;
  append_within_limits(parts, block);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].rows == tide::max_rows);
  CHECK(parts[1].target == 3 * tide::max_rows);
  CHECK(parts[2].rows == 5);
  CHECK(parts[2].source == 2 * tide::max_rows);
}

}  // namespace
