// SPDX-License-Identifier: Apache-2.0
#include <tide/fabric/host_port.hpp>
#include <tide/pipeline/all_reduce.hpp>

using tide::UnicastTransport;

#if TIDE_CASE == 1  // expect: tide::AllReduce: Box must be a Ring
using Sums =
    tide::AllReduce<tide::Depth<1>, UnicastTransport, tide::CopyEngineReducer<>, tide::SingleNode, tide::SlotReuse>;
#elif TIDE_CASE == 2  // expect: tide::AllReduce: R must store
using Sums = tide::AllReduce<tide::Depth<1>, UnicastTransport, tide::CopyEngineReducer<tide::Burst, tide::Accumulate>>;
#elif TIDE_CASE == 3  // expect: tide::AllReduce: Count must be Depth<N>
using Sums = tide::AllReduce<tide::Chunks<2>>;
#else                 // control: the defaults
using Sums = tide::AllReduce<>;
#endif

void subject(tide::HostPort& fabric) { Sums sums(fabric, 1); }
