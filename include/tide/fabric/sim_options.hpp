// SPDX-License-Identifier: Apache-2.0
//
// SimOptions: what a SimCluster is told when it is made: the machine, the seed, what is moved, hooks for tests.
//
// Test: tests/fabric/sim_fabric.test.cpp

#pragma once

#include <tide/fabric/host_options.hpp>  // HostOptions, HostHookPoint
#include <tide/plan/machine.hpp>         // Machine

#include <cstdint>
#include <functional>

namespace tide {

/// Whether bytes are moved.
enum class SimMemory : std::uint8_t {
  real,     ///< arenas are memory, ops move what they say: results can be compared
  counted,  ///< ops take their time and move nothing, arenas are addresses without memory: for large worlds and models
};

/// Called before an op, and once for each: how much later than it could it begins. `Duration::max()`: never, the rank
/// stops there.
using SimDelay = std::function<Duration(const HostHookPoint&)>;

/// Called when an op begins, with when it begins and ends in seconds of virtual time; the words of a put may come
/// later.
using SimWatch = std::function<void(const HostHookPoint&, double begin, double end)>;

/// Options of a `SimCluster`.
struct SimOptions {
  Machine machine = machines::h200_node();
  std::uint64_t seed = 0;  ///< chooses what comes first of what may come at one time; 0: as `estimate` does
  Duration jitter{0};      ///< with a seed: each op begins, and what crosses nodes comes, up to this much later
  SimMemory memory = SimMemory::real;
  /// Deadlines and delays are of virtual time: a hook that sleeps delays nothing.
  HostOptions host{};
  SimDelay delay = nullptr;
  SimWatch watch = nullptr;
};

}  // namespace tide
