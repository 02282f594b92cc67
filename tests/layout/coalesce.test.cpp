// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/coalesce.hpp>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/shard_layout.hpp>
#include <tide/models/registry.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/laws.hpp"
#include "support/random_group.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::Block;
using tide::Buffer;
using tide::coalesce;
using tide::index_t;
using tide::Rank;

using Blocks = std::vector<Block>;

/// One run of `bytes` bytes from `source` to `target`.
constexpr Block run(index_t source, index_t target, index_t bytes, std::uint8_t kind = 0) {
  return {tide::ParameterIndex{0}, source, target, bytes, bytes, 1, bytes, bytes, kind};
}

constexpr bool coalesces(const Blocks& blocks, std::size_t expected) {
  const Blocks after = coalesce(blocks);
  return after.size() == expected && laws::coalesced(blocks, after);
}

// Neighbours on both sides become one run; a gap on either side keeps them apart.
static_assert(coalesce({run(0, 100, 4), run(4, 104, 8)}) == Blocks{run(0, 100, 12)});
static_assert(coalesces({run(0, 0, 4), run(4, 4, 4), run(8, 8, 4), run(12, 12, 1)}, 1));
static_assert(coalesces({run(0, 0, 4), run(4, 8, 5)}, 2) && coalesces({run(0, 0, 4), run(8, 4, 5)}, 2));
static_assert(coalesces({}, 0) && coalesces({run(3, 5, 7)}, 1));

// Blocks without bytes disappear; rows that touch on both sides are one run.
static_assert(coalesces({run(0, 0, 0), run(0, 0, 4), run(4, 4, 0), run(4, 4, 4)}, 1));
static_assert(coalesce({Block{{}, 0, 0, 4, 4, 3, 4, 4, 0}}) == Blocks{run(0, 0, 12)});

// Equal runs at equal distances are one block of two dimensions.
static_assert(coalesce({run(0, 0, 4), run(4, 10, 4), run(8, 20, 4)}) == Blocks{{{}, 0, 0, 4, 4, 3, 4, 10, 0}});
static_assert(coalesces({run(0, 0, 4), run(4, 10, 4), run(8, 21, 4)}, 2));  // the third is not at that distance
static_assert(coalesces({run(0, 0, 4), run(4, 10, 4), run(8, 20, 5)}, 2));  // the third is longer

// Sources that go backwards or overlap are no rows.
static_assert(coalesces({run(8, 0, 4), run(4, 10, 4), run(0, 20, 4)}, 3));
static_assert(coalesces({run(0, 0, 4), run(2, 10, 4)}, 2) && coalesces({run(0, 0, 4), run(3, 10, 4)}, 2));

// Kinds do not mix.
static_assert(coalesces({run(0, 0, 4, 1), run(4, 4, 4, 2)}, 2) && coalesces({run(0, 0, 4, 1), run(4, 9, 4, 2)}, 2));
static_assert(coalesces({run(0, 0, 4, 1), run(4, 4, 4, 1), run(8, 8, 4, 2), run(12, 12, 4, 2)}, 2));

// A pitch of 2 GiB or more is more than a 2-D copy takes.
static_assert(coalesces({run(0, 0, 4), run(4, tide::max_pitch, 4)}, 1));
static_assert(coalesces({run(0, 0, 4), run(4, tide::max_pitch + 1, 4)}, 2));

// A cast: bytes differ, distances count on each side.
static_assert(coalesce({Block{{}, 0, 0, 8, 4, 1, 8, 4, 1}, Block{{}, 8, 4, 8, 4, 1, 8, 4, 1}}) ==
              Blocks{Block{{}, 0, 0, 16, 8, 1, 16, 8, 1}});

/// `count` times gate, up, down as experts lie: source packed, target with gaps behind each.
constexpr Blocks experts(index_t count, index_t gate, index_t up, index_t down) {
  Blocks blocks;
  index_t source = 7;
  index_t target = 1000;
  for (index_t i = 0; i < count; ++i) {
    for (const index_t bytes : {gate, up, down}) {
      blocks.push_back(run(source, target, bytes));
      source += bytes;
      target += 4 * bytes;
    }
  }
  return blocks;
}

// Three interleaved families are three blocks, of equal widths (one block then) and of unlike widths.
static_assert(coalesces(experts(20, 12, 20, 8), 3) && coalesces(experts(2, 12, 20, 8), 3));
static_assert(coalesces(experts(20, 12, 12, 8), 3) && coalesces(experts(20, 12, 12, 12), 1));
static_assert(coalesce(experts(20, 12, 20, 8)).front().rows == 20);

// Known at compile time for a real group, too.
constexpr auto moe =
    tide::group(tide::param<tide::bf16>("router", {8, 64}),
                tide::repeat<8>("experts.{}.", tide::param<tide::bf16>("gate", {96, 64}),
                                tide::param<tide::bf16>("up", {96, 64}), tide::param<tide::bf16>("down", {64, 96})),
                tide::param<tide::bf16>("norm", {64}));
template <index_t Ranks>
constexpr std::size_t blocks_of_moe(index_t rank) {
  const tide::LayoutView view = tide::ShardLayout<moe, tide::Mesh<1, Ranks>>().view();
  return coalesce(view.blocks(Rank{rank}, Buffer::shards, Buffer::slot)).size();
}
static_assert(blocks_of_moe<8>(0) <= 5 && blocks_of_moe<5>(0) <= 5 && blocks_of_moe<5>(4) <= 5);

void check_view(const tide::LayoutView& view, std::size_t most_blocks) {
  for (index_t r = 0; r < view.mesh.ranks(); ++r) {
    CAPTURE(r);
    for (const auto& [source, target] : {std::pair{Buffer::shards, Buffer::slot},
                                         {Buffer::masters, Buffer::slot},
                                         {Buffer::slot, Buffer::slot},
                                         {Buffer::gradients, Buffer::output}}) {
      const Blocks before = view.blocks(Rank{r}, source, target);
      const Blocks after = coalesce(before);
      CHECK(laws::coalesced(before, after));
      CHECK(after.size() <= most_blocks);
      CHECK(std::is_sorted(after.begin(), after.end(),
                           [](const Block& a, const Block& b) { return a.target < b.target; }));
    }
  }
}

TEST_CASE("coalesce: a block of Qwen3 with 393 parameters is at most 9 blocks on every rank, at worlds of 2 to 8") {
  for (const index_t ranks : {2, 3, 4, 5, 6, 7, 8}) {
    CAPTURE(ranks);
    for (const tide::PackingRule packing : {tide::TightPacking::rule, tide::Fsdp2Packing::rule}) {
      check_view({tide::models::qwen3_30b_a3b::block.view(), {1, ranks}, packing}, 9);
    }
  }
}

TEST_CASE("coalesce: the units of every model move the same bytes in no more blocks") {
  for (const tide::Model& model : tide::all_models) {
    for (const tide::Unit& unit : model.units) {
      for (const index_t ranks : {1, 2, 5, 8}) {
        CAPTURE(model.name);
        CAPTURE(unit.name);
        CAPTURE(ranks);
        check_view({unit.group, {1, ranks}, tide::TightPacking::rule}, static_cast<std::size_t>(unit.group.size()));
      }
    }
  }
}

TEST_CASE("coalesce: random groups move the same bytes in no more blocks, whatever kinds their blocks have") {
  for (const std::uint64_t seed : tide_test::seeds(400)) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const index_t ranks = random.one_of<index_t>({1, 2, 3, 4, 5, 8});
    const tide::DynamicGroup group = tide_test::random_group(random, ranks);
    const tide::PackingRule packing = random.one_of({tide::TightPacking::rule, tide::Fsdp2Packing::rule});
    const tide::DynamicLayout layout(group, {1, ranks}, packing, 16);
    for (index_t r = 0; r < ranks; ++r) {
      CAPTURE(r);
      Blocks before = layout.view().blocks(Rank{r}, Buffer::shards, Buffer::slot);
      for (Block& block : before) block.kind = static_cast<std::uint8_t>(random.between(0, 1));
      CHECK(laws::coalesced(before, coalesce(before)));
      CHECK(laws::coalesced(coalesce(before), coalesce(coalesce(before))));
    }
  }
}

/// What the target holds after a list of blocks was carried out; bytes that no block writes are 0.
std::vector<std::uint8_t> copied(const std::vector<std::uint8_t>& source, const Blocks& blocks, index_t target_bytes) {
  std::vector<std::uint8_t> target(static_cast<std::size_t>(target_bytes), 0);
  for (const Block& block : blocks) {
    for (index_t row = 0; row < block.rows; ++row) {
      for (index_t i = 0; i < block.source_width; ++i) {
        const index_t from = block.source + row * block.source_pitch + i;
        const index_t to = block.target + row * block.target_pitch + i;
        target.at(static_cast<std::size_t>(to)) = source.at(static_cast<std::size_t>(from));
      }
    }
  }
  return target;
}

TEST_CASE("coalesce: copying by the coalesced blocks gives the same memory, byte by byte") {
  for (const std::uint64_t seed : tide_test::seeds(100)) {
    CAPTURE(seed);
    tide_test::Random random(seed);
    const index_t ranks = random.between(1, 5);
    const tide::DynamicLayout layout(tide_test::random_group(random, ranks), {1, ranks});
    const tide::LayoutView view = layout.view();
    for (index_t r = 0; r < ranks; ++r) {
      std::vector<std::uint8_t> shards(static_cast<std::size_t>(view.bytes(Buffer::shards, Rank{r})));
      for (std::uint8_t& byte : shards) byte = static_cast<std::uint8_t>(random.between(1, 255));
      const Blocks before = view.blocks(Rank{r}, Buffer::shards, Buffer::slot);
      CHECK(copied(shards, before, view.bytes(Buffer::slot)) ==
            copied(shards, coalesce(before), view.bytes(Buffer::slot)));
    }
  }
}

// The law itself sees a byte too many, a byte too few and a byte from elsewhere.
static_assert(!laws::coalesce_same_bytes({run(0, 0, 4)}, {run(0, 0, 5)}));
static_assert(!laws::coalesce_same_bytes({run(0, 0, 4), run(4, 8, 4)}, {run(0, 0, 4)}));
static_assert(!laws::coalesce_same_bytes({run(0, 0, 4)}, {run(1, 0, 4)}));
static_assert(!laws::coalesce_same_bytes({run(0, 0, 4)}, {run(0, 0, 4), run(0, 0, 4)}));
static_assert(laws::coalesce_same_bytes({run(0, 0, 4)}, {run(2, 2, 2), run(0, 0, 2)}));
static_assert(laws::coalesced({run(0, 0, 4)}, {run(2, 2, 2), run(0, 0, 2)}).broken == "fewer");

}  // namespace
