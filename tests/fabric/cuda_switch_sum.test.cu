// SPDX-License-Identifier: Apache-2.0
//
// The kernel of sums in the switch, emulated: memories of one device stand for those of the ranks of a node.

#include <cuda_runtime.h>

#include <doctest/doctest.h>

#include <tide/fabric/detail/cuda_switch_sum.cuh>

#include <support/gpu.cuh>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace {

using tide::detail::CudaLaunch;
using tide::detail::CudaRow;

void require_gpu() {
  if (gpu::devices() > 0) return;
  std::puts("skipped: no GPU");
  std::exit(77);
}

/// Memory of the device, filled from the host.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    REQUIRE(cudaMalloc(&data_, count_ * sizeof(T)) == cudaSuccess);
    REQUIRE(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyDefault) == cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    REQUIRE(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDefault) == cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// A whole number that every order of adding keeps exact.
float value(int rank, std::int64_t element) {
  return static_cast<float>(gpu::hash(1, static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(rank), 2) %
                            9) -
         4.0F;
}

/// Sums two rows of a launch, of elements from `shift` on, and compares each element of the output.
template <bool Accumulate>
void check_sum(int ranks, int inputs, std::int64_t elements, std::int64_t shift) {
  CAPTURE(ranks);
  CAPTURE(inputs);
  CAPTURE(elements);
  CAPTURE(shift);
  const std::int64_t stride = (elements + 2 * shift + 3) / 4 * 4;  // from place to place
  std::vector<std::unique_ptr<OnDevice<float>>> memories;
  std::vector<const std::byte*> node;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float> values(static_cast<std::size_t>(inputs * stride));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank, static_cast<std::int64_t>(i));
    memories.push_back(std::make_unique<OnDevice<float>>(values));
    node.push_back(reinterpret_cast<const std::byte*>(memories.back()->data()));
  }
  const std::int64_t first = elements / 3 / 4 * 4;  // elements of the first row
  CudaLaunch launch;
  std::vector<CudaRow> rows;
  for (const auto& [begin, count] : {std::pair{std::int64_t{0}, first}, std::pair{first, elements - first}}) {
    const std::int64_t at = begin + shift;
    rows.push_back({at, at + stride, at, count, launch.tiles, 0});
    launch.tiles += tide::detail::tiles_of(count, launch.tile_log2);
  }
  const OnDevice<CudaRow> device_rows(rows);
  const OnDevice<const std::byte*> device_node(node);
  const OnDevice<float> output(std::vector<float>(static_cast<std::size_t>(elements + 2 * shift), 7.0F));
  launch.rows = device_rows.data();
  launch.row_count = 2;
  launch.piece_stride = stride * 4;
  launch.inputs = inputs;
  launch.node = device_node.data();
  launch.node_ranks = ranks;
  launch.target = reinterpret_cast<std::byte*>(output.data());
  launch.scale = 0.5F;
  REQUIRE(tide::detail::launch_switch_sum<Accumulate>(launch, 3, nullptr) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const std::vector<float> found = output.read();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < elements + 2 * shift; ++i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int input = 0; input < inputs; ++input) sum += value(rank, i + input * stride);
    }
    const bool inside = i >= shift && i < elements + shift;
    const float expected = inside ? (Accumulate ? 7.0F : 0.0F) + 0.5F * sum : 7.0F;
    wrong += found[static_cast<std::size_t>(i)] != expected ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("switch_sum: adds each place of each rank once, row by row, aligned or not") {
  require_gpu();
  for (const int ranks : {1, 2, 8}) {
    for (const int inputs : {1, 2, 3}) {
      for (const std::int64_t shift : {0, 1, 4}) {
        check_sum<false>(ranks, inputs, 100'003, shift);
        check_sum<true>(ranks, inputs, 517, shift);
      }
    }
  }
}

}  // namespace
