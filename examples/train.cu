// SPDX-License-Identifier: Apache-2.0
// links: CUDA::cublas
//
// train: train.cpp, which trains on GPUs, too: the same Trainer on a CudaFabric.

#include "support/cuda_kernels.cuh"
#include "support/cuda_unsharded.cuh"
#include "support/train_program.hpp"

#include <tide/fabric/cuda_cluster.cuh>

#include <cstdlib>

namespace tide_example {
namespace {

std::string text_of(tide::MeshShape mesh) {
  return std::to_string(mesh.nodes) + "x" + std::to_string(mesh.ranks_per_node);
}

// Where no mesh was asked for it is one of nodes that NCCL finds: the fabric knows.
void require_ranks(const TrainOptions& options, index_t ranks, const std::string& who) {
  const Training& training = options.training;
  const bool divides = ranks % training.replicas == 0;
  if (options.has_mesh ? training.ranks() == ranks : divides) return;
  const std::string wanted =
      options.has_mesh ? "--mesh " + text_of(training.mesh) + " has " + std::to_string(training.mesh.ranks()) + " ranks"
                       : std::string();
  const std::string copies = training.replicas > 1 ? "--replicas is " + std::to_string(training.replicas) : "";
  throw UsageError(wanted + (wanted.empty() || copies.empty() ? "" : ", ") + copies + ", " + who + " " +
                   std::to_string(ranks));
}

tide::CudaOptions fabric_options(const TrainOptions& options) {
  tide::CudaOptions cuda;
  cuda.deadline = options.host.deadline;
  // Where hosts say themselves which node they are, NCCL finds the nodes.
  if (options.has_mesh && std::getenv("NCCL_HOSTID") == nullptr) cuda.nodes = options.training.mesh.nodes;
  return cuda;
}

tide::CudaOptions replica_options(const TrainOptions& options) {
  tide::CudaOptions cuda;
  cuda.deadline = options.host.deadline;
  return cuda;
}

// The program of one rank; `collect(kernels)` comes before fabrics close.
template <class Chosen, class Collect, class... Replicas>
void train_rank(const TrainOptions& options, const Collect& collect, tide::CudaFabric& fabric, Replicas&... replicas) {
  Training training = options.training;
  if (!options.has_mesh) training.mesh = fabric.mesh();
  if (fabric.mesh() != training.mesh) {
    throw UsageError("--mesh is " + text_of(training.mesh) + ", ranks are on " + text_of(fabric.mesh()));
  }
  Chosen trainer(training, fabric, replicas...);
  trainer.run();
  collect(trainer.kernels());
  fabric.close();
  (replicas.close(), ...);
}

// Ranks are threads of this process.
Outcome train_here(const TrainOptions& options, int devices) {
  require_ranks(options, devices, "GPUs that this process sees:");
  std::vector<int> all;
  for (int device = 0; device < devices; ++device) all.push_back(device);
  tide::CudaCluster cluster(all, fabric_options(options));
  return with_trainer<CudaKernels>(options, [&]<class Chosen>() {
    Outcome outcome;
    outcome.losses.resize(all.size());
    const auto train = [&](index_t rank, auto&... fabrics) {
      const auto collect = [&](const CudaKernels& kernels) {
        outcome.losses[static_cast<std::size_t>(rank)].assign(kernels.losses().begin(), kernels.losses().end());
        if (rank == 0) outcome.free_ahead = kernels.free_ahead();
      };
      train_rank<Chosen>(options, collect, fabrics...);
    };
    if constexpr (Chosen::replicated) {
      const auto program = [&](tide::CudaFabric& fabric, tide::CudaFabric& replicas) {
        train(replicas.rank().value * fabric.mesh().ranks() + fabric.rank().value, fabric, replicas);
      };
      cluster.run(options.training.replicas, program, replica_options(options));
    } else {
      cluster.run([&](tide::CudaFabric& fabric) { train(fabric.rank().value, fabric); });
    }
    return outcome;
  });
}

// This process is one rank.
Outcome train_as_rank(const TrainOptions& options, const char* world) {
  if (const auto ranks = parse_number<index_t>(world, 1, tide::max_ranks)) {
    require_ranks(options, *ranks, "TIDE_WORLD is");
  }
  const tide::CudaCommunicators communicators = tide::CudaCommunicators::from_environment();
  check(cudaSetDevice(communicators.device()), "cudaSetDevice");
  int ranks = 0;
  int rank = 0;
  check(ncclCommCount(communicators.gather(), &ranks), "ncclCommCount");
  check(ncclCommUserRank(communicators.gather(), &rank), "ncclCommUserRank");
  const index_t steps = options.training.steps;
  const CudaMemory<float> all(ranks * steps);
  return with_trainer<CudaKernels>(options, [&]<class Chosen>() {
    Outcome outcome;
    outcome.speaks = rank == 0;
    const auto train = [&](tide::CudaFabric& fabric, auto&... replicas) {
      tide::CudaStream stream = fabric.stream();
      const auto collect = [&](const CudaKernels& kernels) {
        outcome.free_ahead = kernels.free_ahead();
        float* const own = all.data() + rank * steps;
        check(cudaMemcpyAsync(own, kernels.losses().data(), kernels.losses().size_bytes(), cudaMemcpyHostToDevice,
                              stream.get()),
              "cudaMemcpyAsync");
        check(ncclAllGather(own, all.data(), static_cast<std::size_t>(steps), ncclFloat, communicators.gather(),
                            stream.get()),
              "ncclAllGather");
        stream.synchronize();
      };
      train_rank<Chosen>(options, collect, fabric, replicas...);
    };
    if constexpr (Chosen::replicated) {
      tide::CudaReplicas both(communicators, options.training.replicas, fabric_options(options),
                              replica_options(options));
      train(both.fabric(), both.replicas());
    } else {
      tide::CudaFabric fabric(communicators, fabric_options(options));
      train(fabric);
    }
    for (index_t other = 0; other < ranks; ++other) {
      std::vector<float>& losses = outcome.losses.emplace_back(static_cast<std::size_t>(steps));
      check(
          cudaMemcpy(losses.data(), all.data() + other * steps, losses.size() * sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    }
    return outcome;
  });
}

Outcome train_on_gpus(const TrainOptions& options) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    tide::raise(tide::Errc::capacity, "no GPU that this driver and CUDA runtime can use");
  }
  const char* world = std::getenv("TIDE_WORLD");
  if (options.unsharded && world != nullptr) throw UsageError("--unsharded is one process; TIDE_WORLD makes it a rank");
  if (options.unsharded) return {{CudaUnsharded(options.training).run()}};
  if (world != nullptr) return train_as_rank(options, world);
  return train_here(options, devices);
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  using namespace tide_example;
  return run_program(argc, argv, train_usage, [&] { return run_train(argc, argv, train_on_gpus); });
}
