// SPDX-License-Identifier: Apache-2.0
//
// HostOptions: what a HostCluster is told when it is made: deadlines, lanes, hooks for tests.
//
// Test: tests/fabric/host_cluster.test.cpp

#pragma once

#include <tide/fabric/duration.hpp>  // Duration
#include <tide/plan/plan.hpp>        // Lane, Op

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

/// Whether the node has a switch: multicast writes, and sums of what lies on all its ranks (loops here).
enum class HostMulticast : std::uint8_t { available, missing };

/// Whether ranks reach other nodes (by memcpy here).
enum class HostNetwork : std::uint8_t { available, missing };

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

/// What the network does with a put, or with a signal to another node.
struct HostDelivery {
  Duration delay{0};         ///< how much later than its issue it comes
  bool dropped = false;      ///< the connection breaks: neither it comes nor what its lane sends there later
  bool unsignalled = false;  ///< only its signal is lost: the bytes of a put come, and what is sent later does
};

/// Called when a put, or a signal to another node, is issued. With this hook they come as a NIC's do: after their lane
/// has gone on, in order where one lane sends to one rank, in any order else.
using HostNetworkHook = std::function<HostDelivery(const HostHookPoint&)>;

/// Options of a `HostCluster`.
struct HostOptions {
  Duration deadline = std::chrono::seconds(60);  ///< of every wait
  HostLanes lanes = HostLanes::separate;
  HostMulticast multicast = HostMulticast::available;
  HostNetwork network = HostNetwork::available;
  HostHook hook = nullptr;
  HostNetworkHook network_hook = nullptr;
  index_t network_depth = 0;  ///< with a network hook: puts that a pipeline of a rank may have on their way to a peer;
                              ///< one more is an error; 0: any number. All its puts to a peer are on one lane
  index_t network_queue = 0;  ///< with a network hook: puts and signals that a rank may have on their way in all; a
                              ///< lane with one more waits, as long as the deadline; 0: any number
  index_t memory_bytes = 0;   ///< what the arenas of all ranks may take; 0: the machine's memory
  std::uint64_t first_run = 0;  ///< what epochs count from; for tests of large values
};

}  // namespace tide
