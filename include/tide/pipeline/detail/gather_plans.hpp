// SPDX-License-Identifier: Apache-2.0
//
// The collectives and plans of AllGather.

#pragma once

#include <tide/pipeline/detail/kernel_code.hpp>      // cast_code
#include <tide/pipeline/detail/pipeline_checks.hpp>  // operation_label
#include <tide/plan/kernels.hpp>                     // fill_kernels
#include <tide/plan/tally.hpp>                       // driver_calls
#include <tide/transport/transport.hpp>              // Transport

#include <string>
#include <vector>

namespace tide::detail {

template <class Inter>
[[nodiscard]] constexpr Collective gather_collective(const LayoutView& layout, OwnBlock own) {
  Collective collective;
  collective.layout = layout;
  collective.operation = Operation::gather;
  collective.own = own;
  collective.network = Inter::network(layout);
  fill_kernels(collective);
  return collective;
}

template <class F, class Layout, class Intra, class Inter>
[[nodiscard]] PlanVariant gather_variant(const LayoutView& layout, OwnBlock own, Rank rank) {
  Collective collective = gather_collective<Inter>(layout, own);
  Plan plan = Inter::template gather<Intra>(collective, rank);
  std::vector<KernelCode> code = cast_code<F, Layout>(collective);
  PlanVariant variant{std::move(collective), std::move(plan), std::move(code), text({Intra::name, ", ", Inter::name})};
  if constexpr (Inter::capability == Capability::send_receive) {
    variant.plan_of = [all = variant.collective](Rank each) { return Inter::template gather<Intra>(all, each); };
  }
  return variant;
}

// Of a static layout.
template <class Layout, class Intra, class Inter>
[[nodiscard]] constexpr index_t gather_driver_calls() {
  static_assert(is_static_layout<Layout>,
                "tide::AllGather: driver_calls and network_bytes are constants of static layouts; ask the plans.");
  const Collective collective = gather_collective<Inter>(Layout{}.view(), Intra::own_block);
  std::vector<Plan> plans;
  for (index_t r = 0; r < collective.ranks(); ++r) {
    plans.push_back(Inter::template gather<Intra>(collective, Rank{r}));
  }
  return driver_calls(collective, plans);
}

// Copies, memory operations, launches and events that a GPU is asked for when shards are gathered; the largest over
// ranks. Over nodes the plans of a real model are more than compilers evaluate: counted when a program that asks
// starts.
template <class Layout, class Intra, class Inter>
struct GatherCalls {
  static inline const index_t driver_calls = gather_driver_calls<Layout, Intra, Inter>();
};
template <class Layout, class Intra>
struct GatherCalls<Layout, Intra, SingleNode> {
  static constexpr index_t driver_calls = gather_driver_calls<Layout, Intra, SingleNode>();
};

}  // namespace tide::detail
