// SPDX-License-Identifier: Apache-2.0
//
// The flat path: what FSDP2 does around collectives that know only flat, rank-major buffers, on the same ranks and in
// the same memory as tide: a thread per rank, memcpy and loops that vectorise.
//
//   gather   [cast ->] pack -> own slice of staging | all-gather: slices of the peers | copy-out, a copy per
//            parameter and rank
//   reduce   widen to f32 and pack, padded          | reduce-scatter: sum own slices of all ranks, scaled
//
//   staging  | rank 0: p0 p1 p2 .. | rank 1: p0 p1 p2 .. | ...      shards padded to equal size, no alignment: Fsdp2Packing
//
// The slices are those of PyTorch, to the byte. Where it would copy more, it is spared: pads are not moved on their
// own, shards along other dimensions are placed without a temporary tensor, sums go straight from all ranks' memory to
// the result.

#pragma once

#include "elements.hpp"
#include "meeting.hpp"

#include <tide/fabric/host_fabric.hpp>
#include <tide/layout/dynamic_layout.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

namespace tide_example {

using tide::index_t;

/// A layout as PyTorch packs it.
[[nodiscard]] inline tide::DynamicLayout flat_layout(const tide::DynamicGroup& group, tide::MeshShape mesh) {
  return {group, mesh, tide::Fsdp2Packing::rule};
}

/// The pieces of one rank.
[[nodiscard]] inline std::vector<tide::Piece> pieces_of(const tide::LayoutView& layout, index_t rank) {
  std::vector<tide::Piece> pieces;
  layout.for_each_piece(tide::Rank{rank}, [&](const tide::Piece& piece) { pieces.push_back(piece); });
  return pieces;
}

namespace detail {

// Loops of their own, so that a compiler sees enough to vectorise them. Flat buffers align nothing.
template <class T>
void narrow(const std::byte* from, std::byte* to, index_t count) {
  for (index_t i = 0; i < count; ++i) {
    float master;
    std::memcpy(&master, from + 4 * i, 4);
    const T value = tide::convert<T>(master);
    std::memcpy(to + i * static_cast<index_t>(sizeof(T)), &value, sizeof(T));
  }
}

template <class T>
void widen(const T* from, float* to, index_t count) {
  for (index_t i = 0; i < count; ++i) to[i] = tide::convert<float>(from[i]);
}

}  // namespace detail

/// What a flat operation does on all ranks together.
struct FlatCost {
  index_t bytes_written = 0;
  index_t copies = 0;
  index_t buffer_bytes = 0;  ///< of all ranks
};

/// One rank's part of a flat all-gather. Constructed before `init` of the fabric.
class FlatGather {
 public:
  enum class Source { shards, masters };

  FlatGather(tide::HostFabric& fabric, const tide::DynamicLayout& flat, Source source)
      : fabric_(fabric), rank_(fabric.rank().value), ranks_(fabric.mesh().ranks()), source_(source) {
    const tide::LayoutView layout = flat.view();
    slice_ = layout.bytes(tide::Buffer::shards);
    for (index_t r = 0; r < ranks_; ++r) pieces_.push_back(pieces_of(layout, r));
    for (const tide::Parameter& parameter : layout.group.parameters) elements_.push_back(parameter.gathered);
    staging_ = fabric.reserve(std::max<index_t>(ranks_ * slice_, 1), 4096);
    if (source == Source::masters) cast_ = fabric.reserve(std::max<index_t>(slice_, 1), 4096);
  }

  /// Gathers what `shard_of(parameter)` points to (packed rows, f32 where the source is masters) into the whole
  /// parameters that `whole(parameter)` points to.
  ///
  /// @param meet      where all ranks meet
  /// @param arena_of  the memory of a rank
  template <class ShardOf, class Whole, class ArenaOf>
  void operator()(const ShardOf& shard_of, const Whole& whole, Meeting& meet, const ArenaOf& arena_of) {
    pack(shard_of);
    meet.wait(fabric_);
    for (index_t k = 1; k < ranks_; ++k) {
      const index_t peer = (rank_ + k) % ranks_;
      std::memcpy(staging() + peer * slice_, arena_of(peer) + staging_ + peer * slice_,
                  static_cast<std::size_t>(slice_));
    }
    copy_out(whole);
  }

  /// The cost of all ranks.
  [[nodiscard]] FlatCost cost() const {
    FlatCost cost;
    index_t group_bytes = 0;  // without pads
    index_t shards = 0;       // that are not empty
    for (const auto& of_rank : pieces_) {
      for (const tide::Piece& piece : of_rank) {
        group_bytes += piece.bytes(tide::Buffer::shards);
        shards += piece.elements() > 0 ? 1 : 0;
      }
    }
    const index_t packs = source_ == Source::masters ? 2 : 1;
    cost.bytes_written = packs * group_bytes + ranks_ * (ranks_ - 1) * slice_ + ranks_ * group_bytes;
    cost.copies = packs * shards + ranks_ * (ranks_ - 1) + ranks_ * shards;
    cost.buffer_bytes = ranks_ * (ranks_ * slice_ + (packs - 1) * slice_);
    return cost;
  }

 private:
  [[nodiscard]] std::byte* staging() const { return fabric_.arena() + staging_; }

  template <class ShardOf>
  void pack(const ShardOf& shard_of) {
    std::byte* slice = staging() + rank_ * slice_;
    for (const tide::Piece& piece : pieces_[static_cast<std::size_t>(rank_)]) {
      if (piece.elements() == 0) continue;
      const index_t offset = piece.offset(tide::Buffer::shards);
      const std::byte* shard = shard_of(static_cast<std::size_t>(piece.parameter.value));
      if (source_ == Source::masters) {
        // PyTorch casts into one new tensor and copies that into the slice.
        std::byte* cast = fabric_.arena() + cast_ + offset;
        with_type(elements_[static_cast<std::size_t>(piece.parameter.value)],
                  [&]<class T>() { detail::narrow<T>(shard, cast, piece.elements()); });
        shard = cast;
      }
      std::memcpy(slice + offset, shard, static_cast<std::size_t>(piece.bytes(tide::Buffer::shards)));
    }
  }

  template <class Whole>
  void copy_out(const Whole& whole) {
    for (index_t r = 0; r < ranks_; ++r) {
      for (const tide::Piece& piece : pieces_[static_cast<std::size_t>(r)]) {
        if (piece.elements() == 0) continue;
        const index_t size = piece.size(tide::Buffer::slot);
        const std::byte* from = staging() + r * slice_ + piece.offset(tide::Buffer::shards);
        std::byte* to = whole(static_cast<std::size_t>(piece.parameter.value)) + piece.first * size;
        for (index_t row = 0; row < piece.outer; ++row) {
          std::memcpy(to + row * piece.pitch * size, from + row * piece.width * size,
                      static_cast<std::size_t>(piece.width * size));
        }
      }
    }
  }

  tide::HostFabric& fabric_;
  index_t rank_;
  index_t ranks_;
  Source source_;
  index_t slice_ = 0;
  index_t staging_ = 0;
  index_t cast_ = 0;
  std::vector<std::vector<tide::Piece>> pieces_;  // of every rank
  std::vector<tide::Element> elements_;
};

namespace detail {

// The sums are written once more here, though HostFabric's kernels add along the same tree: a baseline that shared them
// would be wrong wherever they are, and as fast or slow.

// The tree's sum of inputs [First, Last) at one position.
template <int First, int Last>
[[nodiscard]] inline float tree_at(const float* const* inputs, index_t i) {
  if constexpr (Last - First == 1) {
    return inputs[First][i];
  } else {
    constexpr int middle = First + static_cast<int>(tide::power_below(Last - First));
    return tree_at<First, middle>(inputs, i) + tree_at<middle, Last>(inputs, i);
  }
}

template <int Inputs>
void sum_few(const float* const* given, float* output, index_t count, float scale) {
  std::array<const float*, Inputs> inputs;  // a copy, so that the compiler sees that no store changes it
  std::copy_n(given, Inputs, inputs.begin());
  for (index_t i = 0; i < count; ++i) output[i] = tree_at<0, Inputs>(inputs.data(), i) * scale;
}

// Sums along the tree of reduce/tree.hpp, times `scale`: up to eight inputs in one loop, more by halves. `scratch` has
// `count` floats for each level above eight inputs.
inline void sum_along_tree(const float* const* inputs, index_t many, float* output, index_t count, float scale,
                           float* scratch) {
  constexpr std::array few{&sum_few<1>, &sum_few<2>, &sum_few<3>, &sum_few<4>,
                           &sum_few<5>, &sum_few<6>, &sum_few<7>, &sum_few<8>};
  if (many <= 8) return few[static_cast<std::size_t>(many) - 1](inputs, output, count, scale);
  const index_t middle = tide::power_below(many);
  sum_along_tree(inputs, middle, output, count, 1, scratch);
  sum_along_tree(inputs + middle, many - middle, scratch, count, 1, scratch + count);
  for (index_t i = 0; i < count; ++i) output[i] = (output[i] + scratch[i]) * scale;
}

}  // namespace detail

/// One rank's part of a flat reduce-scatter to f32. Constructed before `init` of the fabric.
class FlatReduce {
 public:
  FlatReduce(tide::HostFabric& fabric, const tide::DynamicLayout& flat)
      : fabric_(fabric), rank_(fabric.rank().value), ranks_(fabric.mesh().ranks()) {
    const tide::LayoutView layout = flat.view();
    slice_ = layout.bytes(tide::Buffer::output);
    for (index_t r = 0; r < ranks_; ++r) pieces_.push_back(pieces_of(layout, r));
    for (const tide::Parameter& parameter : layout.group.parameters) elements_.push_back(parameter.gradient);
    input_ = fabric.reserve(std::max<index_t>(ranks_ * slice_, 1), 4096);
    output_ = fabric.reserve(std::max<index_t>(slice_, 1), 4096);
  }

  /// Sums the whole gradients that `gradient(parameter)` points to over all ranks, times `scale`.
  template <class GradientOf, class ArenaOf>
  void operator()(const GradientOf& gradient, float scale, Meeting& meet, const ArenaOf& arena_of) {
    pack(gradient);
    meet.wait(fabric_);
    sum(scale, arena_of);
  }

  /// The own rows of a parameter in the result, a view of one flat buffer.
  [[nodiscard]] const std::byte* shard(tide::ParameterIndex parameter) const {
    const tide::Piece& piece = pieces_[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(parameter.value)];
    return fabric_.arena() + output_ + piece.offset(tide::Buffer::output);
  }

  [[nodiscard]] std::byte* result() const { return fabric_.arena() + output_; }
  [[nodiscard]] index_t result_bytes() const noexcept { return slice_; }

  /// The cost of all ranks.
  [[nodiscard]] FlatCost cost() const {
    FlatCost cost;
    index_t shards = 0;  // that are not empty
    for (const auto& of_rank : pieces_) {
      for (const tide::Piece& piece : of_rank) shards += piece.elements() > 0 ? 1 : 0;
    }
    cost.bytes_written = ranks_ * ranks_ * slice_ + ranks_ * slice_;
    cost.copies = ranks_ * shards;
    cost.buffer_bytes = ranks_ * ranks_ * slice_;
    return cost;
  }

 private:
  template <class GradientOf>
  void pack(const GradientOf& gradient) {
    for (index_t r = 0; r < ranks_; ++r) {
      std::byte* slice = fabric_.arena() + input_ + r * slice_;
      const std::vector<tide::Piece>& pieces = pieces_[static_cast<std::size_t>(r)];
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const tide::Piece& piece = pieces[p];
        const index_t begin = piece.offset(tide::Buffer::output);
        const index_t end = p + 1 < pieces.size() ? pieces[p + 1].offset(tide::Buffer::output) : slice_;
        auto* to = reinterpret_cast<float*>(slice + begin);
        with_type(elements_[p], [&]<class T>() {
          const auto* from = reinterpret_cast<const T*>(gradient(p)) + piece.first;
          for (index_t row = 0; row < piece.outer; ++row) {
            detail::widen(from, to, piece.width);
            to += piece.width;
            from += piece.pitch;
          }
        });
        std::fill(to, reinterpret_cast<float*>(slice + end), 0.0F);
      }
    }
  }

  template <class ArenaOf>
  void sum(float scale, const ArenaOf& arena_of) {
    constexpr index_t block = 2048;  // elements; a few blocks of floats stay in the first cache
    std::vector<const float*> inputs(static_cast<std::size_t>(ranks_));
    const tide::MeshShape mesh = fabric_.mesh();
    std::vector<float> scratch(static_cast<std::size_t>(17 * block));
    std::vector<float> node_sums(static_cast<std::size_t>(mesh.nodes * block));
    std::vector<const float*> nodes;
    for (index_t node = 0; node < mesh.nodes; ++node) nodes.push_back(node_sums.data() + node * block);
    auto* output = reinterpret_cast<float*>(result());
    for (index_t done = 0; done < slice_ / 4; done += block) {
      const index_t n = std::min(block, slice_ / 4 - done);
      for (index_t r = 0; r < ranks_; ++r) {
        inputs[static_cast<std::size_t>(r)] =
            reinterpret_cast<const float*>(arena_of(r) + input_ + rank_ * slice_) + done;
      }
      if (mesh.nodes == 1) {
        detail::sum_along_tree(inputs.data(), ranks_, output + done, n, scale, scratch.data());
        continue;
      }
      for (index_t node = 0; node < mesh.nodes; ++node) {
        detail::sum_along_tree(inputs.data() + node * mesh.ranks_per_node, mesh.ranks_per_node,
                               node_sums.data() + node * block, n, 1, scratch.data());
      }
      detail::sum_along_tree(nodes.data(), mesh.nodes, output + done, n, scale, scratch.data());
    }
  }

  tide::HostFabric& fabric_;
  index_t rank_;
  index_t ranks_;
  index_t slice_ = 0;
  index_t input_ = 0;
  index_t output_ = 0;
  std::vector<std::vector<tide::Piece>> pieces_;  // of every rank
  std::vector<tide::Element> elements_;
};

}  // namespace tide_example
