// SPDX-License-Identifier: Apache-2.0
//
// The summation oracle: the tree as its definition says it, beside orders that a wrong library might use.

#pragma once

#include <cstddef>
#include <vector>

namespace tide_test {

/// A float that has been in memory: no compiler may fuse the operation that made it with the next.
inline float rounded(float value) {
  volatile float stored = value;
  return stored;
}

// snippet: tree-oracle
/// The sum of leaves [first, last): cut at the largest power of two below their number, left and right added.
inline float tree(const std::vector<float>& leaves, std::size_t first, std::size_t last) {
  const std::size_t count = last - first;
  if (count == 1) return leaves[first];
  std::size_t left = 1;
  while (left * 2 < count) left *= 2;
  return rounded(tree(leaves, first, first + left) + tree(leaves, first + left, last));
}
// end: tree-oracle

inline float tree(const std::vector<float>& leaves) { return tree(leaves, 0, leaves.size()); }

/// The same of the ranks of each node, then of the nodes' sums.
inline float tree_of_nodes(const std::vector<float>& leaves, std::ptrdiff_t ranks_per_node) {
  std::vector<float> nodes;
  for (std::size_t first = 0; first < leaves.size(); first += static_cast<std::size_t>(ranks_per_node)) {
    nodes.push_back(tree(leaves, first, first + static_cast<std::size_t>(ranks_per_node)));
  }
  return tree(nodes);
}

/// One after the other, beginning with rank `first`: what a ring does.
inline float fold(const std::vector<float>& leaves, std::size_t first = 0) {
  float sum = leaves[first];
  for (std::size_t i = 1; i < leaves.size(); ++i) sum = rounded(sum + leaves[(first + i) % leaves.size()]);
  return sum;
}

}  // namespace tide_test
