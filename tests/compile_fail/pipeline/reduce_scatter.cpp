// SPDX-License-Identifier: Apache-2.0
#include <tide/fabric/host_port.hpp>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/unicast_transport.hpp>

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {8, 4}));
using Layout = tide::ShardLayout<weights, tide::Mesh<1, 2>>;
using TwoNodes = tide::ShardLayout<weights, tide::Mesh<2, 2>>;
using Reducer = tide::CopyEngineReducer<>;
inline constexpr auto wide = tide::group(tide::param<tide::bf16, float>("w", {8, 4}));
using Wide = tide::ShardLayout<wide, tide::Mesh<1, 2>>;
using Pool = tide::SlotPool<tide::Depth<2>, Layout, Wide>;
using OtherPool = tide::SlotPool<tide::Depth<2>, Wide>;
using Direct = tide::RdmaDirectTransport;
using InSlot = tide::ReduceScatter<Layout, Reducer, tide::SingleNode, tide::SlotReuse>;

#if TIDE_CASE == 1  // expect: tide::ReduceScatter: R must be a Reducer
using Reduce = tide::ReduceScatter<Layout, tide::Burst>;
#elif TIDE_CASE == 2   // expect: tide::ReduceScatter: Inter must be a NodeExchange
using Reduce = tide::ReduceScatter<Layout, Reducer, tide::Chunks<4>>;
#elif TIDE_CASE == 14  // expect: tide::ReduceScatter: Inter must be a NodeExchange
using Reduce = tide::ReduceScatter<TwoNodes, Reducer, tide::UnicastTransport>;
#elif TIDE_CASE == 3   // expect: tide::ReduceScatter: Box must be an Inbox
using Reduce = tide::ReduceScatter<Layout, Reducer, tide::SingleNode, tide::Chunks<4>>;
#elif TIDE_CASE == 4   // expect: tide::ReduceScatter: SingleNode needs a mesh of one node
using Reduce = tide::ReduceScatter<TwoNodes, Reducer>;
#elif TIDE_CASE == 9   // expect: tide::Ring: Bytes must hold one unit of 64 elements from each peer in every chunk
using Reduce = tide::ReduceScatter<Layout, Reducer, tide::SingleNode, tide::Ring<tide::Chunks<4>, tide::Bytes<100>>>;
#elif TIDE_CASE == 6   // expect: tide::SlotReuse: no gradient element may be wider than its gathered one
using Reduce = tide::ReduceScatter<Wide, Reducer, tide::SingleNode, tide::SlotReuse>;
#elif TIDE_CASE == 12  // expect: tide::SwitchReducer: over nodes the inbox must be a Ring
using Reduce = tide::ReduceScatter<TwoNodes, tide::SwitchReducer<>, Direct, tide::SlotReuse>;
#elif TIDE_CASE == 13  // expect: tide::SwitchReducer: sums must cross in f32
using Reduce = tide::ReduceScatter<TwoNodes, tide::SwitchReducer<>, tide::Bf16Wire<Direct>>;
#else
using Reduce = tide::ReduceScatter<Layout, Reducer>;
#endif

#if TIDE_CASE == 5  // expect: tide::ReduceScatter: the first argument must be a Fabric
void subject(tide::FabricPort& fabric) { Reduce reduce(fabric); }
#elif TIDE_CASE == 7   // expect: tide::SlotReuse: the reduce-scatter must be given a pool
void subject(tide::HostPort& fabric) { InSlot reduce(fabric); }
#elif TIDE_CASE == 8   // expect: tide::ReduceScatter: the pool must be made for the layout
void subject(tide::HostPort& fabric, OtherPool& pool) { InSlot reduce(fabric, pool); }
#elif TIDE_CASE == 10  // expect: tide::ReduceScatter: inbox_bytes and driver_calls are constants of static layouts
constexpr tide::index_t subject = tide::ReduceScatter<tide::DynamicLayout, Reducer>::inbox_bytes;
#elif TIDE_CASE == 11  // expect: tide::ReduceScatter: inbox_bytes and driver_calls are constants of static layouts
constexpr tide::index_t subject = tide::ReduceScatter<tide::DynamicLayout, Reducer>::driver_calls;
#else                  // control: a reducer, an inbox, one node, a fabric, a pool that was made for the layout
void subject(tide::HostPort& fabric, Pool& pool) {
  Reduce reduce(fabric);
  InSlot in_slot(fabric, pool);
  tide::ReduceScatter<TwoNodes, tide::SwitchReducer<>, Direct> in_switch(fabric);
}
#ifndef TIDE_CASE
constexpr tide::index_t constants = Reduce::inbox_bytes + Reduce::driver_calls;
#endif
#endif
