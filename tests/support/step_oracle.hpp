// SPDX-License-Identifier: Apache-2.0
//
// A toy model whose training can be written down twice: here without shards, loop by loop, and in step_rank.hpp with
// ShardedStep. Every gradient depends on every parameter that its rank saw, so a wrong byte anywhere changes the loss.
//
//   forward    a <- a / 2 + sum of w[i] * c(group, parameter, i)       along a group's parameters, on each rank
//   backward   gradient of w[i] = d(rank, step, micro-batch, ...) * a + w[i] / 8, rounded to its element
//   update     w[i] <- w[i] - reduced gradient / 4

#pragma once

#include <tide/element/bf16.hpp>
#include <tide/layout/group.hpp>
#include <tide/reduce/tree.hpp>

#include "support/oracle.hpp"
#include "support/values.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace tide_test::step {

using tide::index_t;

/// A small number that bits choose.
inline float fraction(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  return static_cast<float>(static_cast<std::int64_t>(mix(a, b, c, d) % 257) - 128) / 512.0F;
}

/// A value as its element holds it.
inline float rounded(tide::Element element, float value) {
  return element == tide::Element::bf16 ? static_cast<float>(tide::bf16(value)) : value;
}

inline float start_of(index_t group, std::size_t parameter, index_t i) {
  return fraction(1, static_cast<std::uint64_t>(group), parameter, static_cast<std::uint64_t>(i));
}

/// One term of the forward of a parameter.
inline float forward_term(index_t group, std::size_t parameter, index_t i, float w) {
  return w * fraction(2, static_cast<std::uint64_t>(group), parameter, static_cast<std::uint64_t>(i));
}

/// Which batch: of a rank, a step and a micro-batch.
inline std::uint64_t batch_of(index_t rank, int step, int micro) {
  return mix(3, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(micro));
}

inline float gradient_of(std::uint64_t batch, index_t group, std::size_t parameter, index_t i, float a, float w) {
  return fraction(batch, static_cast<std::uint64_t>(group), parameter, static_cast<std::uint64_t>(i)) * a + w / 8;
}

inline float first_activation(std::uint64_t batch) { return fraction(batch, 4, 5, 6); }
inline float folded(float a) { return a / 2; }
inline float descended(float w, float gradient) { return w - gradient / 4; }

/// What a test does beside plain training. All of it is a function of its arguments: every rank and the oracle agree.
struct Recipe {
  index_t ranks = 1;
  index_t nodes = 1;
  index_t replicas = 1;  ///< `ranks` each
  int steps = 4;
  int micro_batches = 1;
  bool some_missing = false;  ///< parameters that get no gradient, on some ranks or on all
  bool scribble = false;      ///< gradients are overwritten the moment they are free
  bool evaluate = false;      ///< forwards in between
  bool slow_readers = false;
  float scale = 0;  ///< of the sums over ranks; 0: their average
  std::uint64_t seed = 1;

  [[nodiscard]] float factor() const { return scale != 0 ? scale : 1.0F / static_cast<float>(ranks); }

  [[nodiscard]] bool is_missing(index_t rank, int step, int micro, index_t group, std::size_t parameter) const {
    if (!some_missing) return false;
    const std::uint64_t one =
        mix(seed, static_cast<std::uint64_t>(step * 16 + micro), static_cast<std::uint64_t>(group), parameter);
    return one % 7 == 0 || mix(one, static_cast<std::uint64_t>(rank), 7, 8) % 4 == 0;
  }
};

/// A group of the model: its parameters, and which of them train.
struct Group {
  tide::GroupView view;
  bool masters = true;  ///< else it is stored in the gathered element, and nothing of it trains
  std::vector<char> trains{};
};

/// Training without shards.
class Oracle {
 public:
  Oracle(std::vector<Group> groups, const Recipe& recipe) : groups_(std::move(groups)), recipe_(recipe) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<std::vector<float>>& parameters = weights_.emplace_back();
      for (std::size_t p = 0; p < groups_[g].view.parameters.size(); ++p) {
        std::vector<float>& values = parameters.emplace_back();
        for (index_t i = 0; i < groups_[g].view.parameters[p].shape.elements(); ++i) {
          values.push_back(start_of(static_cast<index_t>(g), p, i));
        }
      }
    }
    for (int step = 0; step < recipe.steps; ++step) train(step);
  }

  /// f32 weights after all steps: by group and parameter.
  [[nodiscard]] const std::vector<std::vector<std::vector<float>>>& weights() const { return weights_; }
  /// The last activation of a forward.
  [[nodiscard]] float loss(index_t rank, int step, int micro) const {
    return losses_[static_cast<std::size_t>((step * recipe_.micro_batches + micro) * world() + rank)];
  }
  [[nodiscard]] const std::vector<Group>& groups() const { return groups_; }

 private:
  [[nodiscard]] int world() const { return static_cast<int>(recipe_.ranks * recipe_.replicas); }

  void train(int step) {
    std::vector<std::vector<std::vector<float>>> sums;  // of micro-batches
    for (const auto& group : weights_) {
      auto& into = sums.emplace_back();
      for (const auto& parameter : group) into.emplace_back(parameter.size(), 0.0F);
    }
    for (int micro = 0; micro < recipe_.micro_batches; ++micro) {
      std::vector<float> activations;
      for (index_t rank = 0; rank < world(); ++rank) activations.push_back(forward(batch_of(rank, step, micro)));
      losses_.insert(losses_.end(), activations.begin(), activations.end());
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        for (std::size_t p = 0; p < weights_[g].size(); ++p) {
          for (std::size_t i = 0; i < weights_[g][p].size(); ++i) {
            const auto leaf = [&](index_t rank) {
              const tide::Parameter& parameter = groups_[g].view.parameters[p];
              const auto group = static_cast<index_t>(g);
              if (recipe_.is_missing(rank, step, micro, group, p)) return 0.0F;
              return rounded(parameter.gradient,
                             gradient_of(batch_of(rank, step, micro), group, p, static_cast<index_t>(i),
                                         activations[static_cast<std::size_t>(rank)],
                                         rounded(parameter.gathered, weights_[g][p][i])));
            };
            if (recipe_.replicas == 1) {
              const float sum = mesh_sum(0, leaf) * recipe_.factor();
              sums[g][p][i] = recipe_.micro_batches == 1 ? sum : sums[g][p][i] + sum;
            } else {
              const auto inside = [&](index_t replica) {
                return mesh_sum(replica * recipe_.ranks, leaf) * recipe_.factor();
              };
              replica_sums(sums[g][p][i], g, p, i, micro, inside);
            }
          }
        }
      }
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::size_t p = 0; p < weights_[g].size(); ++p) {
        if (groups_[g].trains[p] == 0) continue;
        for (std::size_t i = 0; i < weights_[g][p].size(); ++i) {
          weights_[g][p][i] = descended(weights_[g][p][i], sums[g][p][i]);
        }
      }
    }
  }

  // Inside nodes, then over them.
  template <class Leaf>
  [[nodiscard]] float mesh_sum(index_t first, const Leaf& leaf) const {
    const index_t local = recipe_.ranks / recipe_.nodes;
    return tide::tree_sum(0, recipe_.nodes, [&](index_t node) {
      return tide::tree_sum(first + node * local, first + (node + 1) * local, leaf);
    });
  }

  // Micro-batches are added inside each replica, and replicas after the last.
  template <class Inside>
  void replica_sums(float& sum, std::size_t g, std::size_t p, std::size_t i, int micro, const Inside& inside) {
    std::vector<float>& added = replica_[{g, p, i}];
    added.resize(static_cast<std::size_t>(recipe_.replicas));
    for (index_t r = 0; r < recipe_.replicas; ++r) {
      float& one = added[static_cast<std::size_t>(r)];
      one = recipe_.micro_batches == 1 ? inside(r) : (micro == 0 ? 0.0F : one) + inside(r);
    }
    if (micro + 1 < recipe_.micro_batches) return;
    sum = tide::tree_sum(0, recipe_.replicas, [&](index_t r) { return added[static_cast<std::size_t>(r)]; }) *
          (1.0F / static_cast<float>(recipe_.replicas));
  }

  [[nodiscard]] float forward(std::uint64_t batch) const {
    float a = first_activation(batch);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      a = folded(a);
      for (std::size_t p = 0; p < weights_[g].size(); ++p) {
        for (std::size_t i = 0; i < weights_[g][p].size(); ++i) {
          const float w = rounded(groups_[g].view.parameters[p].gathered, weights_[g][p][i]);
          a += forward_term(static_cast<index_t>(g), p, static_cast<index_t>(i), w);
        }
      }
    }
    return a;
  }

  std::vector<Group> groups_;
  Recipe recipe_;
  std::vector<std::vector<std::vector<float>>> weights_;
  std::vector<float> losses_;
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, std::vector<float>> replica_;
};

}  // namespace tide_test::step
