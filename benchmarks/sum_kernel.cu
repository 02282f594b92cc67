// SPDX-License-Identifier: Apache-2.0
//
// sum_kernel: how long the sum of a reduce-scatter takes alone, by number of SMs, on one GPU; with plain loads, and
// with bulk loads and 8 or 16 warps that add. Checks first that all of them give the same bits.

#include "../examples/support/args.hpp"
#include "../examples/support/program.hpp"
#include "support/described_run.cuh"

#include <tide/element/bf16.hpp>
#include <tide/fabric/detail/cuda_bulk_sum.cuh>
#include <tide/fabric/detail/cuda_check.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

using tide::detail::check;
using tide::detail::CudaLaunch;
using tide::detail::CudaRow;

template <class Word>
__global__ void scramble(Word* words, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    std::uint64_t h = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    // Exponents from 2^-15 to 2^16, any sign and fraction.
    words[i] = static_cast<Word>((h & 0x8000) | (112 + (h >> 20) % 32) << 7 | (h >> 40 & 0x7F));
  }
}

// Cuts `count` elements into the rows of a launch, of `per_row` elements each, and of up to `shorter` fewer. The rows
// are the caller's to free.
CudaRow* fill_rows(CudaLaunch& launch, std::int64_t count, std::int64_t per_row, std::int64_t shorter) {
  if (count > 100'000'000) launch.tile_log2 = tide::detail::largest_tile_log2;
  std::vector<CudaRow> list;
  for (std::int64_t at = 0; at < count; at += per_row) {
    CudaRow row{};
    row.source = row.piece = row.target = at;
    row.elements = std::min(per_row, count - at) - static_cast<std::int64_t>(list.size()) % (shorter + 1);
    row.first_tile = launch.tiles;
    launch.tiles += tide::detail::tiles_of(row.elements, launch.tile_log2);
    list.push_back(row);
  }
  CudaRow* rows = nullptr;
  check(cudaMalloc(&rows, list.size() * sizeof(CudaRow)), "cudaMalloc");
  check(cudaMemcpy(rows, list.data(), list.size() * sizeof(CudaRow), cudaMemcpyHostToDevice), "cudaMemcpy");
  launch.rows = rows;
  launch.row_count = static_cast<int>(list.size());
  return rows;
}

struct Sum {
  std::int64_t elements;
  int inputs;
  std::uint16_t* memory = nullptr;     // the own gradient, then the pieces
  float* out[2] = {nullptr, nullptr};  // of plain and of bulk loads
  CudaRow* rows = nullptr;
  CudaLaunch launch{};

  Sum(std::int64_t count, int number, std::int64_t per_row, std::int64_t shorter = 0)
      : elements(count), inputs(number) {
    check(cudaMalloc(&memory, static_cast<std::size_t>(count * number) * 2), "cudaMalloc");
    for (float*& each : out) check(cudaMalloc(&each, static_cast<std::size_t>(count) * 4), "cudaMalloc");
    scramble<<<1024, 256>>>(memory, count * number);
    rows = fill_rows(launch, count, per_row, shorter);
    launch.source = reinterpret_cast<const std::byte*>(memory);
    launch.pieces = launch.source + count * 2;
    launch.piece_stride = count * 2;
    launch.inputs = number;
    launch.position = number / 2;
    launch.scale = 0.37F;
  }
  ~Sum() {
    cudaFree(memory);
    cudaFree(out[0]);
    cudaFree(out[1]);
    cudaFree(rows);
  }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  template <int N>
  void enqueue_bulk(int warps, int ctas) {
    check(warps == 8 ? tide::detail::launch_bulk_sum<tide::bf16, N, false, 8>(launch, ctas, nullptr)
                     : tide::detail::launch_bulk_sum<tide::bf16, N, false, 16>(launch, ctas, nullptr),
          "a kernel");
  }
  // With bulk loads and so many warps that add; 0 for plain loads.
  void enqueue(int warps, int ctas) {
    launch.target = reinterpret_cast<std::byte*>(out[warps > 0 ? 1 : 0]);
    if (warps == 0) return check(tide::detail::launch_sum<tide::bf16, false>(launch, ctas, nullptr), "a kernel");
    if (inputs == 2) return enqueue_bulk<2>(warps, ctas);
    if (inputs == 3) return enqueue_bulk<3>(warps, ctas);
    if (inputs == 4) return enqueue_bulk<4>(warps, ctas);
    enqueue_bulk<8>(warps, ctas);
  }
};

inline constexpr int ways[] = {0, 8, 16};

// Loads the kernels.
void load(Sum& sum) {
  const std::int64_t tiles = std::exchange(sum.launch.tiles, 0);
  for (const int warps : ways) sum.enqueue(warps, 1);
  sum.launch.tiles = tiles;
}

// All over rows of many lengths, bit by bit.
void compare(int inputs) {
  Sum sum(1'000'008, inputs, 40'008, 13);
  load(sum);
  std::vector<std::uint32_t> bits[3];
  for (int k = 0; k < 3; ++k) {
    float* const out = sum.out[ways[k] > 0 ? 1 : 0];
    bits[k].resize(static_cast<std::size_t>(sum.elements));
    check(cudaMemset(out, 0xEE, bits[k].size() * 4), "cudaMemset");
    sum.enqueue(ways[k], 7);
    check(cudaMemcpy(bits[k].data(), out, bits[k].size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  if (bits[0] == bits[1] && bits[0] == bits[2] && bits[0][0] != 0xEEEEEEEE) return;
  std::fprintf(stderr, "sum_kernel: %d inputs: the kernels differ\n", inputs);
  std::exit(1);
}

template <class Work>
std::vector<double> samples_ms(const Work& work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> all;
  for (int i = 0; i < 12; ++i) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    work();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i > 2) all.push_back(static_cast<double>(ms));
  }
  return all;
}

constexpr const char* usage =
    R"(sum_kernel [--json FILE]

Times the sum of a reduce-scatter alone, of 2, 4 and 8 bf16 inputs, by number of SMs; reads and writes together are 3.42,
2.57 and 2.14 GB.

  --json FILE  writes what was measured
)";

int run(int argc, char** argv) {
  const tide_example::Args args(argc, argv, {{"--json", tide_example::Args::value}});
  tide_benchmark::Report report;
  tide_benchmark::describe_run(report, argc, argv, 1);
  for (const int inputs : {2, 3, 4, 8}) compare(inputs);
  std::printf("bits equal for 2, 3, 4 and 8 inputs\n");
  std::printf("inputs  SMs   plain: ms  SM ms   8 warps: ms  SM ms   16 warps: ms  SM ms\n");
  for (const int inputs : {2, 4, 8}) {
    Sum sum(inputs == 2 ? 427'827'200 : 855'654'400 / inputs, inputs, 8192 * 8192 / 2);
    load(sum);
    for (const int ctas : {8, 16, 24, 32, 40, 48, 132}) {
      std::printf("%6d %4d", inputs, ctas);
      for (const int warps : ways) {
        tide_benchmark::Row row{};
        row.operation = "sum of " + std::to_string(inputs);
        row.path = warps == 0 ? "plain loads" : "bulk loads, " + std::to_string(warps) + " warps";
        row.mesh = "1x" + std::to_string(inputs);
        row.policy = std::to_string(ctas) + " SMs";
        row.samples_ms = samples_ms([&] { sum.enqueue(warps, ctas); });
        row.sm_ms = row.median_ms() * ctas;
        std::printf("  %11.3f %6.1f", row.median_ms(), *row.sm_ms);
        report.rows.push_back(std::move(row));
      }
      std::printf("\n");
    }
  }
  if (const auto file = args.text("--json")) tide_benchmark::write_report(*file, report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tide_example::run_program(argc, argv, usage, [&] { return run(argc, argv); });
}
