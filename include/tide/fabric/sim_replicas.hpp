// SPDX-License-Identifier: Apache-2.0
//
// SimReplicas: ranks with two fabrics each, in virtual time: one over the ranks of their replica, one over the ranks
// that hold the same shards in every replica, as of a HostReplicas. Both use the same links and the same memory.
//
//   tide::SimReplicas cluster{{1, 3}, {1, 2}};
//   cluster.run([](tide::SimFabric& fabric, tide::SimFabric& replicas) { /* the program of one rank */ });
//
// Test: tests/fabric/sim_replicas.test.cpp

#pragma once

#include <tide/fabric/sim_cluster.hpp>  // SimCluster

#include <memory>
#include <string>
#include <vector>

namespace tide {

/// A SimCluster for each replica, and one for each rank inside of them, with one time and one machine.
class SimReplicas {
 public:
  /// @param shards    the mesh of a replica
  /// @param replicas  the mesh of the ranks that hold the same shards
  /// @throws Error (Errc::layout) when a mesh has no rank
  SimReplicas(MeshShape shards, MeshShape replicas, const SimOptions& options = {})
      : turns_(std::make_shared<detail::SimTurns>(options, SimCluster::checked(shards) * SimCluster::checked(replicas),
                                                  shards.ranks())),
        shards_(shards.ranks()) {
    for (index_t r = 0; r < replicas.ranks(); ++r) {
      inside_.push_back(SimCluster(shards, turns_, r * shards_, 1, detail::of_replica(r)));
    }
    for (index_t s = 0; s < shards_; ++s) {
      across_.push_back(SimCluster(replicas, turns_, s, shards_, detail::of_replicas(s)));
    }
  }

  /// Seconds of virtual time since the cluster was made.
  [[nodiscard]] double now() const noexcept { return turns_->machine.now(); }

  /// The fabric of rank `shard` over its replica.
  /// @throws Error (Errc::argument), here and below, when there is no such rank or replica
  [[nodiscard]] SimFabric& fabric(Rank replica, Rank shard) {
    return inside_[detail::place_of(replica, static_cast<index_t>(inside_.size()))].fabric(shard);
  }
  /// The fabric of the same rank over the replicas.
  [[nodiscard]] SimFabric& replicas(Rank replica, Rank shard) {
    return across_[detail::place_of(shard, static_cast<index_t>(across_.size()))].fabric(replica);
  }

  /// Runs `program(fabric, replicas)` for each rank, as `SimCluster::run` does.
  template <class F>
  void run(const F& program) {
    const auto shard_of = [this](std::size_t host) { return Rank{static_cast<index_t>(host) % shards_}; };
    const auto replica_of = [this](std::size_t host) { return Rank{static_cast<index_t>(host) / shards_}; };
    turns_->run(
        [&](std::size_t host) {
          SimFabric& inside = fabric(replica_of(host), shard_of(host));
          SimFabric& across = replicas(replica_of(host), shard_of(host));
          program(inside, across);
          inside.state_->end(inside.rank(), false);
          across.state_->end(across.rank(), false);
        },
        [](const std::string& name, const char* what) {
          return detail::text({"tide::SimReplicas: ", name, " threw: ", what});
        });
    for (std::vector<SimCluster>* clusters : {&inside_, &across_}) {
      for (SimCluster& cluster : *clusters) cluster.state_->resume();
    }
  }

 private:
  std::shared_ptr<detail::SimTurns> turns_;
  index_t shards_;
  std::vector<SimCluster> inside_;  // by replica
  std::vector<SimCluster> across_;  // by rank of a replica
};

}  // namespace tide
