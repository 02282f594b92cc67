// SPDX-License-Identifier: Apache-2.0
//
// HostReplicas: ranks with two fabrics each, in one process: one over the ranks of their replica, one over the ranks
// that hold the same shards in every replica.
//
//                shards 0      1      2          fabric(1, 2) is rank 2 of 3, replicas(1, 2) is rank 1 of 2
//   replica 0          (0,0)  (0,1)  (0,2)
//   replica 1          (1,0)  (1,1)  (1,2)
//
//   tide::HostReplicas cluster{{1, 3}, {1, 2}};
//   cluster.run([](tide::HostFabric& fabric, tide::HostFabric& replicas) { /* the program of one rank */ });
//
// A rank's streams may wait for events of both its fabrics, and both are used by one host thread. What fails anywhere
// fails everywhere, with one text.
//
// Test: tests/fabric/host_replicas.test.cpp

#pragma once

#include <tide/fabric/host_cluster.hpp>  // HostCluster

#include <memory>
#include <vector>

namespace tide {

/// A HostCluster for each replica, and one for each rank inside of them.
class HostReplicas {
 public:
  /// @param shards    the mesh of a replica
  /// @param replicas  the mesh of the ranks that hold the same shards
  /// @throws Error (Errc::layout) when a mesh has no rank
  HostReplicas(MeshShape shards, MeshShape replicas, const HostOptions& options = {}) {
    for (const MeshShape mesh : {shards, replicas}) {
      static_cast<void>(Mesh<dynamic, dynamic>(mesh.nodes, mesh.ranks_per_node));  // refuses one that has no rank
    }
    const auto kin = std::make_shared<detail::HostKin>();
    for (index_t i = 0; i < replicas.ranks(); ++i) {
      inside_.push_back(HostCluster(shards, options, kin, detail::of_replica(i)));
    }
    for (index_t i = 0; i < shards.ranks(); ++i) {
      across_.push_back(HostCluster(replicas, options, kin, detail::of_replicas(i)));
    }
    for (index_t r = 0; r < replicas.ranks(); ++r) {
      for (index_t s = 0; s < shards.ranks(); ++s) {
        HostFabric& inside = this->fabric(Rank{r}, Rank{s});
        HostFabric& across = this->replicas(Rank{r}, Rank{s});
        inside.partner_ = &across;
        across.partner_ = &inside;
      }
    }
  }
  HostReplicas(const HostReplicas&) = delete;
  HostReplicas& operator=(const HostReplicas&) = delete;
  ~HostReplicas() {
    // A lane may wait for an event of the rank's other fabric: all lanes end before any fabric goes.
    if (inside_.empty() || across_.empty()) return;
    inside_.front().state_->fail_as(Errc::order, "tide::HostCluster: a cluster was destroyed.");
    for (std::vector<HostCluster>* clusters : {&inside_, &across_}) {
      for (HostCluster& cluster : *clusters) {
        for (const std::unique_ptr<HostFabric>& fabric : cluster.fabrics_) static_cast<void>(fabric->stop());
      }
    }
  }

  /// The fabric of rank `shard` over its replica.
  /// @throws Error (Errc::argument), here and below, when there is no such rank or replica
  [[nodiscard]] HostFabric& fabric(Rank replica, Rank shard) {
    return inside_[detail::place_of(replica, static_cast<index_t>(inside_.size()))].fabric(shard);
  }
  /// The fabric of the same rank over the replicas.
  [[nodiscard]] HostFabric& replicas(Rank replica, Rank shard) {
    return across_[detail::place_of(shard, static_cast<index_t>(across_.size()))].fabric(replica);
  }

  /// Runs `program(fabric, replicas)` for each rank, as `HostCluster::run` does.
  template <class F>
  void run(const F& program) {
    const std::size_t shards = across_.size();
    const auto name = [&](std::size_t i) {
      return detail::rank_of_replica(static_cast<index_t>(i % shards), static_cast<index_t>(i / shards));
    };
    detail::run_threads(
        inside_.size() * shards,
        [&](std::size_t i) {
          const Rank replica{static_cast<index_t>(i / shards)};
          const Rank shard{static_cast<index_t>(i % shards)};
          program(fabric(replica, shard), replicas(replica, shard));
          inside_[i / shards].state_->end(shard, false);
          across_[i % shards].state_->end(replica, false);
        },
        name,
        [&](std::size_t i, const char* what) {
          inside_.front().state_->fail_as(Errc::operation,
                                          detail::text({"tide::HostReplicas: ", name(i), " threw: ", what}));
        },
        [](std::size_t) {});
    for (std::vector<HostCluster>* clusters : {&inside_, &across_}) {
      for (HostCluster& cluster : *clusters) cluster.state_->resume();
    }
  }

 private:
  std::vector<HostCluster> inside_;  // by replica
  std::vector<HostCluster> across_;  // by rank of a replica
};

}  // namespace tide
