// SPDX-License-Identifier: Apache-2.0
//
// Resource: the parts of a machine that a plan keeps busy, each with a rate of its own (plan/machine.hpp).
//
//   in a rank      memory, copy or sum
//   in a node      memory, egress  ==links==>  ingress, memory
//   between nodes  memory, nic_out ==network==> nic_in, memory
//
// Each rank has one of each, but as many lanes as its plan; of `shared_memory` there is one for each node, which is
// named by its first rank.
//
// Test: tests/plan/bound.test.cpp

#pragma once

#include <cstdint>

namespace tide {

/// A part of a machine that a plan keeps busy.
enum class Resource : std::uint8_t {
  egress,         ///< the links out of a rank, `Machine::link_rate`: what it sends to ranks of its node
  ingress,        ///< the links into a rank, `Machine::link_rate`
  nic_out,        ///< what a rank sends to other nodes, `Machine::nic_rate`
  nic_in,         ///< what it gets from other nodes, `Machine::nic_rate`
  copy,           ///< copies inside the memory of a rank, `Machine::copy_rate`: bytes read and written
  sum,            ///< sums and casts of a rank, `Machine::sum_rate`: bytes read and written
  memory,         ///< the memory of a rank, `Machine::memory_rate`: all that is read from and written to it
  shared_memory,  ///< the same of all ranks of a node together, `Machine::shared_memory_rate`
  lane,           ///< a queue of a rank: its calls and the transfers behind them follow each other
};

/// How many there are: for tables with an entry for each.
inline constexpr int resource_count = 9;

static_assert(static_cast<int>(Resource::lane) + 1 == resource_count);

}  // namespace tide
