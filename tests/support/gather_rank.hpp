// SPDX-License-Identifier: Apache-2.0
//
// GatherRank: one rank's half of a gather test, on any fabric: it starts gathers from each source and compares the
// whole slot with the oracle. Nothing here blocks; `verdict` tells what was wrong, once the streams are synchronized.

#pragma once

#include <tide/pipeline/all_gather.hpp>

#include "support/checks.hpp"
#include "support/collective_oracle.hpp"

#include <string>
#include <utility>

namespace tide_test {

[[nodiscard]] inline std::string name(Source source) {
  return source == Source::shards ? "shards" : source == Source::masters ? "masters" : "in place";
}

template <class Ranks, class Layout, class Transport, class Inter = tide::SingleNode>
class GatherRank {
 public:
  using Fabric = typename Ranks::Fabric;
  using Stream = typename Ranks::Stream;

  /// @param shift  how many bytes the user's memory lies off its alignment
  template <class Pool>
  GatherRank(Fabric& fabric, Pool& pool, const Layout& layout, const CollectiveOracle& oracle, std::string label = {},
             std::size_t shift = 0)
      : rank_(fabric.rank()),
        layout_(layout),
        oracle_(&oracle),
        gather_(fabric, pool, layout, std::move(label)),
        shards_(fabric, bytes<tide::Buffer::shards>(), shift),
        masters_(fabric, bytes<tide::Buffer::masters>(), shift) {}

  /// Starts a gather of the data of `seed`.
  template <class Pool>
  [[nodiscard]] tide::Gathered<Layout> start(Pool& pool, Source source, std::uint64_t seed, Stream& stream) {
    stream.wait(complete_);  // until then the last gather reads the memory that is written here
    tide::Gathered<Layout> params = start_from(pool, source, seed, stream);
    complete_ = params.complete();
    return params;
  }

  /// Compares the slot and the source, then poisons the slot. The stream may be another than the gather's.
  void read(const tide::Gathered<Layout>& params, Source source, std::uint64_t seed, Stream& stream) {
    const std::string what = name(source) + ", seed " + std::to_string(seed);
    Bytes expected = oracle_->slot(seed, source);
    const std::size_t size = expected.size();
    stream.wait(params.complete());
    checks_.expect(stream, params.data(), std::move(expected), "slot from " + what);
    Ranks::write(stream, params.data(), Bytes(size, poison));
    if (source == Source::shards) checks_.expect(stream, shards_.data(), oracle_->shards(rank_.value, seed), what);
    if (source == Source::masters) checks_.expect(stream, masters_.data(), oracle_->masters(rank_.value, seed), what);
    complete_ = stream.record();
  }

  /// A gather, its reader, its release.
  template <class Pool>
  void step(Pool& pool, Source source, std::uint64_t seed, Stream& stream) {
    tide::Gathered<Layout> params = start(pool, source, seed, stream);
    read(params, source, seed, stream);
    params.release(stream);
  }

  [[nodiscard]] std::string verdict() const { return checks_.verdict(); }
  [[nodiscard]] const Checks<Ranks>& checks() const { return checks_; }
  [[nodiscard]] tide::AllGather<Layout, Transport, Inter>& pipeline() { return gather_; }
  [[nodiscard]] tide::ShardsView<Layout, tide::Buffer::shards> shards() const {
    return {shards_.data(), layout_, rank_};
  }

 private:
  template <tide::Buffer Which>
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(tide::ShardsView<Layout, Which>::bytes(layout_, rank_));
  }

  template <class Pool>
  [[nodiscard]] tide::Gathered<Layout> start_from(Pool& pool, Source source, std::uint64_t seed, Stream& stream) {
    switch (source) {
      case Source::shards:
        Ranks::write(stream, shards_.data(), oracle_->shards(rank_.value, seed));
        return gather_.enqueue(shards(), stream);
      case Source::masters: {
        const tide::ShardsView<Layout, tide::Buffer::masters> masters(masters_.data(), layout_, rank_);
        Ranks::write(stream, masters_.data(), oracle_->masters(rank_.value, seed));
        return gather_.enqueue(masters, stream);
      }
      case Source::in_place:
        break;
    }
    write_own_block(gather_.own_block(pool.acquire(stream)), seed, stream);
    return gather_.enqueue(tide::in_place, stream);
  }

  // As a user would: row by row, from the packed shards.
  void write_own_block(const tide::OwnBlockView<Layout>& own, std::uint64_t seed, Stream& stream) {
    Bytes packed = oracle_->shards(rank_.value, seed);
    const tide::ShardsView<Layout, tide::Buffer::shards> view(packed.data(), layout_, rank_);
    for (index_t p = 0; p < layout_.view().group.size(); ++p) {
      const auto rows = own.rows_of(tide::ParameterIndex{p});
      const std::byte* from = view.bytes_of(tide::ParameterIndex{p}).data();
      for (index_t row = 0; row < rows.rows; ++row, from += rows.width) {
        Ranks::write(stream, rows.data + row * rows.pitch, Bytes(from, from + rows.width));
      }
    }
  }

  tide::Rank rank_;
  Layout layout_;
  const CollectiveOracle* oracle_;
  tide::AllGather<Layout, Transport, Inter> gather_;
  Checks<Ranks> checks_;  // outlives the memory, whose end waits for what reads into it
  typename Ranks::Memory shards_;
  typename Ranks::Memory masters_;
  tide::Event complete_{};
};

/// Poisons all slots of a pool, before the first gather.
template <class Ranks, class Pool>
void poison_slots(Pool& pool, typename Ranks::Stream& stream) {
  Ranks::write(stream, pool.life().data(tide::SlotIndex{0}), Bytes(static_cast<std::size_t>(pool.bytes()), poison));
}

/// The slots of a pool and the 4096 bytes behind them, poisoned; compared again when all is done.
template <class Ranks>
class Guarded {
 public:
  using Stream = typename Ranks::Stream;

  /// Between the pool and the next thing in the arena; construct right after the pool.
  explicit Guarded(tide::FabricPort& fabric) : fabric_(&fabric), offset_(fabric.reserve(bytes, 256)) {}

  template <class Pool>
  void poison_all(Pool& pool, Stream& stream) {
    poison_slots<Ranks>(pool, stream);
    Ranks::write(stream, fabric_->arena() + offset_, Bytes(bytes, poison));
  }

  /// That no slot holds anything but poison: each gather was compared and poisoned again.
  template <class Pool>
  void check(Pool& pool, Stream& stream) {
    checks_.expect(stream, pool.life().data(tide::SlotIndex{0}), Bytes(static_cast<std::size_t>(pool.bytes()), poison),
                   "slots");
    checks_.expect(stream, fabric_->arena() + offset_, Bytes(bytes, poison), "guard");
  }

  [[nodiscard]] std::string verdict() const { return checks_.verdict(); }

 private:
  static constexpr std::size_t bytes = 4096;

  tide::FabricPort* fabric_;
  index_t offset_;
  Checks<Ranks> checks_;
};

}  // namespace tide_test
