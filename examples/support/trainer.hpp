// SPDX-License-Identifier: Apache-2.0
//
// Trainer: one rank's training of the toy model with ShardedStep. It knows no fabric: what computes is a parameter, and
// the rest is the same wherever ranks run.

#pragma once

#include "toy_model.hpp"

#include <tide/pipeline/sharded_step.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <optional>

namespace tide_example {

using tide::index_t;

/// What a training is asked to do.
struct Training {
  tide::MeshShape mesh{1, 4};  ///< of a replica
  index_t replicas = 1;
  int steps = 300;
  std::uint64_t seed = 1;
  index_t samples = 8;  ///< of each rank and step
  bool scribble_gradients = false;

  [[nodiscard]] index_t ranks() const noexcept { return replicas * mesh.ranks(); }
  [[nodiscard]] index_t global_batch() const noexcept { return samples * ranks(); }
  /// @param rank  of all: the first ranks are replica 0
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
/// @tparam Options  of ShardedStep: `Replicated`, where ranks have a second fabric
template <class Kernels, class Inter, class Inbox, class... Options>
class Trainer {
  // snippet: step-type
  using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, Inter, Inbox, Options...>;
  // end: step-type
  using Losses = tide::AllReduce<tide::Depth<1>, tide::UnicastTransport, tide::CopyEngineReducer<>, Inter>;

 public:
  /// Whether ranks have a second fabric.
  static constexpr bool replicated = Step::replicated;

  /// Initializes the fabric, and that of the replicas where there is one.
  template <class Fabric, class... Replicas>
  Trainer(const Training& training, Fabric& fabric, Replicas&... replicas)
      : step_(fabric, replicas...),
        losses_(fabric, 1, "loss"),
        kernels_(fabric, training, fabric.rank().value + (0 + ... + replicas.rank().value) * training.mesh.ranks()),
        steps_(training.steps) {
    losses_.scale(1);
    (over_replicas_.emplace(replicas, 1, "loss over replicas").scale(1), ...);
    fabric.init();
    (replicas.init(), ...);
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
    tide::Event summed = losses_.enqueue(compute);
    if (over_replicas_) {
      summed = over_replicas_->enqueue_after(kernels_.copy_loss(summed, losses_.buffer(), over_replicas_->buffer()));
    }
    kernels_.keep_loss(summed, over_replicas_ ? over_replicas_->buffer() : losses_.buffer());

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
  std::optional<Losses> over_replicas_;
  Kernels kernels_;
  int steps_;
};

}  // namespace tide_example
