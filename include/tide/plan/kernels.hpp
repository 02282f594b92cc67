// SPDX-License-Identifier: Apache-2.0
//
// The kernel table of a collective: one entry per element that its group needs, so that nothing is looked up by element
// in a step.
//
// Laws                                               (tests/plan/kernels.test.cpp)
//   minimal    entries differ from each other
//   complete   every parameter's element has an entry

#pragma once

#include <tide/plan/collective.hpp>  // Collective, Kernel

#include <algorithm>
#include <vector>

namespace tide {

/// The kernel that a parameter needs in an operation.
[[nodiscard]] constexpr Kernel kernel_of(const Parameter& parameter, const Collective& collective) noexcept {
  if (collective.operation == Operation::gather) {
    return {Kernel::Kind::cast, Element::f32, parameter.gathered, Finish::store, 1};
  }
  const auto inputs = static_cast<std::uint16_t>(collective.layout.mesh.ranks_per_node);
  return {Kernel::Kind::sum, parameter.gradient, Element::f32, collective.finish, inputs};
}

/// Fills the kernel table of a collective whose other members are set.
constexpr void fill_kernels(Collective& collective) {
  collective.kernels.clear();
  if (collective.operation == Operation::gather && collective.own != OwnBlock::cast) return;
  for (const Parameter& parameter : collective.layout.group.parameters) {
    const Kernel kernel = kernel_of(parameter, collective);
    if (std::find(collective.kernels.begin(), collective.kernels.end(), kernel) == collective.kernels.end()) {
      collective.kernels.push_back(kernel);
    }
  }
}

/// Writes into each block the entry that its parameter needs; only blocks of one entry coalesce.
constexpr void name_kernels(std::vector<Block>& blocks, const Collective& collective) {
  for (Block& block : blocks) {
    const Kernel kernel = kernel_of(collective.layout.group[block.parameter], collective);
    const auto found = std::find(collective.kernels.begin(), collective.kernels.end(), kernel);
    block.kind = static_cast<std::uint8_t>(found - collective.kernels.begin());
  }
}

}  // namespace tide
