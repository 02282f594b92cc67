// SPDX-License-Identifier: Apache-2.0
//
// The oracle of a run: what every element of every tensor must be, found from its name alone: seed, parameter, position
// and, for gradients, rank. So nobody needs a second copy of the model, and no offset of the library is believed.
//
//   weight     a float of any bits, cast where it is gathered in a smaller element
//   gradient   +-1.m * 2^e, e from -20 to 20 where the element has such numbers
//   reduced    (((g0 + g1) + (g2 + g3)) + g4) * scale, in f32
//
// Gradients spread so far that a sum in another order has other bits.

#pragma once

#include "elements.hpp"

#include <tide/layout/group.hpp>
#include <tide/layout/mesh.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tide_example::oracle {

using tide::index_t;

// ---- who owns what
// ---------------------------------------------------------------------------------------------------

/// Elements of a whole parameter that follow each other and belong to one rank.
struct Run {
  index_t first;
  index_t count;
};

/// How many rows of its cut dimension each rank gets: as told, or dealt in equal chunks until none is left.
[[nodiscard]] inline std::vector<index_t> rows_of_ranks(const tide::Parameter& parameter, index_t ranks) {
  const auto told = parameter.sharding.rows_of_rank;
  if (!told.empty()) return {told.begin(), told.end()};
  index_t left = parameter.shape[parameter.sharding.dimension];
  const index_t chunk = left / ranks + (left % ranks == 0 ? 0 : 1);
  std::vector<index_t> rows;
  for (index_t rank = 0; rank < ranks; ++rank) {
    rows.push_back(left < chunk ? left : chunk);
    left -= rows.back();
  }
  return rows;
}

/// What a rank owns of a parameter, in the order in which its shard holds it.
[[nodiscard]] inline std::vector<Run> runs_of(const tide::Parameter& parameter, index_t ranks, index_t rank) {
  const std::vector<index_t> rows = rows_of_ranks(parameter, ranks);
  const int cut = parameter.sharding.dimension;
  index_t before = 0;  // rows of the ranks before
  for (index_t r = 0; r < rank; ++r) before += rows[static_cast<std::size_t>(r)];
  index_t outer = 1;
  for (int d = 0; d < cut; ++d) outer *= parameter.shape[d];
  index_t inner = 1;
  for (int d = cut + 1; d < parameter.shape.rank; ++d) inner *= parameter.shape[d];
  std::vector<Run> runs;
  const index_t count = rows[static_cast<std::size_t>(rank)] * inner;
  for (index_t o = 0; o < outer && count > 0; ++o) runs.push_back({(o * parameter.shape[cut] + before) * inner, count});
  return runs;
}

// ---- values
// ----------------------------------------------------------------------------------------------------------

/// Where a tensor's values come from.
struct Key {
  std::uint64_t bits;
};

/// @param rank  of a gradient; -1 for the weights, which all ranks share
[[nodiscard]] inline Key key(std::uint64_t seed, index_t parameter, index_t rank) {
  std::uint64_t bits = seed;
  for (const index_t part : {parameter, rank}) {  // splitmix64
    bits += 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(part);
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    bits ^= bits >> 31;
  }
  return {bits};
}

/// 32 random bits of element `i`: cheap, and done for many at once by a vectorising compiler.
[[nodiscard]] constexpr std::uint32_t random_bits(std::uint32_t key, std::uint32_t i) noexcept {
  std::uint32_t x = (i ^ key) * 0x9E3779B1U;
  x ^= x >> 15;
  x *= 0x85EBCA77U;
  return x ^ (x >> 13);
}

/// The float whose bits are random: numbers of every size, infinities and NaN.
[[nodiscard]] constexpr float any_float(std::uint32_t random) noexcept { return std::bit_cast<float>(random); }

/// 2 to the powers -spread .. spread, with any sign and mantissa.
template <int Spread>
[[nodiscard]] constexpr float spread_float(std::uint32_t random) noexcept {
  const std::uint32_t exponent = 127U - Spread + (((random >> 23 & 0xFFU) * (2 * Spread + 1)) >> 8);
  return std::bit_cast<float>((random & 0x807FFFFFU) | (exponent << 23));
}

/// How far gradients may spread in an element without becoming infinite or zero.
template <class T>
inline constexpr int spread_of = std::is_same_v<T, tide::f8_e4m3>                                   ? 6
                                 : std::is_same_v<T, tide::f8_e5m2> || std::is_same_v<T, tide::f16> ? 13
                                                                                                    : 20;

/// The values that a tensor must have.
struct Values {
  index_t element_bytes;
  std::function<void(std::byte* to, index_t first, index_t count)> write;  ///< elements [first, first + count)
};

namespace detail {

// Calls `make(random bits)` for elements [first, first + count) of a tensor and stores what it returns.
template <class T, class Make>
void generate(T* to, Key key, index_t first, index_t count, Make make) {
  while (count > 0) {
    // Positions beyond 32 bits choose another key.
    const auto high = static_cast<std::uint64_t>(first) >> 32;
    const auto folded = static_cast<std::uint32_t>((key.bits + high * 0x9E3779B97F4A7C15U) >> 16);
    const auto low = static_cast<std::uint32_t>(first);
    const index_t n = std::min<index_t>(count, (index_t{1} << 32) - static_cast<index_t>(low));
    for (index_t i = 0; i < n; ++i) to[i] = make(random_bits(folded, low + static_cast<std::uint32_t>(i)));
    to += n;
    first += n;
    count -= n;
  }
}

template <class T, class Make>
[[nodiscard]] Values values(Key key, Make make) {
  return {static_cast<index_t>(sizeof(T)), [=](std::byte* to, index_t first, index_t count) {
            generate(reinterpret_cast<T*>(to), key, first, count, make);
          }};
}

}  // namespace detail

/// Weights as the f32 masters hold them.
[[nodiscard]] inline Values masters(Key key) {
  return detail::values<float>(key, [](std::uint32_t random) { return any_float(random); });
}

/// The same weights in the element that is gathered.
[[nodiscard]] inline Values weights(tide::Element element, Key key) {
  return with_type(element, [&]<class T>() {
    return detail::values<T>(key, [](std::uint32_t random) { return tide::convert<T>(any_float(random)); });
  });
}

/// The gradients of the rank that the key is of.
[[nodiscard]] inline Values gradients(tide::Element element, Key key) {
  return with_type(element, [&]<class T>() {
    return detail::values<T>(key,
                             [](std::uint32_t random) { return tide::convert<T>(spread_float<spread_of<T>>(random)); });
  });
}

/// The same gradients as a sum takes them: widened to f32.
[[nodiscard]] inline Values widened_gradients(tide::Element element, Key key) {
  return with_type(element, [&]<class T>() {
    return detail::values<float>(key, [](std::uint32_t random) {
      return tide::convert<float>(tide::convert<T>(spread_float<spread_of<T>>(random)));
    });
  });
}

/// What a reduce-scatter leaves of the gradients of all ranks: neighbours in a node are added in pairs until one sum is
/// left, and then the sums of the nodes.
[[nodiscard]] inline Values reduced(tide::Element element, const std::vector<Key>& key_of_rank, tide::MeshShape mesh,
                                    float scale) {
  std::vector<Values> leaves;
  for (const Key key : key_of_rank) leaves.push_back(widened_gradients(element, key));
  return {4, [=](std::byte* to, index_t first, index_t count) {
            using Sums = std::vector<std::vector<float>>;
            const auto in_pairs = [](Sums sums) {
              while (sums.size() > 1) {
                Sums pairs;
                for (std::size_t s = 0; s < sums.size(); s += 2) {
                  if (s + 1 < sums.size()) {
                    for (std::size_t i = 0; i < sums[s].size(); ++i) sums[s][i] += sums[s + 1][i];
                  }
                  pairs.push_back(std::move(sums[s]));
                }
                sums = std::move(pairs);
              }
              return sums[0];
            };
            Sums nodes;
            for (auto leaf = leaves.begin(); leaf != leaves.end(); leaf += mesh.ranks_per_node) {
              Sums node;
              for (auto own = leaf; own != leaf + mesh.ranks_per_node; ++own) {
                node.emplace_back(static_cast<std::size_t>(count));
                own->write(reinterpret_cast<std::byte*>(node.back().data()), first, count);
              }
              nodes.push_back(in_pairs(std::move(node)));
            }
            const std::vector<float> sum = in_pairs(std::move(nodes));
            auto* result = reinterpret_cast<float*>(to);
            for (std::size_t i = 0; i < sum.size(); ++i) result[i] = sum[i] * scale;
          }};
}

/// Writes runs of a tensor one behind the other, as a shard holds them.
inline void write_runs(std::byte* shard, const std::vector<Run>& runs, const Values& values) {
  for (const Run& run : runs) {
    values.write(shard, run.first, run.count);
    shard += run.count * values.element_bytes;
  }
}

// ---- comparison
// ------------------------------------------------------------------------------------------------------

/// The first byte in which memory differs from the values of elements [first, first + count); the number of bytes if
/// none does.
[[nodiscard]] inline index_t first_difference(const std::byte* got, index_t first, index_t count,
                                              const Values& values) {
  constexpr index_t block = 4096;
  alignas(8) std::array<std::byte, block * 8> expected;
  for (index_t done = 0; done < count; done += block) {
    const index_t n = std::min(block, count - done);
    values.write(expected.data(), first + done, n);
    const std::byte* part = got + done * values.element_bytes;
    if (std::memcmp(part, expected.data(), static_cast<std::size_t>(n * values.element_bytes)) == 0) continue;
    index_t at = 0;
    while (part[at] == expected[static_cast<std::size_t>(at)]) ++at;
    return done * values.element_bytes + at;
  }
  return count * values.element_bytes;
}

}  // namespace tide_example::oracle
