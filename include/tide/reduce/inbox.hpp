// SPDX-License-Identifier: Apache-2.0
//
// Inbox: a policy that says where the pieces of a reduce-scatter wait until they are summed, and how much memory they
// may take.
//
// Laws, for every layout: shape(layout).bytes() is known before the run, the same on every rank, and does not grow with
// the number of groups (tests/conformance/inbox.hpp).
//
// Models: Ring, SlotReuse.

#pragma once

#include <tide/plan/collective.hpp>  // InboxShape

#include <concepts>

namespace tide {

/// `I::shape(layout)`: the chunks and pieces of an inbox for a layout.
template <class I>
concept Inbox = requires(const LayoutView& layout) {
  { I::shape(layout) } -> std::same_as<InboxShape>;
};

}  // namespace tide
