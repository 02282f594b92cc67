// SPDX-License-Identifier: Apache-2.0
//
// GatherPair: a group gathered by tide and by the flat path, from the same shards into the same slots.

#pragma once

#include "flat.hpp"
#include "pair.hpp"

#include <tide/memory/shards.hpp>
#include <tide/pipeline/all_gather.hpp>

#include <memory>
#include <optional>

namespace tide_example {

class GatherPair {
 public:
  using Layout = tide::DynamicLayout;
  using Source = FlatGather::Source;

  /// @tparam Transport  how tide moves blocks
  template <class Transport>
  GatherPair(Transport, const tide::DynamicGroup& group, tide::MeshShape mesh, Source source,
             const PairOptions& options)
      : layout_(group, mesh),
        flat_(flat_layout(group, mesh)),
        source_(source),
        options_(options),
        cluster_(mesh, options.host),
        meet_(mesh.ranks()),
        ranks_(static_cast<std::size_t>(mesh.ranks())) {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      at(fabric) = std::make_unique<OneRank>(fabric, *this, Transport{});
      fabric.init();
      fill(*at(fabric), fabric.rank().value);
    });
    tide();  // so that the slots are found and can be scribbled on
    scribble();
    release();
  }

  /// Gathers once; returns milliseconds. The slots are held until `release`.
  double tide() {
    const double milliseconds = timed(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      if (own.masters) {
        own.params.emplace(own.gather->enqueue(*own.masters, own.stream));
      } else {
        own.params.emplace(own.gather->enqueue(*own.shards, own.stream));
      }
      own.params->complete().synchronize();
    });
    for (const auto& own : ranks_) own->find_tensors();
    return milliseconds;
  }

  /// The same by the flat path, into the same slots.  @pre the slots are held, `options.flat`
  double flat() {
    return timed(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      (*own.flat)([&](std::size_t parameter) { return own.shard_at[parameter]; },
                  [&](std::size_t parameter) { return own.tensor_at[parameter]; }, meet_,
                  [&](index_t rank) { return cluster_.fabric(tide::Rank{rank}).arena(); });
    });
  }

  /// Overwrites the slots, so that nothing right is left of an earlier run.
  void scribble() {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      std::memset(at(fabric)->params->data(), untouched, static_cast<std::size_t>(slot_bytes()));
    });
  }

  /// Flips a bit of the last byte of the first tensor that has any, in the slot of the last rank.
  void flip_bit() {
    const tide::GroupView group = layout_.view().group;
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
      const index_t elements = group.parameters[p].shape.elements();
      const index_t bytes = elements * static_cast<index_t>(size_bytes(group.parameters[p].gathered));
      if (bytes == 0) continue;
      ranks_.back()->tensor_at[p][bytes - 1] ^= std::byte{1};
      return;
    }
  }

  /// Compares every byte of every slot with the oracle.  @param who  what findings call it
  void check(Findings& findings, const std::string& who) {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      BufferCheck slot(findings, who, fabric.rank().value, own.params->data(), slot_bytes());
      const tide::GroupView group = layout_.view().group;
      for (index_t p = 0; p < group.size(); ++p) {
        const tide::Parameter& parameter = group[tide::ParameterIndex{p}];
        const oracle::Key key = oracle::key(options_.seed, p, -1);
        slot.compare(own.tensor_at[static_cast<std::size_t>(p)], parameter.name.str(), 0, parameter.shape.elements(),
                     oracle::weights(parameter.gathered, key));
      }
      slot.compare_rest();
    });
  }

  /// Gives the slots back.
  void release() {
    on_all_ranks(cluster_, [&](tide::HostFabric& fabric) {
      OneRank& own = *at(fabric);
      own.params->release(own.stream);
      own.params.reset();
      own.stream.synchronize();
    });
  }

  void measure_copies(CopyRate& rate) { rate.measure(cluster_, ranks_.front()->copies); }

  /// Memory of tide's slots on all ranks, and of what crosses nodes.
  [[nodiscard]] index_t buffer_bytes() const {
    const index_t network = ranks_.front()->slots.network_bytes();
    return (slot_bytes() + network) * static_cast<index_t>(ranks_.size());
  }
  /// Of the flat path, with the parameters that it fills.
  [[nodiscard]] FlatCost flat_cost() const {
    FlatCost cost = ranks_.front()->flat->cost();
    cost.buffer_bytes += slot_bytes() * static_cast<index_t>(ranks_.size());
    return cost;
  }

 private:
  using Slots = tide::SlotPool<tide::Depth<1>, Layout>;

  // A gather by some transport: all of them have handles of one type.
  struct AnyGather {
    virtual ~AnyGather() = default;
    virtual tide::Gathered<Layout> enqueue(const tide::Shards<Layout>& shards, tide::HostStream& stream) = 0;
    virtual tide::Gathered<Layout> enqueue(const tide::MasterShards<Layout>& masters, tide::HostStream& stream) = 0;
  };
  template <class Transport>
  struct GatherBy final : AnyGather {
    GatherBy(tide::HostFabric& fabric, Slots& slots, const Layout& layout) : gather(fabric, slots, layout) {}
    tide::Gathered<Layout> enqueue(const tide::Shards<Layout>& shards, tide::HostStream& stream) override {
      return gather.enqueue(shards, stream);
    }
    tide::Gathered<Layout> enqueue(const tide::MasterShards<Layout>& masters, tide::HostStream& stream) override {
      return gather.enqueue(masters, stream);
    }
    tide::AllGather<Layout, Transport, tide::RdmaDoublingTransport<>> gather;
  };

  struct OneRank {
    template <class Transport>
    OneRank(tide::HostFabric& fabric, const GatherPair& pair, Transport)
        : slots(fabric, pair.layout_),
          gather(std::make_unique<GatherBy<Transport>>(fabric, slots, pair.layout_)),
          stream(fabric.stream()) {
      if (pair.source_ == Source::masters) {
        masters.emplace(fabric, pair.layout_);
      } else {
        shards.emplace(fabric, pair.layout_);
      }
      if (pair.options_.flat) flat.emplace(fabric, pair.flat_, pair.source_);
      copies = CopyRate::reserve(fabric);
    }

    [[nodiscard]] std::span<std::byte> shard(tide::ParameterIndex parameter) const {
      return masters ? masters->view().bytes_of(parameter) : shards->view().bytes_of(parameter);
    }

    // With one slot, tensors are where they were in the first gather.
    void find_tensors() {
      for (std::size_t p = tensor_at.size(); p < shard_at.size(); ++p) {
        tensor_at.push_back(params->at(tide::ParameterIndex{static_cast<index_t>(p)}));
      }
    }

    Slots slots;
    std::unique_ptr<AnyGather> gather;
    tide::HostStream stream;
    std::optional<tide::Shards<Layout>> shards{};
    std::optional<tide::MasterShards<Layout>> masters{};
    std::optional<FlatGather> flat{};
    index_t copies = 0;
    std::optional<tide::Gathered<Layout>> params{};
    std::vector<const std::byte*> shard_at{};  // by parameter
    std::vector<std::byte*> tensor_at{};       // by parameter
  };

  // Writes the shards of one rank as the oracle says they are.
  void fill(OneRank& own, index_t rank) {
    const tide::GroupView group = layout_.view().group;
    for (index_t p = 0; p < group.size(); ++p) {
      const tide::Parameter& parameter = group[tide::ParameterIndex{p}];
      const oracle::Key key = oracle::key(options_.seed, p, -1);
      const std::vector<oracle::Run> runs = oracle::runs_of(parameter, layout_.mesh().ranks(), rank);
      const std::span<std::byte> shard = own.shard(tide::ParameterIndex{p});
      const oracle::Values values =
          source_ == Source::masters ? oracle::masters(key) : oracle::weights(parameter.gathered, key);
      require_size(parameter, rank, runs, values.element_bytes, static_cast<index_t>(shard.size()));
      oracle::write_runs(shard.data(), runs, values);
      own.shard_at.push_back(shard.data());
    }
  }

  [[nodiscard]] std::unique_ptr<OneRank>& at(const tide::HostFabric& fabric) {
    return ranks_[static_cast<std::size_t>(fabric.rank().value)];
  }
  [[nodiscard]] index_t slot_bytes() const { return layout_.view().bytes(tide::Buffer::slot); }

  Layout layout_;
  Layout flat_;
  Source source_;
  PairOptions options_;
  tide::HostCluster cluster_;
  Meeting meet_;
  std::vector<std::unique_ptr<OneRank>> ranks_;  // after the cluster, whose fabrics they use
};

}  // namespace tide_example
