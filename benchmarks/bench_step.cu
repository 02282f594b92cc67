// SPDX-License-Identifier: Apache-2.0
//
// bench_step: a training step of some blocks on two GPUs, driven by tide, by FSDP2's way over NCCL, and by nothing: the
// same products alone.
//
//   turn 1   products  compute  tide  stock  symmetric        so that a drift of clocks meets them all alike
//   turn 2   products  compute  tide  ...
//
// The ways are described in support/step_paths.cuh, what they compute in support/step_block.cuh, how time is taken in
// support/stopwatch.cuh. Every sharded path is compared with training without shards before it is timed, and with the
// others after.

#include "support/described_run.cuh"
#include "support/rank_threads.cuh"
#include "support/step_options.hpp"
#include "support/step_paths.cuh"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <sstream>

namespace {

using namespace tide_benchmark;

constexpr int ranks = 2;
constexpr int checked_steps = 3;
// What masters may be off, as a part of what training has moved them by, for each parameter of each block: sums in
// another order, here and there a weight or a gradient that is rounded the other way. Gradients of one rank that are
// lost, or counted twice, are off by a third and more.
constexpr double bound = 1e-2;
// No element may be off by that part of how far the elements of its parameter have moved, root mean square: a row or a
// few elements that are in the wrong place are lost in the number above.
constexpr double element_bound = 0.5;

constexpr const char* notes =
    R"(
median ms      of the slower GPU; products: forward and backward without any optimizer
over compute   median over turns of the path's time over that of compute in the same turn
peak           device memory of a process that has this path only, as cudaMemGetInfo tells: the path's own, its
               communicators', and what all paths compute in (activations, scores, cuBLAS)
counted        the path's own, counted by itself: the terms below
)";

/// Bytes of a device that are taken, or those of the device that has the most.
[[nodiscard]] index_t taken_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<index_t>(total - free);
}
[[nodiscard]] index_t most_taken(const std::vector<int>& devices) {
  index_t most = 0;
  for (const int device : devices) {
    must(cudaSetDevice(device), "cudaSetDevice");
    most = std::max(most, taken_bytes());
  }
  return most;
}

// sums[0] += (a - b)^2, sums[1] += (b - start)^2
static __global__ void add_squares(const float* a, const float* b, StartValues start, int parameter, std::int64_t first,
                                   std::int64_t elements, double* sums) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  double apart = 0;
  double moved = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    const double way = static_cast<double>(b[i]) - static_cast<double>(start_value(start, parameter, first + i));
    apart += difference * difference;
    moved += way * way;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    apart += __shfl_down_sync(0xffffffffU, apart, lanes);
    moved += __shfl_down_sync(0xffffffffU, moved, lanes);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(sums, apart);
    atomicAdd(sums + 1, moved);
  }
}

static __global__ void count_far(const float* a, const float* b, std::int64_t elements, double far,
                                 unsigned long long* count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    if (!(difference <= far && difference >= -far)) atomicAdd(count, 1ULL);
  }
}

[[nodiscard]] index_t total_of(const MemoryTerms& terms) {
  index_t sum = 0;
  for (const auto& term : terms) sum += term.second;
  return sum;
}

// What all ranks share.
struct Shared {
  const StepOptions& options;
  Meeting& meeting;
  const SharedWords& words;
  Report& report;
  std::map<std::string, Communicators*> communicators{};
  std::map<std::string, index_t> communicator_bytes{};  // of a rank, by path
  index_t tide_reserved = 0;                            // bytes of its arena
  index_t tide_taken = 0;                               // what the device gave for it
  std::map<std::string, MemoryTerms> terms{};           // by path, as it counts them
  std::map<std::string, MemoryTerms> measured{};        // by path
  int ranks_on_device = 1;
};

/// A path and what was measured of it.
struct Entry {
  std::string name;
  std::unique_ptr<StepPath> path;
  index_t bytes = 0;  // of the device, after a first step
  Work work{};
  std::vector<double> samples{};
};

class StepBench {
 public:
  StepBench(tide::CudaFabric& fabric, Shared& shared)
      : shared_(shared),
        options_(shared.options),
        fabric_(fabric),
        number_(fabric.rank().value),
        watch_(number_, shared.meeting, shared.words),
        layout_(layout_of(tide::models::llama3_1_70b::block.view(), ranks, options_.hidden, 8192)),
        before_(taken()),
        compute_({options_.tokens, options_.hidden}, options_.layers, ranks, watch_.compute()),
        rank_{fabric, layout_, compute_, 0.004F / static_cast<float>(options_.tokens)} {}

  /// `make_tide(rank)` makes tide's path.
  template <class MakeTide>
  void run(const MakeTide& make_tide) {
    // First, so that every kernel of a product is loaded before anything waits for another rank.
    auto alone = std::make_unique<ComputeStep>(rank_);
    ComputeStep& whole = *alone;
    add("compute", std::move(alone));
    first_step(entries_.back(), before_);
    const index_t common = entries_.back().bytes - total_of(whole.memory());
    if (options_.has("tide")) {
      const index_t before = taken();
      add("tide", make_tide(rank_));
      const index_t reserved = fabric_.reserve(0, 1);
      fabric_.init();
      const index_t arena = taken() - before;
      if (number_ == 0) {
        shared_.tide_reserved = reserved;
        shared_.tide_taken = arena;
      }
      first_step(entries_.back(), before);
    } else {
      fabric_.init();
    }
    FlatStreams streams;
    for (const Kind kind : {Kind::stock, Kind::symmetric}) {
      const std::string name = kind == Kind::stock ? "stock" : "symmetric";
      if (!options_.has(name)) continue;
      const index_t before = taken();
      const Communicators& communicators = *shared_.communicators.at(name);
      add(name, std::make_unique<FlatStep>(rank_, kind, communicators[number_], streams));
      first_step(entries_.back(), before);
    }
    check(whole);
    for (Entry& entry : entries_) entry.path->load();
    measure(whole);
    check_again();
    if (number_ == 0) report(common);
    meeting().wait();
    watch_.settle();
  }

 private:
  [[nodiscard]] Meeting& meeting() const { return shared_.meeting; }

  // Bytes of the device, those of this rank where ranks share it; the same on all ranks.
  [[nodiscard]] index_t taken() {
    meeting().wait();
    const double bytes = static_cast<double>(taken_bytes()) / shared_.ranks_on_device;
    return static_cast<index_t>(meeting().largest(number_, bytes));
  }

  void add(std::string name, std::unique_ptr<StepPath> path) {
    Entry entry;
    entry.name = std::move(name);
    entry.work.enqueue = [path = path.get()](cudaStream_t) { path->step(); };
    entry.path = std::move(path);
    entries_.push_back(std::move(entry));
  }

  void settle() {
    watch_.settle();
    meeting().wait();
  }

  void first_step(Entry& entry, index_t before) {
    compute_.spoil(true);
    entry.path->load();
    settle();
    entry.path->step();
    settle();
    compute_.spoil(false);
    entry.bytes = taken() - before;
  }

  // How far a path's masters are from others, as a part of what those have moved by: the most of all parameters of
  // all layers and ranks; and how many elements are too far away alone.
  struct Distance {
    double most = 0;
    double far_elements = 0;
  };
  // @param other  other(layer, span): where the others of a span of the own masters begin
  template <class Other>
  [[nodiscard]] Distance distance(StepPath& path, const Other& other) {
    const cudaStream_t stream = watch_.compute();
    Distance found;
    for (index_t i = 0; i < rank_.layers(); ++i) {
      for (const Span& span : rank_.own(tide::Buffer::masters)) {
        must(cudaMemsetAsync(squares_.as<>(), 0, 16, stream), "cudaMemsetAsync");
        const float* const own = path.masters(i, span);
        add_squares<<<grid_for(span.elements), 256, 0, stream>>>(
            own, other(i, span), start_of(rank_.view(), span.parameter, i), span.parameter, span.first, span.elements,
            squares_.as<double>());
        must_launch("add_squares");
        std::array<double, 2> sums{};
        must(cudaMemcpyAsync(sums.data(), squares_.as<>(), 16, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        const double off = std::sqrt(sums[0] / sums[1]);
        // Not a number where anything is none, or where training moved nothing.
        found.most = off >= 0 ? std::max(found.most, off) : std::numeric_limits<double>::infinity();
        const double moved = std::sqrt(sums[1] / static_cast<double>(span.elements));
        must(cudaMemsetAsync(squares_.as<>(), 0, 8, stream), "cudaMemsetAsync");
        count_far<<<grid_for(span.elements), 256, 0, stream>>>(
            own, other(i, span), span.elements, element_bound * moved, squares_.as<unsigned long long>());
        must_launch("count_far");
        unsigned long long far = 0;
        must(cudaMemcpyAsync(&far, squares_.as<>(), 8, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        found.far_elements += static_cast<double>(far);
      }
    }
    found.most = meeting().largest(number_, found.most);
    found.far_elements = meeting().largest(number_, found.far_elements);
    return found;
  }

  void judge(const std::string& name, const std::string& other, const Distance& off) {
    if (number_ != 0) return;
    const bool right = off.most <= bound && off.far_elements == 0;
    std::cerr << "bench_step: masters of " << name << " are off those of " << other << " by " << std::scientific
              << std::setprecision(1) << off.most << std::defaultfloat << " of what they moved by, "
              << static_cast<long long>(off.far_elements) << " elements by half of it or more"
              << (right ? "" : ": WRONG") << "\n";
    if (!right) shared_.report.right = false;
  }

  // Every sharded path against training without shards, some steps from the same start.
  void check(ComputeStep& memory) {
    WholeTraining whole(rank_, memory);
    compute_.spoil(true);
    whole.load();
    for (int step = 0; step < checked_steps; ++step) whole.step();
    settle();
    for (Entry& entry : entries_) {
      if (entry.path.get() == &memory) continue;
      entry.path->load();
      settle();
      for (int step = 0; step < checked_steps; ++step) entry.path->step();
      settle();
      judge(entry.name, "training without shards", distance(*entry.path, [&](index_t layer, const Span& span) {
              return whole.masters(layer, span.parameter) + span.first;
            }));
    }
    compute_.spoil(false);
    meeting().wait();
    if (!shared_.report.right) throw std::runtime_error("a wrong result is not timed");
  }

  // All sharded paths have made the same steps.
  void check_again() {
    StepPath* first = nullptr;
    std::string first_name;
    for (Entry& entry : entries_) {
      if (entry.name == "compute") continue;
      if (first == nullptr) {
        first = entry.path.get();
        first_name = entry.name;
        continue;
      }
      judge(entry.name, first_name + ", after all samples,",
            distance(*entry.path, [&](index_t layer, const Span& span) { return first->masters(layer, span); }));
    }
  }

  void measure(ComputeStep& whole) {
    Work products;
    products.enqueue = [&](cudaStream_t) { whole.products(number_); };
    int repeated = 0;
    for (int turn = -options_.warmup; turn < options_.samples;) {
      const int early = watch_.early();
      const double products_ms = watch_.alone(products, watch_.compute()).milliseconds;
      std::vector<double> steps_ms;
      for (Entry& entry : entries_) steps_ms.push_back(watch_.alone(entry.work, watch_.compute()).milliseconds);
      // Where a sample began before all was enqueued its time may be the host's: the whole turn again.
      if (turn >= 0 && watch_.early() > early) {
        if (++repeated > options_.samples) throw std::runtime_error("the host is too slow to enqueue a step in 50 ms");
        continue;
      }
      if (turn++ < 0) continue;
      products_ms_.push_back(products_ms);
      for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].samples.push_back(steps_ms[i]);
    }
    if (number_ == 0 && repeated > 0) {
      std::cerr << "bench_step: " << repeated << " turns were repeated: a sample began before all was enqueued\n";
    }
  }

  [[nodiscard]] Row row(const char* operation, const std::string& path) const {
    Row made;
    made.operation = operation;
    made.path = path;
    made.model = options_.hidden == 8192 ? "llama3.1-70b" : "llama3.1-70b of width " + std::to_string(options_.hidden);
    made.group = std::to_string(options_.layers) + " blocks, " + std::to_string(options_.tokens) + " tokens";
    if (options_.one_gpu) made.group += ", both ranks on one GPU";
    return made;
  }

  void report(index_t common) {
    Row products = row("products", "compute");
    products.samples_ms = products_ms_;
    shared_.report.rows.push_back(products);
    for (const Entry& entry : entries_) {
      Row made = row("step", entry.name);
      made.samples_ms = entry.samples;
      if (entry.name == "tide") {
        made.policy = std::string(options_.ring ? "ring of 4 in 256 MiB" : "slot reuse") + ", prefetch " +
                      std::to_string(options_.prefetch) + (options_.halves ? ", halves of blocks" : "");
      } else if (entry.name != "compute") {
        made.policy = entry.name == "stock" ? "default" : "zero-CTA, symmetric windows";
      }
      const MemoryTerms terms = entry.path->memory();
      made.buffer_bytes = total_of(terms);
      made.peak_bytes = entry.bytes;
      if (entry.name != "compute") *made.peak_bytes += common + shared_.communicator_bytes[entry.name];
      std::vector<double> added;
      for (std::size_t i = 0; i < entry.samples.size(); ++i) {
        added.push_back(entry.samples[i] - entries_.front().samples[i]);
      }
      made.added_ms = median(added);
      shared_.report.rows.push_back(made);
      shared_.terms[entry.name] = terms;
      if (entry.name == "compute") continue;
      shared_.measured[entry.name] = {{"measured", entry.bytes},
                                      {"measured, its communicators", shared_.communicator_bytes[entry.name]}};
    }
    shared_.measured["compute"] = {{"measured, what all paths compute in", common}};
  }

  Shared& shared_;
  const StepOptions& options_;
  tide::CudaFabric& fabric_;
  int number_;
  Stopwatch watch_;
  Layout layout_;
  index_t before_;
  BlockCompute compute_;
  StepRank rank_;
  DeviceMemory squares_{16};
  std::vector<Entry> entries_;
  std::vector<double> products_ms_;
};

// Calls `f.operator()<Layers, Ahead, Box, Way>()` with what was asked for.
template <class F>
void with_types(const StepOptions& options, const F& f) {
  const auto with_cut = [&]<index_t Layers, index_t Ahead, class Box>() {
    if (options.halves) return f.template operator()<Layers, Ahead, Box, Cut::halves>();
    return f.template operator()<Layers, Ahead, Box, Cut::blocks>();
  };
  const auto with_box = [&]<index_t Layers, index_t Ahead>() {
    if (options.ring) return with_cut.template operator()<Layers, Ahead, StepRing>();
    return with_cut.template operator()<Layers, Ahead, tide::SlotReuse>();
  };
  const auto with_prefetch = [&]<index_t Layers>() {
    if (options.prefetch == 2) return with_box.template operator()<Layers, 2>();
    return with_box.template operator()<Layers, 1>();
  };
  if (options.layers == 2) return with_prefetch.template operator()<2>();
  return with_prefetch.template operator()<4>();
}

void measure(const StepOptions& options, Meeting& meeting, Shared& shared) {
  const std::vector<int> devices = options.one_gpu ? std::vector<int>{0, 0} : std::vector<int>{0, 1};
  shared.ranks_on_device = options.one_gpu ? 2 : 1;
  enable_peers(devices);
  { const Communicators first(devices, NCCL_CTA_POLICY_DEFAULT); }  // what NCCL takes once for a process is nobody's
  // Runs `make` and keeps what it takes of a device, for each rank.
  const auto counting = [&](const char* path, const auto& make) {
    const index_t before = most_taken(devices);
    make();
    shared.communicator_bytes[path] = (most_taken(devices) - before) / shared.ranks_on_device;
  };
  tide::CudaOptions fabric_options;
  fabric_options.deadline = std::chrono::seconds(60);
  std::optional<tide::CudaCluster> cluster;
  std::optional<Communicators> stock;
  std::optional<Communicators> symmetric;
  counting("tide", [&] { cluster.emplace(devices, fabric_options); });
  if (options.has("stock")) {
    counting("stock", [&] { stock.emplace(devices, NCCL_CTA_POLICY_DEFAULT); });
    shared.communicators["stock"] = &*stock;
  }
  if (options.has("symmetric")) {
    counting("symmetric", [&] { symmetric.emplace(devices, NCCL_CTA_POLICY_ZERO); });
    shared.communicators["symmetric"] = &*symmetric;
  }
  run_ranks(*cluster, meeting, [&](tide::CudaFabric& fabric) {
    {
      StepBench bench(fabric, shared);
      with_types(options, [&]<index_t Layers, index_t Ahead, class Box, Cut Way>() {
        bench.run([](const StepRank& rank) { return std::make_unique<TideStep<Layers, Ahead, Box, Way>>(rank); });
      });
    }
    fabric.close();
  });
}

// FSDP2 itself, in processes of its own, when all memory of this one is free again.
void measure_pytorch(const StepOptions& options, Report& report) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("bench_step." + std::to_string(::getpid()) + ".json");
  std::ostringstream command;
  command << options.pytorch << " --step --layers " << options.layers << " --tokens " << options.tokens << " --hidden "
          << options.hidden << " --samples " << options.samples << " --warmup " << options.warmup << " --json '"
          << file.string() << "' >&2";
  std::cerr << "bench_step: " << command.str() << "\n";
  const int code = std::system(command.str().c_str());
  nlohmann::json written;
  {
    std::ifstream in(file);
    if (in) written = nlohmann::json::parse(in, nullptr, false);
  }
  std::filesystem::remove(file);
  if (code != 0 || written.is_discarded() || written.is_null()) {
    throw std::runtime_error("--pytorch: '" + command.str() + "' failed or wrote no JSON");
  }
  report.versions["pytorch"] = written.at("versions");
  Row like = report.rows.empty() ? Row{} : report.rows.back();
  like.operation = "step";
  like.source.clear();
  like.added_ms.reset();
  like.buffer_bytes.reset();
  for (Row& row : pytorch_rows(written, like)) report.rows.push_back(std::move(row));
}

[[nodiscard]] std::string gibibytes(std::int64_t bytes) { return fixed(static_cast<double>(bytes) / (1LL << 30), 3); }

void print_results(const StepOptions& options, const Report& report, const Shared& shared) {
  std::map<std::string, std::vector<double>> samples;
  for (const Row& row : report.rows) {
    if (row.operation == "step") samples[row.path] = row.samples_ms;
  }
  tide_example::Table table(
      {"operation", "path", "policy", "median ms", "over compute", "added ms", "peak GiB", "counted GiB"});
  for (const Row& row : report.rows) {
    const bool paired = row.operation == "step" && row.added_ms.has_value();
    table.add({row.operation, row.path, row.policy, fixed(row.median_ms(), 2),
               paired ? fixed(100 * (paired_ratio(row.samples_ms, samples["compute"]) - 1), 2) + " %" : "",
               row.added_ms ? fixed(*row.added_ms, 2) : "", row.peak_bytes ? gibibytes(*row.peak_bytes) : "",
               row.buffer_bytes ? gibibytes(*row.buffer_bytes) : ""});
  }
  std::cout << table << notes << "\n";
  tide_example::Table memory({"path", "memory", "GiB"});
  for (const auto& path : shared.terms) {
    for (const auto& term : path.second) memory.add({path.first, term.first, gibibytes(term.second)});
    for (const auto& term : shared.measured.at(path.first)) {
      memory.add({path.first, term.first, gibibytes(term.second)});
    }
  }
  std::cout << memory << "\n";
  const BlockShape shape{options.tokens, options.hidden};
  for (const Row& row : report.rows) {
    if (row.operation != "products" || row.samples_ms.empty()) continue;
    std::cout << "products: "
              << fixed(shape.operations() * static_cast<double>(options.layers) / row.median_ms() * 1e-9, 0)
              << " TFLOP/s\n";
  }
  if (const auto terms = shared.terms.find("tide"); terms != shared.terms.end()) {
    std::cout << "tide's memory: " << memory_words(total_of(terms->second), shared.tide_reserved, shared.tide_taken)
              << "\n";
  }
  for (const StepTarget& target : step_targets(samples)) {
    std::cout << "tide " << target.words << ": " << (target.holds ? "holds" : "does not hold") << " ("
              << fixed(100 * (target.ratio - 1), 2) << " %)\n";
  }
  if (options.one_gpu) std::cout << "Both ranks were on one GPU: these times say nothing.\n";
}

int run(int argc, char** argv) {
  const StepOptions options = parse_step(argc, argv);
  if (options.one_gpu) {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    // Ranks share a context: code that is loaded while one waits for the other would wait, too.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  }
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  const int needed = options.one_gpu ? 1 : 2;
  if (count < needed) {
    throw std::runtime_error(std::string(needed == 2 ? "two GPUs are" : "a GPU is") + " needed, there are " +
                             std::to_string(count) + (needed == 2 && count == 1 ? "; or --one-gpu" : ""));
  }
  if (!options.json.empty()) tide_example::require_writable(options.json);  // refused now rather than at the end
  Report report;
  describe_run(report, argc, argv, needed);
  std::string failed;
  Meeting meeting(ranks);
  const SharedWords words(2);
  Shared shared{options, meeting, words, report};
  {
    // Of each turn every path is a step, and a step under a second on any GPU that has the memory.
    const Supervisor supervisor("bench_step", meeting, 600 + 6 * (options.samples + options.warmup));
    try {
      measure(options, meeting, shared);
    } catch (const std::exception& error) {
      failed = error.what();
    }
  }
  if (failed.empty() && !options.pytorch.empty()) {
    try {
      measure_pytorch(options, report);
    } catch (const std::exception& error) {
      failed = error.what();
    }
  }
  // What was measured before something failed is worth having.
  if (!report.rows.empty()) {
    if (options.json != "-") {
      std::cout << report.machine << ", " << report.versions.dump() << "\n\n";
      print_results(options, report, shared);
    }
    if (!options.json.empty()) write_report(options.json, report);
  }
  if (!report.right) {
    std::cerr << "bench_step: " << (failed.empty() ? "a result is wrong" : failed) << "\n";
    return tide_example::violated;
  }
  if (!failed.empty()) throw std::runtime_error(failed);
  return tide_example::right;
}

}  // namespace

int main(int argc, char** argv) {
  // NVLink multicast stays off; many streams live side by side here, and none shall wait in another's hardware queue.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return tide_example::run_program(argc, argv, step_usage, [&] { return run(argc, argv); });
}
