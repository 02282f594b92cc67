// SPDX-License-Identifier: Apache-2.0
//
// The oracle of plans: what the caller puts into the memories before each of several runs of a collective, and what has
// to be there afterwards, with other data in every run.

#pragma once

#include <tide/plan/collective.hpp>

#include "support/collective_oracle.hpp"
#include "support/oracle.hpp"
#include "support/sums.hpp"
#include "support/values.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tide_test {

class PlanOracle {
 public:
  /// The scale of a reduce.
  static constexpr float scale = 0.3F;

  PlanOracle(const tide::Collective& collective, index_t runs, std::uint64_t seed)
      : own_(collective.own), gather_(collective.operation == tide::Operation::gather) {
    // A switch adds in any order: only sums that are the same in each can be compared.
    const bool any_order = collective.network.exchange == tide::Exchange::in_switch;
    const CollectiveOracle oracle(collective.layout, any_order ? Values::whole : Values::spread);
    const bool cast = own_ == tide::OwnBlock::cast;
    for (index_t r = 0; r < collective.ranks(); ++r) {
      if (gather_) own_bytes_.push_back(own_bytes(collective.layout, r));
      if (!gather_) first_output_.push_back(oracle.initial(r, seed));
    }
    for (index_t run = 0; run < runs; ++run) {
      const std::uint64_t s = seed + static_cast<std::uint64_t>(run);
      Run& now = runs_.emplace_back();
      if (gather_) now.slot = oracle.slot(s, cast ? Source::masters : Source::shards);
      for (index_t r = 0; r < collective.ranks(); ++r) {
        now.inputs.push_back(!gather_                           ? oracle.gradients(r, s)
                             : cast                             ? oracle.masters(r, s)
                             : own_ == tide::OwnBlock::in_place ? oracle.own_block(r, s)
                                                                : oracle.shards(r, s));
        if (!gather_) now.outputs.push_back(output(collective, oracle, r, run, s));
      }
    }
  }

  /// The space that the caller fills before a run.
  [[nodiscard]] tide::Space input_space() const {
    if (!gather_) return tide::Space::gradients;
    return own_ == tide::OwnBlock::cast       ? tide::Space::master
           : own_ == tide::OwnBlock::in_place ? tide::Space::slot
                                              : tide::Space::shards;
  }
  [[nodiscard]] const Bytes& input(index_t rank, index_t run) const { return at(at(runs_, run).inputs, rank); }
  /// Whether the caller writes a byte of its input space: all but those of a slot that are not its own.
  [[nodiscard]] bool fills(index_t rank, std::size_t byte) const {
    return input_space() != tide::Space::slot || at(own_bytes_, rank)[byte];
  }

  /// What every slot has to hold after a run.
  [[nodiscard]] const Bytes& slot(index_t run) const { return at(runs_, run).slot; }
  /// What a rank's output holds before the first run, and has to hold after a run.
  [[nodiscard]] const Bytes& first_output(index_t rank) const { return at(first_output_, rank); }
  [[nodiscard]] const Bytes& output(index_t rank, index_t run) const { return at(at(runs_, run).outputs, rank); }

 private:
  struct Run {
    std::vector<Bytes> inputs;
    std::vector<Bytes> outputs;
    Bytes slot;
  };

  template <class T>
  [[nodiscard]] static const T& at(const std::vector<T>& list, index_t i) {
    return list[static_cast<std::size_t>(i)];
  }

  /// Which bytes of a slot are of the rank's own block.
  [[nodiscard]] static std::vector<bool> own_bytes(const tide::LayoutView& layout, index_t rank) {
    std::vector<index_t> sizes;
    for (const tide::Parameter& p : layout.group.parameters)
      sizes.push_back(static_cast<index_t>(size_bytes(p.gathered)));
    const std::vector<index_t> starts = oracle::dense_starts(layout.group, sizes, layout.storage_alignment);
    std::vector<bool> own(static_cast<std::size_t>(starts.back()), false);
    for (const oracle::Place& place : oracle::places(layout.group, layout.mesh.ranks())) {
      for (index_t byte = 0; byte < sizes[place.parameter] && place.owner == rank; ++byte) {
        own[static_cast<std::size_t>(starts[place.parameter] + place.dense * sizes[place.parameter] + byte)] = true;
      }
    }
    return own;
  }

  /// A rank's output after a run: what the oracle says, added to the output before where the collective accumulates.
  [[nodiscard]] Bytes output(const tide::Collective& collective, const CollectiveOracle& oracle, index_t rank,
                             index_t run, std::uint64_t seed) const {
    const Bytes sum = oracle.output(rank, seed, scale);
    if (collective.finish == tide::Finish::store) return sum;
    Bytes output = run == 0 ? first_output(rank) : this->output(rank, run - 1);
    for (std::size_t i = 0; i + 4 <= output.size(); i += 4) {
      const Bytes padding(4, poison);
      if (std::equal(padding.begin(), padding.end(), sum.begin() + static_cast<std::ptrdiff_t>(i))) continue;
      store(&output[i], Element::f32, rounded(load(&output[i], Element::f32) + load(&sum[i], Element::f32)));
    }
    return output;
  }

  tide::OwnBlock own_;
  bool gather_;
  std::vector<Run> runs_;
  std::vector<Bytes> first_output_;
  std::vector<std::vector<bool>> own_bytes_;
};

}  // namespace tide_test
