// SPDX-License-Identifier: Apache-2.0
//
// Baseline: what FSDP2 does today, over NCCL, for one group of bf16 parameters on one rank.
//
//   gather   [cast]  copy-in  ncclAllGather in place  copy-out
//   reduce   chunk-cat  ncclReduceScatter  [scale]
//
//   stock       ordinary memory, a default communicator, AVG
//   symmetric   symmetric windows, a communicator with the zero-CTA policy, SUM and a scale

#pragma once

#include "layout_kernels.cuh"
#include "values.cuh"

#include <tide/layout/dynamic_layout.hpp>  // DynamicLayout

#include <memory>
#include <optional>

namespace tide_benchmark {

/// The communicators of one kind, one per device of this process.
class Communicators {
 public:
  Communicators(const std::vector<int>& devices, int cta_policy) : communicators_(devices.size()) {
    ncclUniqueId id;
    must(ncclGetUniqueId(&id), "ncclGetUniqueId");
    must(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t i = 0; i < devices.size(); ++i) {
      must(cudaSetDevice(devices[i]), "cudaSetDevice");
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      if (cta_policy != NCCL_CTA_POLICY_DEFAULT) config.CTAPolicy = cta_policy;
      must(ncclCommInitRankConfig(&communicators_[i], static_cast<int>(devices.size()), id, static_cast<int>(i),
                                  &config),
           "ncclCommInitRankConfig");
    }
    must(ncclGroupEnd(), "ncclGroupEnd");
  }
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;
  ~Communicators() {
    for (const ncclComm_t communicator : communicators_) {
      if (communicator != nullptr) ncclCommDestroy(communicator);
    }
  }

  [[nodiscard]] ncclComm_t operator[](int rank) const { return communicators_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<ncclComm_t> communicators_;
};

/// What a collective reads: the memory of the own rank.
struct Inputs {
  const std::byte* shards = nullptr;     // bf16, packed as the layout says
  const std::byte* masters = nullptr;    // f32, packed as the layout says
  const std::byte* gradients = nullptr;  // bf16, whole parameters
};

enum class Kind { stock, symmetric };

class Baseline {
 public:
  Baseline(const tide::LayoutView& layout, int rank, Inputs inputs, ncclComm_t communicator, Kind kind)
      : layout_(layout),
        rank_(rank),
        ranks_(static_cast<int>(layout.mesh.ranks())),
        communicator_(communicator),
        kind_(kind) {
    for (const Span& span : whole_spans(layout, tide::Buffer::slot)) {
      const tide::Parameter& parameter = layout.group[tide::ParameterIndex{span.parameter}];
      const index_t rows = parameter.shape[0];
      const index_t chunk = rows == 0 ? 0 : tide::ceil_div(rows, ranks_) * (span.elements / rows);
      flat_.push_back({span.parameter, span.elements, chunk, part_, storage_bytes_});
      part_ += chunk;
      storage_bytes_ = tide::align_up(storage_bytes_ + 2 * chunk * ranks_, 256);
    }
    storage_ = DeviceMemory(storage_bytes_);
    cast_ = DeviceMemory(2 * part_);
    allocate(staging_, staging_window_, 2 * part_ * ranks_);
    allocate(sums_in_, sums_in_window_, 4 * part_ * ranks_);
    allocate(sums_out_, sums_out_window_, 4 * part_);
    prepare_gather(inputs);
    prepare_reduce(inputs);
  }

  // The parts, in order.
  void cast(cudaStream_t stream) const { cast_masters_->enqueue(stream); }
  void copy_in(bool from_cast, cudaStream_t stream) const { (from_cast ? copy_in_cast_ : copy_in_)->enqueue(stream); }
  void all_gather(cudaStream_t stream) const {
    must(ncclAllGather(staging() + 2 * part_ * rank_, staging(), static_cast<std::size_t>(part_), ncclBfloat16,
                       communicator_, stream),
         "ncclAllGather");
  }
  void copy_out(cudaStream_t stream) const { copy_out_->enqueue(stream); }
  void pack(cudaStream_t stream) const { chunk_cat_->enqueue(stream); }
  void reduce_scatter(cudaStream_t stream) const { reduce_scatter(ncclFloat32, stream); }
  /// NCCL alone on bf16, whatever lies in the buffer.
  void reduce_scatter_bf16(cudaStream_t stream) const { reduce_scatter(ncclBfloat16, stream); }
  void scale(cudaStream_t stream) const {
    const auto blocks = static_cast<unsigned>((part_ / 4 + 1 + 127) / 128);
    scale_in_place<<<blocks, 128, 0, stream>>>(reinterpret_cast<float*>(sums_out()), part_,
                                               1.0F / static_cast<float>(ranks_));
    must_launch("scale_in_place");
  }

  // The whole.
  void gather(bool from_masters, cudaStream_t stream) const {
    if (from_masters) cast(stream);
    copy_in(from_masters, stream);
    all_gather(stream);
    copy_out(stream);
  }
  void reduce(cudaStream_t stream) const {
    pack(stream);
    reduce_scatter(stream);
    if (kind_ == Kind::symmetric) scale(stream);
  }

  /// Memory beyond inputs and outputs.
  [[nodiscard]] index_t gather_bytes(bool from_masters) const noexcept {
    return 2 * part_ * ranks_ + (from_masters ? 2 * part_ : 0);
  }
  [[nodiscard]] index_t reduce_bytes() const noexcept { return 4 * part_ * ranks_; }
  /// Launches of own kernels and calls of NCCL.
  [[nodiscard]] index_t gather_calls(bool from_masters) const noexcept {
    return (from_masters ? cast_masters_->launches() + copy_in_cast_->launches() : copy_in_->launches()) + 2;
  }
  [[nodiscard]] index_t reduce_calls() const noexcept { return kind_ == Kind::symmetric ? 3 : 2; }

  // Results, and what spoils them before a check.
  void spoil_gathered(cudaStream_t stream) const {
    must(cudaMemsetAsync(storage_.as<>(), 0xFF, static_cast<std::size_t>(storage_bytes_), stream), "cudaMemsetAsync");
    must(cudaMemsetAsync(staging(), 0xFF, static_cast<std::size_t>(2 * part_ * ranks_), stream), "cudaMemsetAsync");
  }
  void spoil_reduced(cudaStream_t stream) const {
    must(cudaMemsetAsync(sums_out(), 0xFF, static_cast<std::size_t>(4 * part_), stream), "cudaMemsetAsync");
  }
  [[nodiscard]] const std::byte* gathered() const noexcept { return storage_.as<>(); }
  [[nodiscard]] std::vector<Span> gathered_spans() const {
    std::vector<Span> spans;
    for (const Flat& flat : flat_) spans.push_back({flat.parameter, 0, flat.elements, flat.storage});
    return spans;
  }
  [[nodiscard]] const std::byte* reduced() const noexcept { return sums_out(); }
  [[nodiscard]] std::vector<Span> reduced_spans() const {
    std::vector<Span> spans;
    for (const Flat& flat : flat_) {
      const index_t begin = flat.chunk * rank_;
      const index_t count = std::min(flat.chunk, flat.elements - begin);
      if (count > 0) spans.push_back({flat.parameter, begin, count, 4 * flat.part});
    }
    return spans;
  }

 private:
  // A parameter in the flat buffers: whole elements, padded elements of a rank, where it lies in a rank's part
  // (elements) and in the storage (bytes).
  struct Flat {
    int parameter;
    index_t elements;
    index_t chunk;
    index_t part;
    index_t storage;
  };

  void allocate(DeviceMemory& plain, std::unique_ptr<WindowMemory>& window, index_t bytes) {
    if (kind_ == Kind::symmetric) {
      window = std::make_unique<WindowMemory>(communicator_, bytes);
    } else {
      plain = DeviceMemory(bytes);
    }
  }

  void prepare_gather(const Inputs& inputs) {
    std::vector<ForeachRow> casts;
    std::vector<ForeachRow> copies;
    std::vector<ForeachRow> copies_of_cast;
    std::vector<Split> splits;
    std::byte* mine = staging() + 2 * part_ * rank_;
    layout_.for_each_piece(tide::Rank{rank_}, [&](const tide::Piece& piece) {
      const Flat& flat = flat_[static_cast<std::size_t>(piece.parameter.value)];
      const index_t elements = piece.elements();
      casts.push_back({inputs.masters + piece.offset(tide::Buffer::masters), cast_.as<>() + 2 * flat.part, elements});
      copies.push_back({inputs.shards + piece.offset(tide::Buffer::shards), mine + 2 * flat.part, elements});
      copies_of_cast.push_back({cast_.as<>() + 2 * flat.part, mine + 2 * flat.part, elements});
      splits.push_back({storage_.as<>() + flat.storage, 2 * flat.part, 2 * flat.chunk, 0});
    });
    cast_masters_.emplace(casts);
    copy_in_.emplace(copies);
    copy_in_cast_.emplace(copies_of_cast);
    copy_out_.emplace(staging(), 2 * part_, ranks_, splits);
  }

  void prepare_reduce(const Inputs& inputs) {
    std::vector<Tensor> tensors;
    layout_.for_each_piece(tide::Rank{rank_}, [&](const tide::Piece& piece) {
      const Flat& flat = flat_[static_cast<std::size_t>(piece.parameter.value)];
      const index_t start = piece.start[static_cast<std::size_t>(tide::Buffer::gradients)];
      tensors.push_back(
          {reinterpret_cast<const __nv_bfloat16*>(inputs.gradients + start), flat.elements, flat.chunk, flat.part, 0});
    });
    chunk_cat_.emplace(reinterpret_cast<float*>(sums_in()), part_, ranks_, tensors);
  }

  void reduce_scatter(ncclDataType_t type, cudaStream_t stream) const {
    must(ncclReduceScatter(sums_in(), sums_out(), static_cast<std::size_t>(part_), type,
                           kind_ == Kind::symmetric ? ncclSum : ncclAvg, communicator_, stream),
         "ncclReduceScatter");
  }

  [[nodiscard]] std::byte* staging() const noexcept {
    return staging_window_ ? staging_window_->as<>() : staging_.as<>();
  }
  [[nodiscard]] std::byte* sums_in() const noexcept {
    return sums_in_window_ ? sums_in_window_->as<>() : sums_in_.as<>();
  }
  [[nodiscard]] std::byte* sums_out() const noexcept {
    return sums_out_window_ ? sums_out_window_->as<>() : sums_out_.as<>();
  }

  tide::LayoutView layout_;
  int rank_;
  int ranks_;
  ncclComm_t communicator_;
  Kind kind_;
  std::vector<Flat> flat_;
  index_t part_ = 0;  // elements of a rank
  index_t storage_bytes_ = 0;
  DeviceMemory storage_;
  DeviceMemory cast_;
  DeviceMemory staging_;
  DeviceMemory sums_in_;
  DeviceMemory sums_out_;
  std::unique_ptr<WindowMemory> staging_window_;
  std::unique_ptr<WindowMemory> sums_in_window_;
  std::unique_ptr<WindowMemory> sums_out_window_;
  std::optional<Foreach<__nv_bfloat16, float>> cast_masters_;
  std::optional<Foreach<__nv_bfloat16, __nv_bfloat16>> copy_in_;
  std::optional<Foreach<__nv_bfloat16, __nv_bfloat16>> copy_in_cast_;
  std::optional<CopyOut> copy_out_;
  std::optional<ChunkCat> chunk_cat_;
};

}  // namespace tide_benchmark
