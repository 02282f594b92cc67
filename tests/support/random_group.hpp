// SPDX-License-Identifier: Apache-2.0
//
// Random small groups: odd shapes, mixed elements, every way of sharding, empty parameters, runs of equal parameters;
// or of few rows.

#pragma once

#include <tide/layout/dynamic_layout.hpp>

#include "support/seeds.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tide_test {

/// Rows that are not cut at multiples of the chunk: the first ranks get one row, the last one gets the rest.
struct LastTakesRest {
  [[nodiscard]] static constexpr tide::index_t begin(tide::index_t rows, tide::index_t ranks,
                                                     tide::index_t rank) noexcept {
    return rank == ranks ? rows : std::min(rank, rows);
  }
};

/// A group of up to eight kinds of parameters, some of them repeated in turns as expert matrices are.
inline tide::DynamicGroup random_group(Random& random, tide::index_t ranks) {
  using tide::Element;
  tide::DynamicGroup group;
  int number = 0;
  const auto add = [&](const std::vector<tide::index_t>& shape, Element gathered, Element gradient, int how) {
    std::string name = "p" + std::to_string(number++);
    const auto dimensions = static_cast<std::int64_t>(shape.size());
    if (how == 1) {  // an even split of any dimension
      const int dimension = static_cast<int>(random.between(0, dimensions - 1));
      std::vector<tide::index_t> even = shape;
      even[static_cast<std::size_t>(dimension)] *= ranks;
      group.add(std::move(name), even, gathered, gradient, tide::shard(dimension));
    } else if (how == 2) {  // ragged rows
      std::vector<tide::index_t> rows;
      std::vector<tide::index_t> ragged = shape;
      ragged[0] = 0;
      for (tide::index_t rank = 0; rank < ranks; ++rank) ragged[0] += rows.emplace_back(random.between(0, 3));
      group.add(std::move(name), ragged, gathered, gradient, {}, rows);
    } else if (how == 3) {  // a rule of the user's
      group.add(std::move(name), shape, gathered, gradient, tide::shard_by<LastTakesRest>());
    } else {
      group.add(std::move(name), shape, gathered, gradient);
    }
  };
  const auto any_shape = [&] {
    std::vector<tide::index_t> shape;
    for (std::int64_t d = random.between(1, 3); d > 0; --d)
      shape.push_back(random.between(random.once_in(12) ? 0 : 1, 9));
    return shape;
  };
  const auto any_element = [&] {
    return random.one_of({Element::bf16, Element::bf16, Element::f16, Element::f32, Element::f8_e4m3, Element::f64});
  };
  for (std::int64_t kinds = random.between(1, 4); kinds > 0; --kinds) {
    struct Member {
      std::vector<tide::index_t> shape;
      Element gathered, gradient;
    };
    std::vector<Member> family;
    for (std::int64_t members = random.between(1, 3); members > 0; --members) {
      family.push_back({any_shape(), any_element(), any_element()});
    }
    const int how = static_cast<int>(random.between(0, 5));
    for (std::int64_t times = random.once_in(2) ? 1 : random.between(2, 6); times > 0; --times) {
      for (const Member& member : family) add(member.shape, member.gathered, member.gradient, how);
    }
  }
  return group;
}

/// A group of parameters of a row or two: most ranks own nothing, and padded shards of these are padding.
inline tide::DynamicGroup few_rows(Random& random) {
  using tide::Element;
  tide::DynamicGroup group;
  for (std::int64_t number = random.between(1, 5); number > 0; --number) {
    const Element element = random.one_of({Element::bf16, Element::f32});
    group.add("p" + std::to_string(number), {random.between(1, 2), random.between(1, 60)}, element, element);
  }
  return group;
}

/// Either of these: of few rows once in three times.
inline tide::DynamicGroup any_group(Random& random, tide::index_t ranks) {
  return random.once_in(3) ? few_rows(random) : random_group(random, ranks);
}

}  // namespace tide_test
