// SPDX-License-Identifier: Apache-2.0
//
// The collectives and plans of ReduceScatter.

#pragma once

#include <tide/pipeline/detail/kernel_code.hpp>      // sum_code
#include <tide/pipeline/detail/pipeline_checks.hpp>  // operation_label
#include <tide/plan/kernels.hpp>                     // fill_kernels
#include <tide/plan/tally.hpp>                       // driver_calls
#include <tide/reduce/node_exchange.hpp>             // exchange_of
#include <tide/reduce/reducer.hpp>                   // Reducer
#include <tide/reduce/slot_reuse.hpp>                // reuses_slots, fits_slot

#include <algorithm>
#include <vector>

namespace tide::detail {

// A pool of slots, told from a label or a layout.
template <class P>
concept SlotSource = requires(P& pool) {
  pool.life();
};

// Whether the gradients of a layout can wait in its slot, as far as types tell.
template <class Layout>
inline constexpr bool may_fit_slot = [] {
  if constexpr (requires { Layout::group; }) {
    return fits_slot(Layout::group.view());
  } else {
    return true;
  }
}();

// Whether an inbox has room for what crosses by an exchange.
template <class Box>
[[nodiscard]] constexpr bool fits_inbox(const LayoutView& layout, Exchange exchange, Element wire) {
  if constexpr (requires { Box::fits(layout, exchange, wire); }) {
    return Box::fits(layout, exchange, wire);
  } else {
    return true;
  }
}

// Whether an inbox has room for a layout, as far as types tell: by either exchange where the policy chooses.
template <class Layout, class Box, class Inter>
inline constexpr bool may_fit_inbox = [] {
  if constexpr (!is_static_layout<Layout>) {
    return true;
  } else if constexpr (chooses_exchange<Inter>) {
    return fits_inbox<Box>(Layout{}.view(), Exchange::doubling, wire_of<Inter>) ||
           fits_inbox<Box>(Layout{}.view(), Exchange::direct, wire_of<Inter>);
  } else {
    return fits_inbox<Box>(Layout{}.view(), exchange_of<Inter>, wire_of<Inter>);
  }
}();

// Bytes of what a reduce keeps apart from slots.
[[nodiscard]] constexpr index_t own_bytes(const ReduceMemory& memory) noexcept {
  return memory.inbox.place == InboxPlace::slot ? memory.network.bytes() : memory.bytes();
}

// The exchanges among which a policy chooses for a layout: those that fit the inbox; doubling where neither does, so
// that the inbox says why.
struct Exchanges {
  bool doubling = false;
  bool direct = false;
};
template <class Inter, class Inbox>
[[nodiscard]] constexpr Exchanges exchanges_of(const LayoutView& layout) {
  const bool doubling = fits_inbox<Inbox>(layout, Exchange::doubling, wire_of<Inter>);
  const bool direct = fits_inbox<Inbox>(layout, Exchange::direct, wire_of<Inter>);
  return {doubling || !direct, direct};
}

// What an inbox takes by an exchange.
template <class Inter, class Inbox>
[[nodiscard]] constexpr ReduceMemory memory_of(const LayoutView& layout, Exchange exchange) {
  if constexpr (std::is_same_v<Inter, SingleNode>) {
    return {Inbox::shape(layout), {}};
  } else {
    return Inbox::memory(layout, exchange, wire_of<Inter>);
  }
}

// What an inbox takes with a policy between nodes; the most that it may take where that chooses.
template <class Inter, class Inbox>
[[nodiscard]] constexpr ReduceMemory reduce_memory(const LayoutView& layout) {
  if constexpr (!chooses_exchange<Inter>) {
    return memory_of<Inter, Inbox>(layout, exchange_of<Inter>);
  } else {
    const Exchanges may = exchanges_of<Inter, Inbox>(layout);
    ReduceMemory most = memory_of<Inter, Inbox>(layout, may.doubling ? Exchange::doubling : Exchange::direct);
    if (may.doubling && may.direct) {
      const ReduceMemory direct = memory_of<Inter, Inbox>(layout, Exchange::direct);
      if (own_bytes(direct) > own_bytes(most)) most = direct;
    }
    return most;
  }
}

// What a policy crosses nodes by: one exchange wherever gradients lie, since the variants of a pipeline share its
// signals and its inbox, and ranks may differ in where theirs lie. Storage is asked about.
template <class Reducer, class Inter, class Inbox>
[[nodiscard]] constexpr Exchange chosen_exchange(Collective collective) {
  if constexpr (!chooses_exchange<Inter>) {
    return exchange_of<Inter>;
  } else {
    const Exchanges may = exchanges_of<Inter, Inbox>(collective.layout);
    if (may.doubling && may.direct) {
      collective.gradients = GradientSource::storage;
      return Inter::template choose<Reducer>(
          collective, [&](Exchange exchange) { return memory_of<Inter, Inbox>(collective.layout, exchange); });
    }
    return may.doubling ? Exchange::doubling : Exchange::direct;
  }
}

template <class Reducer, class Inter, class Inbox>
[[nodiscard]] constexpr Collective reduce_collective(const LayoutView& layout, GradientSource gradients) {
  Collective collective;
  collective.layout = layout;
  collective.operation = Operation::reduce;
  collective.gradients = gradients;
  collective.finish = Reducer::finish;
  collective.ctas = Reducer::launch::ctas;
  const ReduceMemory memory = memory_of<Inter, Inbox>(layout, chosen_exchange<Reducer, Inter, Inbox>(collective));
  collective.inbox = memory.inbox;
  collective.network = memory.network;
  if constexpr (std::is_same_v<Inter, SingleNode>) {
    fill_kernels(collective);
  } else {
    fill_kernels_over_nodes(collective);
  }
  return collective;
}

template <class Reducer, class Inter>
[[nodiscard]] constexpr Plan reduce_plan(const Collective& collective, Rank rank) {
  if constexpr (std::is_same_v<Inter, SingleNode>) {
    return Reducer::reduce(collective, rank);
  } else {
    return Reducer::reduce_over_nodes(collective, rank);
  }
}

template <class F, class Layout, class Reducer, class Inter, class Inbox>
[[nodiscard]] PlanVariant reduce_variant(const LayoutView& layout, GradientSource gradients, Rank rank) {
  Collective collective = reduce_collective<Reducer, Inter, Inbox>(layout, gradients);
  Plan plan = reduce_plan<Reducer, Inter>(collective, rank);
  constexpr unsigned nodes =
      std::is_same_v<Inter, SingleNode> ? 0U : element_bit(Element::f32) | element_bit(wire_of<Inter>);
  constexpr bool in_switch = nodes != 0 && exchange_of<Inter> == Exchange::in_switch;
  std::vector<KernelCode> code = sum_code<F, Layout, Reducer::finish, nodes, in_switch>(collective);
  PlanVariant variant{std::move(collective), std::move(plan), std::move(code),
                      text({Reducer::name, ", ", Inter::name})};
  if constexpr (Inter::capability == Capability::send_receive) {
    variant.plan_of = [all = variant.collective](Rank each) { return reduce_plan<Reducer, Inter>(all, each); };
  }
  return variant;
}

// Of a static layout.
template <class Layout, class Reducer, class Inter, class Inbox>
inline constexpr index_t reduce_driver_calls = [] {
  const Collective collective = reduce_collective<Reducer, Inter, Inbox>(Layout{}.view(), GradientSource::storage);
  std::vector<Plan> plans;
  for (index_t r = 0; r < collective.ranks(); ++r) plans.push_back(reduce_plan<Reducer, Inter>(collective, Rank{r}));
  return driver_calls(collective, plans);
}();

// Refuses a table of gradients in which one is null, below its element's alignment, or shares a byte with another.
class GradientCheck {
 public:
  explicit GradientCheck(const LayoutView& layout) : layout_(layout) {
    ranges_.reserve(static_cast<std::size_t>(layout.group.size()));
  }

  template <class Table>
  void operator()(FabricPort& port, const Table& table, const std::string& label) {
    ranges_.clear();
    for (index_t i = 0; i < layout_.group.size(); ++i) {
      const ParameterIndex index{i};
      const Parameter& parameter = layout_.group[index];
      const auto element = static_cast<index_t>(size_bytes(parameter.gradient));
      const index_t bytes = parameter.shape.elements() * element;
      if (bytes == 0 || table.is_missing(index)) continue;
      const void* gradient = table.pointers()[static_cast<std::size_t>(i)];
      const auto address = reinterpret_cast<std::uintptr_t>(gradient);
      if (gradient == nullptr) {
        port.refuse(Errc::argument, detail::text({"tide::GradientTable: a gradient must be set or declared missing;",
                                                  where(index, label, port)}));
      }
      if (address % static_cast<std::uintptr_t>(element) != 0) {
        port.refuse(Errc::argument, detail::text({"tide::GradientTable: gradients must be aligned to their elements;",
                                                  where(index, label, port)}));
      }
      ranges_.push_back({address, address + static_cast<std::uintptr_t>(bytes), index});
    }
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].begin >= ranges_[i - 1].end) continue;
      port.refuse(Errc::argument, detail::text({"tide::GradientTable: gradients must not overlap; '",
                                                printable(layout_.group[ranges_[i - 1].parameter].name.str()), "' and",
                                                where(ranges_[i].parameter, label, port)}));
    }
  }

 private:
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
    ParameterIndex parameter;
  };

  [[nodiscard]] std::string where(ParameterIndex parameter, const std::string& label, const FabricPort& port) const {
    return " parameter '" + printable(layout_.group[parameter].name.str()) + "' of " + label + " on rank " +
           std::to_string(port.rank().value) + ".";
  }

  LayoutView layout_;
  std::vector<Range> ranges_;  // kept, so that a step allocates nothing
};

}  // namespace tide::detail
