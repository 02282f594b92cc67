// SPDX-License-Identifier: Apache-2.0
//
// Shards: a rank's packed shards of one group, typed by the layout.
//
//   Shards<Layout>         in the gathered element: what a gather reads        |w w w|..|b|
//   MasterShards<Layout>   in f32: master weights, and what a reduce writes
//
// Laws                                               (tests/memory/shards.test.cpp)
//   the shard memory that the user writes is the memory that is sent; tied names are the same memory

#pragma once

#include <tide/fabric/fabric.hpp>          // FabricPort
#include <tide/layout/shard_layout.hpp>    // ShardLayout
#include <tide/memory/detail/storage.hpp>  // ArenaStorage

#include <span>

namespace tide {

/// Rows [begin, end) of a parameter; none where they are equal.
struct RowRange {
  index_t begin = 0;
  index_t end = 0;

  [[nodiscard]] friend constexpr bool operator==(const RowRange&, const RowRange&) = default;
};

/// Packed shards somewhere in memory of the own rank; does not own them.
///
/// @tparam Which  Buffer::shards (gathered element) or Buffer::masters (f32)
template <class Layout, Buffer Which>
class ShardsView {
  static_assert(Which == Buffer::shards || Which == Buffer::masters,
                "tide::ShardsView: Which must be Buffer::shards or Buffer::masters.");

 public:
  /// Memory of `bytes(layout, rank)` bytes, aligned to the widest element in it.
  constexpr ShardsView(void* data, const Layout& layout, Rank rank) noexcept
      : data_(static_cast<std::byte*>(data)), layout_(layout), rank_(rank) {}

  /// Bytes that a rank's packed shards take.
  [[nodiscard]] static constexpr index_t bytes(const Layout& layout, Rank rank) {
    return layout.view().bytes(Which, rank);
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] index_t bytes() const { return bytes(layout_, rank_); }
  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }

  /// The own rows of the parameter called `Text`, back to back; empty when this rank owns none.
  /// @throws Error (Errc::layout) when they do not lie at a multiple of their element: `Fsdp2Packing` with elements of
  ///         unlike size packs them so; `bytes_of` gives their bytes
  template <FixedString Text>
  [[nodiscard]] auto get() const {
    return own<Text>(Layout::template index<Text>());
  }
  /// Those of number `number` of the parameters that are written `Text` in the group, "experts.{}.w" say.
  /// @throws Error as above, and (Errc::argument) when there is no such number
  template <FixedString Text>
  [[nodiscard]] auto get(index_t number) const {
    return own<Text>(Layout::template index<Text>(number));
  }

  /// Which rows of the parameter called `Text` these are: those of the dimension that is cut.
  template <FixedString Text>
  [[nodiscard]] RowRange rows() const {
    return rows_of(Layout::template index<Text>());
  }
  template <FixedString Text>
  [[nodiscard]] RowRange rows(index_t number) const {
    return rows_of(Layout::template index<Text>(number));
  }

  /// Calls f(const Piece&, own) for each parameter that this rank owns rows of, in group order, with a std::span<float>
  /// of them; of shards in the gathered element a std::span<std::byte>. Of the whole parameter they are `outer` runs of
  /// `width` elements, `pitch` apart, from element `first` on: one run where dimension 0 is cut.
  template <class F>
  void for_each(F f) const {
    layout_.view().for_each_piece(rank_, [&](const Piece& piece) {
      if (piece.elements() == 0) return;
      std::byte* const begin = data_ + piece.offset(Which);
      if constexpr (Which == Buffer::masters) {
        f(piece, std::span<float>(reinterpret_cast<float*>(begin), static_cast<std::size_t>(piece.elements())));
      } else {
        f(piece, std::span<std::byte>(begin, static_cast<std::size_t>(piece.bytes(Which))));
      }
    });
  }

  /// The bytes of a parameter's own rows.
  /// @throws Error (Errc::argument) when there is no such position
  [[nodiscard]] std::span<std::byte> bytes_of(ParameterIndex parameter) const {
    detail::require_parameter(layout_.view(), parameter);
    const Piece piece = layout_.view().piece(parameter, rank_);
    return {data_ + piece.offset(Which), static_cast<std::size_t>(piece.bytes(Which))};
  }

 private:
  template <FixedString Text>
  [[nodiscard]] auto own(ParameterIndex parameter) const {
    using T = detail::shard_element<Layout, Which, Text>;
    const Piece piece = layout_.view().piece(parameter, rank_);
    detail::require_element_aligned(layout_.view(), piece, Which);
    return std::span<T>(reinterpret_cast<T*>(data_ + piece.offset(Which)), static_cast<std::size_t>(piece.elements()));
  }
  [[nodiscard]] RowRange rows_of(ParameterIndex parameter) const {
    const Piece piece = layout_.view().piece(parameter, rank_);
    return {piece.begin, piece.begin + piece.count};
  }

  std::byte* data_;
  Layout layout_;
  Rank rank_;
};

/// Packed shards in the arena of a fabric. Construct before `init`; use after.
template <class Layout, Buffer Which = Buffer::shards>
class Shards {
 public:
  /// @throws Error as the constructor of the layout, or (Errc::order) after `init`
  explicit Shards(FabricPort& fabric) : Shards(fabric, detail::layout_on<Layout>(fabric)) {}
  Shards(FabricPort& fabric, Layout layout)
      : storage_(fabric, layout.view().max_bytes(Which)), layout_(std::move(layout)) {}

  [[nodiscard]] ShardsView<Layout, Which> view() const { return {storage_.data(), layout_, storage_.port().rank()}; }
  operator ShardsView<Layout, Which>() const { return view(); }  // NOLINT: a storage is used where a view is asked for

  template <FixedString Text>
  [[nodiscard]] auto get() const {
    return view().template get<Text>();
  }
  template <FixedString Text>
  [[nodiscard]] auto get(index_t number) const {
    return view().template get<Text>(number);
  }
  template <FixedString Text>
  [[nodiscard]] RowRange rows() const {
    return view().template rows<Text>();
  }
  template <FixedString Text>
  [[nodiscard]] RowRange rows(index_t number) const {
    return view().template rows<Text>(number);
  }
  [[nodiscard]] std::byte* data() const { return storage_.data(); }

 private:
  detail::ArenaStorage storage_;
  Layout layout_;
};

/// f32 shards: master weights, reduced gradients.
template <class Layout>
using MasterShards = Shards<Layout, Buffer::masters>;

}  // namespace tide
