// SPDX-License-Identifier: Apache-2.0
//
// HostKernels: what a GPU's kernels would be for the Trainer, as functions on host streams: the toy model's layers,
// Adam, and a look at when gradients are free.

#pragma once

#include "trainer.hpp"

#include <tide/fabric/host_port.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace tide_example {

class HostKernels {
 public:
  /// @param rank  of all ranks, whose samples it computes with
  template <class Fabric>
  HostKernels(Fabric& fabric, const Training& training, index_t rank)
      : training_(training),
        rank_(rank),
        compute_(fabric.stream()),
        loss_stream_(fabric.stream()),
        free_stream_(fabric.stream()),
        ready_stream_(fabric.stream()),
        activations_(static_cast<std::size_t>(training.samples)) {
    losses_.reserve(static_cast<std::size_t>(training.steps));
    if constexpr (requires { fabric.now(); }) now_ = [&fabric] { return fabric.now(); };  // its time is virtual
  }

  [[nodiscard]] tide::HostStream& compute() noexcept { return compute_; }

  /// The batch of a step.
  void begin(int step) {
    compute_.run([this, step] { batch_ = std::make_unique<toy::Batch>(training_.batch(rank_, step)); });
  }

  template <class Group>
  void embed(const Group& group) {
    compute_.run(
        [this, tokens = group.template get<"tokens.weight">(), positions = group.template get<"positions.weight">()] {
          activations_.embed(*batch_, tokens.elements(), positions.elements());
        });
  }
  template <class Group>
  void block(const Group& group) {
    compute_.run([this, i = group.index(), norm = group.template get<"norm.weight">(),
                  up = group.template get<"up.weight">(), bias = group.template get<"up.bias">(),
                  down = group.template get<"down.weight">()] {
      activations_.block(i, norm.elements(), up.elements(), bias.elements(), down.elements());
    });
  }
  /// Leaves this rank's part of the global loss in `loss`.
  template <class Group>
  void head(const Group& group, float* loss) {
    compute_.wait(loss_read_);
    compute_.run(
        [this, loss, norm = group.template get<"norm.weight">(), output = group.template get<"output.weight">()] {
          *loss = activations_.head(*batch_, training_.global_batch(), norm.elements(), output.elements());
        });
  }

  template <class Group>
  void head_back(const Group& group) {
    wait_for_scribbles(group.gradients());
    compute_.run([this, norm = group.template get<"norm.weight">(), output = group.template get<"output.weight">(),
                  g_norm = group.template gradient<"norm.weight">(),
                  g_output = group.template gradient<"output.weight">()] {
      activations_.head_back(norm.elements(), output.elements(), g_norm.elements(), g_output.elements());
    });
  }
  template <class Group>
  void block_back(const Group& group) {
    wait_for_scribbles(group.gradients());
    compute_.run([this, i = group.index(), norm = group.template get<"norm.weight">(),
                  up = group.template get<"up.weight">(), bias = group.template get<"up.bias">(),
                  down = group.template get<"down.weight">(), g_norm = group.template gradient<"norm.weight">(),
                  g_up = group.template gradient<"up.weight">(), g_bias = group.template gradient<"up.bias">(),
                  g_down = group.template gradient<"down.weight">()] {
      activations_.block_back(i, norm.elements(), up.elements(), bias.elements(), down.elements(), g_norm.elements(),
                              g_up.elements(), g_bias.elements(), g_down.elements());
    });
  }
  template <class Group>
  void embed_back(const Group& group) {
    wait_for_scribbles(group.gradients());
    compute_.run([this, g_tokens = group.template gradient<"tokens.weight">(),
                  g_positions = group.template gradient<"positions.weight">()] {
      activations_.embed_back(*batch_, g_tokens.elements(), g_positions.elements());
    });
  }

  /// A reduce has begun: overwrites its gradients the moment they are free, where that is asked for, and measures by
  /// how much that is before the shards are ready.
  template <class Gradients>
  void reduced(const tide::ReduceTicket& ticket, const Gradients& gradients) {
    const auto freed = std::make_shared<double>();
    free_stream_.wait(ticket.gradients_free);
    free_stream_.run([this, freed] { *freed = now_(); });
    if (training_.scribble_gradients) {
      const auto bytes = static_cast<std::size_t>(gradients.layout().view().bytes(tide::Buffer::gradients));
      free_stream_.run([memory = gradients.data(), bytes] { std::memset(memory, 0xFF, bytes); });  // NaN
      scribbled_[gradients.data()] = free_stream_.record();
    }
    ready_stream_.wait(free_stream_.record());
    ready_stream_.wait(ticket.shards_ready);
    ready_stream_.run([this, freed] {
      ahead_ += now_() - *freed;
      ++reduces_;
    });
  }

  /// When `ready`, copies a loss; the event says when that is done.
  [[nodiscard]] tide::Event copy_loss(const tide::Event& ready, const float* from, float* to) {
    loss_stream_.wait(ready);
    loss_stream_.run([from, to] { *to = *from; });
    return loss_stream_.record();
  }
  /// When `ready`, keeps the global loss of this step.
  void keep_loss(const tide::Event& ready, const float* loss) {
    loss_stream_.wait(ready);
    loss_stream_.run([this, loss] { losses_.push_back(*loss); });
    loss_read_ = loss_stream_.record();
  }

  template <class Group>
  void initialize(const Group& group) {
    compute_.run([this, group] {
      const auto masters = group.masters();
      const tide::LayoutView layout = masters.layout().view();
      masters.for_each([&](const tide::Piece& piece, std::span<float> own) {
        for (std::size_t i = 0; i < own.size(); ++i) {
          own[i] = toy::start_value(training_.seed, number_of(group.part(), group.index()),
                                    layout.group[piece.parameter], piece.first + static_cast<index_t>(i));
        }
      });
    });
  }

  /// Adam on the own rows. Its state lies beside the masters: sharded as they are.
  template <class Group>
  void update(const Group& group, int step) {
    compute_.run([this, group, step] {
      State& state = states_[number_of(group.part(), group.index())];
      const auto* base = reinterpret_cast<const float*>(group.masters().data());
      state.resize(static_cast<std::size_t>(group.masters().bytes()) / sizeof(float));
      group.for_each([&](const tide::Parameter&, std::span<float> masters, std::span<float> gradient) {
        const auto at = static_cast<std::size_t>(masters.data() - base);
        adam_.update(step, masters, gradient, std::span(state.mean).subspan(at, masters.size()),
                     std::span(state.square).subspan(at, masters.size()));
      });
    });
  }

  void synchronize() {
    for (tide::HostStream* stream : {&compute_, &loss_stream_, &free_stream_, &ready_stream_}) stream->synchronize();
  }

  // After synchronize.

  /// The global loss of each step.
  [[nodiscard]] const std::vector<float>& losses() const noexcept { return losses_; }
  /// Seconds by which gradients were free before their reduced shards were ready, on average.
  [[nodiscard]] double free_ahead() const noexcept { return reduces_ > 0 ? ahead_ / reduces_ : 0; }

 private:
  struct State {
    std::vector<float> mean;
    std::vector<float> square;
    void resize(std::size_t size) {
      mean.resize(size, 0.0F);
      square.resize(size, 0.0F);
    }
  };

  template <class Gradients>
  void wait_for_scribbles(const Gradients& gradients) {
    compute_.wait(scribbled_[gradients.data()]);
  }

  // Seconds of the ranks' time.
  std::function<double()> now_ = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  Training training_;
  index_t rank_;
  tide::HostStream compute_;
  tide::HostStream loss_stream_;
  tide::HostStream free_stream_;
  tide::HostStream ready_stream_;
  toy::Activations activations_;
  std::unique_ptr<toy::Batch> batch_;
  toy::Adam adam_;
  std::map<index_t, State> states_;                    // by group; of the compute stream
  std::map<const std::byte*, tide::Event> scribbled_;  // by gradient memory
  tide::Event loss_read_{};
  std::vector<float> losses_;  // of the loss stream
  double ahead_ = 0;           // of the ready stream
  int reduces_ = 0;
};

}  // namespace tide_example
