// SPDX-License-Identifier: Apache-2.0
//
// Seeds of property tests, and random numbers that are the same with every compiler and standard library.
//
//   for (const std::uint64_t seed : tide_test::seeds(200)) {
//     CAPTURE(seed);
//     tide_test::Random random(seed);
//     ...
//
// TIDE_SEED=17 in the environment runs seed 17 alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

namespace tide_test {

/// The seeds 1 .. count, or the one that TIDE_SEED names.
inline std::vector<std::uint64_t> seeds(std::uint64_t count) {
  if (const char* only = std::getenv("TIDE_SEED")) return {std::stoull(only)};
  std::vector<std::uint64_t> all;
  for (std::uint64_t seed = 1; seed <= count; ++seed) all.push_back(seed);
  return all;
}

/// Random numbers of a seed. The distributions of <random> differ between standard libraries; these do not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// A number from first to last, both included.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(last - first + 1));
  }

  /// True once in `n` times.
  bool once_in(std::int64_t n) { return between(1, n) == 1; }

  /// One of the values.
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<std::int64_t>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tide_test
