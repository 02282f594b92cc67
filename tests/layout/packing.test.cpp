// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/packing.hpp>
#include <tide/layout/shard_layout.hpp>

#include <array>
#include <vector>

#include "support/laws.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::Buffer;
using tide::DenseStorage;
using tide::Fsdp2Packing;
using tide::index_t;
using tide::Mesh;
using tide::PackingRule;
using tide::ShardLayout;
using tide::TightPacking;

/// A user's packing: every shard starts on a cache line of its own.
struct CacheLinePacking {
  static constexpr PackingRule rule{64, PackingRule::Padding::none};
};
struct NoRule {};

static_assert(tide::Packing<TightPacking> && tide::Packing<Fsdp2Packing> && tide::Packing<CacheLinePacking>);
static_assert(!tide::Packing<NoRule> && !tide::Packing<int>);
static_assert(TightPacking::rule == PackingRule{16, PackingRule::Padding::none});
static_assert(TightPacking::rule != Fsdp2Packing::rule);

static_assert(DenseStorage<>::alignment == 256 && DenseStorage<tide::Bytes<16>>::alignment == 16);
static_assert(tide::is_alignment(1) && tide::is_alignment(16) && tide::is_alignment(index_t{1} << 30));
static_assert(!tide::is_alignment(0) && !tide::is_alignment(-16) && !tide::is_alignment(24));
static_assert(!tide::is_alignment(index_t{1} << 31));

constexpr auto awkward = tide::group(tide::param<tide::bf16>("a", {3, 3}), tide::param<tide::bf16>("empty", {0, 5}),
                                     tide::param<tide::f32>("b", {2, 2}), tide::param<tide::bf16>("c", {9}));

template <class Packing>
constexpr bool keeps_the_laws() {
  return laws::layout(ShardLayout<awkward, Mesh<1, 1>, Packing>().view()) &&
         laws::layout(ShardLayout<awkward, Mesh<1, 2>, Packing>().view()) &&
         laws::layout(ShardLayout<awkward, Mesh<2, 2>, Packing>().view()) &&
         laws::layout(ShardLayout<awkward, Mesh<1, 5>, Packing, DenseStorage<tide::Bytes<16>>>().view());
}
static_assert(keeps_the_laws<TightPacking>() && keeps_the_laws<Fsdp2Packing>() && keeps_the_laws<CacheLinePacking>());

template <class Packing, index_t Ranks>
constexpr std::array<index_t, 5> starts(index_t rank, Buffer buffer) {
  const auto view = ShardLayout<awkward, Mesh<1, Ranks>, Packing>().view();
  std::array<index_t, 5> found{};
  view.for_each_piece(tide::Rank{rank}, [&](const tide::Piece& piece) {
    found[static_cast<std::size_t>(piece.parameter.value)] = piece.start[static_cast<std::size_t>(buffer)];
  });
  found[4] = view.bytes(buffer, tide::Rank{rank});
  return found;
}
using Starts = std::array<index_t, 5>;

// Two ranks; rows of a: 2 + 1, of b: 1 + 1, of c: 5 + 4.
static_assert(starts<Fsdp2Packing, 2>(0, Buffer::shards) == Starts{0, 12, 12, 20, 30});
static_assert(starts<Fsdp2Packing, 2>(1, Buffer::shards) == Starts{0, 12, 12, 20, 30});  // padded: the same everywhere
static_assert(starts<TightPacking, 2>(0, Buffer::shards) == Starts{0, 16, 16, 32, 42});
static_assert(starts<TightPacking, 2>(1, Buffer::shards) == Starts{0, 16, 16, 32, 40});
static_assert(starts<CacheLinePacking, 2>(1, Buffer::shards) == Starts{0, 64, 64, 128, 136});
static_assert(starts<Fsdp2Packing, 2>(1, Buffer::masters) == Starts{0, 24, 24, 32, 52});

// Storage: dense parameters at multiples of 256 bytes, whatever the packing.
static_assert(starts<TightPacking, 2>(1, Buffer::slot) == Starts{0, 256, 256, 512, 768});
static_assert(starts<Fsdp2Packing, 2>(0, Buffer::slot) == Starts{0, 256, 256, 512, 768});

TEST_CASE("Packing: elements that need no padding lie back to back under every packing") {
  const std::vector<tide::Parameter> even = {tide::param<tide::f32>("a", {8, 4}), tide::param<tide::f32>("b", {16})};
  for (const PackingRule rule : {TightPacking::rule, Fsdp2Packing::rule}) {
    const tide::LayoutView view{{even, {}}, {1, 2}, rule};
    CHECK(laws::layout(view));
    CHECK(view.bytes(Buffer::shards) == (16 + 8) * 4);
    CHECK(view.max_bytes(Buffer::output) == (16 + 8) * 4);
  }
}

}  // namespace
