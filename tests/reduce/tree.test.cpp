// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/reduce/tree.hpp>

#include <string>
#include <vector>

using namespace tide;

namespace {

// A sum that writes down how it was made.
struct Written {
  std::string text;
  friend Written operator+(const Written& a, const Written& b) { return {"(" + a.text + "+" + b.text + ")"}; }
};

std::string written(index_t leaves) {
  return tree_sum(0, leaves, [](index_t i) { return Written{std::to_string(i)}; }).text;
}

constexpr long sum_of(index_t leaves) {
  return tree_sum(0, leaves, [](index_t i) { return 1L << i; });
}

static_assert(sum_of(1) == 1 && sum_of(5) == 31 && sum_of(8) == 255 && sum_of(33) == (1L << 33) - 1);

}  // namespace

TEST_CASE("tree_sum: cuts a range at the largest power of two below its length") {
  CHECK(written(1) == "0");
  CHECK(written(2) == "(0+1)");
  CHECK(written(3) == "((0+1)+2)");
  CHECK(written(5) == "(((0+1)+(2+3))+4)");
  CHECK(written(6) == "(((0+1)+(2+3))+(4+5))");
  CHECK(written(7) == "(((0+1)+(2+3))+((4+5)+6))");
}

// snippet: tree-over-nodes
TEST_CASE("tree_sum: nodes of a power of two continue the same tree over nodes") {
  for (const index_t node : {1, 2, 4, 8}) {
    for (const index_t nodes : {1, 2, 3, 5, 7, 8}) {
      const Written split = tree_sum(0, nodes, [&](index_t n) {
        return tree_sum(n * node, (n + 1) * node, [](index_t i) { return Written{std::to_string(i)}; });
      });
      CAPTURE(node);
      CAPTURE(nodes);
      CHECK(split.text == written(node * nodes));
    }
  }
}
// end: tree-over-nodes

TEST_CASE("tree_sum: nodes of three ranks make another tree, fixed by the mesh") {
  const Written split = tree_sum(0, 2, [&](index_t n) {
    return tree_sum(n * 3, (n + 1) * 3, [](index_t i) { return Written{std::to_string(i)}; });
  });
  CHECK(split.text == "(((0+1)+2)+((3+4)+5))");
  CHECK(split.text != written(6));
}
