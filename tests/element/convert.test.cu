// SPDX-License-Identifier: Apache-2.0
//
// Device code converts to the same bits as the host, NaN included. Host code is tested in convert.test.cpp.

#include <cuda_runtime.h>

#include <doctest/doctest.h>

#include <tide/element/convert.hpp>

#include <support/rounding.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

using tide::bf16;
using tide::f16;
using tide::f32;
using tide::f64;
using tide::f8_e4m3;
using tide::f8_e5m2;

template <class To, class From>
__global__ void convert_all(const From* from, To* to, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = tide::convert<To>(from[i]);
}

void require_gpu() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0) return;
  std::puts("skipped: no GPU");
  std::exit(77);
}

/// How many elements the device converts to other bits than the host.
template <class To, class From>
std::size_t differences(const std::vector<From>& from) {
  From* device_from = nullptr;
  To* device_to = nullptr;
  std::vector<To> to(from.size());
  REQUIRE(cudaMalloc(&device_from, from.size() * sizeof(From)) == cudaSuccess);
  REQUIRE(cudaMalloc(&device_to, to.size() * sizeof(To)) == cudaSuccess);
  REQUIRE(cudaMemcpy(device_from, from.data(), from.size() * sizeof(From), cudaMemcpyDefault) == cudaSuccess);
  const auto blocks = static_cast<unsigned>((from.size() + 255) / 256);
  convert_all<<<blocks, 256>>>(device_from, device_to, from.size());
  REQUIRE(cudaMemcpy(to.data(), device_to, to.size() * sizeof(To), cudaMemcpyDefault) == cudaSuccess);
  REQUIRE(cudaFree(device_from) == cudaSuccess);
  REQUIRE(cudaFree(device_to) == cudaSuccess);

  using Bits = tide::detail::BitsOf<To>;
  std::size_t different = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const To host = tide::convert<To>(from[i]);
    if (std::bit_cast<Bits>(to[i]) != std::bit_cast<Bits>(host)) ++different;
  }
  return different;
}

template <class From>
void check_to_each_type(const std::vector<From>& from) {
  CHECK(differences<bf16>(from) == 0);
  CHECK(differences<f16>(from) == 0);
  CHECK(differences<f32>(from) == 0);
  CHECK(differences<f64>(from) == 0);
  CHECK(differences<f8_e4m3>(from) == 0);
  CHECK(differences<f8_e5m2>(from) == 0);
}

/// Every pattern of bits that a small type has.
template <class T>
std::vector<T> every_pattern() {
  std::vector<T> all;
  for (std::uint32_t bits = 0; bits < std::uint32_t{1} << (8 * sizeof(T)); ++bits) {
    all.push_back(std::bit_cast<T>(static_cast<tide::detail::BitsOf<T>>(bits)));
  }
  return all;
}

/// Numbers and midpoints of all small formats with their neighbours, then random patterns of bits.
template <class T>
std::vector<T> critical_and_random(std::uint64_t seed) {
  std::vector<T> values;
  for (const auto& format :
       {tide_test::bf16_format, tide_test::f16_format, tide_test::f8_e4m3_format, tide_test::f8_e5m2_format}) {
    const tide_test::RoundingTable table(format);
    for (const double x : tide_test::critical_points(table)) values.push_back(static_cast<T>(x));
  }
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1'000'000; ++i) {
    values.push_back(std::bit_cast<T>(static_cast<tide::detail::BitsOf<T>>(random())));
  }
  return values;
}

TEST_CASE("convert: the device gives the host's bits for every value of the small types") {
  require_gpu();
  check_to_each_type(every_pattern<bf16>());
  check_to_each_type(every_pattern<f16>());
  check_to_each_type(every_pattern<f8_e4m3>());
  check_to_each_type(every_pattern<f8_e5m2>());
}

TEST_CASE("convert: the device gives the host's bits for floats and doubles, at ties and at random") {
  require_gpu();
  const std::uint64_t seed = 10;
  CAPTURE(seed);
  check_to_each_type(critical_and_random<f32>(seed));
  check_to_each_type(critical_and_random<f64>(seed));
}

}  // namespace
