// SPDX-License-Identifier: Apache-2.0
//
// HostOptions: what a HostCluster is told when it is made: deadlines, lanes, hooks for tests.
//
// Test: tests/fabric/host_cluster.test.cpp

#pragma once

#include <tide/fabric/fabric.hpp>  // Duration
#include <tide/plan/plan.hpp>      // Lane, Op

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tide {

/// How the lanes of a rank become threads.
enum class HostLanes : std::uint8_t {
  separate,  ///< a thread per lane: they run at the same time
  merged,    ///< one thread per rank runs all ops in issue order, as hardware with a single queue would
};

/// Whether the node has multicast writes (a loop of copies here).
enum class HostMulticast : std::uint8_t { available, missing };

/// Where a hook is called: before an op.
struct HostHookPoint {
  std::string_view label;  ///< of the pipeline
  std::uint64_t run;       ///< how often the plan has run before
  Rank rank;
  Lane lane;
  index_t seq;  ///< position in the issue order of the plan
  const Op& op;
};

/// Called before every op, on the lane's thread. May sleep; a text that it returns makes the op fail with that text.
using HostHook = std::function<std::optional<std::string>(const HostHookPoint&)>;

/// Options of a `HostCluster`.
struct HostOptions {
  Duration deadline = std::chrono::seconds(60);  ///< of every wait
  HostLanes lanes = HostLanes::separate;
  HostMulticast multicast = HostMulticast::available;
  HostHook hook = nullptr;
  index_t memory_bytes = 0;     ///< what the arenas of all ranks may take; 0: the machine's memory
  std::uint64_t first_run = 0;  ///< what epochs count from; for tests of large values
};

}  // namespace tide
