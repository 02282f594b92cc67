// SPDX-License-Identifier: Apache-2.0
//
// ReducePair: the gradients of a group reduced to f32 shards by tide and by the flat path, from the same gradients.

#pragma once

#include "flat.hpp"
#include "pair.hpp"

#include <tide/memory/gradients.hpp>
#include <tide/pipeline/reduce_scatter.hpp>

#include <memory>
#include <optional>

namespace tide_example {

/// @tparam Inbox  where pieces wait
template <class Inbox>
class ReducePair {
 public:
  using Layout = tide::DynamicLayout;
  using Inter = tide::RdmaDoublingTransport<>;

  ReducePair(const tide::DynamicGroup& group, tide::MeshShape mesh, const PairOptions& options)
      : layout_(group, mesh),
        flat_(flat_layout(group, mesh)),
        options_(options),
        cluster_(mesh, options.host),
        meet_(mesh.ranks()),
        ranks_(static_cast<std::size_t>(mesh.ranks())) {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      at(fabric) = std::make_unique<OneRank>(fabric, *this);
      fabric.init();
      fill(*at(fabric), fabric.rank().value);
    });
  }

  /// Reduces once; returns milliseconds.
  double tide() {
    return timed(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      const tide::ReduceTicket ticket = own.reduce.enqueue(own.gradients, own.output, own.stream);
      ticket.shards_ready.synchronize();
      ticket.gradients_free.synchronize();
    });
  }

  /// The same by the flat path, into its own flat buffer.  @pre `options.flat`
  double flat() {
    return timed(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      (*own.flat)([&](std::size_t parameter) { return own.gradient_at[parameter]; }, scale(), meet_,
                  [&](index_t rank) { return cluster_.fabric(tide::Rank{rank}).arena(); });
    });
  }

  /// Overwrites the results, so that nothing right is left of an earlier run.
  void scribble() {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      std::memset(own.output.data(), untouched, static_cast<std::size_t>(own.output.view().bytes()));
      if (own.flat) std::memset(own.flat->result(), untouched, static_cast<std::size_t>(own.flat->result_bytes()));
    });
  }

  /// Flips a bit of tide's result: of the first tensor that any rank owns a part of.
  void flip_bit() {
    for (const auto& own : ranks_) {
      if (own->output.view().bytes() == 0) continue;
      own->output.data()[0] ^= std::byte{1};
      return;
    }
  }

  /// Compares every byte of tide's result with the oracle.
  void check(Findings& findings) {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      const auto shard = [&](tide::ParameterIndex parameter) { return own.output.view().bytes_of(parameter).data(); };
      BufferCheck output(findings, "tide reduce", fabric.rank().value, own.output.data(), own.output.view().bytes());
      compare(output, fabric.rank().value, shard);
      output.compare_rest();
    });
  }

  /// Compares the flat path's result but for its pads.
  void check_flat(Findings& findings) {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      FlatReduce& flat = *at(fabric)->flat;
      BufferCheck result(findings, "flat reduce", fabric.rank().value, flat.result(), flat.result_bytes());
      compare(result, fabric.rank().value, [&](tide::ParameterIndex parameter) { return flat.shard(parameter); });
    });
  }

  void measure_copies(CopyRate& rate) { rate.measure(cluster_, ranks_.front()->copies); }

  /// Memory of tide's inboxes on all ranks, and of what crosses nodes.
  [[nodiscard]] index_t buffer_bytes() const {
    return Inbox::memory(layout_.view(), tide::exchange_of<Inter>).bytes() * static_cast<index_t>(ranks_.size());
  }
  [[nodiscard]] FlatCost flat_cost() const { return ranks_.front()->flat->cost(); }

 private:
  struct OneRank {
    OneRank(tide::HostFabric& fabric, const ReducePair& pair)
        : gradients(fabric, pair.layout_),
          output(fabric, pair.layout_),
          reduce(fabric, pair.layout_),
          stream(fabric.stream()) {
      if (pair.options_.flat) flat.emplace(fabric, pair.flat_);
      copies = CopyRate::reserve(fabric);
    }

    tide::Gradients<Layout> gradients;
    tide::MasterShards<Layout> output;
    tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, Inter, Inbox> reduce;
    tide::HostStream stream;
    std::optional<FlatReduce> flat{};
    index_t copies = 0;
    std::vector<const std::byte*> gradient_at{};  // by parameter
  };

  // Writes the gradients of one rank.
  void fill(OneRank& own, index_t rank) {
    const tide::GroupView group = layout_.view().group;
    for (index_t p = 0; p < group.size(); ++p) {
      const tide::Parameter& parameter = group[tide::ParameterIndex{p}];
      std::byte* gradient = own.gradients.at(tide::ParameterIndex{p});
      oracle::gradients(parameter.gradient, oracle::key(options_.seed, p, rank))
          .write(gradient, 0, parameter.shape.elements());
      own.gradient_at.push_back(gradient);
    }
  }

  // Compares a rank's shards.
  template <class ShardOf>
  void compare(BufferCheck& buffer, index_t rank, const ShardOf& shard) {
    const tide::GroupView group = layout_.view().group;
    for (index_t p = 0; p < group.size(); ++p) {
      const tide::Parameter& parameter = group[tide::ParameterIndex{p}];
      std::vector<oracle::Key> keys;
      for (index_t r = 0; r < layout_.mesh().ranks(); ++r) keys.push_back(oracle::key(options_.seed, p, r));
      const std::byte* at = shard(tide::ParameterIndex{p});
      for (const oracle::Run& run : oracle::runs_of(parameter, layout_.mesh().ranks(), rank)) {
        buffer.compare(at, parameter.name.str(), run.first, run.count,
                       oracle::reduced(parameter.gradient, keys, layout_.view().mesh, scale()));
        at += 4 * run.count;
      }
    }
  }

  [[nodiscard]] std::unique_ptr<OneRank>& at(const tide::HostFabric& fabric) {
    return ranks_[static_cast<std::size_t>(fabric.rank().value)];
  }
  // The average.
  [[nodiscard]] float scale() const { return 1.0F / static_cast<float>(ranks_.size()); }

  Layout layout_;
  Layout flat_;
  PairOptions options_;
  tide::HostCluster cluster_;
  Meeting meet_;
  std::vector<std::unique_ptr<OneRank>> ranks_;  // after the cluster, whose fabrics they use
};

}  // namespace tide_example
