// SPDX-License-Identifier: Apache-2.0
#include <tide/fabric/host_port.hpp>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/transport/unicast_transport.hpp>

// A transport of one's own that says nothing of spreading.
struct Plain {
  static constexpr std::string_view name = "plain";
  static constexpr tide::Capability capability = tide::Capability::none;
  static constexpr tide::OwnBlock own_block = tide::OwnBlock::copy;
  static constexpr tide::Plan gather(const tide::Collective&, tide::Rank) { return {}; }
};

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {8, 4}));
inline constexpr auto others = tide::group(tide::param<tide::bf16>("v", {8, 4}));
using Layout = tide::ShardLayout<weights, tide::Mesh<1, 2>>;
using Other = tide::ShardLayout<others, tide::Mesh<1, 2>>;
using TwoNodes = tide::ShardLayout<weights, tide::Mesh<2, 2>>;
using Pool = tide::SlotPool<tide::Depth<2>, Layout, TwoNodes>;
using OtherPool = tide::SlotPool<tide::Depth<2>, Other>;

#if TIDE_CASE == 1  // expect: tide::AllGather: Intra must be a Transport
using Gather = tide::AllGather<Layout, tide::SingleNode>;
#elif TIDE_CASE == 2  // expect: tide::AllGather: Inter must be an InterTransport
using Gather = tide::AllGather<Layout, tide::UnicastTransport, tide::UnicastTransport>;
#elif TIDE_CASE == 3  // expect: tide::AllGather: SingleNode needs a mesh of one node
using Gather = tide::AllGather<TwoNodes, tide::UnicastTransport>;
#elif TIDE_CASE == 7  // expect: tide::AllGather: SingleNode needs a mesh of one node
using Gather = tide::AllGather<tide::ShardLayout<weights, tide::Mesh<2, tide::dynamic>>, tide::UnicastTransport>;
#elif TIDE_CASE == 4  // expect: tide::AllGather: over nodes Intra must be a SpreadingTransport
using Gather = tide::AllGather<TwoNodes, Plain, tide::RdmaDoublingTransport<>>;
#else
using Gather = tide::AllGather<Layout, Plain>;
using OverNodes = tide::AllGather<TwoNodes, tide::UnicastTransport, tide::RdmaDoublingTransport<>>;
#endif

#if TIDE_CASE == 5  // expect: tide::AllGather: the pool must be made for the layout
void subject(tide::HostPort& fabric, OtherPool& pool) { Gather gather(fabric, pool); }
#elif TIDE_CASE == 6   // expect: tide::AllGather: the first argument must be a Fabric
void subject(tide::FabricPort& fabric, Pool& pool) { Gather gather(fabric, pool); }
#elif TIDE_CASE == 8   // expect: tide::AllGather: slot_bytes is a constant of groups that the compiler knows
constexpr tide::index_t subject = tide::AllGather<tide::DynamicLayout, tide::UnicastTransport>::slot_bytes;
#elif TIDE_CASE == 9   // expect: tide::AllGather: driver_calls and network_bytes are constants of static layouts
constexpr tide::index_t subject = tide::AllGather<tide::DynamicLayout, tide::UnicastTransport>::driver_calls;
#elif TIDE_CASE == 10  // expect: tide::AllGather: driver_calls and network_bytes are constants of static layouts
using OnAnyMesh = tide::ShardLayout<weights, tide::Mesh<1, tide::dynamic>>;
constexpr tide::index_t subject = tide::AllGather<OnAnyMesh, tide::UnicastTransport>::network_bytes;
#else                  // control: a transport, one node or a way over nodes, a fabric, a pool made for the layout
void subject(tide::HostPort& fabric, Pool& pool) { Gather gather(fabric, pool); }
#ifndef TIDE_CASE
void over_nodes(tide::HostPort& fabric, Pool& pool) { OverNodes gather(fabric, pool); }
constexpr tide::index_t constants = Gather::slot_bytes + tide::AllGather<Layout, tide::UnicastTransport>::driver_calls +
                                    tide::AllGather<Layout, tide::UnicastTransport>::network_bytes;
#endif
#endif
