// SPDX-License-Identifier: Apache-2.0
//
// TideGroup: tide's collectives of one group on one rank, and the memory that all paths read.

#pragma once

#include "baseline.cuh"
#include "stopwatch.cuh"

#include <tide/fabric/cuda_fabric.cuh>
#include <tide/models/registry.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/plan/kernels.hpp>
#include <tide/plan/tally.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <memory>
#include <optional>

namespace tide_benchmark {

using Layout = tide::DynamicLayout;
using Slots = tide::SlotPool<tide::Depth<1>, Layout>;
using Gather = tide::AllGather<Layout, tide::UnicastTransport>;
using MulticastGather = tide::AllGather<Layout, tide::MulticastTransport>;
using Output = tide::ShardsView<Layout, tide::Buffer::masters>;

/// The unit that a model repeats most: its block.
[[nodiscard]] inline const tide::Unit& block_of(const tide::Model& model) {
  const tide::Unit* most = &model.units.front();
  for (const tide::Unit& unit : model.units) most = unit.repeat > most->repeat ? &unit : most;
  return *most;
}

/// Adds a copy of a parameter, every extent times `part` / `of`.
inline void add_copy(tide::DynamicGroup& group, const tide::Parameter& parameter, index_t part = 1, index_t of = 1) {
  std::vector<index_t> extents;
  for (int d = 0; d < parameter.shape.rank; ++d) extents.push_back(parameter.shape[d] * part / of);
  group.add(parameter.name.str(), extents, parameter.gathered, parameter.gradient, parameter.sharding);
}

/// A group on some ranks of one node, every extent of its parameters times `part` / `of`.
[[nodiscard]] inline Layout layout_of(const tide::GroupView& group, index_t ranks, index_t part = 1, index_t of = 1) {
  tide::DynamicGroup copy;
  for (const tide::Parameter& parameter : group.parameters) add_copy(copy, parameter, part, of);
  return Layout(std::move(copy), {1, ranks});
}

inline constexpr index_t mebibyte = index_t{1} << 20;

/// A reduce-scatter whose policies are no longer in its type.
struct TideReduce {
  std::string policy;
  index_t inbox_bytes = 0;
  index_t driver_calls = 0;
  std::function<tide::ReduceTicket(tide::Gradients<Layout>&, const Output&, tide::CudaStream&)> enqueue;
};

/// The driver calls of the rank that makes the most; `write(collective, rank)` writes a plan.
template <class Write>
[[nodiscard]] index_t most_calls(tide::Collective collective, const Write& write) {
  tide::fill_kernels(collective);
  std::vector<tide::Plan> plans;
  for (index_t r = 0; r < collective.ranks(); ++r) plans.push_back(write(collective, tide::Rank{r}));
  return tide::driver_calls(collective, plans);
}

template <class Launch, index_t Count, index_t Budget>
[[nodiscard]] TideReduce make_reduce(tide::CudaFabric& fabric, const Layout& layout, const std::string& launch) {
  using Box = tide::Ring<tide::Chunks<Count>, tide::Bytes<Budget>>;
  using Reducer = tide::CopyEngineReducer<Launch>;
  using Reduce = tide::ReduceScatter<Layout, Reducer, tide::SingleNode, Box>;
  const auto reduce = std::make_shared<Reduce>(fabric, layout);
  tide::Collective collective;
  collective.layout = layout.view();
  collective.operation = tide::Operation::reduce;
  collective.inbox = Box::shape(layout.view());
  TideReduce made;
  made.policy = launch + ", ring of " + std::to_string(Count) + " in " + std::to_string(Budget / mebibyte) + " MiB";
  made.inbox_bytes = collective.inbox.bytes();
  made.driver_calls = most_calls(collective, &Reducer::reduce);
  made.enqueue = [reduce](tide::Gradients<Layout>& gradients, const Output& output, tide::CudaStream& stream) {
    return reduce->enqueue(gradients, output, stream);
  };
  return made;
}

/// Which reduce-scatters are made: of every policy, or the two that the sizes are measured with.
enum class Policies { all, few };

class TideGroup {
 public:
  /// Before `init` of the fabric, on every rank.
  TideGroup(tide::CudaFabric& fabric, Slots& slots, Layout layout, Policies policies)
      : rank_(fabric.rank()),
        slots_(slots),
        layout_(std::move(layout)),
        gather_(fabric, slots, layout_),
        gradients_(fabric, layout_) {
    if (fabric.has(tide::Capability::multicast)) multicast_.emplace(fabric, slots, layout_);
    reduces_.push_back(make_reduce<tide::Burst, 4, 64 * mebibyte>(fabric, layout_, "burst"));
    reduces_.push_back(make_reduce<tide::Burst, 4, 256 * mebibyte>(fabric, layout_, "burst"));
    if (policies == Policies::few) return;
    using Few = tide::Trickle<tide::Ctas<16>>;
    reduces_.push_back(make_reduce<tide::Burst, 2, 1024 * mebibyte>(fabric, layout_, "burst"));
    reduces_.push_back(make_reduce<Few, 4, 64 * mebibyte>(fabric, layout_, "trickle 16"));
    reduces_.push_back(make_reduce<Few, 4, 256 * mebibyte>(fabric, layout_, "trickle 16"));
    reduces_.push_back(make_reduce<Few, 2, 1024 * mebibyte>(fabric, layout_, "trickle 16"));
  }

  /// After `init`: memory for inputs and outputs, and numbers in the inputs. `stream` is that of all later calls.
  void prepare(tide::CudaFabric& fabric, cudaStream_t stream) {
    stream_.emplace(fabric.stream(stream));
    shards_ = DeviceMemory(view().max_bytes(tide::Buffer::shards));
    masters_ = DeviceMemory(view().max_bytes(tide::Buffer::masters));
    output_ = DeviceMemory(view().max_bytes(tide::Buffer::output));
    fill_shards(shards_.as<>(), own(tide::Buffer::shards), stream);
    fill_masters(masters_.as<>(), own(tide::Buffer::masters), stream);
    new_gradients(0, stream);
  }

  /// Other numbers in the gradients.
  void new_gradients(int round, cudaStream_t stream) const {
    fill_whole(gradients_.data(), {Content::gradient, rank_.value, round}, whole_spans(view(), tide::Buffer::gradients),
               stream);
  }

  [[nodiscard]] Inputs inputs() const { return {shards_.as<>(), masters_.as<>(), gradients_.data()}; }
  [[nodiscard]] tide::LayoutView view() const noexcept { return layout_.view(); }
  [[nodiscard]] const std::vector<TideReduce>& reduces() const noexcept { return reduces_; }
  [[nodiscard]] index_t shard_bytes() const { return view().bytes(tide::Buffer::shards, rank_); }

  /// Whether the fabric has multicast, and so a gather whose own block comes with it.
  [[nodiscard]] bool has_multicast() const noexcept { return multicast_.has_value(); }

  /// A gather that fills the own block like that.  @pre `has_multicast()` for OwnBlock::multicast
  [[nodiscard]] Work gather(tide::OwnBlock own) {
    Work work;
    work.enqueue = [this, own](cudaStream_t) {
      if (own == tide::OwnBlock::in_place) {
        static_cast<void>(gather_.own_block(slots_.acquire(*stream_)));
        handle_.emplace(gather_.enqueue(tide::in_place, *stream_));
      } else if (own == tide::OwnBlock::cast) {
        const Output masters(masters_.as<>(), layout_, rank_);
        handle_.emplace(gather_.enqueue(masters, *stream_));
      } else {
        const tide::ShardsView<Layout, tide::Buffer::shards> shards(shards_.as<>(), layout_, rank_);
        const bool once = own == tide::OwnBlock::multicast;
        handle_.emplace(once ? multicast_->enqueue(shards, *stream_) : gather_.enqueue(shards, *stream_));
      }
    };
    work.finish = [this](cudaStream_t) {
      handle_->release(*stream_);
      handle_.reset();
    };
    return work;
  }

  [[nodiscard]] Work reduce(std::size_t which) {
    Work work;
    work.enqueue = [this, which](cudaStream_t) {
      const tide::ReduceTicket ticket =
          reduces_[which].enqueue(gradients_, Output(output_.as<>(), layout_, rank_), *stream_);
      stream_->wait(ticket.shards_ready);
      stream_->wait(ticket.gradients_free);
    };
    return work;
  }

  [[nodiscard]] index_t gather_calls(tide::OwnBlock own) const {
    tide::Collective collective;
    collective.layout = view();
    collective.own = own;
    return most_calls(collective, own == tide::OwnBlock::multicast ? &tide::MulticastTransport::gather
                                                                   : &tide::UnicastTransport::gather);
  }
  /// Memory beyond inputs and outputs: the words of the signals, and the inbox of a reduce.
  [[nodiscard]] index_t gather_bytes() const { return tide::SignalWords{view().mesh.ranks()}.bytes(); }

  // Spoils the results, but not an own block that the caller has written.
  void spoil_gathered(bool in_place, cudaStream_t stream) const {
    must(cudaMemsetAsync(slot(), 0xFF, static_cast<std::size_t>(view().bytes(tide::Buffer::slot)), stream),
         "cudaMemsetAsync");
    if (in_place) fill_shards(slot(), own(tide::Buffer::slot), stream);
  }
  void spoil_reduced(cudaStream_t stream) const {
    must(cudaMemsetAsync(output_.as<>(), 0xFF, static_cast<std::size_t>(output_.bytes()), stream), "cudaMemsetAsync");
  }
  [[nodiscard]] unsigned long long wrong_gathered(const Judge& judge, cudaStream_t stream) const {
    return judge.gathered(slot(), whole_spans(view(), tide::Buffer::slot), stream);
  }
  [[nodiscard]] unsigned long long wrong_reduced(const Judge& judge, int round, cudaStream_t stream) const {
    return judge.reduced(output_.as<>(), own(tide::Buffer::output), round, true, stream);
  }

 private:
  [[nodiscard]] std::vector<Span> own(tide::Buffer buffer) const { return own_spans(view(), rank_.value, buffer); }
  [[nodiscard]] std::byte* slot() const { return slots_.life().data(tide::SlotIndex{0}); }

  tide::Rank rank_;
  Slots& slots_;
  Layout layout_;
  Gather gather_;
  std::optional<MulticastGather> multicast_;
  tide::Gradients<Layout> gradients_;
  std::vector<TideReduce> reduces_;
  std::optional<tide::CudaStream> stream_;
  DeviceMemory shards_;
  DeviceMemory masters_;
  DeviceMemory output_;
  std::optional<tide::Gathered<Layout>> handle_;
};

}  // namespace tide_benchmark
