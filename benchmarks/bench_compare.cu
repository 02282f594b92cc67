// SPDX-License-Identifier: Apache-2.0
//
// bench_compare: tide's collectives on some GPUs of one host, side by side with what FSDP2 does over NCCL, in one run.
//
// For a block of each model, for message sizes, and beside matrix products; every result is checked. The ways that are
// compared are described in support/baseline.cuh and support/group_bench.cuh, how time is taken in
// support/stopwatch.cuh.

#include "support/bar_chart.hpp"
#include "support/described_run.cuh"
#include "support/group_bench.cuh"
#include "support/rank_threads.cuh"

#include <tide/models/registry.hpp>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <numeric>

namespace {

using namespace tide_benchmark;
using tide_example::Args;

constexpr const char* usage =
    R"(bench_compare [--gpus N] [--quick] [--model NAME] [--only PART] [--json FILE] [--svg DIR]

Measures gather and reduce-scatter of one block of a model on GPUs of this machine: tide, FSDP2's way over NCCL (stock,
and with symmetric memory), NCCL alone, and flat copies; alone, beside matrix products, and over message sizes. Prints a
table. Times are medians over turns in which every way comes once; a sample is that of the slowest GPU.

  --gpus N       the first N GPUs, 2 (default) to 8
  --quick        fewer turns
  --model NAME   one model only, such as llama3.1-70b; by default it, qwen3-30b-a3b and wan2.2-t2v-a14b
  --only PART    all (default), gather, reduce, gemm or sizes
  --json FILE    writes what was measured
  --svg DIR      draws bar charts

exit code: 0 all results right, 1 a wrong result, 2 bad usage, 3 a named error
)";

constexpr const char* notes =
    R"(
median ms   of the slowest GPU; beside products: until products and collective are done
added ms    median over pairs: beside products minus the same products alone
SM*ms       tide: read off the SMs; NCCL's kernels: 24 CTAs (gather, reduce) or 9 (reduce on symmetric windows) x time,
            as a profiler showed on two H200s;
            layout kernels and copies inside a device: all SMs x time (of such a copy, the most that it can be)
buffer      memory beyond inputs and outputs          calls   driver calls; of NCCL and of own launches for baselines
host us     of the enqueueing calls
)";

struct Options {
  int gpus = 2;
  bool quick = false;
  std::vector<const tide::Model*> models{};
  bool gather = true;
  bool reduce = true;
  bool gemm = true;
  bool sizes = true;
  std::optional<std::string> json{};
  std::optional<std::string> svg{};
};

Options parse(int argc, char** argv) {
  const Args args(argc, argv,
                  {{"--gpus", Args::value},
                   {"--quick", Args::alone},
                   {"--model", Args::value},
                   {"--only", Args::value},
                   {"--json", Args::value},
                   {"--svg", Args::value}});
  if (!args.words().empty()) throw tide_example::UsageError("unexpected '" + args.words().front() + "'");
  Options options;
  options.gpus = static_cast<int>(args.number("--gpus", 2, 2, most_ranks));
  options.quick = args.has("--quick");
  const std::size_t only = args.choice("--only", {"all", "gather", "reduce", "gemm", "sizes"});
  options.gather = only == 0 || only == 1 || only == 3;
  options.reduce = only == 0 || only == 2 || only == 3;
  options.gemm = only == 0 || only == 3;
  options.sizes = only == 0 || only == 4;
  options.json = args.text("--json");
  options.svg = args.text("--svg");
  std::vector<std::string> names = {"llama3.1-70b", "qwen3-30b-a3b", "wan2.2-t2v-a14b"};
  if (only == 3) names = {"llama3.1-70b"};
  if (const auto model = args.text("--model")) names = {*model};
  if (only == 4) names.clear();
  for (const std::string& name : names) {
    options.models.push_back(tide::find_model(name));
    if (options.models.back() == nullptr) {
      std::string list;
      for (const tide::Model& model : tide::all_models) (list += ' ') += model.name;
      throw tide_example::UsageError("unknown model '" + name + "'; known are" + list);
    }
  }
  return options;
}

std::string size_name(index_t bytes) {
  if (bytes >= index_t{1} << 30) return std::to_string(bytes >> 30) + " GiB";
  if (bytes >= index_t{1} << 20) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

std::vector<index_t> message_sizes() {
  std::vector<index_t> sizes;
  for (index_t bytes = index_t{64} << 10; bytes <= index_t{1} << 30; bytes *= 4) sizes.push_back(bytes);
  sizes.push_back(index_t{2} << 30);
  return sizes;
}

// Everything that the ranks share.
struct Shared {
  tide::CudaCluster& cluster;
  Communicators& stock;
  Communicators& symmetric;
  Meeting& meeting;
  Report& report;
};

void run_block(Shared& shared, const tide::Model& model, const Plan& plan) {
  const SharedWords words(2);
  run_ranks(shared.cluster, shared.meeting, [&](tide::CudaFabric& fabric) {
    const Layout layout = layout_of(block_of(model).group, shared.cluster.mesh().ranks());
    Slots slots(fabric, layout);
    TideGroup group(fabric, slots, layout, Policies::all);
    fabric.init();
    {
      Stopwatch watch(fabric.rank().value, shared.meeting, words);
      group.prepare(fabric, watch.stream());
      watch.settle();
      const Blas blas;
      std::deque<GemmLoop> loops;
      std::vector<const GemmLoop*> list;
      if (plan.gemm) {
        loops.emplace_back("wave", blas, 1408, 1536, 8192, 8.5);
        loops.emplace_back("big", blas, 8192, 8192, 8192, 13.0);
        for (GemmLoop& loop : loops) {
          calibrate(loop, watch);
          list.push_back(&loop);
        }
      }
      GroupBench bench(fabric, group, shared.meeting, watch, shared.stock, shared.symmetric, std::string(model.name),
                       std::string(block_of(model).name));
      bench.run(plan, list, shared.report);
    }
    fabric.close();
  });
}

void run_sizes(Shared& shared, const Plan& plan) {
  const SharedWords words(2);
  run_ranks(shared.cluster, shared.meeting, [&](tide::CudaFabric& fabric) {
    const std::vector<index_t> sizes = message_sizes();
    std::vector<Layout> layouts;
    for (const index_t bytes : sizes) {
      tide::DynamicGroup group;
      group.add("weight", {bytes / 2 / 64, 64}, tide::Element::bf16, tide::Element::bf16);
      layouts.emplace_back(std::move(group), tide::MeshShape{1, shared.cluster.mesh().ranks()});
    }
    Slots slots(fabric, layouts.back());
    std::deque<TideGroup> groups;
    for (const Layout& layout : layouts) groups.emplace_back(fabric, slots, layout, Policies::few);
    fabric.init();
    {
      Stopwatch watch(fabric.rank().value, shared.meeting, words);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        groups[i].prepare(fabric, watch.stream());
        watch.settle();
        GroupBench bench(fabric, groups[i], shared.meeting, watch, shared.stock, shared.symmetric, "one parameter",
                         size_name(sizes[i]));
        bench.run(plan, {}, shared.report);
      }
    }
    fabric.close();
  });
}

std::string label_of(const Row& row) {
  std::string label = row.path;
  for (const std::string* part : {&row.source, &row.own, &row.policy}) {
    if (!part->empty() && *part != "default" && *part != "unicast") label += ", " + *part;
  }
  return label;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

void draw(const Report& report, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::map<std::string, BarChart> charts;
  const auto add = [&](const std::string& file, const std::string& title, const char* unit, const Row& row,
                       double value) {
    const bool sizes = row.model == "one parameter";
    charts.try_emplace(file, title, unit)
        .first->second.add({(sizes ? row.group + ": " : "") + label_of(row), value, row.path == "tide"});
  };
  for (const Row& row : report.rows) {
    if (row.operation != "gather" && row.operation != "reduce") continue;
    const std::string of = row.operation + " of " + row.model + ", " + row.group;
    if (row.model == "one parameter") {
      add(row.operation + "-sizes", row.operation + " of one parameter", "ms", row, row.median_ms());
    } else if (row.beside == "none") {
      add(row.model + "-" + row.operation, of + ": time", "ms", row, row.median_ms());
      add(row.model + "-" + row.operation + "-sm", of + ": SM time", "SM*ms", row, row.sm_ms.value_or(0));
    } else {
      add(row.model + "-" + row.operation + "-beside-" + row.beside, of + ": added to products (" + row.beside + ")",
          "ms", row, row.added_ms.value_or(0));
    }
  }
  for (const auto& entry : charts) write_file(folder / (entry.first + ".svg"), entry.second.svg());
}

void measure(const Options& options, Meeting& meeting, Report& report) {
  std::vector<int> devices(static_cast<std::size_t>(options.gpus));
  std::iota(devices.begin(), devices.end(), 0);
  enable_peers(devices);
  tide::CudaOptions fabric_options;
  fabric_options.deadline = std::chrono::seconds(20);
  tide::CudaCluster cluster(devices, fabric_options);
  cluster.run([](tide::CudaFabric& fabric) {
    if (fabric.rank() != tide::Rank{0} || fabric.has(tide::Capability::multicast)) return;
    std::cerr << "bench_compare: no gather by multicast: " << fabric.lacks(tide::Capability::multicast) << "\n";
  });
  Communicators stock(devices, NCCL_CTA_POLICY_DEFAULT);
  Communicators symmetric(devices, NCCL_CTA_POLICY_ZERO);
  Shared shared{cluster, stock, symmetric, meeting, report};
  Plan plan;
  plan.gather = options.gather;
  plan.reduce = options.reduce;
  plan.samples = options.quick ? 5 : 15;
  plan.pairs = options.quick ? 5 : 9;
  bool first = true;
  for (const tide::Model* model : options.models) {
    plan.gemm = options.gemm && first;
    first = false;
    run_block(shared, *model, plan);
    std::cerr << "bench_compare: " << model->name << " done\n";
  }
  if (!options.sizes) return;
  plan.gather = plan.reduce = true;
  plan.gemm = false;
  plan.samples = options.quick ? 5 : 11;
  run_sizes(shared, plan);
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  if (count < options.gpus) {
    throw std::runtime_error(std::to_string(options.gpus) + " GPUs are needed, there are " + std::to_string(count));
  }
  if (options.json) tide_example::require_writable(*options.json);  // refused now rather than at the end
  Report report;
  describe_run(report, argc, argv, options.gpus);
  std::string failed;
  Meeting meeting(options.gpus);
  {
    const Supervisor supervisor("bench_compare", meeting, 420);
    try {
      measure(options, meeting, report);
    } catch (const std::exception& error) {
      failed = error.what();
    }
  }
  // What was measured before something failed is worth having.
  if (options.json != "-") {
    std::cout << report.machine << ", " << report.versions.dump() << "\n\n";
    print_table(std::cout, report);
    std::cout << notes;
  }
  if (options.json) write_report(*options.json, report);
  if (options.svg) draw(report, *options.svg);
  if (!failed.empty()) throw std::runtime_error(failed);
  return report.right ? tide_example::right : tide_example::violated;
}

}  // namespace

int main(int argc, char** argv) {
  // NVLink multicast stays off unless the environment says otherwise; many streams live side by side here, and none
  // shall wait in another's hardware queue.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return tide_example::run_program(argc, argv, usage, [&] { return run(argc, argv); });
}
