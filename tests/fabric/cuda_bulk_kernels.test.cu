// SPDX-License-Identifier: Apache-2.0
// labels: gpu
//
// Casts, and copies with bulk loads, against the host: every bit of every row, and nothing beside them.

#include <tide/fabric/detail/cuda_bulk_copy.cuh>
#include <tide/fabric/detail/cuda_cast.cuh>
#include <tide/fabric/detail/cuda_kernels.cuh>

#include "support/rounding.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace {

using tide::detail::CudaLaunch;
using tide::detail::CudaRow;

inline constexpr unsigned char untouched = 0xA5;

// Skips where no kernel has bulk loads.
void require_bulk_loads() {
  int devices = 0;
  int major = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && major >= 9) {
    return;
  }
  std::puts("skipped: no GPU of compute capability 9.0");
  std::exit(77);
}

// Device memory with what a vector holds.
class OnDevice {
 public:
  template <class T>
  explicit OnDevice(const std::vector<T>& content) : bytes_(content.size() * sizeof(T)) {
    REQUIRE(cudaMalloc(&memory_, bytes_) == cudaSuccess);
    REQUIRE(cudaMemcpy(memory_, content.data(), bytes_, cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> out(bytes_);
    REQUIRE(cudaMemcpy(out.data(), memory_, bytes_, cudaMemcpyDeviceToHost) == cudaSuccess);
    return out;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
};

// Rows of these lengths one behind the other, each begun so many elements behind a multiple of 16, with room between
// them; the targets in another order than the sources.
struct Shift {
  std::int64_t source = 0;
  std::int64_t target = 0;
};
std::vector<CudaRow> rows_of(std::span<const std::int64_t> lengths, int tile_log2, CudaLaunch& launch,
                             Shift shift = {}) {
  std::vector<CudaRow> rows;
  std::int64_t at = shift.source;
  for (const std::int64_t length : lengths) {
    CudaRow row{};
    row.source = at;
    row.elements = length;
    row.first_tile = launch.tiles;
    launch.tiles += tide::detail::tiles_of(length, tile_log2);
    rows.push_back(row);
    at += (length + 15) / 16 * 16 + 16;
  }
  std::int64_t target = 16 + shift.target;
  for (std::size_t i = rows.size(); i-- > 0;) {
    rows[i].target = target;
    target += (rows[i].elements + 15) / 16 * 16 + 16;
  }
  launch.tile_log2 = tile_log2;
  launch.row_count = static_cast<int>(rows.size());
  return rows;
}

std::int64_t end_of(const std::vector<CudaRow>& rows) {
  std::int64_t end = 0;
  for (const CudaRow& row : rows) end = std::max({end, row.source + row.elements, row.target + row.elements});
  return end + 16;  // what is behind the last row, and must stay as it was
}

// Shorter than a vector, than a load, than a tile; on their edges, and around them; more than the ring holds.
const std::vector<std::int64_t> lengths = {1,    3,    4,    8,     15,    16,    17,     2048,   4095,   4096,
                                           4097, 8192, 9001, 16383, 16384, 16385, 100003, 131072, 131073, 300001};

template <class Start>
std::vector<unsigned char> result_of(const Start& start, const std::vector<CudaRow>& rows, CudaLaunch launch,
                                     const OnDevice& source, std::size_t target_bytes, int ctas) {
  const OnDevice target(std::vector<unsigned char>(target_bytes, untouched));
  const OnDevice device_rows(rows);
  launch.rows = reinterpret_cast<const CudaRow*>(device_rows.get());
  launch.source = source.get();
  launch.target = target.get();
  launch.bulk = true;
  CudaLaunch nothing = launch;
  nothing.tiles = 0;
  REQUIRE(start(nothing, 1) == cudaSuccess);
  REQUIRE(start(launch, ctas) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  return target.bytes();
}

// Ties, their neighbours, infinities and NaNs, then random patterns of bits, from the start of each row on.
std::vector<float> floats(std::int64_t count) {
  std::vector<float> values;
  for (const auto& format : {tide_test::bf16_format, tide_test::f16_format, tide_test::f8_e4m3_format}) {
    const tide_test::RoundingTable table(format);
    for (const double x : tide_test::critical_points(table)) values.push_back(static_cast<float>(x));
  }
  std::mt19937_64 random(10);
  const auto wanted = static_cast<std::size_t>(count);
  while (values.size() < wanted) {
    values.push_back(tide::detail::bits_as<float>(static_cast<std::uint32_t>(random())));
  }
  // Critical points are the fewer ones: spread over all places, so that every lane meets some.
  std::shuffle(values.begin(), values.end(), random);
  values.resize(wanted);
  return values;
}

template <class To>
void check_casts(Shift shift) {
  for (const int tile_log2 : {tide::detail::smallest_tile_log2, tide::detail::largest_tile_log2}) {
    CudaLaunch launch;
    const std::vector<CudaRow> rows = rows_of(lengths, tile_log2, launch, shift);
    const std::vector<float> values = floats(end_of(rows));
    const OnDevice source(values);
    std::vector<unsigned char> expected(values.size() * sizeof(To), untouched);
    for (const CudaRow& row : rows) {
      for (std::int64_t e = 0; e < row.elements; ++e) {
        const To value = tide::convert<To>(values[static_cast<std::size_t>(row.source + e)]);
        std::memcpy(expected.data() + static_cast<std::size_t>(row.target + e) * sizeof(To), &value, sizeof value);
      }
    }
    for (const int ctas : {1, 7, 32}) {
      CAPTURE(tile_log2);
      CAPTURE(ctas);
      CAPTURE(shift.source);
      CAPTURE(shift.target);
      const auto start = [](const CudaLaunch& what, int number) {
        return tide::detail::launch_cast<To>(what, number, nullptr);
      };
      CHECK(result_of(start, rows, launch, source, expected.size(), ctas) == expected);
    }
  }
}

}  // namespace

TEST_CASE("CudaFabric: casts give the host's bits in every row, and write nothing else") {
  require_bulk_loads();
  // Aligned to a vector, on one side only, to half of one, and not at all.
  for (const Shift shift : {Shift{0, 0}, Shift{4, 8}, Shift{0, 4}, Shift{2, 8}, Shift{1, 3}}) {
    check_casts<tide::bf16>(shift);
    check_casts<tide::f16>(shift);
    check_casts<tide::f8_e4m3>(shift);
    check_casts<float>(shift);
  }
}

TEST_CASE("CudaFabric: copies by bulk loads and stores bring every byte of every row, and write nothing else") {
  require_bulk_loads();
  for (const int tile_log2 : {tide::detail::smallest_tile_log2, tide::detail::largest_tile_log2}) {
    CudaLaunch launch;
    const std::vector<CudaRow> rows = rows_of(lengths, tile_log2, launch);
    std::vector<unsigned char> values(static_cast<std::size_t>(end_of(rows)));
    std::mt19937_64 random(11);
    for (unsigned char& value : values) value = static_cast<unsigned char>(random());
    const OnDevice source(values);
    std::vector<unsigned char> expected(values.size(), untouched);
    for (const CudaRow& row : rows) {
      std::copy_n(values.begin() + row.source, row.elements, expected.begin() + row.target);
    }
    for (const int ctas : {1, 7, 32}) {
      CAPTURE(tile_log2);
      CAPTURE(ctas);
      const auto start = [](const CudaLaunch& what, int number) {
        return tide::detail::launch_copy(what, number, nullptr);
      };
      CHECK(result_of(start, rows, launch, source, expected.size(), ctas) == expected);
    }
  }
}
