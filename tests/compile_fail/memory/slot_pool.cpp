// SPDX-License-Identifier: Apache-2.0
#include <tide/memory/slot_pool.hpp>

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {8, 4}));
using Layout = tide::ShardLayout<weights, tide::Mesh<1, 2>>;

#if TIDE_CASE == 1  // expect: tide::SlotPool: name at least one layout
void subject(tide::FabricPort& fabric) { tide::SlotPool<tide::Depth<2>> pool(fabric); }
#elif TIDE_CASE == 2  // expect: tide::SlotPool: Count must be Depth<N>
void subject(tide::FabricPort& fabric) { tide::SlotPool<Layout, Layout> pool(fabric); }
#elif TIDE_CASE == 3  // expect: tide::SlotPool: Count must be Depth<N>
void subject(tide::FabricPort& fabric) { tide::SlotPool<tide::Bytes<2>, Layout> pool(fabric); }
#else                 // control: one layout
void subject(tide::FabricPort& fabric) { tide::SlotPool<tide::Depth<2>, Layout> pool(fabric); }
#endif
