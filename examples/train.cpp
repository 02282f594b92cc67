// SPDX-License-Identifier: Apache-2.0
//
// train: trains a small language model with ShardedStep and writes the global loss of every step, in bits: the same
// whatever the inbox, the delays and, for as many ranks in nodes of power-of-two size, the mesh; and the same as
// without shards.

#include "support/args.hpp"
#include "support/host_kernels.hpp"
#include "support/mesh.hpp"
#include "support/program.hpp"
#include "support/unsharded.hpp"

#include <tide/fabric/host_cluster.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

namespace tide_example {
namespace {

constexpr std::string_view usage =
    R"(train [FLAG...]

Trains a small language model on generated data, sharded over ranks, and prints how the loss fell.

  --fabric host|cuda       where ranks run: threads of this process, or GPUs; host if not given
  --mesh NODESxRANKS       1x4 if not given
  --steps N                300 if not given
  --losses FILE            writes the global loss of each step: a hexadecimal float on a line
  --deadline-ms N          of every wait, 60000 if not given
  --net-delay-ms N         holds back everything that crosses nodes
  --scribble-gradients     overwrites gradients the moment that they are free
  --inbox slots|ring       where gradients wait: in vacated slots, or in memory of their own; slots if not given
  --seed S                 of weights and data, 1 if not given
  --unsharded              without shards: one copy of the weights, gradients added along the tree of the mesh

  exit code  0 right, 1 a result is wrong, 2 bad usage, 3 an error, named on standard error
)";

struct Options {
  Training training;
  tide::HostOptions host;
  std::string losses;
  bool cuda = false;
  bool unsharded = false;
  bool ring = false;
};

tide::MeshShape chosen_mesh(const std::string& given) {
  const auto mesh = parse_mesh(given, tide::max_ranks, tide::max_ranks);
  if (!mesh) throw UsageError("--mesh takes NODESxRANKS, as in 2x4, not '" + given + "'");
  if (mesh->ranks() > 256) throw UsageError("--mesh takes at most 256 ranks, not '" + given + "'");
  return *mesh;
}

Options parse(int argc, char** argv) {
  const Args args(argc, argv,
                  {{"--fabric", Args::value},
                   {"--mesh", Args::value},
                   {"--steps", Args::value},
                   {"--losses", Args::value},
                   {"--deadline-ms", Args::value},
                   {"--net-delay-ms", Args::value},
                   {"--scribble-gradients", Args::alone},
                   {"--inbox", Args::value},
                   {"--seed", Args::value},
                   {"--unsharded", Args::alone}});
  if (!args.words().empty()) throw UsageError("unknown argument '" + args.words().front() + "'");
  Options options;
  options.cuda = args.choice("--fabric", {"host", "cuda"}) == 1;
  options.training.mesh = chosen_mesh(args.text("--mesh", "1x4"));
  options.training.steps = static_cast<int>(args.number("--steps", 300, 1, 1'000'000));
  options.training.seed = static_cast<std::uint64_t>(args.number("--seed", 1, 0, INT64_MAX));
  options.training.scribble_gradients = args.has("--scribble-gradients");
  options.losses = args.text("--losses", "");
  options.host.deadline = std::chrono::milliseconds(args.number("--deadline-ms", 60'000, 1, 86'400'000));
  options.unsharded = args.has("--unsharded");
  options.ring = args.choice("--inbox", {"slots", "ring"}) == 1;
  const std::chrono::milliseconds delay(args.number("--net-delay-ms", 0, 0, 60'000));
  if (delay.count() > 0) {
    options.host.hook = [delay](const tide::HostHookPoint& point) -> std::optional<std::string> {
      if (point.op.kind == tide::OpKind::put) std::this_thread::sleep_for(delay);
      return std::nullopt;
    };
  }
  return options;
}

struct Outcome {
  std::vector<std::vector<float>> losses{};  // by rank
  double free_ahead = 0;                     // seconds, rank 0
};

template <class Inbox>
Outcome train(const Options& options) {
  const tide::MeshShape mesh = options.training.mesh;
  Outcome outcome;
  outcome.losses.resize(static_cast<std::size_t>(mesh.ranks()));
  tide::HostCluster cluster(mesh, options.host);
  cluster.run([&](tide::HostFabric& fabric) {
    Trainer<HostKernels, tide::RdmaDoublingTransport<>, Inbox> trainer(fabric, options.training);
    trainer.run();
    fabric.close();
    outcome.losses[static_cast<std::size_t>(fabric.rank().value)] = trainer.kernels().losses();
    if (fabric.rank().value == 0) outcome.free_ahead = trainer.kernels().free_ahead();
  });
  return outcome;
}

void write_losses(const std::string& path, const std::vector<float>& losses) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  for (const float loss : losses) {
    char line[64];
    std::snprintf(line, sizeof(line), "%a\n", static_cast<double>(loss));
    out << line;
  }
  out.close();
  if (!out) tide::raise(tide::Errc::argument, "train: cannot write '" + path + "'");
}

// What must hold of losses, on every rank.
int judge(const std::vector<std::vector<float>>& losses, int steps) {
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

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.cuda)
    tide::raise(tide::Errc::argument, "train: --fabric cuda needs a build with CUDA, which this is not");
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  if (options.unsharded) {
    outcome.losses = {Unsharded(options.training).run()};
  } else if (options.ring) {
    outcome = train<tide::Ring<tide::Chunks<4>, tide::Bytes<(1 << 20)>>>(options);
  } else {
    outcome = train<tide::SlotReuse>(options);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::vector<float>& losses = outcome.losses.front();
  const int code = judge(outcome.losses, options.training.steps);
  if (!options.losses.empty()) write_losses(options.losses, losses);
  std::printf("%d steps in %.2f s, loss %.4f -> %.4f\n", options.training.steps, seconds.count(),
              static_cast<double>(losses.front()), static_cast<double>(losses.back()));
  if (!options.unsharded) {
    std::printf("gradients were free %.2f ms before their reduced shards were ready, on average\n",
                outcome.free_ahead * 1e3);
  }
  return code;
}

}  // namespace
}  // namespace tide_example

int main(int argc, char** argv) {
  return tide_example::run_program(argc, argv, tide_example::usage, [&] { return tide_example::run(argc, argv); });
}
