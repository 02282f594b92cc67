// SPDX-License-Identifier: Apache-2.0
//
// Training of the toy model on one GPU without shards: what Unsharded is for CPU ranks.

#pragma once

#include "cuda_model.cuh"

#include <vector>

namespace tide_example {

namespace layers {

/// The sum along tide's tree of `count` numbers, `pitch` apart, over which it writes: pairs, then pairs of pairs.
[[nodiscard]] __device__ inline float tree_sum(float* values, index_t count, index_t pitch) {
  for (index_t stride = 1; stride < count; stride *= 2) {
    for (index_t i = 0; i + stride < count; i += 2 * stride) values[i * pitch] += values[(i + stride) * pitch];
  }
  return values[0];
}

/// The sums over ranks: inside nodes, over them, and, each times `scale`, over replicas, whose sums are multiplied with
/// `last`.
static __global__ void sum_ranks(index_t count, tide::MeshShape mesh, index_t replicas, float* values, float scale,
                                 float last, float* sums) {
  const index_t i = thread_number();
  if (i >= count) return;
  const index_t node_pitch = mesh.ranks_per_node * count;
  const index_t replica_pitch = mesh.nodes * node_pitch;
  for (index_t node = 0; node < replicas * mesh.nodes; ++node) {
    static_cast<void>(tree_sum(values + node * node_pitch + i, mesh.ranks_per_node, count));
  }
  for (index_t replica = 0; replica < replicas; ++replica) {
    float* const at = values + replica * replica_pitch + i;
    *at = tree_sum(at, mesh.nodes, node_pitch) * scale;
  }
  sums[i] = tree_sum(values + i, replicas, replica_pitch) * last;
}

}  // namespace layers

class CudaUnsharded {
 public:
  /// On the current device.
  explicit CudaUnsharded(const Training& training)
      : training_(training),
        model_(training, 0, training.ranks(), nullptr),
        gradients_(training.ranks() * total()),
        widened_(training.ranks() * total()),
        losses_(training.ranks()),
        sums_(training.steps) {
    std::vector<float> start;
    for (index_t g = 0; g < groups; ++g) {
      for (const tide::Parameter& parameter : group(g).parameters) {
        places_[static_cast<std::size_t>(g)].push_back(static_cast<index_t>(start.size()));
        for (index_t i = 0; i < parameter.shape.elements(); ++i) {
          start.push_back(toy::start_value(training.seed, g, parameter, i));
        }
      }
    }
    check(cudaMemcpy(masters_.data(), start.data(), start.size() * sizeof(float), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }

  /// The global loss of each step.
  [[nodiscard]] std::vector<float> run() {
    for (int step = 0; step < training_.steps; ++step) train(step);
    std::vector<float> losses(static_cast<std::size_t>(training_.steps));
    check(cudaMemcpy(losses.data(), sums_.data(), losses.size() * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return losses;
  }

 private:
  static constexpr index_t groups = toy::blocks + 2;

  [[nodiscard]] static tide::GroupView group(index_t g) {
    if (g == 0) return toy::embedding_group.view();
    return g <= toy::blocks ? toy::block_group.view() : toy::head_group.view();
  }
  // Elements of the model.
  [[nodiscard]] static index_t total() {
    index_t sum = 0;
    for (index_t g = 0; g < groups; ++g) {
      for (const tide::Parameter& parameter : group(g).parameters) sum += parameter.shape.elements();
    }
    return sum;
  }

  void train(int step) {
    const index_t ranks = training_.ranks();
    layers::launch(nullptr, layers::narrow, total(), masters_.data(), whole_.data());
    for (index_t rank = 0; rank < ranks; ++rank) gradients_of(rank, step);
    layers::launch(nullptr, layers::widen, ranks * total(), gradients_.data(), widened_.data());
    layers::launch(nullptr, layers::sum_ranks, total(), training_.mesh, training_.replicas, widened_.data(),
                   1.0F / static_cast<float>(training_.mesh.ranks()), 1.0F / static_cast<float>(training_.replicas),
                   reduced_.data());
    layers::launch(nullptr, layers::sum_ranks, 1, training_.mesh, training_.replicas, losses_.data(), 1.0F, 1.0F,
                   sums_.data() + step);
    layers::update(nullptr, step, total(), masters_.data(), reduced_.data(), mean_.data(), square_.data());
  }

  // The loss and the gradients of one rank's samples.
  void gradients_of(index_t rank, int step) {
    const auto at = [&](index_t g, std::size_t p) -> const bf16* { return whole_.data() + place(g, p); };
    const auto into = [&](index_t g, std::size_t p) { return gradients_.data() + rank * total() + place(g, p); };
    const index_t last = toy::blocks + 1;
    model_.begin(rank, step);
    model_.embed(at(0, 0), at(0, 1));
    for (index_t b = 1; b <= toy::blocks; ++b) model_.block(b - 1, at(b, 0), at(b, 1), at(b, 2), at(b, 3));
    model_.head(at(last, 0), at(last, 1), losses_.data() + rank);
    model_.head_back(at(last, 0), at(last, 1), into(last, 0), into(last, 1));
    for (index_t b = toy::blocks; b >= 1; --b) {
      model_.block_back(b - 1, at(b, 0), at(b, 1), at(b, 2), at(b, 3), into(b, 0), into(b, 1), into(b, 2), into(b, 3));
    }
    model_.embed_back(into(0, 0), into(0, 1));
  }

  [[nodiscard]] index_t place(index_t g, std::size_t p) const { return places_[static_cast<std::size_t>(g)][p]; }

  Training training_;
  CudaModel model_;
  std::vector<std::vector<index_t>> places_{static_cast<std::size_t>(groups)};  // of parameters in what follows
  CudaMemory<float> masters_{total()};
  CudaMemory<float> mean_{total()};
  CudaMemory<float> square_{total()};
  CudaMemory<float> reduced_{total()};
  CudaMemory<bf16> whole_{total()};
  CudaMemory<bf16> gradients_;  // by rank
  CudaMemory<float> widened_;
  CudaMemory<float> losses_;
  CudaMemory<float> sums_;  // by step
};

}  // namespace tide_example
