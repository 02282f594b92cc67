// SPDX-License-Identifier: Apache-2.0
//
// One function computes every offset, in 64-bit bytes, and for every shape and number of ranks the pieces are a
// partition. The cases are triggers that have broken other libraries; docs/failure-modes.md lists them.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>

#include "support/collectives.hpp"
#include "support/laws.hpp"
#include "support/sanitizer.hpp"

using namespace tide_test;
using tide::DynamicLayout;

namespace {

// Whatever the length and the number of ranks, the shards add up: chunk, begin and padding come from one function.
template <index_t Ranks>
constexpr bool lengths_add_up() {
  for (index_t numel = 1; numel <= 257; ++numel) {
    if (!laws::shard_rule<tide::EvenShard>(numel, Ranks)) return false;
  }
  return true;
}
static_assert(lengths_add_up<1>() && lengths_add_up<2>() && lengths_add_up<3>() && lengths_add_up<4>());
static_assert(lengths_add_up<5>() && lengths_add_up<6>() && lengths_add_up<7>() && lengths_add_up<8>());
static_assert(lengths_add_up<9>());

// A parameter of more than 2^31 elements; 2048 ranks whose buffers together overflow 32 bits although each is small.
inline constexpr auto huge =
    tide::group(tide::param<tide::bf16>("head", {262144, 8960}), tide::param<tide::bf16>("last", {8}));
static_assert(tide::ShardLayout<huge, tide::Mesh<1, 2>>::slot_bytes == 262144LL * 8960 * 2 + 256);
constexpr tide::Piece last_of_huge =
    tide::ShardLayout<huge, tide::Mesh<1, 8>>().view().piece(tide::ParameterIndex{0}, tide::Rank{7});
static_assert(last_of_huge.first == 262144LL / 8 * 7 * 8960);
static_assert(last_of_huge.offset(tide::Buffer::slot) == last_of_huge.first * 2);
inline constexpr auto wide = tide::group(tide::param<tide::bf16>("w", {2048, 1 << 20}));
static_assert(tide::ShardLayout<wide, tide::Mesh<1, 2048>>::slot_bytes == 2048LL * (2 << 20));

}  // namespace

TEST_CASE("Layout: a tied weight whose rows do not divide: what is added to every shard is in every gathered element") {
  tide::DynamicGroup group;
  group.add("embed", {5, 4}, Element::bf16, Element::bf16);
  group.add_alias("head", "embed");
  const DynamicLayout layout(group, {1, 2});
  std::vector<int> changed(2, 0);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    tide::AllGather<DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout);
    tide::Shards<DynamicLayout> shards(fabric, layout);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    const auto own = shards.view().bytes_of(tide::ParameterIndex{0});
    auto* values = reinterpret_cast<tide::bf16*>(own.data());
    const std::size_t count = own.size() / 2;
    for (std::size_t i = 0; i < count; ++i) values[i] = tide::bf16(3.0F);
    gather.enqueue(shards, stream).release(stream);
    stream.synchronize();
    for (std::size_t i = 0; i < count; ++i) values[i] = tide::bf16(static_cast<float>(values[i]) + 1.0F);
    auto params = gather.enqueue(shards, stream);
    params.complete().synchronize();
    const auto* all = reinterpret_cast<const tide::bf16*>(params.at(*layout.view().group.find("head")));
    for (int i = 0; i < 20; ++i)
      changed[static_cast<std::size_t>(fabric.rank().value)] += static_cast<float>(all[i]) == 4.0F ? 1 : 0;
    params.release(stream);
    fabric.close();
  }));
  CHECK(changed == std::vector<int>{20, 20});
}

TEST_CASE("Layout: ranks that own little or nothing run every step") {
  for (index_t ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    for (const std::vector<index_t>& shape : {std::vector<index_t>{5, 3}, {1}, {0, 8}, {2, 1}}) {
      const DynamicLayout layout(group_of({shape}, Element::bf16, Element::bf16), {1, ranks});
      check_right(gather_on(layout));
      check_right(reduce_on(layout));
    }
  }
}

TEST_CASE("Layout: lengths that leave a short last shard: 57 elements on 2 ranks, 5 rows on 2") {
  check_right(gather_on(DynamicLayout(group_of({{57}, {5}, {5, 1}}, Element::bf16, Element::bf16), {1, 2})));
  check_right(reduce_on(DynamicLayout(group_of({{57}, {5}, {5, 1}}, Element::bf16, Element::bf16), {1, 2})));
}

TEST_CASE("Layout: a split of any dimension leaves the parameter dense") {
  for (index_t ranks = 2; ranks <= 4; ++ranks) {
    for (int dimension = 0; dimension < 3; ++dimension) {
      CAPTURE(ranks);
      CAPTURE(dimension);
      const DynamicLayout layout(
          group_of({{12, 24, 12}, {24, 12, 36}}, Element::bf16, Element::bf16, tide::shard(dimension)), {1, ranks});
      check_right(gather_on(layout));
      check_right(reduce_on(layout));
    }
  }
}

TEST_CASE("Layout: a parameter lies at one address, whatever it is gathered from") {
  const DynamicLayout layout(group_of({{5, 3}, {7}}, Element::bf16, Element::bf16), {1, 2});
  const CollectiveOracle oracle(layout.view());
  std::vector<int> moved(2, 0);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    GatherRank<HostRanks, DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    std::byte* first = nullptr;
    for (const Source source : {Source::shards, Source::masters, Source::in_place, Source::shards}) {
      auto params = gather.start(pool, source, 1, stream);
      std::byte* at = params.at(tide::ParameterIndex{1});
      if (first != nullptr && at != first) ++moved[static_cast<std::size_t>(fabric.rank().value)];
      first = at;
      params.release(stream);
    }
    fabric.close();
  }));
  CHECK(moved == std::vector<int>{0, 0});
}

TEST_CASE("Layout: offsets beyond 2^31 and 2^32 bytes are 64 bits everywhere") {
  // Parameters a GiB apart, so that few bytes are touched.
  const index_t gib = index_t{1} << 30;
  std::vector<std::vector<index_t>> shapes(static_cast<std::size_t>(sized(6, 4)), {3, 2});
  const DynamicLayout layout(group_of(shapes, Element::bf16, Element::bf16), {1, 2}, tide::TightPacking::rule, gib);
  REQUIRE(layout.view().bytes(tide::Buffer::slot) == gib * sized(6, 4));
  std::vector<std::string> wrong(2);
  HostRanks ranks;
  ranks.options.memory_bytes = index_t{1} << 45;  // what is not touched takes none
  const auto last = tide::ParameterIndex{sized(6, 4) - 1};
  check_no_error(errors_of(ranks, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    tide::AllGather<DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout);
    tide::Shards<DynamicLayout> shards(fabric, layout);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    std::string& text = wrong[static_cast<std::size_t>(fabric.rank().value)];
    for (index_t p = 0; p <= last.value; ++p) {
      for (std::byte& byte : shards.view().bytes_of(tide::ParameterIndex{p}))
        byte = std::byte{static_cast<unsigned char>(p + 1)};
    }
    auto params = gather.enqueue(shards, stream);
    params.complete().synchronize();
    for (index_t p = 0; p <= last.value; ++p) {
      const std::byte* at = params.at(tide::ParameterIndex{p});
      if (at - params.data() != p * gib) text += "offset";
      for (int i = 0; i < 12; ++i) {
        if (at[i] != std::byte{static_cast<unsigned char>(p + 1)}) text += "byte";
      }
    }
    params.release(stream);
    fabric.close();
  }));
  check_right(wrong);
}

TEST_CASE("Layout: several storages in one arena: each peer write lands in the pool that it is meant for") {
  const DynamicLayout layout(group_of({{5, 3}, {7}}, Element::bf16, Element::bf16), {1, 3});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(3);
  check_no_error(errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
    static_cast<void>(fabric.reserve(4096, 4096));  // so that no pool is at offset 0
    tide::SlotPool<tide::Depth<1>, DynamicLayout> one(fabric, layout);
    Guarded<HostRanks> guard_one(fabric);
    static_cast<void>(fabric.reserve(13, 1));
    tide::SlotPool<tide::Depth<2>, DynamicLayout> two(fabric, layout);
    Guarded<HostRanks> guard_two(fabric);
    GatherRank<HostRanks, DynamicLayout, tide::UnicastTransport> into_one(fabric, one, layout, oracle);
    GatherRank<HostRanks, DynamicLayout, tide::UnicastTransport> into_two(fabric, two, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    guard_one.poison_all(one, stream);
    guard_two.poison_all(two, stream);
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      auto params = into_one.start(one, Source::shards, seed, stream);
      into_two.step(two, Source::masters, seed + 10, stream);
      into_one.read(params, Source::shards, seed, stream);
      params.release(stream);
    }
    guard_one.check(one, stream);
    guard_two.check(two, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] =
        into_one.verdict() + into_two.verdict() + guard_one.verdict() + guard_two.verdict();
  }));
  check_right(wrong);
}
