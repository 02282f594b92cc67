// SPDX-License-Identifier: Apache-2.0
//
// Collectives with the plans of all their ranks, for tests that need some plan, not a certain one.

#pragma once

#include <tide/element/bf16.hpp>
#include <tide/element/f8.hpp>
#include <tide/plan/kernels.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <vector>

namespace tide_test {

/// Rows that no number of ranks divides, a parameter with fewer rows than ranks, an empty one.
inline constexpr auto odd_group =
    tide::group(tide::param<tide::bf16>("w", {13, 6}), tide::param<tide::bf16>("b", {13}),
                tide::param<tide::bf16>("few", {2, 5}), tide::param<tide::bf16>("empty", {0, 4}));

/// Elements of three sizes, and two runs of repeated matrices.
inline constexpr auto mixed_group = tide::group(
    tide::param<float>("norm", {9}), tide::param<tide::bf16, float>("w", {16, 3}),
    tide::param<tide::f8_e4m3, tide::bf16>("q", {7, 5}),
    tide::repeat<3>("experts.{}.", tide::param<tide::bf16>("up", {8, 4}), tide::param<tide::bf16>("down", {4, 8})));

/// Elements of three sizes, no gradient wider than its parameter.
inline constexpr auto narrow_group =
    tide::group(tide::param<float>("norm", {9}), tide::param<tide::bf16, tide::f8_e4m3>("q", {7, 5}),
                tide::repeat<3>("experts.{}.", tide::param<tide::bf16>("up", {8, 4}),
                                tide::param<float, tide::bf16>("down", {4, 8})));

/// A collective and the plans of all ranks.
struct Planned {
  tide::Collective collective;
  std::vector<tide::Plan> plans;
};

template <class Transport = tide::UnicastTransport>
constexpr Planned planned_gather(const tide::GroupView& group, tide::index_t ranks,
                                 tide::OwnBlock own = Transport::own_block,
                                 tide::PackingRule packing = tide::TightPacking::rule) {
  Planned planned;
  planned.collective.layout = {group, {1, ranks}, packing};
  planned.collective.own = own;
  tide::fill_kernels_over_nodes(planned.collective);
  for (tide::index_t r = 0; r < ranks; ++r) {
    planned.plans.push_back(Transport::gather(planned.collective, tide::Rank{r}));
  }
  return planned;
}

/// A gather over the nodes of a mesh.
template <class Intra = tide::UnicastTransport, class Inter = tide::RdmaDoublingTransport<>>
constexpr Planned planned_gather_on(const tide::GroupView& group, tide::MeshShape mesh,
                                    tide::OwnBlock own = Intra::own_block,
                                    tide::PackingRule packing = tide::TightPacking::rule) {
  Planned planned;
  planned.collective.layout = {group, mesh, packing};
  planned.collective.own = own;
  planned.collective.network = Inter::network(planned.collective.layout);
  tide::fill_kernels_over_nodes(planned.collective);
  for (tide::index_t r = 0; r < mesh.ranks(); ++r) {
    planned.plans.push_back(Inter::template gather<Intra>(planned.collective, tide::Rank{r}));
  }
  return planned;
}

template <class Inbox = tide::Ring<tide::Chunks<3>, tide::Bytes<4096>>, class Reducer = tide::CopyEngineReducer<>>
constexpr Planned planned_reduce(const tide::GroupView& group, tide::index_t ranks,
                                 tide::Finish finish = tide::Finish::store,
                                 tide::GradientSource gradients = tide::GradientSource::storage) {
  Planned planned;
  planned.collective.layout = {group, {1, ranks}, tide::TightPacking::rule};
  planned.collective.operation = tide::Operation::reduce;
  planned.collective.finish = finish;
  planned.collective.gradients = gradients;
  planned.collective.inbox = Inbox::shape(planned.collective.layout);
  tide::fill_kernels_over_nodes(planned.collective);
  for (tide::index_t r = 0; r < ranks; ++r) {
    planned.plans.push_back(Reducer::reduce(planned.collective, tide::Rank{r}));
  }
  return planned;
}

/// Over nodes.
template <class Inbox = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>, class Reducer = tide::CopyEngineReducer<>>
constexpr Planned planned_reduce(const tide::GroupView& group, tide::MeshShape mesh, tide::Exchange exchange,
                                 tide::Finish finish = tide::Finish::store,
                                 tide::GradientSource gradients = tide::GradientSource::storage,
                                 tide::Element wire = tide::Element::f32,
                                 tide::PackingRule packing = tide::TightPacking::rule) {
  Planned planned;
  planned.collective.layout = {group, mesh, packing};
  planned.collective.operation = tide::Operation::reduce;
  planned.collective.finish = finish;
  planned.collective.gradients = gradients;
  const tide::ReduceMemory memory = Inbox::memory(planned.collective.layout, exchange, wire);
  planned.collective.inbox = memory.inbox;
  planned.collective.network = memory.network;
  tide::fill_kernels_over_nodes(planned.collective);
  for (tide::index_t r = 0; r < mesh.ranks(); ++r) {
    planned.plans.push_back(Reducer::reduce_over_nodes(planned.collective, tide::Rank{r}));
  }
  return planned;
}

/// Over nodes, with sums in the switch.
template <class Inbox = tide::Ring<tide::Chunks<2>, tide::Bytes<32768>>, class Epilogue = tide::Store>
constexpr Planned planned_switch_reduce(const tide::GroupView& group, tide::MeshShape mesh,
                                        tide::GradientSource gradients = tide::GradientSource::storage,
                                        tide::PackingRule packing = tide::TightPacking::rule) {
  return planned_reduce<Inbox, tide::SwitchReducer<tide::Burst, Epilogue>>(
      group, mesh, tide::Exchange::in_switch, Epilogue::finish, gradients, tide::Element::f32, packing);
}

}  // namespace tide_test
