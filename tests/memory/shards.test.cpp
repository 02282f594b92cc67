// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>
#include <tide/element/bf16.hpp>
#include <tide/element/f8.hpp>
#include <tide/memory/shards.hpp>

#include "support/host_ranks.hpp"
#include "support/raised.hpp"
#include "support/rank_errors.hpp"

using namespace tide_test;

namespace {

inline constexpr auto shards_group =
    tide::group(tide::param<tide::bf16>("embed", {5, 4}), tide::param<float>("norm", {3}),
                tide::param<tide::f8_e4m3>("q", {3, 1}), tide::alias("head", "embed"));

inline constexpr auto odd_group = tide::group(tide::param<tide::f8_e4m3>("q", {3}), tide::param<float>("norm", {2}));

template <class Pack = tide::TightPacking>
using On = tide::ShardLayout<shards_group, tide::Mesh<1, tide::dynamic>, Pack>;

}  // namespace

TEST_CASE("ShardsView: each parameter's own rows, typed, where the layout says") {
  const On<> layout({1, 2});
  alignas(16) std::byte memory[256] = {};
  for (const index_t rank : {0, 1}) {
    const tide::ShardsView<On<>, tide::Buffer::shards> shards(memory, layout, tide::Rank{rank});
    const auto embed = shards.get<"embed">();
    static_assert(std::is_same_v<decltype(embed)::element_type, tide::bf16>);
    CHECK(embed.size() == (rank == 0 ? 12 : 8));
    CHECK(reinterpret_cast<const std::byte*>(embed.data()) == memory);
    const auto norm = shards.get<"norm">();
    static_assert(std::is_same_v<decltype(norm)::element_type, float>);
    CHECK(norm.size() == (rank == 0 ? 2 : 1));
    CHECK(reinterpret_cast<const std::byte*>(norm.data()) == memory + (rank == 0 ? 32 : 16));
    CHECK(shards.rows<"embed">() == (rank == 0 ? tide::RowRange{0, 3} : tide::RowRange{3, 5}));
    CHECK(shards.bytes_of(tide::ParameterIndex{1}).data() == reinterpret_cast<const std::byte*>(norm.data()));
    CHECK(shards.bytes_of(tide::ParameterIndex{1}).size() == norm.size_bytes());
    const tide::ShardsView<On<>, tide::Buffer::masters> masters(memory, layout, tide::Rank{rank});
    static_assert(std::is_same_v<decltype(masters.get<"q">())::element_type, float>);
    CHECK(masters.get<"q">().size() == (rank == 0 ? 2 : 1));
    CHECK(masters.bytes() == layout.view().bytes(tide::Buffer::masters, tide::Rank{rank}));
  }
}

TEST_CASE("ShardsView: a tied name is the memory of the parameter that it is tied to") {
  const On<> layout({1, 3});
  alignas(16) std::byte memory[256] = {};
  const tide::ShardsView<On<>, tide::Buffer::shards> shards(memory, layout, tide::Rank{1});
  CHECK(shards.get<"head">().data() == shards.get<"embed">().data());
  CHECK(shards.get<"head">().size() == shards.get<"embed">().size());
  CHECK(shards.rows<"head">() == tide::RowRange{2, 4});
}

TEST_CASE("ShardsView: a rank that owns nothing has empty spans, also of null memory") {
  const On<> layout({1, 8});
  const tide::ShardsView<On<>, tide::Buffer::shards> shards(nullptr, layout, tide::Rank{7});
  CHECK(shards.bytes() == 0);
  CHECK(shards.rows<"embed">() == tide::RowRange{5, 5});
  CHECK(shards.get<"embed">().empty());
  CHECK(shards.get<"q">().empty());
}

TEST_CASE("ShardsView: typed access across the elements' alignment is refused by name; bytes are given") {
  using Unaligned = tide::ShardLayout<odd_group, tide::Mesh<1, 1>, tide::Fsdp2Packing>;
  alignas(16) std::byte memory[64] = {};
  const tide::ShardsView<Unaligned, tide::Buffer::shards> shards(memory, Unaligned(), tide::Rank{0});
  CHECK(shards.get<"q">().size() == 3);
  CHECK(text_of([&] { static_cast<void>(shards.get<"norm">()); }) ==
        "tide::ShardsView: a packing that aligns nothing has put the shard across its elements' alignment; take "
        "bytes_of. "
        "Parameter 'norm'.");
  CHECK(shards.bytes_of(tide::ParameterIndex{1}).data() == memory + 3);
  const tide::ShardsView<Unaligned, tide::Buffer::masters> masters(memory, Unaligned(), tide::Rank{0});
  CHECK(reinterpret_cast<std::byte*>(masters.get<"norm">().data()) == memory + 12);
}

TEST_CASE("Shards: storage in the arena, one for each rank, large enough for every rank, aligned") {
  std::vector<std::vector<std::ptrdiff_t>> places(3);
  check_no_error(errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
    tide::Shards<On<>> shards(fabric);
    tide::MasterShards<On<>> masters(fabric);
    tide::Shards<On<>> more(fabric);
    fabric.init();
    std::byte* arena = fabric.arena();
    auto& own = places[static_cast<std::size_t>(fabric.rank().value)];
    own = {shards.data() - arena, masters.data() - arena, more.data() - arena};
    const tide::ShardsView<On<>, tide::Buffer::shards> view = shards;
    if (view.data() != shards.data() || view.rank() != fabric.rank()) own.clear();
    if (shards.get<"embed">().data() != view.get<"head">().data()) own.clear();
    if (reinterpret_cast<std::uintptr_t>(masters.data()) % 256 != 0) own.clear();
  }));
  REQUIRE(places[0].size() == 3);
  CHECK(places[0] == places[1]);  // the same offsets on every rank, also where shards are of unlike size
  CHECK(places[0] == places[2]);
  const On<> layout({1, 3});
  CHECK(places[0][1] - places[0][0] >= layout.view().max_bytes(tide::Buffer::shards));
  CHECK(places[0][2] - places[0][1] >= layout.view().max_bytes(tide::Buffer::masters));
}
