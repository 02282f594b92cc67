// SPDX-License-Identifier: Apache-2.0
//
// The summation tree over nodes: where the sum of each subtree is made, and who sends it to whom.
//
//   doubling, for owner 2 of 5 nodes            a subtree with the owner is summed at the owner, one without it at
//                                               first + owner mod p, p the largest power of two in its size
//   [0, 5) at 2
//     [0, 4) at 2                               a message: the sum of the child that is not summed where its parent is
//       [0, 2) at 0    0 <- 1, then 0 -> 2
//       [2, 4) at 2    2 <- 3
//     [4, 5) at 4      4 -> 2
//
// In round k, of subtrees of up to 2^k nodes, a node of a power of two of nodes pairs with node xor 2^(k - 1): it sends
// half of what it holds, and gets the other half from there. Owners stand in the order of their bits read backwards, so
// that what a message carries is a range, and one put sends it.
//
// Laws, for any number of nodes                      (tests/reduce/node_tree.test.cpp)
//   tree       what is added, and how, is the tree of reduce/tree.hpp, for every owner
//   once       each sum is sent at most once, and by one child of each parent
//   matched    what a node sends to another is what that gets from it, in one order
//   no incast  at the n-th target of a round, no two nodes have the same

#pragma once

#include <tide/core/math.hpp>  // power_below

#include <algorithm>
#include <vector>

namespace tide {

/// Nodes [first, last) of a subtree.
struct NodeRange {
  index_t first = 0;
  index_t last = 1;

  [[nodiscard]] constexpr index_t size() const noexcept { return last - first; }
  [[nodiscard]] constexpr bool contains(index_t node) const noexcept { return first <= node && node < last; }
  /// Where the tree cuts it.  @pre size() >= 2
  [[nodiscard]] constexpr index_t middle() const noexcept { return first + power_below(size()); }
  /// Rounds until its sum is there: the power of two that its size is at most.
  [[nodiscard]] constexpr index_t round() const noexcept {
    index_t k = 0;
    while ((index_t{1} << k) < size()) ++k;
    return k;
  }
  [[nodiscard]] friend constexpr bool operator==(const NodeRange&, const NodeRange&) = default;
};

/// The node at which doubling makes the sum of a subtree for an owner.
[[nodiscard]] constexpr index_t summing_node(NodeRange range, index_t owner) noexcept {
  return range.contains(owner) ? owner : range.first + owner % power_below(range.size() + 1);
}

/// The order of owners in memory that doubling sends ranges of: that of their bits, read backwards.
class OwnerOrder {
 public:
  constexpr explicit OwnerOrder(index_t nodes) : positions_(static_cast<std::size_t>(nodes), 0) {
    const index_t bits = NodeRange{0, nodes}.round();
    for (index_t reversed = 0; reversed < index_t{1} << bits; ++reversed) {
      index_t owner = 0;
      for (index_t b = 0; b < bits; ++b) owner |= (reversed >> b & 1) << (bits - 1 - b);
      if (owner >= nodes) continue;
      positions_[static_cast<std::size_t>(owner)] = static_cast<index_t>(owners_.size());
      owners_.push_back(owner);
    }
  }

  [[nodiscard]] constexpr index_t position(index_t owner) const { return positions_[static_cast<std::size_t>(owner)]; }
  [[nodiscard]] constexpr index_t owner(index_t position) const { return owners_[static_cast<std::size_t>(position)]; }

 private:
  std::vector<index_t> positions_;
  std::vector<index_t> owners_;
};

/// Sums of one subtree for the owners at some positions, on their way between two nodes.
struct NodeMessage {
  index_t round = 0;
  NodeRange sum{};  ///< what the sender has summed
  index_t from = 0;
  index_t to = 0;
  index_t position = 0;  ///< of the first owner
  index_t owners = 0;
  index_t landing = 0;  ///< how many owners' sums the receiver has got in earlier messages

  [[nodiscard]] friend constexpr bool operator==(const NodeMessage&, const NodeMessage&) = default;
};

/// The messages of doubling that a node sends and gets, in the order of rounds and, inside a round, of positions.
[[nodiscard]] constexpr std::vector<NodeMessage> doubling_messages(index_t nodes, index_t node);

/// The messages of direct exchange: to each owner its sum, in round k to the k-th node from here. Owners stand in their
/// own order.
[[nodiscard]] constexpr std::vector<NodeMessage> direct_messages(index_t nodes, index_t node);

/// How many owners' sums the node gets that gets most.
[[nodiscard]] constexpr index_t most_landings(index_t nodes);

namespace detail {

// Calls f(range) for all subtrees of several nodes that hold a node, small ones first.
template <class F>
constexpr void for_each_subtree_of(NodeRange range, index_t node, F f) {
  if (range.size() == 1) return;
  const index_t middle = range.middle();
  for_each_subtree_of(node < middle ? NodeRange{range.first, middle} : NodeRange{middle, range.last}, node, f);
  f(range);
}

// Which child of a subtree is sent for an owner: the one that is not summed where the whole is.
[[nodiscard]] constexpr NodeRange sent_child(NodeRange range, index_t owner) noexcept {
  const NodeRange left{range.first, range.middle()};
  const NodeRange right{range.middle(), range.last};
  return summing_node(left, owner) == summing_node(range, owner) ? right : left;
}

}  // namespace detail

constexpr std::vector<NodeMessage> doubling_messages(index_t nodes, index_t node) {
  const OwnerOrder order(nodes);
  std::vector<NodeMessage> messages;
  index_t landing = 0;
  // Two nodes meet in one subtree only: the smallest that holds both.
  detail::for_each_subtree_of({0, nodes}, node, [&](NodeRange range) {
    const std::size_t before = messages.size();
    for (index_t position = 0; position < nodes; ++position) {
      const index_t owner = order.owner(position);
      const NodeRange sum = detail::sent_child(range, owner);
      const NodeMessage one{range.round(), sum, summing_node(sum, owner), summing_node(range, owner), position, 1, 0};
      if (one.from != node && one.to != node) continue;
      bool longer = false;
      for (std::size_t i = before; i < messages.size(); ++i) {
        NodeMessage& m = messages[i];
        if (m.from != one.from || m.to != one.to || m.position + m.owners != position) continue;
        ++m.owners;
        longer = true;
      }
      if (!longer) messages.push_back(one);
    }
    // To the targets in their order, so that senders of one round are never at the same.
    std::sort(messages.begin() + static_cast<std::ptrdiff_t>(before), messages.end(),
              [](const NodeMessage& a, const NodeMessage& b) {
                return a.to != b.to ? a.to < b.to : a.from != b.from ? a.from < b.from : a.position < b.position;
              });
    for (std::size_t i = before; i < messages.size(); ++i) {
      if (messages[i].to != node) continue;
      messages[i].landing = landing;
      landing += messages[i].owners;
    }
  });
  return messages;
}

constexpr std::vector<NodeMessage> direct_messages(index_t nodes, index_t node) {
  std::vector<NodeMessage> messages;
  for (index_t k = 1; k < nodes; ++k) {
    const index_t to = (node + k) % nodes;
    messages.push_back({k, {node, node + 1}, node, to, to, 1, node < to ? node : node - 1});
  }
  for (index_t k = 1; k < nodes; ++k) {
    const index_t from = (node + nodes - k) % nodes;
    messages.push_back({k, {from, from + 1}, from, node, node, 1, from < node ? from : from - 1});
  }
  return messages;
}

constexpr index_t most_landings(index_t nodes) {
  index_t most = 0;
  for (index_t node = 0; node < nodes; ++node) {
    index_t landings = 0;
    for (const NodeMessage& message : doubling_messages(nodes, node)) {
      if (message.to == node) landings += message.owners;
    }
    most = std::max(most, landings);
  }
  return most;
}

}  // namespace tide
