// SPDX-License-Identifier: Apache-2.0
//
// CudaReplicas: one rank's two fabrics on a GPU: one over the ranks of its replica, one over the ranks that hold the
// same shards in every replica.
//
//   ranks of `world`       shards 0   1   2         rank 4: fabric() is rank 1 of 3, replicas() is rank 1 of 2
//            replica 0            0   1   2
//            replica 1            3   4   5
//
//   auto world = tide::CudaCommunicators::from_environment();
//   tide::CudaReplicas both{world, 2};
//   tide::ShardedStep</* ... */, tide::Replicated<>> step{both.fabric(), both.replicas()};
//
// A rank's streams may wait for events of both its fabrics, and both are used by one host thread. Call `init` of both
// before the first launch on either. What fails anywhere fails everywhere, with one text.
//
// Test: tests/fabric/cuda_replicas.test.cu

#pragma once

#include <tide/fabric/cuda_fabric.cuh>  // CudaFabric, CudaPair

#include <memory>

namespace tide {

/// Two fabrics of a rank; stays where it is.
class CudaReplicas {
 public:
  /// Collective over `world`, which may go when this is made: every rank on its own thread or in its own process.
  /// @param replicas  of equal size; the first ranks of `world` are replica 0
  /// @param shards    options of the fabric over a replica: `nodes` are those of a replica
  /// @param across    options of the fabric over replicas
  /// @throws Error (Errc::argument) when ranks do not divide into replicas, and as CudaFabric
  CudaReplicas(const CudaCommunicators& world, index_t replicas, CudaOptions shards = {}, CudaOptions across = {})
      : CudaReplicas(world, Place(world, replicas), shards, across) {}
  CudaReplicas(const CudaReplicas&) = delete;
  CudaReplicas& operator=(const CudaReplicas&) = delete;
  ~CudaReplicas() {
    // Work of one may wait for the other: both end before either goes.
    fabric_.stop();
    replicas_.stop();
  }

  /// The fabric over the ranks of this rank's replica.
  [[nodiscard]] CudaFabric& fabric() noexcept { return fabric_; }
  /// The fabric over the replicas of this rank.
  [[nodiscard]] CudaFabric& replicas() noexcept { return replicas_; }

 private:
  // Where the own rank is.
  struct Place {
    int replica = 0;
    int shard = 0;

    Place(const CudaCommunicators& world, index_t replicas) {
      int ranks = 0;
      int rank = 0;
      detail::check(ncclCommCount(world.gather(), &ranks), "ncclCommCount");
      detail::check(ncclCommUserRank(world.gather(), &rank), "ncclCommUserRank");
      if (replicas < 1 || ranks % replicas != 0) {
        raise(Errc::argument, detail::text({"tide::CudaReplicas: ranks must divide into replicas of equal size; there "
                                            "are ",
                                            ranks, " ranks, ", replicas, " replicas."}));
      }
      const int size = ranks / static_cast<int>(replicas);
      replica = rank / size;
      shard = rank % size;
    }
  };

  CudaReplicas(const CudaCommunicators& world, Place place, CudaOptions shards, CudaOptions across)
      : inside_(world.split(place.replica, place.shard, detail::meeting_deadline(shards.deadline))),
        across_(world.split(place.shard, place.replica, detail::meeting_deadline(across.deadline))),
        fabric_(inside_, shards),
        replicas_(across_, across) {
    fabric_.pair_ = replicas_.pair_ = std::make_shared<detail::CudaPair>(fabric_, replicas_);
  }

  CudaCommunicators inside_;
  CudaCommunicators across_;
  CudaFabric fabric_;
  CudaFabric replicas_;
};

}  // namespace tide
