// SPDX-License-Identifier: Apache-2.0
//
// The ways to drive a training step of some blocks that bench_step compares, each on one rank. All compute the same
// numbers (step_block.cuh) on the same stream, and descend along the average of the ranks' gradients: masters are f32,
// parameters and gradients bf16, sums f32.
//
//   compute     whole parameters, no collective: products, and the optimizer on the share of one rank
//   stock       what FSDP2 does: flat buffers, NCCL's collectives, its order of calls
//   symmetric   the same in symmetric windows, with the zero-CTA policy
//   tide        ShardedStep
//
// The optimizer is plain descent. On tide it runs on a stream of its own, as gradients come; elsewhere after the
// backward, as with FSDP2. The last block stays gathered between its forward and its backward on all paths.

#pragma once

#include "baseline.cuh"
#include "step_block.cuh"
#include "tide_group.cuh"

#include "../../examples/support/step_memory.hpp"

#include <tide/pipeline/sharded_step.hpp>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tide_benchmark {

// One step down; rounded as it is written, whichever kernel does it.
__device__ inline float descended(float weight, float gradient, float rate) {
  return __fsub_rn(weight, __fmul_rn(rate, gradient));
}

static __global__ void descend(float* masters, const float* gradient, std::int64_t elements, float rate) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    masters[i] = descended(masters[i], gradient[i], rate);
  }
}

// Along bf16 gradients: those of one rank, or the average of two; `weights` are the masters in bf16.
static __global__ void descend_whole(float* masters, const Bf16* gradient, const Bf16* other, Bf16* weights,
                                     std::int64_t elements, float rate) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    float sum = __bfloat162float(gradient[i]);
    if (other != nullptr) sum = __fmul_rn(__fadd_rn(sum, __bfloat162float(other[i])), 0.5F);
    const float weight = descended(masters[i], sum, rate);
    masters[i] = weight;
    weights[i] = __float2bfloat16_rn(weight);
  }
}

/// Where training starts: numbers whose products keep their size.
struct StartValues {
  int layer = 0;
  float largest = 0;
};

[[nodiscard]] inline StartValues start_of(const tide::LayoutView& layout, int parameter, index_t layer) {
  const tide::Shape& shape = layout.group[tide::ParameterIndex{parameter}].shape;
  const bool vector = shape.rank == 1;
  return {static_cast<int>(layer), vector ? 0.1F : 0.8F / std::sqrt(static_cast<float>(shape[1]))};
}
__device__ inline float start_value(StartValues start, int parameter, std::int64_t element) {
  return even_number({Content::weight, 0, start.layer}, parameter, element, start.largest);
}

template <class T>
static __global__ void fill_start(T* to, StartValues start, int parameter, std::int64_t first, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    to[i] = converted(start_value(start, parameter, first + i), T{});
  }
}

/// The numbers that training starts with, wherever `spans` say.
template <class T>
void load_start(const tide::LayoutView& layout, index_t layer, std::byte* memory, const std::vector<Span>& spans,
                cudaStream_t stream) {
  for (const Span& span : spans) {
    fill_start<<<grid_for(span.elements), 256, 0, stream>>>(reinterpret_cast<T*>(memory + span.offset),
                                                            start_of(layout, span.parameter, layer), span.parameter,
                                                            span.first, span.elements);
  }
  must_launch("fill_start");
}

/// What all paths are of.
struct StepRank {
  tide::CudaFabric& fabric;
  const Layout& layout;  ///< of a block
  BlockCompute& compute;
  float rate;

  [[nodiscard]] int rank() const { return fabric.rank().value; }
  [[nodiscard]] tide::LayoutView view() const { return layout.view(); }
  [[nodiscard]] cudaStream_t stream() const { return compute.stream(); }
  [[nodiscard]] index_t layers() const { return compute.layers(); }
  [[nodiscard]] index_t bytes(tide::Buffer buffer) const { return view().max_bytes(buffer); }
  [[nodiscard]] std::vector<Span> own(tide::Buffer buffer) const { return own_spans(view(), rank(), buffer); }
};

using MemoryTerms = std::vector<std::pair<std::string, index_t>>;

[[nodiscard]] inline const float* floats_at(const std::byte* memory, const Span& span) {
  return reinterpret_cast<const float*>(memory + span.offset);
}

/// One of the ways.
class StepPath {
 public:
  explicit StepPath(const StepRank& rank) : rank_(rank), own_masters_(rank.own(tide::Buffer::masters)) {}
  StepPath(const StepPath&) = delete;
  StepPath& operator=(const StepPath&) = delete;
  virtual ~StepPath() = default;

  /// Back to where training starts.
  virtual void load() = 0;
  /// Enqueues a step; all of it lies between what is enqueued on the compute stream before and after.
  virtual void step() = 0;
  /// The own f32 masters of a span of a layer, as `StepRank::own` has them.
  [[nodiscard]] virtual const float* masters(index_t layer, const Span& span) = 0;
  /// What it takes of memory beside what all paths compute in, counted by itself.
  [[nodiscard]] virtual MemoryTerms memory() const = 0;

 protected:
  [[nodiscard]] const StepRank& of() const noexcept { return rank_; }
  [[nodiscard]] const std::vector<Span>& own_masters() const noexcept { return own_masters_; }

  // Own masters that lie at `own` down along f32 gradients that lie at `spans` of a buffer.
  void descend_along(std::byte* masters, const std::vector<Span>& own, const std::byte* gradients,
                     const std::vector<Span>& spans, cudaStream_t stream) const {
    for (std::size_t s = 0; s < spans.size(); ++s) {
      descend<<<grid_for(spans[s].elements), 256, 0, stream>>>(reinterpret_cast<float*>(masters + own[s].offset),
                                                               floats_at(gradients, spans[s]), spans[s].elements,
                                                               rank_.rate);
    }
    must_launch("descend");
  }

 private:
  const StepRank& rank_;
  std::vector<Span> own_masters_;
};

/// Memory of each layer.
[[nodiscard]] inline std::vector<DeviceMemory> of_layers(index_t layers, index_t bytes) {
  std::vector<DeviceMemory> all;
  for (index_t i = 0; i < layers; ++i) all.emplace_back(bytes);
  return all;
}

/// Compute alone: what any way has to do at least. Each rank descends along its own gradients, on its share.
class ComputeStep final : public StepPath {
 public:
  explicit ComputeStep(const StepRank& rank)
      : StepPath(rank),
        masters_(of_layers(rank.layers(), rank.bytes(tide::Buffer::masters))),
        weights_(of_layers(rank.layers(), rank.bytes(tide::Buffer::slot))),
        gradients_(of_layers(rank.layers(), rank.bytes(tide::Buffer::gradients))),
        own_weights_(rank.own(tide::Buffer::slot)),
        own_gradients_(rank.own(tide::Buffer::gradients)) {}

  void load() override {
    const tide::LayoutView view = of().view();
    for (index_t i = 0; i < of().layers(); ++i) {
      load_start<float>(view, i, masters(i), own_masters(), of().stream());
      load_start<Bf16>(view, i, weights_of(i), whole_spans(view, tide::Buffer::slot), of().stream());
    }
  }
  void step() override {
    products(of().rank());
    for (index_t i = 0; i < of().layers(); ++i) {
      for (std::size_t s = 0; s < own_weights_.size(); ++s) {
        descend_whole<<<grid_for(own_weights_[s].elements), 256, 0, of().stream()>>>(
            reinterpret_cast<float*>(masters(i) + own_masters()[s].offset),
            reinterpret_cast<const Bf16*>(gradients_of(i) + own_gradients_[s].offset), nullptr,
            reinterpret_cast<Bf16*>(weights_of(i) + own_weights_[s].offset), own_weights_[s].elements, of().rate);
      }
    }
    must_launch("descend_whole");
  }
  [[nodiscard]] const float* masters(index_t layer, const Span& span) override {
    return floats_at(masters(layer), span);
  }
  [[nodiscard]] MemoryTerms memory() const override {
    return {{"masters", of().layers() * masters_.front().bytes()},
            {"whole parameters of all layers", of().layers() * weights_.front().bytes()},
            {"gradients of all layers", of().layers() * gradients_.front().bytes()}};
  }

  /// Forward and backward with the input of a rank, without the optimizer.
  void products(int rank) {
    of().compute.begin(rank);
    for (index_t i = 0; i < of().layers(); ++i) of().compute.forward(i, weights(i));
    for (index_t i = of().layers(); i-- > 0;) of().compute.backward(i, weights(i), gradients(i));
  }
  [[nodiscard]] BlockWeights weights(index_t layer) const {
    return block_at<const Bf16*>(of().view(), tide::Buffer::slot, weights_of(layer));
  }
  [[nodiscard]] BlockGradients gradients(index_t layer) const {
    return block_at<Bf16*>(of().view(), tide::Buffer::gradients, gradients_of(layer));
  }

 private:
  [[nodiscard]] static std::byte* at(const std::vector<DeviceMemory>& list, index_t layer) {
    return list[static_cast<std::size_t>(layer)].as<>();
  }
  [[nodiscard]] std::byte* masters(index_t layer) const { return at(masters_, layer); }
  [[nodiscard]] std::byte* weights_of(index_t layer) const { return at(weights_, layer); }
  [[nodiscard]] std::byte* gradients_of(index_t layer) const { return at(gradients_, layer); }

  std::vector<DeviceMemory> masters_;
  std::vector<DeviceMemory> weights_;
  std::vector<DeviceMemory> gradients_;
  std::vector<Span> own_weights_;
  std::vector<Span> own_gradients_;
};

/// Training without shards and without collectives, to compare with: computes the gradients of both ranks one after the
/// other, in memory of a ComputeStep, which has to be loaded again afterwards.
class WholeTraining {
 public:
  WholeTraining(const StepRank& rank, ComputeStep& memory)
      : rank_(rank),
        memory_(memory),
        spans_(whole_spans(rank.view(), tide::Buffer::slot)),
        masters_(of_layers(rank.layers(), 2 * rank.bytes(tide::Buffer::slot))),
        other_(rank.bytes(tide::Buffer::gradients)) {
    for (Span& span : spans_) span.offset *= 2;  // f32 where parameters are bf16
  }

  void load() {
    memory_.load();
    for (index_t i = 0; i < rank_.layers(); ++i) {
      load_start<float>(rank_.view(), i, masters_[static_cast<std::size_t>(i)].as<>(), spans_, rank_.stream());
    }
  }

  void step() {
    memory_.products(0);
    rank_.compute.begin(1);
    for (index_t i = 0; i < rank_.layers(); ++i) rank_.compute.forward(i, memory_.weights(i));
    const BlockGradients other = block_at<Bf16*>(rank_.view(), tide::Buffer::gradients, other_.as<>());
    for (index_t i = rank_.layers(); i-- > 0;) {
      rank_.compute.backward(i, memory_.weights(i), other);
      for (const Span& span : spans_) {
        const auto p = static_cast<std::size_t>(span.parameter);
        descend_whole<<<grid_for(span.elements), 256, 0, rank_.stream()>>>(
            reinterpret_cast<float*>(masters_[static_cast<std::size_t>(i)].as<>() + span.offset),
            memory_.gradients(i)[p], other[p], const_cast<Bf16*>(memory_.weights(i)[p]), span.elements, rank_.rate);
      }
      must_launch("descend_whole");
    }
  }

  /// The masters of a parameter, from its first element on.
  [[nodiscard]] const float* masters(index_t layer, int parameter) const {
    return reinterpret_cast<const float*>(masters_[static_cast<std::size_t>(layer)].as<>() +
                                          spans_[static_cast<std::size_t>(parameter)].offset);
  }

 private:
  const StepRank& rank_;
  ComputeStep& memory_;
  std::vector<Span> spans_;
  std::vector<DeviceMemory> masters_;
  DeviceMemory other_;  // gradients of rank 1
};

/// Streams of one rank for FSDP2's calls, with its priorities.
struct FlatStreams {
  Stream copies{-1};
  Stream gathers{-1};
  Stream reduces{-1};
};

/// FSDP2's step over NCCL. Order of calls and waits as in PyTorch 2.11, torch/distributed/fsdp/_fully_shard:
///
///   copies    cast, copy-in      after the step before, and after the copy-out that emptied the flat output
///   gathers   ncclAllGather      after the copy-in; of the next block while this one computes, forward and backward
///   compute   copy-out           after the gather, in front of the block's products
///             chunk-cat          after the block's gradients, and after the reduce-scatter before has read its input
///   reduces   ncclReduceScatter  after the chunk-cat, beside the products of the blocks before
///
/// One communicator for both, as is FSDP2's default. Of the two flat outputs that a forward needs the second is, on
/// plain memory, also that of the gradients, which no forward has: an allocator reuses it the same way.
class FlatStep final : public StepPath {
 public:
  /// On all ranks in the same order.
  FlatStep(const StepRank& rank, Kind kind, ncclComm_t communicator, FlatStreams& streams)
      : StepPath(rank),
        kind_(kind),
        communicator_(communicator),
        streams_(streams),
        flat_(rank.view(), rank.rank()),
        own_sums_(flat_.reduced_spans()),
        masters_(of_layers(rank.layers(), rank.bytes(tide::Buffer::masters))),
        storage_(flat_.storage_bytes()),
        cast_(flat_.cast_bytes()),
        sums_in_(communicator, kind, flat_.sums_in_bytes()) {
    const index_t gradients = rank.bytes(tide::Buffer::gradients);
    const bool shared = kind == Kind::stock;
    outputs_.emplace_back(communicator, kind, flat_.staging_bytes());
    outputs_.emplace_back(communicator, kind,
                          shared ? std::max(flat_.staging_bytes(), gradients) : flat_.staging_bytes());
    if (!shared) gradients_ = DeviceMemory(gradients);
    for (index_t i = 0; i < rank.layers(); ++i) {
      sums_out_.emplace_back(communicator, kind, flat_.sums_out_bytes());
      casts_.push_back(flat_.cast(masters(i), cast_.as<>()));
    }
    for (const FlatMemory& to : outputs_) {
      copy_ins_.push_back(flat_.copy_in_cast(cast_.as<>(), to.data()));
      copy_outs_.push_back(flat_.copy_out(to.data(), storage_.as<>()));
    }
    chunk_cat_.emplace(flat_.chunk_cat(gradient_memory(), sums_in_.data()));
    weights_ = storage_weights();
    block_gradients_ = block_at<Bf16*>(rank.view(), tide::Buffer::gradients, gradient_memory());
    rehearse();
  }

  void load() override {
    for (index_t i = 0; i < of().layers(); ++i) {
      load_start<float>(of().view(), i, masters(i), own_masters(), of().stream());
    }
  }

  void step() override {
    const cudaStream_t compute = of().stream();
    const index_t layers = of().layers();
    begun_.record(compute);
    begun_.hold(streams_.copies.get());
    begun_.hold(streams_.gathers.get());
    of().compute.begin(of().rank());
    gather(0, 0);
    for (index_t i = 0; i < layers; ++i) {
      copy_out(output_of(i));
      if (i + 1 < layers) gather(i + 1, output_of(i + 1));
      of().compute.forward(i, weights_);
    }
    for (index_t i = layers; i-- > 0;) {
      if (i + 1 < layers) copy_out(0);
      if (i > 0) gather(i - 1, 0);
      of().compute.backward(i, weights_, block_gradients_);
      if (i + 1 < layers) reduced_.hold(compute);
      chunk_cat_->enqueue(compute);
      packed_.record(compute);
      packed_.hold(streams_.reduces.get());
      reduce(i);
      reduced_.record(streams_.reduces.get());
    }
    reduced_.hold(compute);
    for (index_t i = 0; i < layers; ++i) descend_along(masters(i), own_masters(), sums(i), own_sums_, compute);
  }

  [[nodiscard]] const float* masters(index_t layer, const Span& span) override {
    return floats_at(masters(layer), span);
  }
  [[nodiscard]] MemoryTerms memory() const override {
    const index_t layers = of().layers();
    const index_t gradients = of().bytes(tide::Buffer::gradients);
    MemoryTerms terms{{"masters", layers * masters_.front().bytes()},
                      {"reduced shards", layers * flat_.sums_out_bytes()},
                      {"whole parameters", storage_.bytes()},
                      {"shards cast to bf16", cast_.bytes()},
                      {"input of a reduce-scatter, f32", flat_.sums_in_bytes()}};
    if (kind_ == Kind::stock) {
      terms.emplace_back("flat output of a gather ahead", flat_.staging_bytes());
      terms.emplace_back("gradients, or another flat output", std::max(gradients, flat_.staging_bytes()));
    } else {
      terms.emplace_back("2 flat outputs of gathers", 2 * flat_.staging_bytes());
      terms.emplace_back("gradients", gradients);
    }
    return terms;
  }

 private:
  [[nodiscard]] std::byte* gradient_memory() const {
    return kind_ == Kind::stock ? outputs_[1].data() : gradients_.as<>();
  }
  [[nodiscard]] std::byte* masters(index_t layer) const { return masters_[static_cast<std::size_t>(layer)].as<>(); }
  [[nodiscard]] std::byte* sums(index_t layer) const { return sums_out_[static_cast<std::size_t>(layer)].data(); }
  [[nodiscard]] static std::size_t output_of(index_t layer) noexcept { return static_cast<std::size_t>(layer % 2); }

  [[nodiscard]] BlockWeights storage_weights() const {
    BlockWeights all{};
    for (const Span& span : flat_.gathered_spans()) {
      all[static_cast<std::size_t>(span.parameter)] = reinterpret_cast<const Bf16*>(storage_.as<>() + span.offset);
    }
    return all;
  }

  // Into a flat output whose last copy-out has been enqueued.
  void gather(index_t layer, std::size_t output) {
    const cudaStream_t copies = streams_.copies.get();
    const cudaStream_t gathers = streams_.gathers.get();
    copied_out_[output].hold(copies);
    casts_[static_cast<std::size_t>(layer)].enqueue(copies);
    copy_ins_[output].enqueue(copies);
    copied_in_.record(copies);
    copied_in_.hold(gathers);
    flat_.all_gather(outputs_[output].data(), communicator_, gathers);
    gathered_[output].record(gathers);
  }
  void copy_out(std::size_t output) {
    gathered_[output].hold(of().stream());
    copy_outs_[output].enqueue(of().stream());
    copied_out_[output].record(of().stream());
  }
  void reduce(index_t layer) {
    const cudaStream_t reduces = streams_.reduces.get();
    flat_.reduce_scatter(sums_in_.data(), sums(layer), ncclFloat32, sum_of(kind_), communicator_, reduces);
    if (kind_ == Kind::symmetric) flat_.scale(sums(layer), reduces);
  }

  // A kernel's first launch loads its code, and may wait for the device to do so: once each, with nothing in flight.
  void rehearse() {
    // Not the whole device: another rank that shares it may be waiting for this one there.
    const auto settle = [&] {
      for (const cudaStream_t stream : {of().stream(), streams_.gathers.get(), streams_.reduces.get()}) {
        must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      }
    };
    load();
    settle();
    casts_.front().enqueue(of().stream());
    copy_ins_.front().enqueue(of().stream());
    settle();
    flat_.all_gather(outputs_.front().data(), communicator_, streams_.gathers.get());
    settle();
    copy_out(0);
    must(cudaMemsetAsync(gradient_memory(), 0, static_cast<std::size_t>(of().bytes(tide::Buffer::gradients)),
                         of().stream()),
         "cudaMemsetAsync");
    chunk_cat_->enqueue(of().stream());
    settle();
    reduce(0);
    settle();
    descend_along(masters(0), own_masters(), sums(0), own_sums_, of().stream());
    settle();
  }

  Kind kind_;
  ncclComm_t communicator_;
  FlatStreams& streams_;
  FlatGroup flat_;
  std::vector<Span> own_sums_;
  std::vector<DeviceMemory> masters_;
  DeviceMemory storage_;
  DeviceMemory cast_;
  FlatMemory sums_in_;
  DeviceMemory gradients_;
  std::vector<FlatMemory> outputs_;
  std::vector<FlatMemory> sums_out_;
  std::vector<Foreach<__nv_bfloat16, float>> casts_;
  std::vector<Foreach<__nv_bfloat16, __nv_bfloat16>> copy_ins_;
  std::vector<CopyOut> copy_outs_;
  std::optional<ChunkCat> chunk_cat_;
  BlockWeights weights_{};
  BlockGradients block_gradients_{};
  Mark begun_;
  Mark copied_in_;
  std::array<Mark, 2> gathered_;
  std::array<Mark, 2> copied_out_;
  Mark packed_;
  Mark reduced_;
};

/// A ring for the inbox of tide's reduce: the budget that did best in bench_compare.
using StepRing = tide::Ring<tide::Chunks<4>, tide::Bytes<256 * mebibyte>>;

/// A part of a block as a group of its own on the two ranks.
class StepGroup {
 public:
  StepGroup(const StepRank& rank, BlockPart part)
      : rank_(&rank),
        part_(std::move(part)),
        layout_(layout_of(rank.view(), part_)),
        masters_(own_spans(layout_.view(), rank.rank(), tide::Buffer::masters)),
        block_masters_(in_block(part_, masters_)) {}

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  /// The own masters, of parameters of the group.
  [[nodiscard]] const std::vector<Span>& masters() const noexcept { return masters_; }

  void load(index_t layer, std::byte* memory, cudaStream_t stream) const {
    load_start<float>(rank_->view(), layer, memory, block_masters_, stream);
  }
  /// Null where the parameter is none of the group's.
  [[nodiscard]] const float* find(const std::byte* memory, const Span& span) const {
    for (const Span& own : block_masters_) {
      if (own.parameter == span.parameter) return floats_at(memory, own);
    }
    return nullptr;
  }
  template <class Group>
  [[nodiscard]] BlockWeights weights_of(const Group& group) const {
    BlockWeights all{};
    for (std::size_t k = 0; k < part_.size(); ++k) {
      all[part_[k]] = reinterpret_cast<const Bf16*>(group.at(tide::ParameterIndex{static_cast<index_t>(k)}));
    }
    return all;
  }
  template <class Group>
  [[nodiscard]] BlockGradients gradients_of(const Group& group) const {
    return block_at<Bf16*>(layout_.view(), tide::Buffer::gradients, group.gradients().data(), part_);
  }

 private:
  [[nodiscard]] static Layout layout_of(const tide::LayoutView& block, const BlockPart& part) {
    tide::DynamicGroup group;
    for (const BlockParameter p : part) add_copy(group, block.group.parameters[p]);
    return Layout(std::move(group), block.mesh);
  }

  const StepRank* rank_;
  BlockPart part_;
  Layout layout_;
  std::vector<Span> masters_;
  std::vector<Span> block_masters_;
};

/// How tide cuts a block: as one group, or as two that take turns.
enum class Cut { blocks, halves };

/// tide's step.
/// @tparam Layers, Ahead  blocks, and how many groups are gathered ahead
/// @tparam Box            SlotReuse or StepRing
template <index_t Layers, index_t Ahead, class Box, Cut Way>
class TideStep final : public StepPath {
  static constexpr bool halves = Way == Cut::halves;
  using Whole = tide::Parts<tide::Part<"blocks", Layout, tide::Repeat<Layers>>>;
  using Halves = tide::Parts<
      tide::Layers<tide::Repeat<Layers>, tide::Part<"attention", Layout>, tide::Part<"feed forward", Layout>>>;
  using Step = tide::ShardedStep<std::conditional_t<halves, Halves, Whole>, tide::UnicastTransport,
                                 tide::CopyEngineReducer<>, tide::SingleNode, Box, tide::Prefetch<Ahead>>;

 public:
  /// Before `init` of the fabric.
  explicit TideStep(const StepRank& rank)
      : StepPath(rank),
        groups_(groups_of(rank)),
        step_(make_step()),
        compute_(rank.fabric.stream(rank.stream())),
        optimizer_(rank.fabric.stream()) {
    descend<<<1, 256, 0, rank.stream()>>>(nullptr, nullptr, 0, 0);  // loads its code; see FlatStep::rehearse
    must_launch("descend");
  }

  void load() override {
    step_.load(compute_,
               [&](const auto& group) { of_part(group).load(group.index(), group.masters().data(), of().stream()); });
  }

  void step() override {
    step_.load(compute_, [](const auto&) {});  // so that no gather begins before this step
    const BlockCompute& compute = of().compute;
    compute.begin(of().rank());
    for (index_t i = 0; i < Layers; ++i) {
      if constexpr (halves) {
        auto attention = step_.template forward<"attention">(compute_, i);
        compute.forward_attention(i, groups_[0].weights_of(attention));
        attention.release();
        auto feed = step_.template forward<"feed forward">(compute_, i);
        compute.forward_feed(i, groups_[1].weights_of(feed));
        feed.release();
      } else {
        auto block = step_.template forward<"blocks">(compute_, i);
        compute.forward(i, groups_[0].weights_of(block));
        block.release();
      }
    }
    for (index_t i = Layers; i-- > 0;) {
      if constexpr (halves) {
        auto feed = step_.template backward<"feed forward">(compute_, i);
        compute.backward_feed(i, groups_[1].weights_of(feed), groups_[1].gradients_of(feed));
        static_cast<void>(feed.reduce());
        auto attention = step_.template backward<"attention">(compute_, i);
        compute.backward_attention(i, groups_[0].weights_of(attention), groups_[0].gradients_of(attention));
        static_cast<void>(attention.reduce());
      } else {
        auto block = step_.template backward<"blocks">(compute_, i);
        compute.backward(i, groups_[0].weights_of(block), groups_[0].gradients_of(block));
        static_cast<void>(block.reduce());
      }
    }
    step_.update(optimizer_, [&](const auto& group) {
      const std::vector<Span>& own = of_part(group).masters();
      descend_along(group.masters().data(), own, group.reduced().data(), own, optimizer_.get());
    });
    compute_.wait(optimizer_.record());
  }

  [[nodiscard]] const float* masters(index_t layer, const Span& span) override {
    if constexpr (halves) {
      const float* found = groups_[0].find(step_.template group<"attention">(layer).masters().data(), span);
      return found != nullptr ? found
                              : groups_[1].find(step_.template group<"feed forward">(layer).masters().data(), span);
    } else {
      return groups_[0].find(step_.template group<"blocks">(layer).masters().data(), span);
    }
  }
  [[nodiscard]] MemoryTerms memory() const override {
    using namespace tide_example;
    std::vector<MemoryPart> parts;
    index_t masters = 0;
    for (const StepGroup& group : groups_) {
      parts.push_back({group.layout().view(), Layers});
      masters += Layers * group.layout().view().max_bytes(tide::Buffer::masters);
    }
    const StepChoices choices{Ahead, 2};
    const StepMemory reckoned =
        tide::reuses_slots<Box> ? memory_with_slots(parts, choices) : memory_with_ring<StepRing>(parts, choices);
    MemoryTerms terms{{"masters", masters}, {"reduced shards", masters}};
    for (const auto& term : reckoned.terms) {
      if (term.second > 0) terms.push_back(term);
    }
    return terms;
  }

 private:
  [[nodiscard]] static std::vector<StepGroup> groups_of(const StepRank& rank) {
    std::vector<StepGroup> groups;
    if (halves) {
      groups.emplace_back(rank, attention_part());
      groups.emplace_back(rank, feed_part());
    } else {
      groups.emplace_back(rank, whole_block());
    }
    return groups;
  }
  [[nodiscard]] Step make_step() const {
    if constexpr (halves) {
      return Step(of().fabric, std::tuple(groups_[0].layout(), groups_[1].layout()));
    } else {
      return Step(of().fabric, std::tuple(groups_[0].layout()));
    }
  }
  // The group of a block that an UpdateGroup is of.
  template <class Group>
  [[nodiscard]] const StepGroup& of_part(const Group&) const {
    return groups_[Group::part() == "feed forward" ? 1 : 0];
  }

  std::vector<StepGroup> groups_;
  Step step_;
  tide::CudaStream compute_;
  tide::CudaStream optimizer_;
};

}  // namespace tide_benchmark
