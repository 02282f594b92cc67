// SPDX-License-Identifier: Apache-2.0
#include <tide/fabric/host_fabric.hpp>
#include <tide/pipeline/reduce_scatter.hpp>

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {8, 4}));
using Layout = tide::ShardLayout<weights, tide::Mesh<1, 2>>;
using TwoNodes = tide::ShardLayout<weights, tide::Mesh<2, 2>>;
using Reducer = tide::CopyEngineReducer<>;

#if TIDE_CASE == 1  // expect: tide::ReduceScatter: R must be a Reducer
using Reduce = tide::ReduceScatter<Layout, tide::Burst>;
#elif TIDE_CASE == 2  // expect: tide::ReduceScatter: Inter must be SingleNode
using Reduce = tide::ReduceScatter<Layout, Reducer, Reducer>;
#elif TIDE_CASE == 3  // expect: tide::ReduceScatter: Box must be an Inbox
using Reduce = tide::ReduceScatter<Layout, Reducer, tide::SingleNode, tide::Chunks<4>>;
#elif TIDE_CASE == 4  // expect: tide::ReduceScatter: SingleNode needs a mesh of one node
using Reduce = tide::ReduceScatter<TwoNodes, Reducer>;
#else
using Reduce = tide::ReduceScatter<Layout, Reducer>;
#endif

#if TIDE_CASE == 5  // expect: tide::ReduceScatter: the first argument must be a Fabric
void subject(tide::FabricPort& fabric) { Reduce reduce(fabric); }
#else  // control: a reducer, an inbox, one node, a fabric
void subject(tide::HostFabric& fabric) { Reduce reduce(fabric); }
#endif
