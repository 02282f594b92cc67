// SPDX-License-Identifier: Apache-2.0
//
// FlatGroup: where the parameters of a group lie in the flat buffers of FSDP2, and the copies in and out of them.
//
//   staging, sums in   | rank 0: p0 p1 p2 .. | rank 1: p0 p1 p2 .. |      parts of equal size, shards padded, unaligned
//   storage            | p0 | p1 | p2 | ..                                whole parameters
//   cast, sums out     | p0 p1 p2 .. |                                    the part of one rank

#pragma once

#include "layout_kernels.cuh"
#include "values.cuh"

#include <vector>

namespace tide_benchmark {

class FlatGroup {
 public:
  FlatGroup(const tide::LayoutView& layout, int rank)
      : layout_(layout), rank_(rank), ranks_(static_cast<int>(layout.mesh.ranks())) {
    for (const Span& span : whole_spans(layout, tide::Buffer::slot)) {
      const tide::Parameter& parameter = layout.group[tide::ParameterIndex{span.parameter}];
      const index_t rows = parameter.shape[0];
      const index_t chunk = rows == 0 ? 0 : tide::ceil_div(rows, ranks_) * (span.elements / rows);
      places_.push_back({span.parameter, span.elements, chunk, part_, storage_bytes_});
      part_ += chunk;
      storage_bytes_ = tide::align_up(storage_bytes_ + 2 * chunk * ranks_, 256);
    }
  }

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Elements of a rank in a flat buffer.
  [[nodiscard]] index_t part() const noexcept { return part_; }
  // Bytes of the buffers.
  [[nodiscard]] index_t storage_bytes() const noexcept { return storage_bytes_; }
  [[nodiscard]] index_t cast_bytes() const noexcept { return 2 * part_; }
  [[nodiscard]] index_t staging_bytes() const noexcept { return 2 * part_ * ranks_; }
  [[nodiscard]] index_t sums_in_bytes() const noexcept { return 4 * part_ * ranks_; }
  [[nodiscard]] index_t sums_out_bytes() const noexcept { return 4 * part_; }

  // The copies. Shards, masters and gradients lie as the layout says.

  [[nodiscard]] Foreach<__nv_bfloat16, float> cast(const std::byte* masters, std::byte* cast) const {
    return Foreach<__nv_bfloat16, float>(rows([&](const tide::Piece& piece, const Place& place) {
      return ForeachRow{masters + piece.offset(tide::Buffer::masters), cast + 2 * place.part, piece.elements()};
    }));
  }
  [[nodiscard]] Foreach<__nv_bfloat16, __nv_bfloat16> copy_in(const std::byte* shards, std::byte* staging) const {
    return Foreach<__nv_bfloat16, __nv_bfloat16>(rows([&](const tide::Piece& piece, const Place& place) {
      return ForeachRow{shards + piece.offset(tide::Buffer::shards), own(staging) + 2 * place.part, piece.elements()};
    }));
  }
  [[nodiscard]] Foreach<__nv_bfloat16, __nv_bfloat16> copy_in_cast(const std::byte* cast, std::byte* staging) const {
    return Foreach<__nv_bfloat16, __nv_bfloat16>(rows([&](const tide::Piece& piece, const Place& place) {
      return ForeachRow{cast + 2 * place.part, own(staging) + 2 * place.part, piece.elements()};
    }));
  }
  [[nodiscard]] CopyOut copy_out(const std::byte* staging, std::byte* storage) const {
    std::vector<Split> splits;
    for (const Place& place : places_) {
      splits.push_back({storage + place.storage, 2 * place.part, 2 * place.chunk, 0});
    }
    return {staging, 2 * part_, ranks_, splits};
  }
  [[nodiscard]] ChunkCat chunk_cat(const std::byte* gradients, std::byte* sums_in) const {
    std::vector<Tensor> tensors;
    layout_.for_each_piece(tide::Rank{rank_}, [&](const tide::Piece& piece) {
      const Place& place = place_of(piece);
      const index_t start = piece.start[static_cast<std::size_t>(tide::Buffer::gradients)];
      tensors.push_back(
          {reinterpret_cast<const __nv_bfloat16*>(gradients + start), place.elements, place.chunk, place.part, 0});
    });
    return {reinterpret_cast<float*>(sums_in), part_, ranks_, tensors};
  }

  /// In place: the own part of the staging is the input.
  void all_gather(std::byte* staging, ncclComm_t communicator, cudaStream_t stream) const {
    must(ncclAllGather(own(staging), staging, static_cast<std::size_t>(part_), ncclBfloat16, communicator, stream),
         "ncclAllGather");
  }
  void reduce_scatter(const std::byte* sums_in, std::byte* sums_out, ncclDataType_t type, ncclRedOp_t operation,
                      ncclComm_t communicator, cudaStream_t stream) const {
    must(ncclReduceScatter(sums_in, sums_out, static_cast<std::size_t>(part_), type, operation, communicator, stream),
         "ncclReduceScatter");
  }
  /// Sums become averages.
  void scale(std::byte* sums_out, cudaStream_t stream) const {
    const auto blocks = static_cast<unsigned>((part_ / 4 + 1 + 127) / 128);
    scale_in_place<<<blocks, 128, 0, stream>>>(reinterpret_cast<float*>(sums_out), part_,
                                               1.0F / static_cast<float>(ranks_));
    must_launch("scale_in_place");
  }

  /// The whole parameters in the storage.
  [[nodiscard]] std::vector<Span> gathered_spans() const {
    std::vector<Span> spans;
    for (const Place& place : places_) spans.push_back({place.parameter, 0, place.elements, place.storage});
    return spans;
  }
  /// What this rank owns, in the sums that come out.
  [[nodiscard]] std::vector<Span> reduced_spans() const {
    std::vector<Span> spans;
    for (const Place& place : places_) {
      const index_t begin = place.chunk * rank_;
      const index_t count = std::min(place.chunk, place.elements - begin);
      if (count > 0) spans.push_back({place.parameter, begin, count, 4 * place.part});
    }
    return spans;
  }

 private:
  // A parameter: whole elements, padded elements of a rank, where it lies in a rank's part (elements) and in the
  // storage (bytes).
  struct Place {
    int parameter;
    index_t elements;
    index_t chunk;
    index_t part;
    index_t storage;
  };

  [[nodiscard]] const Place& place_of(const tide::Piece& piece) const {
    return places_[static_cast<std::size_t>(piece.parameter.value)];
  }
  [[nodiscard]] std::byte* own(std::byte* staging) const noexcept { return staging + 2 * part_ * rank_; }

  // `row(piece, place)` for each parameter.
  template <class Row>
  [[nodiscard]] std::vector<ForeachRow> rows(const Row& row) const {
    std::vector<ForeachRow> all;
    layout_.for_each_piece(tide::Rank{rank_},
                           [&](const tide::Piece& piece) { all.push_back(row(piece, place_of(piece))); });
    return all;
  }

  tide::LayoutView layout_;
  int rank_;
  int ranks_;
  std::vector<Place> places_;
  index_t part_ = 0;
  index_t storage_bytes_ = 0;
};

}  // namespace tide_benchmark
