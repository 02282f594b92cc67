// SPDX-License-Identifier: Apache-2.0
//
// The oracle of plans: what the caller puts into the memories before each run of a collective, and what has to be there
// afterwards. Where an element lies is the layout oracle's word, not the library's; a sum is the tree, as one reads it.

#pragma once

#include <tide/element/convert.hpp>
#include <tide/plan/collective.hpp>

#include "support/oracle.hpp"
#include "support/seeds.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tide_test {

/// What bytes hold that nobody has written.
inline constexpr std::byte poison{0xA5};

/// A memory as it has to be: bytes, and which of them belong to a parameter.
struct Image {
  std::vector<std::byte> bytes;
  std::vector<bool> belongs;

  explicit Image(tide::index_t size) : bytes(static_cast<std::size_t>(size), poison), belongs(bytes.size(), false) {}
  void put(tide::index_t at, const std::byte* from, tide::index_t count) {
    for (tide::index_t i = 0; i < count; ++i) {
      bytes[static_cast<std::size_t>(at + i)] = from[i];
      belongs[static_cast<std::size_t>(at + i)] = true;
    }
  }
};

/// Calls f(type{}) with the C++ type of an element.
template <class F>
void with_type(tide::Element element, F f) {
  switch (element) {
    case tide::Element::bf16: return f(tide::bf16{});
    case tide::Element::f16: return f(tide::f16{});
    case tide::Element::f32: return f(float{});
    case tide::Element::f64: return f(double{});
    case tide::Element::f8_e4m3: return f(tide::f8_e4m3{});
    case tide::Element::f8_e5m2: return f(tide::f8_e5m2{});
  }
}

inline float load(tide::Element element, const std::byte* from) {
  float value = 0;
  with_type(element, [&](auto typed) {
    std::memcpy(&typed, from, sizeof typed);
    value = tide::convert<float>(typed);
  });
  return value;
}

inline void store(tide::Element element, float value, std::byte* to) {
  with_type(element, [&](auto typed) {
    typed = tide::convert<decltype(typed)>(value);
    std::memcpy(to, &typed, sizeof typed);
  });
}

/// sum[first, last) of the summation tree, each addition rounded on its own.
inline float sum_along_tree(const std::vector<float>& leaves, std::size_t first, std::size_t last) {
  if (last - first == 1) return leaves[first];
  std::size_t left = 1;
  while (2 * left < last - first) left *= 2;
  const volatile float a = sum_along_tree(leaves, first, first + left);
  const volatile float b = sum_along_tree(leaves, first + left, last);
  return a + b;
}

/// Inputs and results of consecutive runs with changing data.
class PlanOracle {
 public:
  /// The scale of a reduce: a power of two, so that it does not matter how a compiler rounds scale * sum + output.
  static constexpr float scale = 0.25F;

  PlanOracle(const tide::Collective& collective, tide::index_t runs, std::uint64_t seed)
      : collective_(collective), places_(oracle::places(collective.layout.group, collective.ranks())) {
    Random random(seed);
    const bool gather = collective.operation == tide::Operation::gather;
    for (tide::index_t run = 0; run < runs; ++run) {
      gather ? make_gather(random) : make_reduce(random);
    }
  }

  /// What the caller writes into a space of a rank before a run: masters, shards, gradients, or its block of the slot.
  [[nodiscard]] const Image& input(tide::Space space, tide::index_t rank, tide::index_t run) const {
    const Run& r = runs_[static_cast<std::size_t>(run)];
    const auto i = static_cast<std::size_t>(rank);
    return space == tide::Space::master   ? r.masters[i]
           : space == tide::Space::shards ? r.shards[i]
           : space == tide::Space::slot   ? r.own_blocks[i]
                                          : r.gradients[i];
  }
  /// What every slot has to hold after a run.
  [[nodiscard]] const Image& slot(tide::index_t run) const { return runs_[static_cast<std::size_t>(run)].slot[0]; }
  /// What a rank's output holds before the first run, and after a run.
  [[nodiscard]] const Image& first_output(tide::index_t rank) const { return first_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Image& output(tide::index_t rank, tide::index_t run) const {
    return runs_[static_cast<std::size_t>(run)].outputs[static_cast<std::size_t>(rank)];
  }

 private:
  struct Run {
    std::vector<Image> masters, shards, own_blocks, gradients, outputs, slot;
  };

  [[nodiscard]] const tide::Parameter& parameter(const oracle::Place& place) const {
    return collective_.layout.group.parameters[place.parameter];
  }

  /// Bytes of each parameter's element.
  template <class Which>
  [[nodiscard]] std::vector<tide::index_t> sizes(Which which) const {
    std::vector<tide::index_t> list;
    for (const tide::Parameter& p : collective_.layout.group.parameters) {
      list.push_back(static_cast<tide::index_t>(tide::size_bytes(which(p))));
    }
    return list;
  }

  /// Empty images of a packed buffer of all ranks, and where its parameters start.
  struct Packed {
    std::vector<Image> images;
    std::vector<std::vector<tide::index_t>> starts;
  };
  [[nodiscard]] Packed packed(const std::vector<tide::index_t>& element_bytes) const {
    Packed all;
    const bool fsdp2 = collective_.layout.packing.padding == tide::PackingRule::Padding::to_chunk;
    for (tide::index_t r = 0; r < collective_.ranks(); ++r) {
      all.starts.push_back(
          oracle::packed_starts(collective_.layout.group, collective_.ranks(), r, element_bytes, fsdp2));
      all.images.emplace_back(all.starts.back().back());
    }
    return all;
  }

  void make_gather(Random& random) {
    const auto element_bytes = sizes([](const tide::Parameter& p) { return p.gathered; });
    const std::vector<tide::index_t> dense =
        oracle::dense_starts(collective_.layout.group, element_bytes, collective_.layout.storage_alignment);
    Packed masters = packed(sizes([](const tide::Parameter&) { return tide::Element::f32; }));
    Packed shards = packed(element_bytes);
    Image slot(dense.back());
    std::vector<Image> own_blocks(static_cast<std::size_t>(collective_.ranks()), Image(dense.back()));
    for (const oracle::Place& place : places_) {
      const auto owner = static_cast<std::size_t>(place.owner);
      const tide::index_t size = element_bytes[place.parameter];
      std::byte master[4];
      std::byte gathered[8];
      store(tide::Element::f32, any_number(random, 20), master);
      store(parameter(place).gathered, load(tide::Element::f32, master), gathered);
      masters.images[owner].put(masters.starts[owner][place.parameter] + 4 * place.packed, master, 4);
      shards.images[owner].put(shards.starts[owner][place.parameter] + size * place.packed, gathered, size);
      slot.put(dense[place.parameter] + size * place.dense, gathered, size);
      own_blocks[owner].put(dense[place.parameter] + size * place.dense, gathered, size);
    }
    runs_.push_back({masters.images, shards.images, own_blocks, {}, {}, {slot}});
  }

  void make_reduce(Random& random) {
    const auto element_bytes = sizes([](const tide::Parameter& p) { return p.gradient; });
    const std::vector<tide::index_t> dense =
        oracle::dense_starts(collective_.layout.group, element_bytes, collective_.layout.storage_alignment);
    Packed outputs = packed(sizes([](const tide::Parameter&) { return tide::Element::f32; }));
    std::vector<Image> gradients(static_cast<std::size_t>(collective_.ranks()), Image(dense.back()));
    const bool first = runs_.empty();
    if (first) first_ = outputs.images;
    for (const oracle::Place& place : places_) {
      const tide::index_t size = element_bytes[place.parameter];
      std::vector<float> leaves;
      for (Image& image : gradients) {
        std::byte gradient[8];
        store(parameter(place).gradient, any_number(random, size == 1 ? 5 : 20), gradient);
        image.put(dense[place.parameter] + size * place.dense, gradient, size);
        leaves.push_back(load(parameter(place).gradient, gradient));
      }
      const auto owner = static_cast<std::size_t>(place.owner);
      const tide::index_t at = outputs.starts[owner][place.parameter] + 4 * place.packed;
      std::byte number[4];
      if (first) {
        store(tide::Element::f32, any_number(random, 20), number);
        first_[owner].put(at, number, 4);
      }
      const Image& last = first ? first_[owner] : runs_.back().outputs[owner];
      const float before = load(tide::Element::f32, &last.bytes[static_cast<std::size_t>(at)]);
      const float sum = scale * sum_along_tree(leaves, 0, leaves.size());
      store(tide::Element::f32, collective_.finish == tide::Finish::accumulate ? before + sum : sum, number);
      outputs.images[owner].put(at, number, 4);
    }
    runs_.push_back({{}, {}, {}, gradients, outputs.images, {}});
  }

  /// A number of either sign between 2^-spread and 2^spread: sums of such numbers depend on their order.
  [[nodiscard]] static float any_number(Random& random, int spread) {
    const auto mantissa = static_cast<float>(random.between(1 << 23, (1 << 24) - 1));
    const float value = std::ldexp(mantissa, static_cast<int>(random.between(-spread, spread - 1)) - 23);
    return random.once_in(2) ? -value : value;
  }

  tide::Collective collective_;
  std::vector<oracle::Place> places_;
  std::vector<Image> first_;
  std::vector<Run> runs_;
};

}  // namespace tide_test
