// SPDX-License-Identifier: Apache-2.0
//
// compile: -O3 -march=native
//
// shard[i] = scale * sum along the tree of float(g_r[i]), in fp32, each operation rounded; NaN and Inf stay in their
// element; the output bits are a function of the input bits and the plan.

#include <doctest/doctest.h>

#include <tide/fabric/detail/host_kernels.hpp>
#include <tide/layout/dynamic_layout.hpp>

#include "support/collectives.hpp"
#include "support/sanitizer.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

using namespace tide_test;
using tide::DynamicLayout;

namespace {

/// Reduces one parameter whose element i is value(rank, i) on each rank; returns the whole result, in order.
template <class Value>
std::vector<float> reduce_values(index_t ranks, index_t elements, Element element, float scale, const Value& value) {
  const DynamicLayout layout(group_of({{elements}}, Element::bf16, element), {1, ranks});
  const auto size = static_cast<std::size_t>(tide::size_bytes(element));
  std::vector<std::vector<float>> shards(static_cast<std::size_t>(ranks));
  check_no_error(errors_of(HostRanks{}, ranks, [&](tide::HostFabric& fabric) {
    tide::ReduceScatter<DynamicLayout, tide::CopyEngineReducer<>> reduce(fabric, layout);
    tide::Gradients<DynamicLayout> gradients(fabric, layout);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    for (index_t i = 0; i < elements; ++i) {
      store(gradients.data() + static_cast<std::size_t>(i) * size, element, value(fabric.rank().value, i));
    }
    std::vector<float>& own = shards[static_cast<std::size_t>(fabric.rank().value)];
    const index_t bytes = layout.view().bytes(tide::Buffer::output, fabric.rank());
    own.assign(static_cast<std::size_t>(bytes / 4), std::numeric_limits<float>::quiet_NaN());
    reduce.scale(scale);
    const tide::ShardsView<DynamicLayout, tide::Buffer::masters> output(own.data(), layout, fabric.rank());
    reduce.enqueue(gradients, output, stream).shards_ready.synchronize();
    fabric.close();
  }));
  std::vector<float> whole;
  for (const std::vector<float>& own : shards) whole.insert(whole.end(), own.begin(), own.end());
  REQUIRE(whole.size() == static_cast<std::size_t>(elements));
  return whole;
}

/// What is left of squares that are added to minus their rounded values, in loops that a compiler unrolls and joins.
template <std::size_t Count>
float left_of_squares(float value) {
  std::array<float, Count> sums{};
  std::array<float, Count> output{};
  for (float& element : output) element = -(1.0F + 0x1p-11F);
  for (float& sum : sums) sum = value * value;
  tide::detail::keep_rounded(sums.data());
  float left = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    output[i] += sums[i];
    left += output[i];
  }
  return left;
}

TEST_CASE("Numerics: a product is rounded before it is added, however far the compiler looks") {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last bit is lost in fp32, and kept by a fused multiply-add.
  const volatile float value = 1.0F + 0x1p-12F;
  CHECK(left_of_squares<1>(value) == 0.0F);
  CHECK(left_of_squares<3>(value) == 0.0F);
  CHECK(left_of_squares<8>(value) == 0.0F);
}

}  // namespace

TEST_CASE("Numerics: sums of bf16 are not rounded on the way: 256 and seven ones are 263") {
  for (index_t ranks = 2; ranks <= 9; ++ranks) {
    CAPTURE(ranks);
    const auto sums = reduce_values(ranks, 20, Element::bf16, 1.0F,
                                    [](index_t rank, index_t i) { return rank == i % 9 ? 256.0F : 1.0F; });
    for (index_t i = 0; i < 20; ++i) {
      const float expected = static_cast<float>(ranks) + (i % 9 < ranks ? 255.0F : 0.0F);
      CHECK(sums[static_cast<std::size_t>(i)] == expected);
    }
  }
}

TEST_CASE("Numerics: means of f16 neither overflow nor vanish") {
  CHECK(reduce_values(2, 3, Element::f16, 0.5F, [](index_t, index_t) { return 60000.0F; }) ==
        std::vector<float>(3, 60000.0F));
  const float tiny = tide::convert<float>(tide::f16(6e-8F));
  REQUIRE(tiny > 0.0F);
  CHECK(reduce_values(8, 3, Element::f16, 0.125F, [](index_t, index_t) { return 6e-8F; }) ==
        std::vector<float>(3, tiny));
}

TEST_CASE("Numerics: one rank converts and scales every element, whatever their number") {
  std::vector<index_t> sizes = {999983};
  for (index_t size = 1; size <= 4096; size += tide_test::sized(1, 61)) sizes.push_back(size);
  for (const index_t elements : sizes) {
    CAPTURE(elements);
    const auto found = reduce_values(1, elements, Element::bf16, 0.75F,
                                     [](index_t, index_t i) { return static_cast<float>(i % 251) - 100.0F; });
    index_t wrong = 0;
    for (index_t i = 0; i < elements; ++i) {
      if (found[static_cast<std::size_t>(i)] != 0.75F * (static_cast<float>(i % 251) - 100.0F)) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("Numerics: NaN and infinity reach their own element and no other") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Element element : {Element::bf16, Element::f16, Element::f32, Element::f64, Element::f8_e5m2}) {
    for (const index_t ranks : {1, 2, 5}) {
      CAPTURE(tide::name(element));
      CAPTURE(ranks);
      const auto sums = reduce_values(ranks, 700, element, 1.0F, [&](index_t rank, index_t i) {
        if (i == 3 && rank == 0) return std::numeric_limits<float>::quiet_NaN();
        if (i == 130 && rank == ranks - 1) return infinity;
        if (i == 131 && rank == 0) return -infinity;
        if (i == 699) return rank == 0 ? infinity : rank == ranks - 1 ? -infinity : 1.0F;
        return 1.0F;
      });
      for (index_t i = 0; i < 700; ++i) {
        const float sum = sums[static_cast<std::size_t>(i)];
        if (i == 3 || (i == 699 && ranks > 1)) {
          CHECK(std::isnan(sum));
        } else if (i == 130 || i == 699) {
          CHECK(sum == infinity);
        } else if (i == 131) {
          CHECK(sum == -infinity);
        } else {
          CHECK(sum == static_cast<float>(ranks));
        }
      }
    }
  }
}

TEST_CASE("Numerics: the cast of masters keeps NaN, rounds ties to even, and overflows to infinity") {
  const std::vector<std::pair<std::uint32_t, std::uint16_t>> pairs = {
      {0x7F800001, 0x7FC0}, {0x7FFF8C22, 0x7FFF}, {0xFF800001, 0xFFC0}, {0x7F7FFFFF, 0x7F80},
      {0x3F808000, 0x3F80}, {0x3F818000, 0x3F82}, {0x3F808001, 0x3F81}, {0x3F807FFF, 0x3F80},
      {0x80000000, 0x8000}, {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x7F800000, 0x7F80}};
  const auto count = static_cast<index_t>(pairs.size());
  const DynamicLayout layout(group_of({{count}}, Element::bf16, Element::bf16), {1, 3});
  std::vector<int> right(3, 0);
  check_no_error(errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    tide::AllGather<DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout);
    tide::MasterShards<DynamicLayout> masters(fabric, layout);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    const auto own = masters.view().bytes_of(tide::ParameterIndex{0});
    for (std::size_t i = 0; i < own.size() / 4; ++i) {
      std::memcpy(own.data() + 4 * i, &pairs[static_cast<std::size_t>(fabric.rank().value) * 4 + i].first, 4);
    }
    auto params = gather.enqueue(masters, stream);
    params.complete().synchronize();
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, params.data() + 2 * i, 2);
      if (bits == pairs[i].second) ++right[static_cast<std::size_t>(fabric.rank().value)];
    }
    params.release(stream);
    fabric.close();
  }));
  CHECK(right == std::vector<int>(3, static_cast<int>(count)));
}

TEST_CASE("Numerics: gradients of bf16 and f32 in one group keep their own values") {
  tide::DynamicGroup group;
  group.add("fresh", {3}, Element::bf16, Element::bf16);
  group.add("accumulated", {5}, Element::bf16, Element::f32);
  group.add("half", {4}, Element::bf16, Element::f16);
  for (index_t ranks = 1; ranks <= 4; ++ranks) check_right(reduce_on(DynamicLayout(group, {1, ranks})));
}

TEST_CASE("Determinism: equal inputs give equal bits, run after run and cluster after cluster") {
  std::set<std::vector<float>> results;
  for (int cluster = 0; cluster < 5; ++cluster) {
    results.insert(reduce_values(5, 300, Element::bf16, 0.2F, [](index_t rank, index_t i) {
      return gradient_value(Element::bf16, mix(7, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i)));
    }));
  }
  CHECK(results.size() == 1);
}
