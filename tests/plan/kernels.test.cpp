// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/kernels.hpp>

#include "support/small_plans.hpp"

using namespace tide;

namespace {

void check_table(const Collective& collective) {
  for (std::size_t a = 0; a < collective.kernels.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) CHECK(!(collective.kernels[a] == collective.kernels[b]));
  }
  std::vector<Block> blocks =
      collective.layout.blocks(Rank{0}, collective.operation == Operation::gather ? Buffer::masters : Buffer::gradients,
                               collective.operation == Operation::gather ? Buffer::slot : Buffer::output);
  name_kernels(blocks, collective);
  for (const Block& block : blocks) {
    REQUIRE(block.kind < collective.kernels.size());
    CHECK(collective.kernels[block.kind] == kernel_of(collective.layout.group[block.parameter], collective));
  }
}

}  // namespace

TEST_CASE("fill_kernels: one entry for each element that the group needs, none twice") {
  const auto cast = tide_test::planned_gather(tide_test::mixed_group.view(), 3, OwnBlock::cast).collective;
  CHECK(cast.kernels.size() == 3);
  check_table(cast);
  const auto reduce = tide_test::planned_reduce(tide_test::mixed_group.view(), 3).collective;
  CHECK(reduce.kernels.size() == 2);
  for (const Kernel& kernel : reduce.kernels) CHECK(kernel.inputs == 3);
  check_table(reduce);
}

TEST_CASE(
    "fill_kernels: with sums in the switch, one sum of the node for each element, and one of as many places as turns") {
  const auto reduce = tide_test::planned_switch_reduce(tide_test::mixed_group.view(), {5, 2}).collective;
  const std::vector<Kernel> expected = {sum_kernel(Element::f32, Finish::partial, 2),
                                        sum_kernel(Element::bf16, Finish::partial, 2), switch_kernel(Finish::store, 3)};
  CHECK(reduce.kernels == expected);
}

TEST_CASE("fill_kernels: a gather that casts nothing needs no kernel") {
  CHECK(tide_test::planned_gather(tide_test::mixed_group.view(), 3).collective.kernels.empty());
}
