// SPDX-License-Identifier: Apache-2.0
//
// own_block: what it takes to bring a rank's own block into its slot, on one GPU: to copy it from bf16 shards, or to
// cast it from f32 masters; alone, and added to matrix products that run beside it.
//
//   rows of a launch  |  the plan's own ops, of half a Llama-3.1-70B block  |  -> slot
//
// By number of CTAs; a copy also by the driver, as blocks of two dimensions and row by row. What runs alone is timed
// before any product has lowered the clock. Checks all results first.

#include "../examples/support/args.hpp"
#include "../examples/support/program.hpp"
#include "support/described_run.cuh"
#include "support/stopwatch.cuh"
#include "support/tide_group.cuh"

#include <tide/fabric/detail/cuda_bulk_copy.cuh>
#include <tide/fabric/detail/cuda_cast.cuh>
#include <tide/models/registry.hpp>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

namespace {

using namespace tide_benchmark;
using tide::Op;
using tide::detail::CudaLaunch;
using tide::detail::CudaRow;

// Any bits at all, infinities and NaNs among them.
__global__ void scramble(std::uint32_t* words, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    std::uint64_t h = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    words[i] = static_cast<std::uint32_t>(h >> 16);
  }
}

// One row, element by element.
template <class From>
__global__ void convert_row(const From* from, tide::bf16* to, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    to[i] = tide::convert<tide::bf16>(from[i]);
  }
}

__global__ void count_unlike(const std::uint16_t* a, const std::uint16_t* b, std::int64_t count,
                             unsigned long long* unlike) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (a[i] != b[i]) atomicAdd(unlike, 1ULL);
  }
}

// How the own block of a rank of two gets into its slot.
class OwnBlock {
 public:
  OwnBlock(const Layout& layout, tide::OwnBlock how)
      : is_cast_(how == tide::OwnBlock::cast),
        source_(layout.view().max_bytes(is_cast_ ? tide::Buffer::masters : tide::Buffer::shards)),
        slot_(layout.view().bytes(tide::Buffer::slot)),
        expected_(slot_.bytes()) {
    tide::Collective collective;
    collective.layout = layout.view();
    collective.own = how;
    tide::fill_kernels(collective);
    const tide::Plan plan = tide::UnicastTransport::gather(collective, tide::Rank{0});
    for (const Op& op : plan.ops) {
      const bool is_own = op.kind == tide::OpKind::cast || (op.kind == tide::OpKind::copy && op.peer == 0);
      if (is_own) ops_.push_back(op);
    }
    scramble<<<1024, 256>>>(source_.as<std::uint32_t>(), source_.bytes() / 4);
    must_launch("scramble");
    must(cudaMemset(expected_.as<>(), 0xEE, static_cast<std::size_t>(expected_.bytes())), "cudaMemset");
    std::vector<CudaRow> rows;
    launch_.tile_log2 = tide::detail::largest_tile_log2;
    const index_t in = is_cast_ ? 4 : 1;  // of a copy, rows are in bytes
    const index_t out = is_cast_ ? 2 : 1;
    for (const Op& op : ops_) {
      for (std::uint32_t r = 0; r < op.rows; ++r) {
        CudaRow row{};
        row.source = (op.source_offset + r * index_t{op.source_pitch}) / in;
        row.target = (op.target_offset + r * index_t{op.target_pitch}) / out;
        row.elements = op.width / in;
        row.first_tile = launch_.tiles;
        launch_.tiles += tide::detail::tiles_of(row.elements, launch_.tile_log2);
        rows.push_back(row);
        expect(row);
      }
    }
    rows_ = DeviceMemory::of(rows);
    launch_.rows = rows_.as<CudaRow>();
    launch_.row_count = static_cast<int>(rows.size());
    launch_.source = source_.as<std::byte>();
    launch_.target = slot_.as<std::byte>();
    launch_.bulk = !is_cast_;
    CudaLaunch nothing = launch_;
    nothing.tiles = 0;
    start(nothing, 1, nullptr);
  }

  /// By a kernel of tide's.
  void enqueue(int ctas, cudaStream_t stream) const { start(launch_, ctas, stream); }

  /// By the driver.  @pre a copy
  void enqueue_driver(bool row_by_row, cudaStream_t stream) const {
    for (Op op : ops_) {
      const std::uint32_t times = row_by_row ? std::exchange(op.rows, 1) : 1;
      for (std::uint32_t r = 0; r < times; ++r) {
        tide::detail::copy_block(slot_.as<std::byte>() + op.target_offset + r * index_t{op.target_pitch},
                                 op.target_pitch,
                                 source_.as<std::byte>() + op.source_offset + r * index_t{op.source_pitch},
                                 op.source_pitch, op.width, op.rows, stream);
      }
    }
  }

  /// Elements of the slot that are not what they should be after `work`.
  [[nodiscard]] unsigned long long wrong_after(const std::function<void(cudaStream_t)>& work) const {
    DeviceMemory count(8);
    must(cudaMemset(count.as<>(), 0, 8), "cudaMemset");
    must(cudaMemset(slot_.as<>(), 0xEE, static_cast<std::size_t>(slot_.bytes())), "cudaMemset");
    work(nullptr);
    count_unlike<<<1024, 256>>>(slot_.as<std::uint16_t>(), expected_.as<std::uint16_t>(), slot_.bytes() / 2,
                                count.as<unsigned long long>());
    must_launch("count_unlike");
    unsigned long long wrong = 0;
    must(cudaMemcpy(&wrong, count.as<>(), 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return wrong;
  }

 private:
  void expect(const CudaRow& row) const {
    if (is_cast_) {
      convert_row<<<1024, 256>>>(source_.as<float>() + row.source, expected_.as<tide::bf16>() + row.target,
                                 row.elements);
    } else {
      convert_row<<<1024, 256>>>(source_.as<tide::bf16>() + row.source / 2, expected_.as<tide::bf16>() + row.target / 2,
                                 row.elements / 2);
    }
    must_launch("convert_row");
  }

  void start(const CudaLaunch& launch, int ctas, cudaStream_t stream) const {
    must(is_cast_ ? tide::detail::launch_cast<tide::bf16>(launch, ctas, stream)
                  : tide::detail::launch_copy(launch, ctas, stream),
         "a kernel");
  }

  bool is_cast_;
  std::vector<Op> ops_{};
  DeviceMemory source_;
  DeviceMemory slot_;
  DeviceMemory expected_;
  DeviceMemory rows_{};
  CudaLaunch launch_{};
};

struct Case {
  std::string operation;
  std::string path;
  int ctas;  // 0 where the driver chooses
  Work work;
};

Row row_of(const Case& each) {
  Row row{};
  row.operation = each.operation;
  row.path = each.path;
  row.model = "llama3.1-70b";
  row.group = "model.layers.0";
  if (each.ctas > 0) row.policy = std::to_string(each.ctas) + " CTAs";
  row.source = each.operation == "own_cast" ? "f32" : "bf16";
  return row;
}

void measure(const std::vector<Case>& cases, int samples, Report& report) {
  Meeting meeting(1);
  const SharedWords words(2);
  Stopwatch watch(0, meeting, words);
  for (const Case& each : cases) {
    Row row = row_of(each);
    watch.warm(each.work);
    for (int i = 0; i < samples; ++i) row.samples_ms.push_back(watch.alone(each.work).milliseconds);
    if (each.ctas > 0) row.sm_ms = row.median_ms() * each.ctas;
    report.rows.push_back(std::move(row));
  }
  const Blas blas;
  std::deque<GemmLoop> loops;
  loops.emplace_back("wave", blas, 1408, 1536, 8192, 8.5);
  loops.emplace_back("big", blas, 8192, 8192, 8192, 13.0);
  for (GemmLoop& loop : loops) {
    calibrate(loop, watch);
    for (const Case& each : cases) {
      Row row = row_of(each);
      row.beside = loop.name();
      std::vector<double> added;
      for (int i = -2; i < samples; ++i) {  // two to warm up
        const double alone = watch.beside(loop, nullptr);
        const double both = watch.beside(loop, &each.work);
        if (i < 0) continue;
        row.samples_ms.push_back(both);
        added.push_back(both - alone);
      }
      row.added_ms = median(added);
      report.rows.push_back(std::move(row));
    }
  }
  if (watch.early() > 0) std::fprintf(stderr, "own_block: %d samples began before all was enqueued\n", watch.early());
}

constexpr const char* usage =
    R"(own_block [--samples N] [--json FILE]

Times copies of a rank's own block into its slot, 855.7 MB of bf16, and casts of as many elements from f32 masters:
alone, and added to matrix products of one wave and of many waves beside them, by number of CTAs.

  --samples N  pairs, 15 if not given
  --json FILE  writes what was measured

exit code: 0 all results right, 1 a wrong result, 2 bad usage, 3 a named error
)";

int run(int argc, char** argv) {
  const tide_example::Args args(argc, argv,
                                {{"--samples", tide_example::Args::value}, {"--json", tide_example::Args::value}});
  const auto samples = static_cast<int>(args.number("--samples", 15, 1, 1000));
  Report report;
  describe_run(report, argc, argv, 1);
  const tide::Model* const model = tide::find_model("llama3.1-70b");
  const Layout layout = layout_of(block_of(*model).group, 2);
  const OwnBlock copy(layout, tide::OwnBlock::copy);
  const OwnBlock cast(layout, tide::OwnBlock::cast);
  std::vector<Case> cases;
  cases.push_back({"own_copy", "driver, blocks", 0, {[&](cudaStream_t s) { copy.enqueue_driver(false, s); }}});
  cases.push_back({"own_copy", "driver, rows", 0, {[&](cudaStream_t s) { copy.enqueue_driver(true, s); }}});
  for (const int n : {8, 16, 24, 32, 40, 48, 56, 64, 132}) {
    cases.push_back({"own_copy", "tide", n, {[&copy, n](cudaStream_t s) { copy.enqueue(n, s); }}});
  }
  for (const int n : {8, 16, 24, 32, 40, 48, 56, 64, 132}) {
    cases.push_back({"own_cast", "tide", n, {[&cast, n](cudaStream_t s) { cast.enqueue(n, s); }}});
  }
  for (const Case& each : cases) {
    const OwnBlock& subject = each.operation == "own_cast" ? cast : copy;
    const unsigned long long wrong = subject.wrong_after(each.work.enqueue);
    if (wrong == 0) continue;
    std::fprintf(stderr, "own_block: %s, %s, %d CTAs: %llu elements are wrong\n", each.operation.c_str(),
                 each.path.c_str(), each.ctas, wrong);
    return 1;
  }
  measure(cases, samples, report);
  print_table(std::cout, report);
  if (const auto file = args.text("--json")) write_report(*file, report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tide_example::run_program(argc, argv, usage, [&] { return run(argc, argv); });
}
