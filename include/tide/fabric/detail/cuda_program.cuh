// SPDX-License-Identifier: Apache-2.0
//
// A plan as CudaFabric runs it: ops joined into driver calls once, so that a step only binds and enqueues.

#pragma once

#include <tide/fabric/detail/cuda_bulk_sum.cuh>  // bulk_alignment
#include <tide/fabric/detail/cuda_check.cuh>     // CudaEvent
#include <tide/fabric/detail/cuda_kernels.cuh>   // CudaRow, CudaLaunch
#include <tide/fabric/detail/zeros.hpp>          // largest_gradient_bytes
#include <tide/fabric/fabric.hpp>                // PlanVariant

#include <array>
#include <atomic>
#include <memory>
#include <vector>

namespace tide::detail {

// A few ops of one lane that become one driver call (or one per copy).
struct CudaStep {
  enum class Kind : std::uint8_t { copy, multicast, signal_peer, signal_own, wait_peers, wait_own, sum, cast };

  Kind kind = Kind::copy;
  std::uint16_t lane = 0;
  std::size_t first = 0;  // ops of the plan, in issue order
  std::size_t last = 0;
  std::int32_t word = -1;     // of signal_peer: the staging word; of *_own: the lane of the event
  bool stages = false;        // of signal_peer: whether it writes the staging word
  std::size_t first_row = 0;  // of sum and cast
  std::int32_t row_count = 0;
  std::int64_t tiles = 0;
  int tile_log2 = smallest_tile_log2;
  bool aligned_rows = true;           // of a sum: every row, in each of its buffers, to 16 bytes
  std::vector<std::int32_t> exits{};  // that come after it
};

[[nodiscard]] constexpr const char* name(CudaStep::Kind kind) noexcept {
  switch (kind) {
    case CudaStep::Kind::copy:
      return "copy";
    case CudaStep::Kind::multicast:
      return "multicast";
    case CudaStep::Kind::signal_peer:
      return "signal to a rank";
    case CudaStep::Kind::signal_own:
      return "signal to a lane";
    case CudaStep::Kind::wait_peers:
      return "wait for ranks";
    case CudaStep::Kind::wait_own:
      return "wait for a lane";
    case CudaStep::Kind::sum:
      return "sum";
    case CudaStep::Kind::cast:
      return "cast";
  }
  return "";
}

// What a run binds, and whether all gradients lie where bulk loads can read them.
struct CudaBindings : Bindings {
  bool aligned_gradients = true;
};

[[nodiscard]] inline bool is_bulk_aligned(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % bulk_alignment == 0;
}

inline constexpr index_t cast_ctas = 256;

// The largest tiles of which every CTA gets eight.
[[nodiscard]] constexpr int tile_log2_for(index_t elements, index_t ctas) noexcept {
  int log2 = smallest_tile_log2;
  while (log2 < largest_tile_log2 && elements >> (log2 + 1) >= 8 * ctas) ++log2;
  return log2;
}

class CudaVariant {
 public:
  CudaVariant(const Collective& given, std::vector<KernelCode> kernel_code, Plan written)
      : collective(given), plan(std::move(written)), code(std::move(kernel_code)) {
    collective.layout.for_each_piece(plan.rank, [&](const Piece& piece) {
      gradient_start.push_back(piece.start[static_cast<std::size_t>(Buffer::gradients)]);
    });
    for (std::size_t first = 0; first < plan.ops.size();) {
      std::size_t last = first + 1;
      while (last < plan.ops.size() && joins(plan.ops[first], plan.ops[last]) && last - first < 250) ++last;
      add_step(first, last);
      first = last;
    }
    place_exits();
    largest_gradient = largest_gradient_bytes(collective.layout);
    collective.layout.group = {};  // need not outlive the constructor
  }

  // Copies the rows of all launches to the device and makes the events of own signals. On the current device.
  void prepare() {
    if (!rows.empty()) {
      check(cudaMalloc(&device_rows, rows.size() * sizeof(CudaRow)), "cudaMalloc");
      check(cudaMemcpy(device_rows, rows.data(), rows.size() * sizeof(CudaRow), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    if (staging_words > 0) check(cudaMalloc(&staging, static_cast<std::size_t>(staging_words) * 8), "cudaMalloc");
    for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) events.emplace_back();
  }

  void release() noexcept {
    if (device_rows != nullptr) cudaFree(std::exchange(device_rows, nullptr));
    if (staging != nullptr) cudaFree(std::exchange(staging, nullptr));
    events.clear();
  }

  Collective collective;
  Plan plan;
  std::vector<KernelCode> code;
  std::vector<index_t> gradient_start;
  index_t largest_gradient = 1;  // bytes
  std::vector<CudaStep> steps;
  std::vector<std::int32_t> first_exits;  // that come before anything
  std::vector<cudaStream_t> lanes;        // by lane; null for the caller's
  std::vector<CudaRow> rows;
  CudaRow* device_rows = nullptr;
  std::uint64_t* staging = nullptr;
  std::int32_t staging_words = 0;
  std::vector<CudaEvent> events;  // by lane

 private:
  [[nodiscard]] bool is_own_word(const Op& op) const noexcept {
    return collective.words().kind(op.word()) == WordKind::event;
  }

  [[nodiscard]] bool joins(const Op& a, const Op& b) const noexcept {
    if (a.kind != b.kind || a.lane != b.lane) return false;
    if (a.kind == OpKind::wait) return !is_own_word(a) && !is_own_word(b);
    return (a.kind == OpKind::reduce || a.kind == OpKind::cast) && a.kernel == b.kernel;
  }

  void add_step(std::size_t first, std::size_t last) {
    const Op& op = plan.ops[first];
    CudaStep step;
    step.lane = op.lane;
    step.first = first;
    step.last = last;
    switch (op.kind) {
      case OpKind::copy:
        step.kind = CudaStep::Kind::copy;
        break;
      case OpKind::multicast:
        step.kind = CudaStep::Kind::multicast;
        break;
      case OpKind::signal:
        add_signal(step, op);
        break;
      case OpKind::wait:
        step.kind = is_own_word(op) ? CudaStep::Kind::wait_own : CudaStep::Kind::wait_peers;
        step.word = static_cast<std::int32_t>(collective.words().index(op.word()));
        break;
      case OpKind::reduce:
      case OpKind::cast:
        add_launch(step);
        break;
      case OpKind::put:
        raise(Errc::argument, "tide::CudaFabric: puts between nodes are not supported in this version.");
    }
    steps.push_back(std::move(step));
  }

  // Signals of one value that follow each other on a lane share a staging word and its write.
  void add_signal(CudaStep& step, const Op& op) {
    if (is_own_word(op)) {
      step.kind = CudaStep::Kind::signal_own;
      step.word = static_cast<std::int32_t>(collective.words().index(op.word()));
      return;
    }
    step.kind = CudaStep::Kind::signal_peer;
    const CudaStep* before = steps.empty() ? nullptr : &steps.back();
    const bool shares = before != nullptr && before->kind == CudaStep::Kind::signal_peer && before->lane == step.lane &&
                        plan.ops[before->first].value() == op.value() &&
                        plan.ops[before->first].per_run() == op.per_run();
    step.stages = !shares;
    step.word = shares ? before->word : staging_words++;
  }

  void add_launch(CudaStep& step) {
    const bool cast = plan.ops[step.first].kind == OpKind::cast;
    const Kernel& kernel = collective.kernels[plan.ops[step.first].kernel];
    const auto in = static_cast<index_t>(size_bytes(kernel.input));
    const auto out = static_cast<index_t>(size_bytes(kernel.output));
    step.kind = cast ? CudaStep::Kind::cast : CudaStep::Kind::sum;
    step.first_row = rows.size();
    index_t elements = 0;
    for (std::size_t i = step.first; i < step.last; ++i) elements += plan.ops[i].rows * (plan.ops[i].width / in);
    step.tile_log2 = tile_log2_for(elements, cast ? cast_ctas : collective.ctas);
    for (std::size_t i = step.first; i < step.last; ++i) {
      const Op& op = plan.ops[i];
      const bool table = !cast && collective.gradients == GradientSource::table;
      const index_t source = op.source_offset - (table ? gradient_start[op.source.parameter] : 0);
      for (std::uint32_t r = 0; r < op.rows; ++r) {
        CudaRow row{};
        row.source = (source + r * index_t{op.source_pitch}) / in;
        row.target = (op.target_offset + r * index_t{op.target_pitch}) / out;
        row.elements = op.width / in;
        row.parameter = op.source.parameter;
        if (!cast)
          row.piece = (op.extra_offset + r * (index_t{op.target_pitch} / 4) * collective.inbox.element_bytes) / in;
        step.aligned_rows = step.aligned_rows && row.source * in % bulk_alignment == 0 &&
                            row.piece * in % bulk_alignment == 0 && row.target * out % bulk_alignment == 0;
        row.first_tile = step.tiles;
        step.tiles += tiles_of(row.elements, step.tile_log2);
        rows.push_back(row);
      }
    }
    step.row_count = static_cast<std::int32_t>(rows.size() - step.first_row);
  }

  void place_exits() {
    for (std::size_t e = 0; e < plan.exits.size(); ++e) {
      const Exit& exit = plan.exits[e];
      index_t position = 0;
      CudaStep* after = nullptr;
      for (CudaStep& step : steps) {
        if (step.lane != exit.lane.value || position >= exit.position) continue;
        position += static_cast<index_t>(step.last - step.first);
        after = &step;
      }
      (after != nullptr ? after->exits : first_exits).push_back(static_cast<std::int32_t>(e));
    }
  }
};

// A pipeline: its variants, its run number, the events of its exits.
struct CudaProgram {
  static constexpr std::uint64_t max_runs = 64;

  std::vector<std::unique_ptr<CudaVariant>> variants;
  SignalWords words;
  ArenaPlaces places;
  std::string label;
  std::uint64_t next_run = 0;
  std::atomic<std::uint64_t> known_done{0};  // runs before it are done, and their places in the rings used again
  cudaStream_t last_caller = nullptr;
  std::array<std::vector<CudaEvent>, 3> exits;  // by ExitKind, a ring over runs
  std::array<std::int32_t, 3> counters{-1, -1, -1};
  const void** table = nullptr;       // on the device: a ring of gradient tables
  const void** host_table = nullptr;  // pinned
  index_t table_entries = 0;
};

}  // namespace tide::detail
