// SPDX-License-Identifier: Apache-2.0
#include <tide/layout/dynamic_layout.hpp>
#include <tide/memory/shards.hpp>

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {8, 4}));
using Layout = tide::ShardLayout<weights, tide::Mesh<1, 2>>;

#if TIDE_CASE == 1  // expect: tide::ShardsView: Which must be Buffer::shards or Buffer::masters
using View = tide::ShardsView<Layout, tide::Buffer::slot>;
#elif TIDE_CASE == 2  // expect: tide::DynamicLayout: pass the layout to the constructor
using View = tide::ShardsView<Layout, tide::Buffer::shards>;
void subject(tide::FabricPort& fabric) { tide::Shards<tide::DynamicLayout> shards(fabric); }
#else                 // control: packed buffers; a run-time layout is passed
using View = tide::ShardsView<Layout, tide::Buffer::masters>;
void subject(tide::FabricPort& fabric, tide::DynamicLayout layout) {
  tide::Shards<tide::DynamicLayout> shards(fabric, std::move(layout));
}
#endif

View view(nullptr, Layout{}, tide::Rank{0});
