// SPDX-License-Identifier: Apache-2.0
//
// AutoTransport: lets the bound of the plans choose how the partial sums of a reduce-scatter cross nodes.
//
//                      3x8     5x8     8x8     16x8     lower bound in ms, a Llama-3.1-70B block on machines::h200_node
//   doubling           8.57    10.28   7.49    8.02
//   direct             5.71    6.85    7.49    8.97     doubling where they are equal: it has fewer puts
//
// Laws: those of NodeExchange and InterTransport, and     (tests/reduce/auto_transport.test.cpp)
//   agreed   what is chosen is a function of layout and types: every rank chooses the same

#pragma once

#include <tide/plan/bound.hpp>            // lower_bound
#include <tide/plan/kernels.hpp>          // fill_kernels_over_nodes
#include <tide/plan/machine.hpp>          // Machine
#include <tide/reduce/inbox.hpp>          // ReduceMemory
#include <tide/reduce/node_exchange.hpp>  // NodeExchange
#include <tide/transport/rdma_doubling_transport.hpp>

#include <string_view>
#include <vector>

namespace tide {

/// Machines of H200s, eight to a node.
struct OnH200Nodes {
  static constexpr Machine machine = machines::h200_node();
};

/// Gathers as `Gather` does; reduces by the exchange whose plans, of the ranks of one rail, have the lower bound. Of
/// more than `most_compared` nodes by doubling: direct exchange has a put for each node.
///
/// Choose it where one program runs on meshes of different sizes. A constructor writes two plans for each node.
/// @tparam On      `On::machine`: rates of the machine that will run the plans
/// @tparam Gather  an InterTransport with one-sided puts
template <class On = OnH200Nodes, class Gather = RdmaDoublingTransport<>>
struct AutoTransport : Gather {
  static_assert(
      requires { Machine{On::machine}; }, "tide::AutoTransport: On must have a Machine; OnH200Nodes.");
  static_assert(
      InterTransport<Gather> && requires { requires Gather::capability == Capability::puts; },
      "tide::AutoTransport: Gather must be an InterTransport with puts; RdmaDoublingTransport.");

  static constexpr std::string_view name = "auto";
  static constexpr index_t most_compared = 16;

  /// @param collective  a reduce whose layout, gradients and finish are set
  /// @param memory      `memory(exchange)`: what the inbox gives to it
  /// @throws Error of `memory` when an exchange does not fit
  template <class Reducer, class MemoryOf>
  [[nodiscard]] static constexpr Exchange choose(Collective collective, const MemoryOf& memory) {
    const MeshShape mesh = collective.layout.mesh;
    if (mesh.nodes <= 2 || mesh.nodes > most_compared) return Exchange::doubling;  // of two nodes both are the same
    const auto seconds = [&](Exchange exchange) {
      const ReduceMemory needed = memory(exchange);
      collective.inbox = needed.inbox;
      collective.network = needed.network;
      fill_kernels_over_nodes(collective);
      std::vector<Plan> rail;
      for (index_t node = 0; node < mesh.nodes; ++node) {
        rail.push_back(Reducer::reduce_over_nodes(collective, mesh.rank(node, 0)));
      }
      return lower_bound(collective, rail, On::machine).seconds;
    };
    return seconds(Exchange::direct) < seconds(Exchange::doubling) ? Exchange::direct : Exchange::doubling;
  }
};

static_assert(InterTransport<AutoTransport<>> && NodeExchange<AutoTransport<>>);
static_assert(chooses_exchange<AutoTransport<>> && !chooses_exchange<RdmaDoublingTransport<>>);

}  // namespace tide
