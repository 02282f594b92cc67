// SPDX-License-Identifier: Apache-2.0
//
// sum_kernel: how long the sum of a reduce-scatter takes alone, by number of SMs, on one GPU; with plain loads, and
// with bulk loads and 8 or 16 warps that add. Then the cast of f32 masters, and a copy inside the GPU. Checks first
// that all sums give the same bits, and that copies give their source.

#include "../examples/support/args.hpp"
#include "../examples/support/program.hpp"
#include "support/described_run.cuh"

#include <tide/element/bf16.hpp>
#include <tide/fabric/detail/cuda_bulk_copy.cuh>
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

// Any bits at all, infinities and NaNs among them.
__global__ void scramble_all(std::uint32_t* words, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    std::uint64_t h = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    words[i] = static_cast<std::uint32_t>(h >> 16);
  }
}

// Cuts `count` elements into the rows of a launch, of `per_row` elements each, and of up to `shorter` fewer. `unit` is
// what an element takes in the offsets and lengths of rows. The rows are the caller's to free.
CudaRow* fill_rows(CudaLaunch& launch, std::int64_t count, std::int64_t per_row, std::int64_t shorter,
                   std::int64_t unit) {
  if (count > 100'000'000) launch.tile_log2 = tide::detail::largest_tile_log2;
  std::vector<CudaRow> list;
  for (std::int64_t at = 0; at < count; at += per_row) {
    CudaRow row{};
    row.source = row.piece = row.target = at * unit;
    row.elements = (std::min(per_row, count - at) - static_cast<std::int64_t>(list.size()) % (shorter + 1)) * unit;
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
    rows = fill_rows(launch, count, per_row, shorter, 1);
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

// What comes before the pushes of a gather: a cast of f32 to bf16, or a copy of bf16, by the driver or with bulk loads.
enum class Moving { cast, copy, driver_copy };

struct Move {
  std::int64_t elements;
  float* memory = nullptr;  // of a copy, its first half
  tide::bf16* out = nullptr;
  CudaRow* rows = nullptr;
  CudaLaunch launch{};

  Move(std::int64_t count, Moving moving, std::int64_t per_row, std::int64_t shorter = 0) : elements(count) {
    check(cudaMalloc(&memory, static_cast<std::size_t>(count) * 4), "cudaMalloc");
    check(cudaMalloc(&out, bytes()), "cudaMalloc");
    scramble_all<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(memory), count);
    // Of a copy, rows are in bytes.
    rows = fill_rows(launch, count, per_row, shorter, moving == Moving::cast ? 1 : std::int64_t{sizeof(tide::bf16)});
    launch.source = reinterpret_cast<const std::byte*>(memory);
    launch.target = reinterpret_cast<std::byte*>(out);
    launch.bulk = moving == Moving::copy;
  }
  ~Move() {
    cudaFree(memory);
    cudaFree(out);
    cudaFree(rows);
  }
  Move(const Move&) = delete;
  Move& operator=(const Move&) = delete;

  // Of `out`.
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(elements) * sizeof(tide::bf16); }

  void enqueue(Moving moving, int ctas) {
    if (moving == Moving::cast) return check(tide::detail::launch_cast<tide::bf16>(launch, ctas, nullptr), "a kernel");
    if (moving == Moving::copy) return check(tide::detail::launch_copy(launch, ctas, nullptr), "a kernel");
    check(cudaMemcpyAsync(launch.target, launch.source, bytes(), cudaMemcpyDeviceToDevice, nullptr), "cudaMemcpyAsync");
  }
  // Loads the kernel.
  void load(Moving moving) {
    const std::int64_t tiles = std::exchange(launch.tiles, 0);
    enqueue(moving, 1);
    launch.tiles = tiles;
  }
};

// A copy against its source over rows of many lengths, byte by byte; what lies between rows stays as it was.
void compare_copy() {
  Move move(1'000'000, Moving::copy, 40'016, 13);
  move.load(Moving::copy);
  std::vector<unsigned char> source(move.bytes());
  std::vector<CudaRow> list(static_cast<std::size_t>(move.launch.row_count));
  check(cudaMemcpy(source.data(), move.memory, source.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaMemcpy(list.data(), move.rows, list.size() * sizeof(CudaRow), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::vector<unsigned char> expected(source.size(), 0xEE);
  for (const CudaRow& row : list) {
    std::copy_n(source.begin() + row.source, row.elements, expected.begin() + row.target);
  }
  std::vector<unsigned char> got(source.size());
  check(cudaMemset(move.out, 0xEE, got.size()), "cudaMemset");
  move.enqueue(Moving::copy, 7);
  check(cudaMemcpy(got.data(), move.out, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  if (got == expected && std::any_of(got.begin(), got.end(), [](unsigned char b) { return b != 0xEE; })) return;
  std::fprintf(stderr, "sum_kernel: a copy gives other bits than its source\n");
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

void time_moves(Moving moving, tide_benchmark::Report& report) {
  Move move(427'827'200, moving, 8192 * 8192 / 2);
  move.load(moving);
  const char* const what = moving == Moving::cast ? "cast" : "copy";
  const auto add = [&](const char* path, Moving how, int ctas) {
    tide_benchmark::Row row{};
    row.operation = what;
    row.path = path;
    row.mesh = "1x2";
    if (ctas > 0) row.policy = std::to_string(ctas) + " SMs";
    row.samples_ms = samples_ms([&] { move.enqueue(how, ctas); });
    if (ctas > 0) row.sm_ms = row.median_ms() * ctas;
    std::printf("  %11.3f %6.1f", row.median_ms(), row.sm_ms.value_or(0));
    report.rows.push_back(std::move(row));
  };
  if (moving == Moving::copy) {
    std::printf("  copy  any");
    add("the driver", Moving::driver_copy, 0);
    std::printf("\n");
  }
  for (const int ctas : {8, 16, 24, 32, 40, 48, 132}) {
    std::printf("%6s %4d", what, ctas);
    add(moving == Moving::cast ? "plain loads" : "bulk loads", moving, ctas);
    std::printf("\n");
  }
}

constexpr const char* usage =
    R"(sum_kernel [--json FILE]

Times the sum of a reduce-scatter alone, of 2, 4 and 8 bf16 inputs, by number of SMs; reads and writes together are 3.42,
2.57 and 2.14 GB. Then the cast of 427.8 million f32 masters to bf16, 2.57 GB, and a copy of as many bf16, 1.71 GB.

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
  compare_copy();
  std::printf("a copy gives its source, bit by bit\n");
  std::printf("        SMs          ms  SM ms\n");
  time_moves(Moving::cast, report);
  time_moves(Moving::copy, report);
  if (const auto file = args.text("--json")) tide_benchmark::write_report(*file, report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tide_example::run_program(argc, argv, usage, [&] { return run(argc, argv); });
}
