// SPDX-License-Identifier: Apache-2.0
//
// The summation tree: in which order the ranks' gradients are added, everywhere in tide.
//
//   sum[a, b) = sum[a, m) + sum[m, b),  m - a = the largest power of two below b - a;  a leaf is float(gradient of a)
//
//   5 ranks     ((0 + 1) + (2 + 3)) + 4          6 ranks     ((0 + 1) + (2 + 3)) + (4 + 5)
//
// Laws                                               (tests/reduce/tree.test.cpp)
//   each once    every leaf is added exactly once, each operation rounded on its own
//   splits       for node sizes that are powers of two, sums inside nodes continued over nodes give the same tree
//
// The tree is what a binary counter does: a stack of sums of power-of-two size, merged like carries. So inputs are read
// in rank order and at most log2(ranks) + 1 sums are pending.

#pragma once

#include <tide/core/math.hpp>  // index_t, power_below

namespace tide {

/// The tree's sum of leaf(first) .. leaf(last - 1), for any type with +.  @pre first < last
template <class Leaf>
[[nodiscard]] constexpr auto tree_sum(index_t first, index_t last, const Leaf& leaf) -> decltype(leaf(first)) {
  if (last - first == 1) return leaf(first);
  const index_t middle = first + power_below(last - first);
  return tree_sum(first, middle, leaf) + tree_sum(middle, last, leaf);
}

}  // namespace tide
