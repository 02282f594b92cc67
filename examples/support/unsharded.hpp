// SPDX-License-Identifier: Apache-2.0
//
// Training of the toy model without shards, what train is compared with: one copy of the weights; the gradients of each
// rank's samples, narrowed as a rank would, are added along the tree of the mesh, and their averages over replicas.

#pragma once

#include "trainer.hpp"

#include <tide/reduce/tree.hpp>

#include <algorithm>
#include <vector>

namespace tide_example {

class Unsharded {
 public:
  explicit Unsharded(const Training& training) : training_(training) {
    for (index_t g = 0; g < toy::blocks + 2; ++g) {
      const tide::GroupView view = group(g);
      std::vector<Whole>& parameters = groups_.emplace_back();
      for (const tide::Parameter& parameter : view.parameters) {
        Whole& whole = parameters.emplace_back();
        const auto elements = static_cast<std::size_t>(parameter.shape.elements());
        for (std::size_t i = 0; i < elements; ++i) {
          whole.master.push_back(toy::start_value(training.seed, g, parameter, static_cast<index_t>(i)));
        }
        whole.mean.resize(elements, 0.0F);
        whole.square.resize(elements, 0.0F);
        whole.gradients.assign(static_cast<std::size_t>(training.ranks()), std::vector<tide::bf16>(elements));
      }
    }
  }

  /// The global loss of each step.
  [[nodiscard]] std::vector<float> run() {
    std::vector<float> losses;
    for (int step = 0; step < training_.steps; ++step) losses.push_back(train(step));
    return losses;
  }

 private:
  struct Whole {
    std::vector<float> master{};
    std::vector<float> mean{};
    std::vector<float> square{};
    std::vector<tide::bf16> gathered{};
    std::vector<std::vector<tide::bf16>> gradients{};  // by rank
  };

  [[nodiscard]] static tide::GroupView group(index_t g) {
    if (g == 0) return toy::embedding_group.view();
    return g <= toy::blocks ? toy::block_group.view() : toy::head_group.view();
  }

  // Inside nodes, over them, and, each times `scale`, over replicas, whose sum is multiplied with `last`.
  template <class Leaf>
  [[nodiscard]] float sum(float scale, float last, const Leaf& leaf) const {
    const index_t local = training_.mesh.ranks_per_node;
    const auto node_sum = [&](index_t node) {
      return tide::tree_sum(node * local, (node + 1) * local,
                            [&](index_t r) { return leaf(static_cast<std::size_t>(r)); });
    };
    const index_t nodes = training_.mesh.nodes;
    const auto replica_sum = [&](index_t r) { return tide::tree_sum(r * nodes, (r + 1) * nodes, node_sum) * scale; };
    return tide::tree_sum(0, training_.replicas, replica_sum) * last;
  }

  float train(int step) {
    for (std::vector<Whole>& parameters : groups_) {
      for (Whole& whole : parameters) {
        whole.gathered.resize(whole.master.size());
        std::transform(whole.master.begin(), whole.master.end(), whole.gathered.begin(),
                       [](float master) { return tide::bf16(master); });
      }
    }
    std::vector<float> losses;
    for (index_t rank = 0; rank < training_.ranks(); ++rank) losses.push_back(gradients_of(rank, step));
    const float inside = 1.0F / static_cast<float>(training_.mesh.ranks());
    const float across = 1.0F / static_cast<float>(training_.replicas);
    for (std::vector<Whole>& parameters : groups_) {
      for (Whole& whole : parameters) {
        std::vector<float> reduced(whole.master.size());
        for (std::size_t i = 0; i < reduced.size(); ++i) {
          reduced[i] =
              sum(inside, across, [&](std::size_t rank) { return static_cast<float>(whole.gradients[rank][i]); });
        }
        adam_.update(step, whole.master, reduced, whole.mean, whole.square);
      }
    }
    return sum(1, 1, [&](std::size_t rank) { return losses[rank]; });
  }

  // The loss of one rank's samples; leaves its gradients.
  float gradients_of(index_t rank, int step) {
    const toy::Batch batch = training_.batch(rank, step);
    toy::Activations activations(batch.size());
    const auto at = [&](index_t g, std::size_t p) { return std::span<const tide::bf16>(whole(g, p).gathered); };
    const auto into = [&](index_t g, std::size_t p) {
      return std::span<tide::bf16>(whole(g, p).gradients[static_cast<std::size_t>(rank)]);
    };
    const index_t last = toy::blocks + 1;
    activations.embed(batch, at(0, 0), at(0, 1));
    for (index_t b = 1; b <= toy::blocks; ++b) activations.block(b - 1, at(b, 0), at(b, 1), at(b, 2), at(b, 3));
    const float loss = activations.head(batch, training_.global_batch(), at(last, 0), at(last, 1));
    activations.head_back(at(last, 0), at(last, 1), into(last, 0), into(last, 1));
    for (index_t b = toy::blocks; b >= 1; --b) {
      activations.block_back(b - 1, at(b, 0), at(b, 1), at(b, 2), at(b, 3), into(b, 0), into(b, 1), into(b, 2),
                             into(b, 3));
    }
    activations.embed_back(batch, into(0, 0), into(0, 1));
    return loss;
  }

  [[nodiscard]] Whole& whole(index_t g, std::size_t p) { return groups_[static_cast<std::size_t>(g)][p]; }

  Training training_;
  toy::Adam adam_;
  std::vector<std::vector<Whole>> groups_;
};

}  // namespace tide_example
