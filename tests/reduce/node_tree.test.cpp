// SPDX-License-Identifier: Apache-2.0
//
// The schedules of sums over nodes, carried out on sums that write down how they were made.

#include <doctest/doctest.h>
#include <tide/reduce/node_tree.hpp>
#include <tide/reduce/tree.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace node_tree_test {

using namespace tide;

constexpr index_t node_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 23};

// The tree as its definition says it, of leaves [first, last).
std::string written(index_t first, index_t last) {
  if (last - first == 1) return std::to_string(first);
  index_t left = 1;
  while (left * 2 < last - first) left *= 2;
  return "(" + written(first, first + left) + "+" + written(first + left, last) + ")";
}

std::string add(const std::string& a, NodeRange of_a, const std::string& b, NodeRange of_b) {
  return of_a.first < of_b.first ? "(" + a + "+" + b + ")" : "(" + b + "+" + a + ")";
}

// What a node holds for each owner: a sum, and of which nodes.
struct Held {
  std::string text;
  NodeRange range;
};

// Sums nodes of `per_node` leaves each, by doubling; returns what each owner ends with.
std::vector<std::string> by_doubling(index_t nodes, index_t per_node) {
  const OwnerOrder order(nodes);
  std::vector<std::vector<NodeMessage>> messages;
  std::map<std::pair<index_t, index_t>, Held> held;  // (node, owner)
  for (index_t node = 0; node < nodes; ++node) {
    messages.push_back(doubling_messages(nodes, node));
    for (index_t owner = 0; owner < nodes; ++owner) {
      held[{node, owner}] = {written(node * per_node, (node + 1) * per_node), {node, node + 1}};
    }
  }
  for (index_t round = 1; round <= NodeRange{0, nodes}.round(); ++round) {
    const auto before = held;
    for (index_t node = 0; node < nodes; ++node) {
      for (const NodeMessage& m : messages[static_cast<std::size_t>(node)]) {
        if (m.round != round || m.to != node) continue;
        for (index_t i = 0; i < m.owners; ++i) {
          const index_t owner = order.owner(m.position + i);
          const Held& sent = before.at({m.from, owner});
          CHECK(sent.range == m.sum);
          Held& own = held[{node, owner}];
          own.text = add(own.text, own.range, sent.text, sent.range);
          own.range = {std::min(own.range.first, sent.range.first), std::max(own.range.last, sent.range.last)};
        }
      }
    }
  }
  std::vector<std::string> results;
  for (index_t owner = 0; owner < nodes; ++owner) {
    CHECK(held.at({owner, owner}).range == NodeRange{0, nodes});
    results.push_back(held.at({owner, owner}).text);
  }
  return results;
}

TEST_CASE("node tree: doubling makes the tree's sum for every owner, for any number of nodes") {
  for (const index_t nodes : node_counts) {
    CAPTURE(nodes);
    for (const std::string& sum : by_doubling(nodes, 1)) CHECK(sum == written(0, nodes));
  }
}

TEST_CASE("node tree: every split of eight ranks into nodes makes the same sum") {
  for (const index_t nodes : {1, 2, 4, 8}) {
    CAPTURE(nodes);
    for (const std::string& sum : by_doubling(nodes, 8 / nodes)) CHECK(sum == written(0, 8));
  }
}

TEST_CASE("node tree: a subtree is summed at its owner, or at one of its own nodes that owners share evenly") {
  CHECK(summing_node({0, 4}, 2) == 2);
  CHECK(summing_node({0, 2}, 2) == 0);
  CHECK(summing_node({0, 2}, 3) == 1);
  CHECK(summing_node({4, 7}, 6) == 6);
  CHECK(summing_node({4, 7}, 1) == 5);
  CHECK(summing_node({4, 7}, 3) == 5);
  CHECK(summing_node({6, 7}, 3) == 6);
}

TEST_CASE(
    "node tree: with a power of two of nodes, a node pairs with one other in each round and halves what it holds") {
  for (const index_t nodes : {2, 4, 8, 16, 128}) {
    CAPTURE(nodes);
    for (const index_t node : {index_t{0}, nodes / 2, nodes - 1}) {
      index_t sent = 0;
      for (const NodeMessage& m : doubling_messages(nodes, node)) {
        CHECK((m.from ^ m.to) == index_t{1} << (m.round - 1));
        CHECK(m.owners == nodes >> m.round);
        sent += m.from == node ? 1 : 0;
      }
      CHECK(sent == NodeRange{0, nodes}.round());
    }
    if (nodes <= 16) CHECK(most_landings(nodes) == nodes - 1);
  }
}

TEST_CASE("node tree: what one node sends is what the other gets, in one order; a child's sum is sent once") {
  for (const index_t nodes : node_counts) {
    CAPTURE(nodes);
    std::vector<std::vector<NodeMessage>> all;
    for (index_t node = 0; node < nodes; ++node) all.push_back(doubling_messages(nodes, node));
    std::set<std::pair<index_t, index_t>> sent;  // (first of the sent child * nodes + last, owner)
    for (index_t from = 0; from < nodes; ++from) {
      for (index_t to = 0; to < nodes; ++to) {
        std::vector<NodeMessage> out;
        std::vector<NodeMessage> in;
        for (NodeMessage m : all[static_cast<std::size_t>(from)]) {
          m.landing = 0;
          if (m.from == from && m.to == to) out.push_back(m);
        }
        for (NodeMessage m : all[static_cast<std::size_t>(to)]) {
          m.landing = 0;
          if (m.from == from && m.to == to) in.push_back(m);
        }
        CHECK(out == in);
        for (const NodeMessage& m : out) {
          for (index_t i = 0; i < m.owners; ++i) {
            CHECK(sent.insert({m.sum.first * 64 + m.sum.last, m.position + i}).second);
          }
        }
      }
    }
    CHECK(static_cast<index_t>(sent.size()) == nodes * (nodes - 1));
  }
}

// Whether the n-th targets of all nodes in each round differ.
void check_no_incast(const std::vector<std::vector<NodeMessage>>& all) {
  std::set<std::pair<index_t, std::pair<index_t, index_t>>> seen;  // (round, (n, target))
  for (std::size_t node = 0; node < all.size(); ++node) {
    std::map<index_t, index_t> step;
    std::map<index_t, index_t> last;
    for (const NodeMessage& m : all[node]) {
      if (m.from != static_cast<index_t>(node)) continue;
      if (last.count(m.round) != 0 && last[m.round] == m.to) continue;
      last[m.round] = m.to;
      CHECK(seen.insert({m.round, {step[m.round]++, m.to}}).second);
    }
  }
}

TEST_CASE("node tree: no node is the target of two at a step of a round") {
  for (const index_t nodes : node_counts) {
    CAPTURE(nodes);
    std::vector<std::vector<NodeMessage>> doubling;
    std::vector<std::vector<NodeMessage>> direct;
    for (index_t node = 0; node < nodes; ++node) {
      doubling.push_back(doubling_messages(nodes, node));
      direct.push_back(direct_messages(nodes, node));
    }
    check_no_incast(doubling);
    check_no_incast(direct);
  }
}

TEST_CASE("node tree: direct exchange brings each owner one leaf of every other node, each to a place of its own") {
  for (const index_t nodes : node_counts) {
    CAPTURE(nodes);
    for (index_t node = 0; node < nodes; ++node) {
      std::set<index_t> froms;
      std::set<index_t> places;
      for (const NodeMessage& m : direct_messages(nodes, node)) {
        if (m.to != node) continue;
        CHECK(m.sum == NodeRange{m.from, m.from + 1});
        froms.insert(m.from);
        places.insert(m.landing);
      }
      CHECK(static_cast<index_t>(froms.size()) == nodes - 1);
      CHECK(static_cast<index_t>(places.size()) == nodes - 1);
      CHECK(froms.count(node) == 0);
    }
  }
}

TEST_CASE("node tree: the node that gets most gets little more than the others") {
  for (const index_t nodes : node_counts) {
    CAPTURE(nodes);
    CHECK(most_landings(nodes) <= nodes + 2);
  }
}

static_assert(most_landings(1) == 0 && most_landings(2) == 1 && most_landings(3) == 3 && most_landings(8) == 7);

}  // namespace node_tree_test
