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

#include "flat_group.cuh"

#include <tide/layout/dynamic_layout.hpp>  // DynamicLayout

#include <memory>

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

/// How sums are asked for: an average, or a sum where `FlatGroup::scale` follows.
[[nodiscard]] constexpr ncclRedOp_t sum_of(Kind kind) noexcept { return kind == Kind::symmetric ? ncclSum : ncclAvg; }

/// Memory that a collective of NCCL reads or writes.
class FlatMemory {
 public:
  FlatMemory(ncclComm_t communicator, Kind kind, index_t bytes) {
    if (kind == Kind::symmetric) {
      window_ = std::make_unique<WindowMemory>(communicator, bytes);
    } else {
      plain_ = DeviceMemory(bytes);
    }
  }

  [[nodiscard]] std::byte* data() const noexcept { return window_ ? window_->as<>() : plain_.as<>(); }

 private:
  DeviceMemory plain_;
  std::unique_ptr<WindowMemory> window_;
};

class Baseline {
 public:
  Baseline(const tide::LayoutView& layout, int rank, Inputs inputs, ncclComm_t communicator, Kind kind)
      : flat_(layout, rank),
        communicator_(communicator),
        kind_(kind),
        storage_(flat_.storage_bytes()),
        cast_(flat_.cast_bytes()),
        staging_(communicator, kind, flat_.staging_bytes()),
        sums_in_(communicator, kind, flat_.sums_in_bytes()),
        sums_out_(communicator, kind, flat_.sums_out_bytes()),
        cast_masters_(flat_.cast(inputs.masters, cast_.as<>())),
        copy_in_(flat_.copy_in(inputs.shards, staging_.data())),
        copy_in_cast_(flat_.copy_in_cast(cast_.as<>(), staging_.data())),
        copy_out_(flat_.copy_out(staging_.data(), storage_.as<>())),
        chunk_cat_(flat_.chunk_cat(inputs.gradients, sums_in_.data())) {}

  // The parts, in order.
  void cast(cudaStream_t stream) const { cast_masters_.enqueue(stream); }
  void copy_in(bool from_cast, cudaStream_t stream) const { (from_cast ? copy_in_cast_ : copy_in_).enqueue(stream); }
  void all_gather(cudaStream_t stream) const { flat_.all_gather(staging_.data(), communicator_, stream); }
  void copy_out(cudaStream_t stream) const { copy_out_.enqueue(stream); }
  void pack(cudaStream_t stream) const { chunk_cat_.enqueue(stream); }
  void reduce_scatter(cudaStream_t stream) const { reduce_scatter(ncclFloat32, stream); }
  /// NCCL alone on bf16, whatever lies in the buffer.
  void reduce_scatter_bf16(cudaStream_t stream) const { reduce_scatter(ncclBfloat16, stream); }
  void scale(cudaStream_t stream) const { flat_.scale(sums_out_.data(), stream); }

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
    return flat_.staging_bytes() + (from_masters ? flat_.cast_bytes() : 0);
  }
  [[nodiscard]] index_t reduce_bytes() const noexcept { return flat_.sums_in_bytes(); }
  /// Launches of own kernels and calls of NCCL.
  [[nodiscard]] index_t gather_calls(bool from_masters) const noexcept {
    return (from_masters ? cast_masters_.launches() + copy_in_cast_.launches() : copy_in_.launches()) + 2;
  }
  [[nodiscard]] index_t reduce_calls() const noexcept { return kind_ == Kind::symmetric ? 3 : 2; }

  // Results, and what spoils them before a check.
  void spoil_gathered(cudaStream_t stream) const {
    spoil(storage_.as<>(), flat_.storage_bytes(), stream);
    spoil(staging_.data(), flat_.staging_bytes(), stream);
  }
  void spoil_reduced(cudaStream_t stream) const { spoil(sums_out_.data(), flat_.sums_out_bytes(), stream); }
  [[nodiscard]] const std::byte* gathered() const noexcept { return storage_.as<>(); }
  [[nodiscard]] std::vector<Span> gathered_spans() const { return flat_.gathered_spans(); }
  [[nodiscard]] const std::byte* reduced() const noexcept { return sums_out_.data(); }
  [[nodiscard]] std::vector<Span> reduced_spans() const { return flat_.reduced_spans(); }

 private:
  static void spoil(std::byte* memory, index_t bytes, cudaStream_t stream) {
    must(cudaMemsetAsync(memory, 0xFF, static_cast<std::size_t>(bytes), stream), "cudaMemsetAsync");
  }

  void reduce_scatter(ncclDataType_t type, cudaStream_t stream) const {
    flat_.reduce_scatter(sums_in_.data(), sums_out_.data(), type, sum_of(kind_), communicator_, stream);
  }

  FlatGroup flat_;
  ncclComm_t communicator_;
  Kind kind_;
  DeviceMemory storage_;
  DeviceMemory cast_;
  FlatMemory staging_;
  FlatMemory sums_in_;
  FlatMemory sums_out_;
  Foreach<__nv_bfloat16, float> cast_masters_;
  Foreach<__nv_bfloat16, __nv_bfloat16> copy_in_;
  Foreach<__nv_bfloat16, __nv_bfloat16> copy_in_cast_;
  CopyOut copy_out_;
  ChunkCat chunk_cat_;
};

}  // namespace tide_benchmark
