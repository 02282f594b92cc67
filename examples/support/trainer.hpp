// SPDX-License-Identifier: Apache-2.0
//
// Trainer: one rank's training of the toy model with ShardedStep. It knows no fabric: what computes is a parameter, and
// the rest is the same wherever ranks run.

#pragma once

#include "toy_model.hpp"

#include <tide/pipeline/sharded_step.hpp>
#include <tide/transport/unicast_transport.hpp>

namespace tide_example {

using tide::index_t;

/// What a training is asked to do.
struct Training {
  tide::MeshShape mesh{1, 4};
  int steps = 300;
  std::uint64_t seed = 1;
  index_t samples = 8;  ///< of each rank and step
  bool scribble_gradients = false;

  [[nodiscard]] index_t global_batch() const noexcept { return samples * mesh.ranks(); }
  [[nodiscard]] toy::Batch batch(index_t rank, int step) const {
    return {seed, static_cast<std::uint64_t>(step), rank * samples, samples};
  }
};

// snippet: step-model
using AnyMesh = tide::Mesh<tide::dynamic, tide::dynamic>;
using Embedding = tide::ShardLayout<toy::embedding_group, AnyMesh>;
using Block = tide::ShardLayout<toy::block_group, AnyMesh>;
using Head = tide::ShardLayout<toy::head_group, AnyMesh>;

using Model = tide::Parts<tide::Part<"embedding", Embedding, tide::KeepGathered>,  // small: gathered once a step
                          tide::Part<"blocks", Block, tide::Repeat<toy::blocks>>,  //
                          tide::Part<"head", Head>>;
// end: step-model

/// The position of a group in the model.
[[nodiscard]] inline index_t number_of(std::string_view part, index_t i) {
  return part == "embedding" ? 0 : part == "blocks" ? 1 + i : 1 + toy::blocks;
}

/// @tparam Kernels  how a rank computes, and its streams: `HostKernels`
/// @tparam Inter    how blocks and sums cross nodes
/// @tparam Inbox    where gradients wait: `SlotReuse` or a `Ring`
template <class Kernels, class Inter, class Inbox>
class Trainer {
  // snippet: step-type
  using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, Inter, Inbox>;
  // end: step-type
  using Losses = tide::AllReduce<tide::Depth<1>, tide::UnicastTransport, tide::CopyEngineReducer<>, Inter>;

 public:
  /// Initializes the fabric.
  template <class Fabric>
  Trainer(Fabric& fabric, const Training& training)
      : step_(fabric), losses_(fabric, 1, "loss"), kernels_(fabric, training), steps_(training.steps) {
    losses_.scale(1);
    fabric.init();
    step_.load(kernels_.compute(), [&](const auto& group) { kernels_.initialize(group); });
  }

  /// Enqueues all steps and waits for the last.
  void run() {
    for (int step = 0; step < steps_; ++step) train(step);
    kernels_.synchronize();
  }

  [[nodiscard]] const Kernels& kernels() const noexcept { return kernels_; }

 private:
  // snippet: step-forward
  void train(int step) {
    auto& compute = kernels_.compute();
    kernels_.begin(step);
    auto embedding = step_.template forward<"embedding">(compute);
    kernels_.embed(embedding);
    embedding.release();
    for (index_t i = 0; i < toy::blocks; ++i) {
      auto block = step_.template forward<"blocks">(compute, i);  // the next one is gathered meanwhile
      kernels_.block(block);
      block.release();
    }
    auto head = step_.template forward<"head">(compute);
    kernels_.head(head, losses_.buffer());
    head.release();
    // end: step-forward
    kernels_.keep_loss(losses_.enqueue(compute), losses_.buffer());

    // snippet: step-backward
    auto head_back = step_.template backward<"head">(compute);
    kernels_.head_back(head_back);  // writes head_back.gradient<"output.weight">() and the like
    kernels_.reduced(head_back.reduce(), head_back.gradients());
    for (index_t i = toy::blocks; i-- > 0;) {
      auto block = step_.template backward<"blocks">(compute, i);
      kernels_.block_back(block);
      kernels_.reduced(block.reduce(), block.gradients());
    }
    auto embedding_back = step_.template backward<"embedding">(compute);
    kernels_.embed_back(embedding_back);
    kernels_.reduced(embedding_back.reduce(), embedding_back.gradients());

    step_.update(compute, [&](const auto& group) { kernels_.update(group, step); });
  }
  // end: step-backward

  Step step_;
  Losses losses_;
  Kernels kernels_;
  int steps_;
};

}  // namespace tide_example
