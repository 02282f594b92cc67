// SPDX-License-Identifier: Apache-2.0
//
// One part of a ShardedStep: its storage, its gathers, and, where it is not frozen, its gradients and its reduce.

#pragma once

#include <tide/memory/shards.hpp>                    // Shards
#include <tide/pipeline/all_gather.hpp>              // AllGather
#include <tide/pipeline/detail/gradient_memory.hpp>  // GradientMemory
#include <tide/pipeline/detail/step_core.hpp>        // StepCore
#include <tide/pipeline/part.hpp>                    // Part
#include <tide/pipeline/reduce_scatter.hpp>          // ReduceScatter

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace tide::detail {

// The layout of what a part reduces.
template <class P>
[[nodiscard]] typename P::Trainable trainable_of(const typename P::Layout& layout) {
  if constexpr (std::is_same_v<typename P::Layout, typename P::Trainable>) {
    return layout;
  } else {
    return P::Trainable::on(layout.mesh());
  }
}

// Where the reduced gradients of a part lie: shards of their own, one for each group.
template <class P, class Replicas>
class ReducedShards {
  using Layout = typename P::Trainable;

 public:
  template <class F>
  ReducedShards(F& fabric, F*, const Layout& layout) {
    for (index_t i = 0; i < P::repeat; ++i) shards_.emplace_back(fabric, layout);
  }

  [[nodiscard]] std::byte* data(index_t i) const { return shards_[static_cast<std::size_t>(i)].data(); }
  [[nodiscard]] Event sum(const Event& ready, index_t) { return ready; }

 private:
  std::vector<MasterShards<Layout>> shards_;
};

// Or buffers that are summed over replicas.
template <class P, class Replicas>
requires(Replicas::replicated) class ReducedShards<P, Replicas> {
  using Layout = typename P::Trainable;

 public:
  template <class F>
  ReducedShards(F& fabric, F* replicas, const Layout& layout)
      : sums_(*replicas, layout.view().bytes(Buffer::masters, fabric.rank()) / 4, std::string(P::name)) {}

  [[nodiscard]] std::byte* data(index_t i) const { return reinterpret_cast<std::byte*>(sums_.buffer(i)); }
  [[nodiscard]] Event sum(const Event& ready, index_t i) { return sums_.enqueue_after(ready, i); }

 private:
  typename Replicas::template Sums<P::repeat> sums_;
};

// What a part that is not frozen has beside its gathers.
template <class P, class Types>
class StepReduce {
 public:
  using Layout = typename P::Trainable;
  static constexpr bool accumulates = Types::Reducer::finish == Finish::accumulate;

  template <class F, class Pool>
  StepReduce(F& fabric, F* replicas, Pool& pool, Layout layout, const GradientMemory& memory)
      : layout_(layout),
        rank_(fabric.rank()),
        reduced_(fabric, replicas, layout),
        reduce_(fabric, pool, layout, std::string(P::name)) {
    gradients_.reserve(memory.buffers.size());
    for (const ArenaStorage& buffer : memory.buffers) gradients_.emplace_back(buffer, layout);
  }

  [[nodiscard]] Gradients<Layout>& gradients(index_t buffer) { return gradients_[static_cast<std::size_t>(buffer)]; }
  [[nodiscard]] ShardsView<Layout, Buffer::masters> reduced(index_t i) const {
    return {reduced_.data(i), layout_, rank_};
  }
  void scale(float factor) noexcept { reduce_.scale(factor); }

  // Reduces what has been written by `written`.
  template <class Source>
  ReduceTicket run(StepCore& core, index_t group, Source& source, const Event& written) {
    StepGroupState& state = core.at(group);
    PortStream& work = core.reduces();
    const ShardsView<Layout, Buffer::masters> into = reduced(state.index);
    work.wait(written);      // and so for who read the last sums: the gather of this pass has waited for them
    work.wait(state.ready);  // sums over replicas that nobody has used
    if (accumulates && !state.adds) work.zero(into.data(), into.bytes());
    ReduceTicket ticket = reduce_.enqueue(source, into, work);
    state.adds = core.pass() == Pass::accumulate;
    if (!state.adds) ticket.shards_ready = reduced_.sum(ticket.shards_ready, state.index);
    state.ready = ticket.shards_ready;
    return ticket;
  }

 private:
  Layout layout_;
  Rank rank_;
  ReducedShards<P, typename Types::Replicas> reduced_;
  ReduceScatter<Layout, typename Types::Reducer, typename Types::Inter, typename Types::Inbox> reduce_;
  std::vector<Gradients<Layout>> gradients_;
};

template <class P, class Types>
class StepPart final : public StepGroups {
 public:
  using part = P;
  using types = Types;
  using Layout = typename P::Layout;
  using Weights = Shards<Layout, P::frozen ? Buffer::shards : Buffer::masters>;
  using Reduce = std::conditional_t<P::frozen, std::nullptr_t, std::optional<StepReduce<P, Types>>>;

  template <class F, class Pool>
  StepPart(F& fabric, F* replicas, Pool& pool, const Layout& layout, StepCore& core, const GradientMemory& memory)
      : pipeline_(static_cast<std::size_t>(P::repeat), 0) {
    weights_.reserve(static_cast<std::size_t>(P::repeat));
    for (index_t i = 0; i < P::repeat; ++i) {
      weights_.emplace_back(fabric, layout);
      core.at(P::number(i)) = {this, i, P::name, P::kept};
    }
    // A gather whose handle lives cannot begin again: as many as may be live at once.
    constexpr index_t pipelines = std::min(P::repeat, Pool::depth);
    gathers_.reserve(static_cast<std::size_t>(pipelines));
    for (index_t k = 0; k < pipelines; ++k) gathers_.emplace_back(fabric, pool, layout, std::string(P::name));
    live_ = std::vector<std::optional<Gathered<Layout>>>(static_cast<std::size_t>(pipelines));
    if constexpr (!P::frozen) reduce.emplace(fabric, replicas, pool, trainable_of<P>(layout), memory);
  }
  StepPart(const StepPart&) = delete;
  StepPart& operator=(const StepPart&) = delete;
  ~StepPart() = default;

  [[nodiscard]] Weights& weights(index_t i) { return weights_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Gathered<Layout>& gathered(index_t i) { return *live_[pipeline_[static_cast<std::size_t>(i)]]; }

  Event gather(index_t i, PortStream& stream) override {
    std::size_t k = 0;
    while (live_[k].has_value()) ++k;
    live_[k].emplace(gathers_[k].enqueue(weights(i), stream));
    pipeline_[static_cast<std::size_t>(i)] = k;
    return live_[k]->complete();
  }

  void release(index_t i, PortStream& stream) override {
    std::optional<Gathered<Layout>>& handle = live_[pipeline_[static_cast<std::size_t>(i)]];
    handle->release(stream);
    handle.reset();
  }

  [[no_unique_address]] Reduce reduce{};

 private:
  std::vector<Weights> weights_;
  std::vector<AllGather<Layout, typename Types::Intra, typename Types::Inter>> gathers_;
  std::vector<std::optional<Gathered<Layout>>> live_;  // by gather
  std::vector<std::size_t> pipeline_;                  // by group: which gather it used last
};

}  // namespace tide::detail
