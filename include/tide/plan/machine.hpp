// SPDX-License-Identifier: Apache-2.0
//
// Machine: how fast the parts of a machine are, as far as a plan can be bounded by them.
//
//   rank 0 | memory |==link==>| memory | rank 1          node 0  ==nic==>  node 1
//            copy, sum                   copy, sum
//
// A rate is in bytes per second, and 0 where a part bounds nothing. Test: tests/plan/machine.test.cpp

#pragma once

#include <string_view>

namespace tide {

/// Rates of a machine whose ranks are alike.
struct Machine {
  std::string_view name = {};
  double link_rate = 0;           ///< out of a rank to ranks of its node, and as much into it at the same time
  double nic_rate = 0;            ///< out of a rank to other nodes, and as much into it at the same time
  double copy_rate = 0;           ///< local copies of a rank, bytes read plus bytes written
  double sum_rate = 0;            ///< casts and sums of a rank, bytes read plus bytes written
  double memory_rate = 0;         ///< all that is read from a rank's memory plus all that is written to it
  double shared_memory_rate = 0;  ///< the same for all ranks of a node together, where they share one memory
  double call_seconds = 0;        ///< what a driver call costs on its lane
};

}  // namespace tide

/// Machines that ship with tide.
namespace tide::machines {

/// Eight H200 on NVSwitch with one 50 GB/s NIC each. Measured: a copy engine pushes 391 GB/s each way at once, a local
/// copy and a sum move 4.3 TB/s of traffic, a call adds about 2 us to its stream.
[[nodiscard]] constexpr Machine h200_node() noexcept {
  return {"h200_node", 391e9, 50e9, 4.3e12, 4.3e12, 4.3e12, 0, 2e-6};
}

/// Ranks that are threads of one CPU and share its memory, of which all together copy `copied` bytes per second.
///
/// @param copied  measured with as many threads as ranks, on more bytes than caches hold
[[nodiscard]] constexpr Machine cpu(double copied) noexcept { return {"cpu", 0, 0, 0, 0, 0, 2 * copied, 0}; }

}  // namespace tide::machines
