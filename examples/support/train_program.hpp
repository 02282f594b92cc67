// SPDX-License-Identifier: Apache-2.0
//
// The program train but for its GPUs, which only train.cu knows: its command line, a training on CPU ranks, what must
// hold of the losses, and what it prints and writes.

#pragma once

#include "args.hpp"
#include "files.hpp"
#include "host_kernels.hpp"
#include "mesh.hpp"
#include "program.hpp"
#include "unsharded.hpp"

#include <tide/fabric/host_replicas.hpp>
#include <tide/fabric/sim_replicas.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <thread>

namespace tide_example {

inline constexpr std::string_view train_usage =
    R"(train [FLAG...]

Trains a small language model on generated data, sharded over ranks, and prints how the loss fell.

  --fabric host|sim|cuda   where ranks run: threads of this process, a machine in virtual time, or GPUs; host if not given
  --order N                one of the orders that ops may have, with delays; of --fabric sim only
  --mesh NODESxRANKS       1x4 if not given; with GPUs and sharded, the nodes that NCCL finds
  --replicas N             shards inside each of N replicas of the mesh, averages over them; 1 if not given
  --steps N                300 if not given
  --losses FILE            writes the global loss of each step, a hexadecimal float on a line; - is standard output, and
                           nothing else is printed
  --deadline-ms N          of every wait, 60000 if not given
  --net-delay-ms N         holds back everything that crosses nodes; not of GPUs
  --scribble-gradients     overwrites gradients the moment that they are free
  --inbox slots|ring       where gradients wait: in vacated slots, or in memory of their own; slots if not given
  --seed S                 of weights and data, 1 if not given
  --unsharded              without shards: one copy of the weights, gradients added along the tree of the mesh

On GPUs a rank is a process where TIDE_WORLD, TIDE_RANK and NCCL_COMM_ID say which one, else a thread for each GPU.

  exit code  0 right, 1 a result is wrong, 2 bad usage, 3 an error, named on standard error
)";

struct TrainOptions {
  Training training;
  tide::HostOptions host;
  std::string losses;
  bool cuda = false;
  bool sim = false;
  std::uint64_t order = 0;
  std::chrono::milliseconds net_delay{0};
  bool has_mesh = false;
  bool unsharded = false;
  bool ring = false;
};

/// What a training found.
struct Outcome {
  std::vector<std::vector<float>> losses{};  ///< by rank
  double free_ahead = 0;                     ///< seconds, of one rank
  double virtual_seconds = 0;                ///< of --fabric sim
  bool speaks = true;                        ///< whether this process prints and writes what all of them found
};

inline constexpr index_t most_ranks = 256;

[[nodiscard]] inline tide::MeshShape chosen_mesh(const std::string& given) {
  const auto mesh = parse_mesh(given, tide::max_ranks, tide::max_ranks);
  if (!mesh) throw UsageError("--mesh takes NODESxRANKS, as in 2x4, not '" + given + "'");
  if (mesh->ranks() > most_ranks) throw UsageError("--mesh takes at most 256 ranks, not '" + given + "'");
  return *mesh;
}

[[nodiscard]] inline TrainOptions parse_train(int argc, char** argv) {
  const Args args(argc, argv,
                  {{"--fabric", Args::value},
                   {"--order", Args::value},
                   {"--mesh", Args::value},
                   {"--replicas", Args::value},
                   {"--steps", Args::value},
                   {"--losses", Args::value},
                   {"--deadline-ms", Args::value},
                   {"--net-delay-ms", Args::value},
                   {"--scribble-gradients", Args::alone},
                   {"--inbox", Args::value},
                   {"--seed", Args::value},
                   {"--unsharded", Args::alone}});
  if (!args.words().empty()) throw UsageError("unknown argument '" + args.words().front() + "'");
  TrainOptions options;
  const std::size_t fabric = args.choice("--fabric", {"host", "sim", "cuda"});
  options.sim = fabric == 1;
  options.cuda = fabric == 2;
  if (!options.sim && args.has("--order")) throw UsageError("--order is for --fabric sim only");
  options.order = static_cast<std::uint64_t>(args.number("--order", 0, 0, INT64_MAX));
  options.has_mesh = args.has("--mesh");
  options.training.mesh = chosen_mesh(args.text("--mesh", "1x4"));
  options.training.replicas = args.number("--replicas", 1, 1, most_ranks);
  if (options.training.ranks() > most_ranks) {
    throw UsageError("--replicas takes at most " + std::to_string(most_ranks / options.training.mesh.ranks()) +
                     " of this mesh");
  }
  options.training.steps = static_cast<int>(args.number("--steps", 300, 1, 1'000'000));
  options.training.seed = static_cast<std::uint64_t>(args.number("--seed", 1, 0, INT64_MAX));
  options.training.scribble_gradients = args.has("--scribble-gradients");
  options.losses = args.text("--losses", "");
  options.host.deadline = std::chrono::milliseconds(args.number("--deadline-ms", 60'000, 1, 86'400'000));
  options.unsharded = args.has("--unsharded");
  options.ring = args.choice("--inbox", {"slots", "ring"}) == 1;
  if (options.cuda && args.has("--net-delay-ms")) throw UsageError("--net-delay-ms is not for GPUs");
  for (const char* flag : {"--inbox", "--scribble-gradients", "--deadline-ms", "--net-delay-ms"}) {
    if (options.unsharded && args.has(flag)) throw UsageError(std::string(flag) + " says nothing of --unsharded");
  }
  options.net_delay = std::chrono::milliseconds(args.number("--net-delay-ms", 0, 0, 60'000));
  if (const auto delay = options.net_delay; delay.count() > 0 && !options.sim) {
    options.host.hook = [delay](const tide::HostHookPoint& point) -> std::optional<std::string> {
      if (point.op.kind == tide::OpKind::put) std::this_thread::sleep_for(delay);
      return std::nullopt;
    };
  }
  return options;
}

/// Calls `train.operator()<Chosen>()` with the Trainer of the inbox that was asked for, over replicas if there are
/// some.
template <class Kernels, class Train>
[[nodiscard]] Outcome with_trainer(const TrainOptions& options, const Train& train) {
  using Inter = tide::RdmaDoublingTransport<>;
  using Rings = tide::Ring<tide::Chunks<4>, tide::Bytes<(1 << 20)>>;
  using Averages = tide::Replicated<tide::UnicastTransport, tide::CopyEngineReducer<>, Inter, Rings>;
  if (options.training.replicas > 1) {
    if (options.ring) return train.template operator()<Trainer<Kernels, Inter, Rings, Averages>>();
    return train.template operator()<Trainer<Kernels, Inter, tide::SlotReuse, Averages>>();
  }
  if (options.ring) return train.template operator()<Trainer<Kernels, Inter, Rings>>();
  return train.template operator()<Trainer<Kernels, Inter, tide::SlotReuse>>();
}

/// @tparam Cluster, Replicas  what makes the fabrics of all ranks, and of all ranks of replicas
template <class Cluster, class Replicas, class ClusterOptions>
[[nodiscard]] Outcome train_in_process(const TrainOptions& options, const ClusterOptions& cluster_options) {
  return with_trainer<HostKernels>(options, [&]<class Chosen>() {
    const Training& training = options.training;
    Outcome outcome;
    outcome.losses.resize(static_cast<std::size_t>(training.ranks()));
    const auto train = [&](index_t rank, auto&... fabrics) {
      Chosen trainer(training, fabrics...);
      trainer.run();
      (fabrics.close(), ...);
      outcome.losses[static_cast<std::size_t>(rank)] = trainer.kernels().losses();
      if (rank == 0) outcome.free_ahead = trainer.kernels().free_ahead();
    };
    const auto take_time = [&](const auto& cluster) {
      if constexpr (requires { cluster.now(); }) outcome.virtual_seconds = cluster.now();
    };
    if constexpr (Chosen::replicated) {
      Replicas cluster(training.mesh, {1, training.replicas}, cluster_options);
      cluster.run([&](auto& fabric, auto& replicas) {
        train(replicas.rank().value * training.mesh.ranks() + fabric.rank().value, fabric, replicas);
      });
      take_time(cluster);
    } else {
      Cluster cluster(training.mesh, cluster_options);
      cluster.run([&](auto& fabric) { train(fabric.rank().value, fabric); });
      take_time(cluster);
    }
    return outcome;
  });
}

[[nodiscard]] inline Outcome train_on_host(const TrainOptions& options) {
  if (options.unsharded) return {{Unsharded(options.training).run()}};
  if (!options.sim) return train_in_process<tide::HostCluster, tide::HostReplicas>(options, options.host);
  tide::SimOptions sim{.seed = options.order, .jitter = std::chrono::microseconds(20), .host = options.host};
  if (options.net_delay.count() > 0) {
    sim.host.network_hook = [delay = options.net_delay](const tide::HostHookPoint&) {
      return tide::HostDelivery{delay};
    };
  }
  return train_in_process<tide::SimCluster, tide::SimReplicas>(options, sim);
}

inline void write_losses(const std::string& path, const std::vector<float>& losses) {
  write_file(path, [&](std::ostream& out) {
    for (const float loss : losses) {
      char line[64];
      std::snprintf(line, sizeof(line), "%a\n", static_cast<double>(loss));
      out << line;
    }
  });
}

/// What must hold of losses, on every rank.
[[nodiscard]] inline int judge(const std::vector<std::vector<float>>& losses, int steps) {
  const std::vector<float>& first = losses.front();
  for (const std::vector<float>& other : losses) {
    if (other.size() != static_cast<std::size_t>(steps) ||
        std::memcmp(other.data(), first.data(), first.size() * sizeof(float)) != 0) {
      std::cerr << "train: ranks have unlike losses\n";
      return violated;
    }
  }
  if (!std::all_of(first.begin(), first.end(), [](float loss) { return std::isfinite(loss); })) {
    std::cerr << "train: a loss is not finite\n";
    return violated;
  }
  if (steps >= 200 && first.back() > 0.5F * first.front()) {
    std::cerr << "train: the loss has not fallen by half\n";
    return violated;
  }
  return right;
}

/// The program.
/// @param train_on_gpus  (TrainOptions&) -> Outcome
template <class TrainOnGpus>
[[nodiscard]] int run_train(int argc, char** argv, const TrainOnGpus& train_on_gpus) {
  TrainOptions options = parse_train(argc, argv);
  if (!options.losses.empty()) require_writable(options.losses);  // refused now rather than at the end
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = options.cuda ? train_on_gpus(options) : train_on_host(options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::vector<float>& losses = outcome.losses.front();
  const int code = judge(outcome.losses, options.training.steps);
  if (!outcome.speaks) return code;
  if (!options.losses.empty()) write_losses(options.losses, losses);
  if (options.losses == "-") return code;
  std::printf("%d steps in %.2f s, loss %.4f -> %.4f\n", options.training.steps, seconds.count(),
              static_cast<double>(losses.front()), static_cast<double>(losses.back()));
  if (!options.unsharded) {
    std::printf("gradients were free %.2f ms before their reduced shards were ready, on average\n",
                outcome.free_ahead * 1e3);
  }
  if (options.sim && !options.unsharded) {
    std::printf("on %s, with kernels that take no time, these steps take %.2f ms\n",
                std::string(tide::machines::h200_node().name).c_str(), outcome.virtual_seconds * 1e3);
  }
  return code;
}

}  // namespace tide_example
