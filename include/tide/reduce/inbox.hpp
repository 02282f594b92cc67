// SPDX-License-Identifier: Apache-2.0
//
// Inbox: a policy that says where the pieces of a reduce-scatter wait until they are summed, and how much memory they
// may take.
//
// Laws, for every layout: shape(layout).bytes() is known before the run and the same on every rank; the groups that a
// pipeline reduces share one inbox (tests/conformance/inbox.hpp).
//
// Models: Ring, SlotReuse.

#pragma once

#include <tide/plan/collective.hpp>  // InboxShape

#include <concepts>

namespace tide {

/// The memory of a reduce-scatter: what local peers push, and what crosses nodes.
struct ReduceMemory {
  InboxShape inbox{};
  NetworkShape network{};

  [[nodiscard]] constexpr index_t bytes() const noexcept { return inbox.bytes() + network.bytes(); }
  [[nodiscard]] friend constexpr bool operator==(const ReduceMemory&, const ReduceMemory&) = default;
};

/// `I::shape(layout)`: the chunks and pieces of an inbox for a layout of one node. `I::memory(layout, exchange,
/// wire)`: that and what crosses nodes, for any mesh.
template <class I>
concept Inbox = requires(const LayoutView& layout, Exchange exchange, Element wire) {
  { I::shape(layout) } -> std::same_as<InboxShape>;
  { I::memory(layout, exchange, wire) } -> std::same_as<ReduceMemory>;
};

}  // namespace tide
