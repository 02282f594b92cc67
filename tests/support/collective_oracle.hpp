// SPDX-License-Identifier: Apache-2.0
//
// The oracle of collectives: what every buffer of every rank holds before and after a gather or a reduce-scatter, made
// element by element from a seed. Bytes that belong to no element hold `poison`, before and after.

#pragma once

#include <tide/layout/layout_view.hpp>

#include "support/oracle.hpp"
#include "support/sums.hpp"
#include "support/values.hpp"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace tide_test {

using Bytes = std::vector<std::byte>;

inline constexpr std::byte poison{0xA5};

/// What a gather starts from.
enum class Source { shards, masters, in_place };

/// What gradients are: of many sizes, so that each order of adding gives its own sum; or whole, so that all give one.
enum class Values { spread, whole };

/// Whether a rank has no gradient for a parameter.
using Missing = std::function<bool(index_t rank, std::size_t parameter)>;

/// Where two buffers differ, in words; empty where they do not.
inline std::string difference(const Bytes& found, const Bytes& expected) {
  if (found.size() != expected.size()) return "sizes differ";
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return "byte " + std::to_string(i) + " of " + std::to_string(found.size()) + " is " +
           std::to_string(std::to_integer<int>(found[i])) + ", not " +
           std::to_string(std::to_integer<int>(expected[i]));
  }
  return {};
}

class CollectiveOracle {
 public:
  /// Of the layout it takes what is data: the group, the number of ranks, the rules. The group must outlive it.
  explicit CollectiveOracle(const tide::LayoutView& layout, Values values = Values::spread)
      : group_(layout.group),
        values_(values),
        ranks_(layout.mesh.ranks()),
        ranks_per_node_(layout.mesh.ranks_per_node),
        fsdp2_(layout.packing.padding == tide::PackingRule::Padding::to_chunk),
        places_(oracle::places(layout.group, ranks_)) {
    for (const tide::Parameter& parameter : group_.parameters) {
      gathered_bytes_.push_back(static_cast<index_t>(size_bytes(parameter.gathered)));
      gradient_bytes_.push_back(static_cast<index_t>(size_bytes(parameter.gradient)));
    }
    master_bytes_.assign(group_.parameters.size(), 4);
    slot_starts_ = oracle::dense_starts(group_, gathered_bytes_, layout.storage_alignment);
    gradient_starts_ = oracle::dense_starts(group_, gradient_bytes_, layout.storage_alignment);
  }

  [[nodiscard]] index_t ranks() const { return ranks_; }

  // ---- gather -------------------------------------------------------------------------------------------------------

  /// A rank's packed shards in the gathered element: any bits.
  [[nodiscard]] Bytes shards(index_t rank, std::uint64_t seed) const {
    return packed(rank, gathered_bytes_,
                  [&](const oracle::Place& place, std::byte* at) { put_gathered(at, place, seed, Source::shards); });
  }

  /// A rank's packed f32 masters: any floats.
  [[nodiscard]] Bytes masters(index_t rank, std::uint64_t seed) const {
    return packed(rank, master_bytes_, [&](const oracle::Place& place, std::byte* at) {
      store(at, Element::f32, master_value(bits(seed, place)));
    });
  }

  /// A slot after the gather.
  [[nodiscard]] Bytes slot(std::uint64_t seed, Source source) const {
    Bytes bytes(static_cast<std::size_t>(slot_starts_.back()), poison);
    for (const oracle::Place& place : places_) put_gathered(bytes.data() + slot_offset(place), place, seed, source);
    return bytes;
  }

  /// A slot before a gather in place: the own elements, poison elsewhere.
  [[nodiscard]] Bytes own_block(index_t rank, std::uint64_t seed) const {
    Bytes bytes(static_cast<std::size_t>(slot_starts_.back()), poison);
    for (const oracle::Place& place : places_) {
      if (place.owner == rank) put_gathered(bytes.data() + slot_offset(place), place, seed, Source::in_place);
    }
    return bytes;
  }

  // ---- reduce-scatter -----------------------------------------------------------------------------------------------

  /// A rank's gradients in static storage.
  [[nodiscard]] Bytes gradients(index_t rank, std::uint64_t seed) const {
    Bytes bytes(static_cast<std::size_t>(gradient_starts_.back()), poison);
    for (const oracle::Place& place : places_) {
      const std::size_t p = place.parameter;
      store(bytes.data() + gradient_starts_[p] + place.dense * gradient_bytes_[p], group_.parameters[p].gradient,
            leaf(rank, seed, place));
    }
    return bytes;
  }

  /// Where a parameter's gradient lies in that storage.
  [[nodiscard]] index_t gradient_start(std::size_t parameter) const { return gradient_starts_[parameter]; }
  [[nodiscard]] index_t gradient_end(std::size_t parameter) const {
    return gradient_starts_[parameter] + group_.parameters[parameter].shape.elements() * gradient_bytes_[parameter];
  }

  /// A rank's output before the reduce: what `Accumulate` adds to.
  [[nodiscard]] Bytes initial(index_t rank, std::uint64_t seed) const {
    return packed(rank, master_bytes_,
                  [&](const oracle::Place& place, std::byte* at) { store(at, Element::f32, before(seed, place)); });
  }

  /// A rank's output after it.
  [[nodiscard]] Bytes output(index_t rank, std::uint64_t seed, float scale, bool accumulate = false,
                             const Missing& missing = nullptr) const {
    return packed(rank, master_bytes_, [&](const oracle::Place& place, std::byte* at) {
      const float scaled = rounded(scale * tree_of_nodes(leaves(seed, place, missing), ranks_per_node_));
      store(at, Element::f32, accumulate ? rounded(before(seed, place) + scaled) : scaled);
    });
  }

  /// How many elements of the output another order of adding would change: that of ranks, begun at any rank.
  [[nodiscard]] index_t order_sensitive(std::uint64_t seed) const {
    index_t count = 0;
    for (const oracle::Place& place : places_) {
      const std::vector<float> inputs = leaves(seed, place, nullptr);
      bool differs = false;
      for (std::size_t first = 0; first < inputs.size(); ++first)
        differs = differs || fold(inputs, first) != tree_of_nodes(inputs, ranks_per_node_);
      count += differs ? 1 : 0;
    }
    return count;
  }

  [[nodiscard]] index_t elements() const { return static_cast<index_t>(places_.size()); }

 private:
  [[nodiscard]] static std::uint64_t bits(std::uint64_t seed, const oracle::Place& place, index_t rank = -1) {
    return mix(seed, place.parameter, static_cast<std::uint64_t>(place.dense), static_cast<std::uint64_t>(rank));
  }

  [[nodiscard]] float leaf(index_t rank, std::uint64_t seed, const oracle::Place& place) const {
    const Element element = group_.parameters[place.parameter].gradient;
    std::byte stored[8];
    const std::uint64_t random = bits(seed, place, rank);
    store(stored, element, values_ == Values::whole ? whole_value(random) : gradient_value(element, random));
    return load(stored, element);
  }

  [[nodiscard]] std::vector<float> leaves(std::uint64_t seed, const oracle::Place& place,
                                          const Missing& missing) const {
    std::vector<float> all;
    for (index_t rank = 0; rank < ranks_; ++rank) {
      all.push_back(missing && missing(rank, place.parameter) ? 0.0F : leaf(rank, seed, place));
    }
    return all;
  }

  [[nodiscard]] static float before(std::uint64_t seed, const oracle::Place& place) {
    return spread(bits(seed, place, 1000), -20, 20);
  }

  void put_gathered(std::byte* at, const oracle::Place& place, std::uint64_t seed, Source source) const {
    const std::uint64_t value = bits(seed, place);
    if (source == Source::masters) {
      store(at, group_.parameters[place.parameter].gathered, master_value(value));
    } else {
      std::memcpy(at, &value, static_cast<std::size_t>(gathered_bytes_[place.parameter]));
    }
  }

  [[nodiscard]] index_t slot_offset(const oracle::Place& place) const {
    return slot_starts_[place.parameter] + place.dense * gathered_bytes_[place.parameter];
  }

  template <class Put>
  [[nodiscard]] Bytes packed(index_t rank, const std::vector<index_t>& element_bytes, Put put) const {
    const std::vector<index_t> starts = oracle::packed_starts(group_, ranks_, rank, element_bytes, fsdp2_);
    Bytes bytes(static_cast<std::size_t>(starts.back()), poison);
    for (const oracle::Place& place : places_) {
      if (place.owner != rank) continue;
      put(place, bytes.data() + starts[place.parameter] + place.packed * element_bytes[place.parameter]);
    }
    return bytes;
  }

  tide::GroupView group_;
  Values values_;
  index_t ranks_;
  index_t ranks_per_node_;
  bool fsdp2_;
  std::vector<oracle::Place> places_;
  std::vector<index_t> gathered_bytes_;
  std::vector<index_t> gradient_bytes_;
  std::vector<index_t> master_bytes_;
  std::vector<index_t> slot_starts_;
  std::vector<index_t> gradient_starts_;
};

}  // namespace tide_test
