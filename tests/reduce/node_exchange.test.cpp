// SPDX-License-Identifier: Apache-2.0
// labels: static
//
// What each exchange does is in tests/reduce/node_tree.test.cpp and tests/reduce/node_reduce.test.cpp.
#include <tide/reduce/node_exchange.hpp>

using namespace tide;

static_assert(NodeExchange<SingleNode> && NodeExchange<RdmaDirectTransport>);
static_assert(!NodeExchange<int>);
static_assert(exchange_of<RdmaDirectTransport> == Exchange::direct);
static_assert(exchange_of<SingleNode> == Exchange::doubling);
static_assert(wire_of<SingleNode> == Element::f32 && wire_of<RdmaDirectTransport> == Element::f32);
static_assert(wire_of<Bf16Wire<RdmaDirectTransport>> == Element::bf16);
static_assert(exchange_of<Bf16Wire<RdmaDirectTransport>> == Exchange::direct);
static_assert(name(Exchange::direct) == "direct" && name(Exchange::doubling) == "doubling");
