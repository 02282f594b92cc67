// SPDX-License-Identifier: Apache-2.0
//
// CudaKernels: what HostKernels is for CPU ranks, on a GPU: the toy model's layers, Adam, and a look at when gradients
// are free.

#pragma once

#include "cuda_model.cuh"

#include <tide/fabric/cuda_fabric.cuh>

#include <cstddef>
#include <map>
#include <vector>

namespace tide_example {

namespace layers {

[[nodiscard]] __device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

static __global__ void stamp(index_t, std::uint64_t* now) {
  if (thread_number() == 0) *now = nanoseconds();
}

static __global__ void add_since(index_t, const std::uint64_t* then, std::uint64_t* sum) {
  if (thread_number() == 0) *sum += nanoseconds() - *then;
}

}  // namespace layers

class CudaKernels {
 public:
  /// Before `init` of the fabric: from then on nothing may be allocated, and no kernel be launched for the first time.
  /// @param rank  of all ranks, whose samples it computes with
  CudaKernels(tide::CudaFabric& fabric, const Training& training, index_t rank)
      : training_(training),
        rank_(rank),
        compute_(fabric.stream()),
        loss_stream_(fabric.stream()),
        free_stream_(fabric.stream()),
        ready_stream_(fabric.stream()),
        model_(training, rank_, 1, compute_.get()),
        freed_(training.steps * (toy::blocks + 2)),
        losses_(training.steps),
        start_(group_starts(training.mesh).back()),
        mean_(group_starts(training.mesh).back()),
        square_(group_starts(training.mesh).back()),
        group_starts_(group_starts(training.mesh)) {
    layers::update(compute_.get(), 0, 0, nullptr, nullptr, nullptr, nullptr);
    layers::launch(compute_.get(), layers::scribble, 0, nullptr);
    layers::launch(compute_.get(), layers::stamp, 1, freed_.data());
    layers::launch(compute_.get(), layers::add_since, 1, freed_.data(), ahead_.data());
    check(cudaStreamSynchronize(compute_.get()), "cudaStreamSynchronize");
    *ahead_.data() = 0;
  }

  [[nodiscard]] tide::CudaStream& compute() noexcept { return compute_; }

  /// The batch of a step. The host stays less than two steps ahead: the driver blocks it near 1,000 calls.
  void begin(int step) {
    begun_.synchronize();
    begun_ = compute_.record();
    model_.begin(rank_, step);
  }

  template <class Group>
  void embed(const Group& group) {
    model_.embed(group.template get<"tokens.weight">().data(), group.template get<"positions.weight">().data());
  }
  template <class Group>
  void block(const Group& group) {
    model_.block(group.index(), group.template get<"norm.weight">().data(), group.template get<"up.weight">().data(),
                 group.template get<"up.bias">().data(), group.template get<"down.weight">().data());
  }
  /// Leaves this rank's part of the global loss in `loss`.
  template <class Group>
  void head(const Group& group, float* loss) {
    compute_.wait(loss_read_);
    model_.head(group.template get<"norm.weight">().data(), group.template get<"output.weight">().data(), loss);
  }

  template <class Group>
  void head_back(const Group& group) {
    wait_for_scribbles(group.gradients());
    model_.head_back(group.template get<"norm.weight">().data(), group.template get<"output.weight">().data(),
                     group.template gradient<"norm.weight">().data(),
                     group.template gradient<"output.weight">().data());
  }
  template <class Group>
  void block_back(const Group& group) {
    wait_for_scribbles(group.gradients());
    model_.block_back(group.index(), group.template get<"norm.weight">().data(),
                      group.template get<"up.weight">().data(), group.template get<"up.bias">().data(),
                      group.template get<"down.weight">().data(), group.template gradient<"norm.weight">().data(),
                      group.template gradient<"up.weight">().data(), group.template gradient<"up.bias">().data(),
                      group.template gradient<"down.weight">().data());
  }
  template <class Group>
  void embed_back(const Group& group) {
    wait_for_scribbles(group.gradients());
    model_.embed_back(group.template gradient<"tokens.weight">().data(),
                      group.template gradient<"positions.weight">().data());
  }

  /// A reduce has begun: overwrites its gradients the moment they are free, where that is asked for, and measures by
  /// how much that is before the shards are ready.
  template <class Gradients>
  void reduced(const tide::ReduceTicket& ticket, const Gradients& gradients) {
    std::uint64_t* const freed = freed_.data() + reduces_++;
    free_stream_.wait(ticket.gradients_free);
    layers::launch(free_stream_.get(), layers::stamp, 1, freed);
    if (training_.scribble_gradients) {
      const index_t bytes = gradients.layout().view().bytes(tide::Buffer::gradients);
      layers::launch(free_stream_.get(), layers::scribble, bytes / index_t{sizeof(bf16)},
                     reinterpret_cast<bf16*>(gradients.data()));
      scribbled_[gradients.data()] = free_stream_.record();
    }
    ready_stream_.wait(free_stream_.record());
    ready_stream_.wait(ticket.shards_ready);
    layers::launch(ready_stream_.get(), layers::add_since, 1, freed, ahead_.data());
  }

  /// When `ready`, copies a loss; the event says when that is done.
  [[nodiscard]] tide::Event copy_loss(const tide::Event& ready, const float* from, float* to) {
    loss_stream_.wait(ready);
    check(cudaMemcpyAsync(to, from, sizeof(float), cudaMemcpyDeviceToDevice, loss_stream_.get()), "cudaMemcpyAsync");
    return loss_stream_.record();
  }
  /// When `ready`, keeps the global loss of this step.
  void keep_loss(const tide::Event& ready, const float* loss) {
    loss_stream_.wait(ready);
    check(cudaMemcpyAsync(losses_.data() + kept_++, loss, sizeof(float), cudaMemcpyDeviceToHost, loss_stream_.get()),
          "cudaMemcpyAsync");
    loss_read_ = loss_stream_.record();
  }

  template <class Group>
  void initialize(const Group& group) {
    const auto masters = group.masters();
    const tide::LayoutView layout = masters.layout().view();
    masters.for_each([&](const tide::Piece& piece, std::span<float> own) {
      float* const values = start_.data() + position(group, own);
      for (std::size_t i = 0; i < own.size(); ++i) {
        values[i] = toy::start_value(training_.seed, number_of(group.part(), group.index()),
                                     layout.group[piece.parameter], piece.first + static_cast<index_t>(i));
      }
      check(cudaMemcpyAsync(own.data(), values, own.size_bytes(), cudaMemcpyHostToDevice, compute_.get()),
            "cudaMemcpyAsync");
    });
  }

  /// Adam on the own rows. Its state lies as the masters do: sharded.
  template <class Group>
  void update(const Group& group, int step) {
    group.for_each([&](const tide::Parameter&, std::span<float> masters, std::span<float> gradient) {
      const index_t at = position(group, masters);
      layers::update(compute_.get(), step, static_cast<index_t>(masters.size()), masters.data(), gradient.data(),
                     mean_.data() + at, square_.data() + at);
    });
  }

  void synchronize() {
    for (tide::CudaStream* stream : {&compute_, &loss_stream_, &free_stream_, &ready_stream_}) stream->synchronize();
  }

  // After synchronize.

  /// The global loss of each step, in pinned memory.
  [[nodiscard]] std::span<const float> losses() const noexcept {
    return {losses_.data(), static_cast<std::size_t>(kept_)};
  }
  /// Seconds by which gradients were free before their reduced shards were ready, on average.
  [[nodiscard]] double free_ahead() const noexcept {
    return reduces_ > 0 ? static_cast<double>(*ahead_.data()) * 1e-9 / static_cast<double>(reduces_) : 0;
  }

 private:
  // Where the masters of each group begin if those of all groups lie in a row; then where they end.
  [[nodiscard]] static std::vector<index_t> group_starts(tide::MeshShape mesh) {
    const auto floats = [](const auto& layout) {
      return layout.view().max_bytes(tide::Buffer::masters) / index_t{sizeof(float)};
    };
    std::vector<index_t> starts{0, floats(Embedding::on(mesh))};
    for (index_t i = 0; i < toy::blocks; ++i) starts.push_back(starts.back() + floats(Block::on(mesh)));
    starts.push_back(starts.back() + floats(Head::on(mesh)));
    return starts;
  }

  // Of some masters in that row.
  template <class Group>
  [[nodiscard]] index_t position(const Group& group, std::span<const float> masters) const {
    return group_starts_[static_cast<std::size_t>(number_of(group.part(), group.index()))] +
           (masters.data() - reinterpret_cast<const float*>(group.masters().data()));
  }

  template <class Gradients>
  void wait_for_scribbles(const Gradients& gradients) {
    compute_.wait(scribbled_[gradients.data()]);
  }

  Training training_;
  index_t rank_;
  tide::CudaStream compute_;
  tide::CudaStream loss_stream_;
  tide::CudaStream free_stream_;
  tide::CudaStream ready_stream_;
  CudaModel model_;
  CudaMemory<std::uint64_t> freed_;  // when the gradients of each reduce were
  PinnedMemory<std::uint64_t> ahead_{1};
  PinnedMemory<float> losses_;
  PinnedMemory<float> start_;  // where training starts, on its way to the masters
  CudaMemory<float> mean_;
  CudaMemory<float> square_;
  std::vector<index_t> group_starts_;
  std::map<const std::byte*, tide::Event> scribbled_;  // by gradient memory
  tide::Event loss_read_{};
  tide::Event begun_{};  // the step before
  int kept_ = 0;
  index_t reduces_ = 0;
};

}  // namespace tide_example
