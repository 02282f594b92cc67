// SPDX-License-Identifier: Apache-2.0
//
// GroupBench: every path of the collectives of one group, on one rank: checked, then measured in turns.
//
//   turn 1   tide  tide  ...  stock  symmetric  nccl  flat_copy        so that a drift of clocks meets them all alike
//   turn 2   tide  tide  ...
//
// SM time of tide's kernels is read off the SMs (residency.cuh). Of other kernels it is min(grid, SMs) x duration: all
// SMs for the layout kernels and for a copy inside a device, and for NCCL's kernels the CTAs that a profiler shows.

#pragma once

#include "report.hpp"
#include "residency.cuh"
#include "tide_group.cuh"

#include <deque>
#include <iostream>

namespace tide_benchmark {

/// CTAs of NCCL's kernels for large messages on two H200s, as a profiler shows them: `pytorch_fsdp2.py` prints those of
/// the default ones, on more GPUs too. Zero-CTA gathers have none.
struct NcclCtas {
  int gather = 24;
  int reduce = 24;
  int symmetric_reduce = 9;
};

/// What is wanted.
struct Plan {
  bool gather = true;
  bool reduce = true;
  bool gemm = true;
  int samples = 15;
  int pairs = 9;
};

/// One of the compared ways.
struct Path {
  Row row;
  Work work;
  std::function<void(cudaStream_t)> spoil{};                // the result
  std::function<unsigned long long(cudaStream_t)> wrong{};  // how many of its elements are
  bool beside = false;                                      // also measured beside products
  double part_sms = 0;                                      // of a kernel that is measured alone: the SMs that it takes
  std::vector<std::size_t> parts{};                         // paths whose SM times make up this one's
  bool residency = false;                                   // SM time is read off the SMs
  std::vector<double> host_us{};
};

class GroupBench {
 public:
  GroupBench(tide::CudaFabric& fabric, TideGroup& group, Meeting& meeting, Stopwatch& watch, const Communicators& stock,
             const Communicators& symmetric, std::string model, std::string name)
      : fabric_(fabric),
        rank_(fabric.rank().value),
        group_(group),
        meeting_(meeting),
        watch_(watch),
        model_(std::move(model)),
        name_(std::move(name)),
        stock_(group.view(), rank_, group.inputs(), stock[rank_], Kind::stock),
        symmetric_(group.view(), rank_, group.inputs(), symmetric[rank_], Kind::symmetric),
        ranks_(static_cast<int>(group.view().mesh.ranks())),
        landing_(ranks_ * group.view().max_bytes(tide::Buffer::shards)),
        judge_(ranks_) {
    int device = 0;
    must(cudaGetDevice(&device), "cudaGetDevice");
    must(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    for (void* const landing : meeting.exchange(rank_, landing_.as<>())) {
      landings_.push_back(static_cast<std::byte*>(landing) + rank_ * group.view().max_bytes(tide::Buffer::shards));
    }
  }

  /// Measures; rank 0 adds the rows to the report.
  void run(const Plan& plan, const std::vector<const GemmLoop*>& loops, Report& report) {
    if (plan.gather) add_gathers();
    if (plan.reduce) add_reduces();
    for (Path& path : paths_) {
      watch_.warm(path.work);
      check(path, report);
    }
    for (int i = 0; i < plan.samples; ++i) {
      for (Path& path : paths_) {
        const Time time = watch_.alone(path.work);
        path.row.samples_ms.push_back(time.milliseconds);
        path.host_us.push_back(time.host_microseconds);
      }
    }
    for (Path& path : paths_) path.row.host_us = median(path.host_us);
    for (Path& path : paths_) path.row.sm_ms = sm_time(path);
    std::vector<Row> rows;
    for (const Path& path : paths_) rows.push_back(path.row);
    if (plan.gemm) {
      for (const GemmLoop* loop : loops) measure_beside(*loop, plan.pairs, rows);
    }
    for (Path& path : paths_) check(path, report);  // again, after many runs
    if (rank_ == 0) report.rows.insert(report.rows.end(), rows.begin(), rows.end());
    if (rank_ == 0 && watch_.early() > 0) {
      std::cerr << "bench_compare: " << model_ << " " << name_ << ": " << watch_.early()
                << " samples so far began before all was enqueued\n";
    }
    meeting_.wait();
  }

 private:
  [[nodiscard]] std::string mesh() const { return "1x" + std::to_string(ranks_); }

  [[nodiscard]] Row row(const char* operation, const char* path, const char* source) const {
    Row made;
    made.operation = operation;
    made.path = path;
    made.model = model_;
    made.group = name_;
    made.mesh = mesh();
    made.source = source;
    return made;
  }

  std::size_t add(Path path) {
    paths_.push_back(std::move(path));
    return paths_.size() - 1;
  }

  // A part of a baseline, on all SMs or on some.
  std::size_t add_part(const char* operation, const char* path, const char* source, double sms,
                       std::function<void(cudaStream_t)> enqueue) {
    Path part;
    part.row = row(operation, path, source);
    part.work.enqueue = std::move(enqueue);
    part.part_sms = sms;
    return add(std::move(part));
  }

  void add_gathers() {
    std::vector<tide::OwnBlock> ways = {tide::OwnBlock::in_place, tide::OwnBlock::copy, tide::OwnBlock::cast};
    if (group_.has_multicast()) ways.push_back(tide::OwnBlock::multicast);
    for (const tide::OwnBlock own : ways) {
      Path path;
      path.row = row("gather", "tide", own == tide::OwnBlock::cast ? "f32" : "bf16");
      path.row.policy =
          std::string(own == tide::OwnBlock::multicast ? tide::MulticastTransport::name : tide::UnicastTransport::name);
      path.row.own = std::string(tide::name(own));
      path.row.buffer_bytes = group_.gather_bytes();
      path.row.driver_calls = group_.gather_calls(own);
      path.work = group_.gather(own);
      const bool in_place = own == tide::OwnBlock::in_place;
      path.spoil = [this, in_place](cudaStream_t stream) { group_.spoil_gathered(in_place, stream); };
      path.wrong = [this](cudaStream_t stream) { return group_.wrong_gathered(judge_, stream); };
      path.beside = true;
      path.residency = true;
      add(std::move(path));
    }
    const std::size_t own_copy = add_part("own_copy", "flat_copy", "bf16", sms_,
                                          [this](cudaStream_t stream) { copy_flat(landing_.as<>(), stream); });
    // What tide's own kernel copies is read off the SMs; what it leaves to the driver takes what that takes here.
    if (group_.shard_bytes() < tide::detail::least_bulk_copy_bytes) paths_[1].parts = {own_copy};
    Path flat;
    flat.row = row("gather", "flat_copy", "bf16");
    flat.row.driver_calls = ranks_ - 1;
    flat.row.sm_ms = 0;
    flat.work.enqueue = [this](cudaStream_t stream) {
      for (int k = 1; k < ranks_; ++k) copy_flat(landings_[static_cast<std::size_t>((rank_ + k) % ranks_)], stream);
    };
    flat.beside = true;
    add(std::move(flat));

    const std::size_t cast =
        add_part("cast", "stock", "f32", sms_, [this](cudaStream_t stream) { stock_.cast(stream); });
    const std::size_t copy_in =
        add_part("copy_in", "stock", "bf16", sms_, [this](cudaStream_t stream) { stock_.copy_in(false, stream); });
    const std::size_t copy_out =
        add_part("copy_out", "stock", "bf16", sms_, [this](cudaStream_t stream) { stock_.copy_out(stream); });
    const std::size_t nccl =
        add_part("gather", "nccl", "bf16", nccl_.gather, [this](cudaStream_t stream) { stock_.all_gather(stream); });
    const std::size_t nccl_zero =
        add_part("gather", "nccl", "bf16", 0, [this](cudaStream_t stream) { symmetric_.all_gather(stream); });
    paths_[nccl].row.policy = "default";
    paths_[nccl].beside = true;
    paths_[nccl_zero].row.policy = "zero-CTA, symmetric windows";
    paths_[nccl_zero].beside = true;
    for (const Kind kind : {Kind::stock, Kind::symmetric}) {
      for (const bool from_masters : {false, true}) {
        const Baseline* baseline = kind == Kind::stock ? &stock_ : &symmetric_;
        Path path;
        path.row = row("gather", kind == Kind::stock ? "stock" : "symmetric", from_masters ? "f32" : "bf16");
        path.row.policy = kind == Kind::stock ? "default" : "zero-CTA, symmetric windows";
        path.row.buffer_bytes = baseline->gather_bytes(from_masters);
        path.row.driver_calls = baseline->gather_calls(from_masters);
        path.work.enqueue = [baseline, from_masters](cudaStream_t stream) { baseline->gather(from_masters, stream); };
        path.spoil = [baseline](cudaStream_t stream) { baseline->spoil_gathered(stream); };
        path.wrong = [this, baseline](cudaStream_t stream) {
          return judge_.gathered(baseline->gathered(), baseline->gathered_spans(), stream);
        };
        path.beside = true;
        path.parts = {copy_in, copy_out, kind == Kind::stock ? nccl : nccl_zero};
        if (from_masters) path.parts.push_back(cast);
        add(std::move(path));
      }
    }
  }

  void add_reduces() {
    for (std::size_t i = 0; i < group_.reduces().size(); ++i) {
      Path path;
      path.row = row("reduce", "tide", "bf16");
      path.row.policy = group_.reduces()[i].policy;
      path.row.buffer_bytes = group_.reduces()[i].inbox_bytes + group_.gather_bytes();
      path.row.driver_calls = group_.reduces()[i].driver_calls;
      path.work = group_.reduce(i);
      path.spoil = [this](cudaStream_t stream) { group_.spoil_reduced(stream); };
      path.wrong = [this](cudaStream_t stream) { return group_.wrong_reduced(judge_, round_, stream); };
      path.beside = true;
      path.residency = true;
      add(std::move(path));
    }
    const std::size_t pack =
        add_part("chunk_cat", "stock", "bf16", sms_, [this](cudaStream_t stream) { stock_.pack(stream); });
    const std::size_t nccl =
        add_part("reduce", "nccl", "f32", nccl_.reduce, [this](cudaStream_t stream) { stock_.reduce_scatter(stream); });
    const std::size_t nccl_symmetric = add_part("reduce", "nccl", "f32", nccl_.symmetric_reduce,
                                                [this](cudaStream_t stream) { symmetric_.reduce_scatter(stream); });
    const std::size_t nccl_bf16 = add_part("reduce", "nccl", "bf16", nccl_.reduce,
                                           [this](cudaStream_t stream) { stock_.reduce_scatter_bf16(stream); });
    const std::size_t scale =
        add_part("scale", "symmetric", "f32", sms_, [this](cudaStream_t stream) { symmetric_.scale(stream); });
    paths_[nccl].row.policy = "default";
    paths_[nccl].beside = true;
    paths_[nccl_symmetric].row.policy = "zero-CTA, symmetric windows";
    paths_[nccl_bf16].row.policy = "default";
    for (const Kind kind : {Kind::stock, Kind::symmetric}) {
      const Baseline* baseline = kind == Kind::stock ? &stock_ : &symmetric_;
      Path path;
      path.row = row("reduce", kind == Kind::stock ? "stock" : "symmetric", "bf16");
      path.row.policy = kind == Kind::stock ? "default" : "zero-CTA, symmetric windows";
      path.row.buffer_bytes = baseline->reduce_bytes();
      path.row.driver_calls = baseline->reduce_calls();
      path.work.enqueue = [baseline](cudaStream_t stream) { baseline->reduce(stream); };
      path.spoil = [baseline](cudaStream_t stream) { baseline->spoil_reduced(stream); };
      path.wrong = [this, baseline](cudaStream_t stream) {
        return judge_.reduced(baseline->reduced(), baseline->reduced_spans(), round_, false, stream);
      };
      path.beside = true;
      path.parts = {pack, kind == Kind::stock ? nccl : nccl_symmetric};
      if (kind == Kind::symmetric) path.parts.push_back(scale);
      add(std::move(path));
    }
  }

  // The own shards in one piece, to a peer or to other memory here.
  void copy_flat(void* target, cudaStream_t stream) const {
    must(cudaMemcpyAsync(target, group_.inputs().shards, static_cast<std::size_t>(group_.shard_bytes()),
                         cudaMemcpyDeviceToDevice, stream),
         "cudaMemcpyAsync");
  }

  // Spoils the result, makes it again (of other gradients), and counts what is wrong on any rank.
  void check(Path& path, Report& report) {
    if (!path.wrong) return;
    meeting_.wait();
    if (path.row.operation == "reduce") group_.new_gradients(++round_, watch_.stream());
    path.spoil(watch_.stream());
    watch_.settle();
    watch_.warm(path.work);
    const double wrong = meeting_.largest(rank_, static_cast<double>(path.wrong(watch_.stream())));
    if (wrong == 0) return;
    if (rank_ != 0) return;
    report.right = false;
    std::cerr << "bench_compare: wrong result: " << path.row.operation << " by " << path.row.path << " ("
              << path.row.policy << ", " << path.row.source << ", " << path.row.own << ") of " << model_ << " " << name_
              << ": " << fixed(wrong, 0) << " elements on one rank\n";
  }

  [[nodiscard]] std::optional<double> sm_time(Path& path) {
    if (path.row.sm_ms) return path.row.sm_ms;
    if (!path.residency && path.parts.empty()) return path.part_sms * path.row.median_ms();
    double sum = 0;
    for (const std::size_t part : path.parts) sum += paths_[part].part_sms * paths_[part].row.median_ms();
    if (!path.residency) return sum;
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) {
      const Residency residency(fabric_, watch_.stream());
      static_cast<void>(watch_.alone(path.work));
      times.push_back(meeting_.largest(rank_, residency.sm_milliseconds(watch_.stream())));
    }
    return sum + median(times);
  }

  // Pairs of one loop of products alone and one with a path, in turns.
  void measure_beside(const GemmLoop& loop, int pairs, std::vector<Row>& rows) {
    std::vector<double> alone_ms;
    std::vector<std::vector<double>> together(paths_.size());
    std::vector<std::vector<double>> added(paths_.size());
    static_cast<void>(watch_.beside(loop, nullptr));
    for (int i = 0; i < pairs; ++i) {
      for (std::size_t p = 0; p < paths_.size(); ++p) {
        if (!paths_[p].beside) continue;
        const double alone = watch_.beside(loop, nullptr);
        const double both = watch_.beside(loop, &paths_[p].work);
        alone_ms.push_back(alone);
        together[p].push_back(both);
        added[p].push_back(both - alone);
      }
    }
    Row products;
    products.operation = "gemm";
    products.path = "cublas";
    products.model = model_;
    products.group = name_;
    products.mesh = mesh();
    products.policy = std::to_string(loop.count()) + " products";
    products.beside = loop.name();
    products.samples_ms = alone_ms;
    rows.push_back(products);
    for (std::size_t p = 0; p < paths_.size(); ++p) {
      if (!paths_[p].beside) continue;
      Row row = paths_[p].row;
      row.beside = loop.name();
      row.samples_ms = together[p];
      row.added_ms = median(added[p]);
      row.sm_ms.reset();
      row.host_us.reset();
      rows.push_back(row);
    }
  }

  tide::CudaFabric& fabric_;
  int rank_;
  TideGroup& group_;
  Meeting& meeting_;
  Stopwatch& watch_;
  std::string model_;
  std::string name_;
  Baseline stock_;
  Baseline symmetric_;
  int ranks_;
  DeviceMemory landing_;              // where the peers' flat copies go
  std::vector<std::byte*> landings_;  // on each rank, the place of what this one copies
  Judge judge_;
  int sms_ = 0;
  int round_ = 0;  // of the gradients
  NcclCtas nccl_;
  std::vector<Path> paths_;
};

}  // namespace tide_benchmark
