// SPDX-License-Identifier: Apache-2.0
//
// SimRanks: what the suites need of a fabric, for SimFabric; described in host_ranks.hpp. What a suite lets a stream or
// a host do takes virtual time.

#pragma once

#include <tide/fabric/sim_cluster.hpp>

#include "support/host_ranks.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tide_test {

struct SimRanks {
  using Fabric = tide::SimFabric;
  using Stream = tide::HostStream;
  using Memory = UserMemory<Fabric>;

  tide::SimOptions options = {};
  index_t ranks_per_node = 0;  ///< 0: all ranks are one node

  template <class Program>
  void run(index_t ranks, const Program& program) const {
    const index_t local = ranks_per_node > 0 ? ranks_per_node : ranks;
    run(tide::MeshShape{ranks / local, local}, program);
  }
  template <class Program>
  void run(tide::MeshShape mesh, const Program& program) const {
    tide::SimCluster cluster(mesh, options);
    cluster.run(program);
  }

  static void write(Stream& stream, std::byte* to, std::vector<std::byte> bytes) {
    HostRanks::write(stream, to, std::move(bytes));
  }
  static void read(Stream& stream, const std::byte* from, std::span<std::byte> into) {
    HostRanks::read(stream, from, into);
  }
  static void occupy(Stream& stream, std::chrono::microseconds duration) {
    static_cast<Fabric*>(stream.ref().port)->busy(stream, duration);
  }
};

}  // namespace tide_test
