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

/// A kernel that sums `inputs` inputs of one element into f32.
[[nodiscard]] constexpr Kernel sum_kernel(Element input, Finish finish, index_t inputs) noexcept {
  return {Kernel::Kind::sum, input, Element::f32, finish, static_cast<std::uint16_t>(inputs)};
}

/// A kernel that sums, of each of `inputs` places, what lies there on every rank of the node.
[[nodiscard]] constexpr Kernel switch_kernel(Finish finish, index_t inputs) noexcept {
  return {Kernel::Kind::switch_sum, Element::f32, Element::f32, finish, static_cast<std::uint16_t>(inputs)};
}

/// Where a kernel is in a collective's table.  @pre it is there
[[nodiscard]] constexpr std::uint8_t kernel_index(const Collective& collective, const Kernel& kernel) noexcept {
  const auto found = std::find(collective.kernels.begin(), collective.kernels.end(), kernel);
  return static_cast<std::uint8_t>(found - collective.kernels.begin());
}

namespace detail {

constexpr void add_kernel(Collective& collective, const Kernel& kernel) {
  if (std::find(collective.kernels.begin(), collective.kernels.end(), kernel) == collective.kernels.end()) {
    collective.kernels.push_back(kernel);
  }
}

// The sums of a node, then the one in the switch: of each place of a rank, as many as its turns among the nodes.
constexpr void fill_switch_kernels(Collective& collective) {
  const MeshShape mesh = collective.layout.mesh;
  for (const Parameter& parameter : collective.layout.group.parameters) {
    add_kernel(collective, sum_kernel(parameter.gradient, Finish::partial, mesh.ranks_per_node));
  }
  add_kernel(collective, switch_kernel(collective.finish, ceil_div(mesh.nodes, mesh.ranks_per_node)));
}

// The sums of a node, then those over nodes. Where a node is one rank its gradients are sums already, and stay in their
// own element until the first addition.
constexpr void fill_node_kernels(Collective& collective) {
  const MeshShape mesh = collective.layout.mesh;
  const bool direct = collective.network.exchange == Exchange::direct;
  const auto add_over_nodes = [&](Element input) {
    if (direct || mesh.nodes == 2) return add_kernel(collective, sum_kernel(input, collective.finish, mesh.nodes));
    add_kernel(collective, sum_kernel(input, Finish::partial, 2));
    if (mesh.ranks_per_node == 1) add_kernel(collective, sum_kernel(input, Finish::partial, 1));
  };
  for (const Parameter& parameter : collective.layout.group.parameters) {
    if (mesh.ranks_per_node == 1) {
      add_over_nodes(parameter.gradient);
    } else {
      add_kernel(collective, sum_kernel(parameter.gradient, Finish::partial, mesh.ranks_per_node));
    }
  }
  if (mesh.ranks_per_node > 1 || (!direct && mesh.nodes > 2)) add_over_nodes(Element::f32);
  if (!direct && mesh.nodes > 2) add_kernel(collective, sum_kernel(Element::f32, collective.finish, 2));
  const Element wire = collective.network.wire;
  if (wire == Element::f32 || (mesh.ranks_per_node == 1 && (direct || mesh.nodes == 2))) return;
  Kernel rounds = sum_kernel(Element::f32, Finish::partial, 1);
  rounds.output = wire;
  add_kernel(collective, rounds);
  add_kernel(collective, sum_kernel(wire, Finish::partial, 1));
}

}  // namespace detail

/// Fills the kernel table of a collective whose other members are set.  @pre a reduce has a mesh of one node
constexpr void fill_kernels(Collective& collective) {
  collective.kernels.clear();
  if (collective.operation == Operation::gather && collective.own != OwnBlock::cast) return;
  for (const Parameter& parameter : collective.layout.group.parameters) {
    detail::add_kernel(collective, kernel_of(parameter, collective));
  }
}

/// The same for any mesh. Apart, so that programs of one node compile none of it.
constexpr void fill_kernels_over_nodes(Collective& collective) {
  if (collective.operation == Operation::gather || collective.layout.mesh.nodes == 1) return fill_kernels(collective);
  collective.kernels.clear();
  if (collective.network.exchange == Exchange::in_switch) return detail::fill_switch_kernels(collective);
  detail::fill_node_kernels(collective);
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
