// SPDX-License-Identifier: Apache-2.0
//
// ReduceRank: one rank's half of a reduce-scatter test, on any fabric: it writes gradients, starts reduces from storage
// or from a table of pointers, and compares the whole output with the oracle. Nothing here blocks; `verdict` tells what
// was wrong, once the streams are synchronized.

#pragma once

#include <tide/pipeline/reduce_scatter.hpp>

#include "support/checks.hpp"
#include "support/collective_oracle.hpp"

#include <memory>
#include <string>
#include <utility>

namespace tide_test {

/// Where gradients lie.
enum class From { storage, table };

template <class Ranks, class Layout, class Reducer, class Inbox, class Inter = tide::SingleNode>
class ReduceRank {
 public:
  using Fabric = typename Ranks::Fabric;
  using Stream = typename Ranks::Stream;
  using Pool = tide::SlotPool<tide::Depth<1>, Layout>;

  /// With slots of its own, where the inbox needs any.
  ReduceRank(Fabric& fabric, const Layout& layout, const CollectiveOracle& oracle, std::string label = {})
      : ReduceRank(fabric, std::make_unique<Pool>(fabric, layout), layout, oracle, std::move(label)) {}
  /// With slots of a pool that others use, too.
  template <class SharedPool>
  ReduceRank(Fabric& fabric, SharedPool& pool, const Layout& layout, const CollectiveOracle& oracle,
             std::string label = {})
      : rank_(fabric.rank()),
        layout_(layout),
        oracle_(&oracle),
        scale_(1.0F / static_cast<float>(layout.view().mesh.ranks())),
        reduce_(fabric, pool, layout, std::move(label)),
        storage_(fabric, layout),
        table_(layout),
        apart_(fabric, apart_bytes(layout)),
        output_(fabric, static_cast<std::size_t>(layout.view().bytes(tide::Buffer::output, fabric.rank()))) {}

  /// Starts a reduce of the gradients of `seed`.
  tide::ReduceTicket start(From from, std::uint64_t seed, Stream& stream, const Missing& missing = nullptr) {
    stream.wait(ticket_.gradients_free);  // until then the last reduce reads the memory that is written here
    stream.wait(ticket_.shards_ready);    // and writes, and the reader of its output reads, the other
    stream.wait(read_);
    Ranks::write(stream, output_.data(), oracle_->initial(rank_.value, seed));
    ticket_ = from == From::storage ? from_storage(seed, stream, missing) : from_table(seed, stream, missing);
    return ticket_;
  }

  /// Compares the output of a reduce; then overwrites the gradients. The stream may be another than the reduce's.
  void read(const tide::ReduceTicket& ticket, std::uint64_t seed, Stream& stream, const Missing& missing = nullptr) {
    stream.wait(ticket.shards_ready);
    checks_.expect(stream, output_.data(), oracle_->output(rank_.value, seed, scale_, accumulates, missing),
                   "output, seed " + std::to_string(seed));
    stream.wait(ticket.gradients_free);
    Ranks::write(stream, storage_.data(), Bytes(gradient_bytes(layout_), poison));
    Ranks::write(stream, apart_.data(), Bytes(apart_bytes(layout_), poison));
    read_ = stream.record();
  }

  /// A whole reduce.
  void step(From from, std::uint64_t seed, Stream& stream, const Missing& missing = nullptr) {
    read(start(from, seed, stream, missing), seed, stream, missing);
  }

  void scale(float factor) {
    scale_ = factor;
    reduce_.scale(factor);
  }

  [[nodiscard]] std::string verdict() const { return checks_.verdict(); }
  [[nodiscard]] const Checks<Ranks>& checks() const { return checks_; }
  [[nodiscard]] tide::ReduceScatter<Layout, Reducer, Inter, Inbox>& pipeline() { return reduce_; }
  [[nodiscard]] tide::ShardsView<Layout, tide::Buffer::masters> output() const {
    return {output_.data(), layout_, rank_};
  }
  [[nodiscard]] tide::Gradients<Layout>& storage() { return storage_; }
  [[nodiscard]] tide::GradientTable<Layout>& table() { return table_; }

 private:
  static constexpr bool accumulates = Reducer::finish == tide::Finish::accumulate;

  ReduceRank(Fabric& fabric, std::unique_ptr<Pool> pool, const Layout& layout, const CollectiveOracle& oracle,
             std::string label)
      : ReduceRank(fabric, *pool, layout, oracle, std::move(label)) {
    own_pool_ = std::move(pool);
  }

  [[nodiscard]] static std::size_t gradient_bytes(const Layout& layout) {
    return static_cast<std::size_t>(layout.view().bytes(tide::Buffer::gradients));
  }
  [[nodiscard]] static std::size_t apart_bytes(const Layout& layout) {
    return gradient_bytes(layout) + 16 * static_cast<std::size_t>(layout.view().group.size());
  }
  [[nodiscard]] bool is_missing(const Missing& missing, index_t parameter) const {
    return missing && missing(rank_.value, static_cast<std::size_t>(parameter));
  }

  tide::ReduceTicket from_storage(std::uint64_t seed, Stream& stream, const Missing& missing) {
    Ranks::write(stream, storage_.data(), oracle_->gradients(rank_.value, seed));
    for (index_t p = 0; p < layout_.view().group.size(); ++p) {
      if (is_missing(missing, p)) storage_.missing(tide::ParameterIndex{p});
    }
    return reduce_.enqueue(storage_, output(), stream);
  }

  // In another order than in storage, apart from each other.
  tide::ReduceTicket from_table(std::uint64_t seed, Stream& stream, const Missing& missing) {
    const Bytes gradients = oracle_->gradients(rank_.value, seed);
    std::byte* next = apart_.data();
    for (index_t p = layout_.view().group.size(); p-- > 0;) {
      if (is_missing(missing, p)) {
        table_.missing(tide::ParameterIndex{p});
        continue;
      }
      const auto parameter = static_cast<std::size_t>(p);
      Bytes own(gradients.begin() + oracle_->gradient_start(parameter),
                gradients.begin() + oracle_->gradient_end(parameter));
      const std::size_t bytes = own.size();
      Ranks::write(stream, next, std::move(own));
      table_.set(tide::ParameterIndex{p}, next);
      next += (bytes + 15) / 8 * 8;
    }
    return reduce_.enqueue(table_, output(), stream);
  }

  std::unique_ptr<Pool> own_pool_;
  tide::Rank rank_;
  Layout layout_;
  const CollectiveOracle* oracle_;
  float scale_;
  tide::ReduceScatter<Layout, Reducer, Inter, Inbox> reduce_;
  tide::Gradients<Layout> storage_;
  tide::GradientTable<Layout> table_;
  Checks<Ranks> checks_;  // outlives the memory, whose end waits for what reads into it
  typename Ranks::Memory apart_;
  typename Ranks::Memory output_;
  tide::ReduceTicket ticket_{};
  tide::Event read_{};
};

}  // namespace tide_test
