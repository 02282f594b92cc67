// SPDX-License-Identifier: Apache-2.0
//
// A plan as CudaFabric runs it: ops joined into driver calls once, so that a step only binds and enqueues.

#pragma once

#include <tide/fabric/detail/cuda_bulk_copy.cuh>  // bulk_copy_ctas
#include <tide/fabric/detail/cuda_bulk_sum.cuh>   // has_bulk_sum
#include <tide/fabric/detail/cuda_cast.cuh>       // cast_ctas
#include <tide/fabric/detail/cuda_check.cuh>      // CudaEvent
#include <tide/fabric/detail/cuda_kernels.cuh>    // CudaRow, CudaLaunch
#include <tide/fabric/detail/zeros.hpp>           // largest_gradient_bytes
#include <tide/fabric/fabric.hpp>                 // PlanVariant
#include <tide/plan/rendezvous.hpp>               // Rendezvous

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace tide::detail {

// A few ops of one lane that become one driver call (or one per copy).
struct CudaStep {
  enum class Kind : std::uint8_t {
    copy,
    own_copy,
    multicast,
    put,
    send,        // what the next rendezvous takes along: a put, or a signal to another node
    rendezvous,  // no op: `first` counts those of the variant
    signal_peer,
    signal_node,
    signal_own,
    wait_peers,
    wait_own,
    sum,
    switch_sum,
    cast,
  };

  Kind kind = Kind::copy;
  std::uint16_t lane = 0;
  std::size_t first = 0;  // ops of the plan, in issue order
  std::size_t last = 0;
  std::int32_t word = -1;     // of signal_peer: the staging word; of *_own: the lane of the event
  bool stages = false;        // of signal_peer: whether it writes the staging word
  std::size_t first_row = 0;  // of sum, cast and own_copy
  std::int32_t row_count = 0;
  std::int64_t tiles = 0;
  int tile_log2 = smallest_tile_log2;
  bool bulk = true;                   // whether rows fit bulk loads, if the buffers that they lie in do
  std::vector<std::int32_t> exits{};  // that come after it
};

[[nodiscard]] constexpr const char* name(CudaStep::Kind kind) noexcept {
  switch (kind) {
    case CudaStep::Kind::copy:
      return "copy";
    case CudaStep::Kind::own_copy:
      return "copy to the own rank";
    case CudaStep::Kind::multicast:
      return "multicast";
    case CudaStep::Kind::put:
      return "put";
    case CudaStep::Kind::send:
      return "send";
    case CudaStep::Kind::rendezvous:
      return "rendezvous";
    case CudaStep::Kind::signal_peer:
      return "signal to a rank";
    case CudaStep::Kind::signal_node:
      return "signal to another node";
    case CudaStep::Kind::signal_own:
      return "signal to a lane";
    case CudaStep::Kind::wait_peers:
      return "wait for ranks";
    case CudaStep::Kind::wait_own:
      return "wait for a lane";
    case CudaStep::Kind::sum:
      return "sum";
    case CudaStep::Kind::switch_sum:
      return "sum in the switch";
    case CudaStep::Kind::cast:
      return "cast";
  }
  return "";
}

// A rendezvous as it is carried out. Between two ranks of which one sends the other no bytes in it goes a token, so
// that the one that is told waits for the one that tells.
struct CudaRendezvous : Rendezvous {
  std::vector<std::uint16_t> lanes{};      // that send something
  std::vector<std::uint16_t> put_lanes{};  // those of them that go on when it is over
  std::vector<std::int32_t> tokens_to{};   // ranks
  std::vector<std::int32_t> tokens_from{};
  std::vector<std::int32_t> peers{};  // all ranks that it takes

  CudaRendezvous(Rendezvous given, const Plan& plan) : Rendezvous(std::move(given)) {
    for (const Send& send : sends) {
      const Op& op = plan.ops[send.op];
      add(lanes, op.lane);
      if (op.kind == OpKind::put) add(put_lanes, op.lane);
      add(peers, send.peer);
    }
    for (const Receive& receive : receives) add(peers, receive.peer);
    tokens_to = without_bytes(sends);
    tokens_from = without_bytes(receives);
  }

  // Calls on the network stream, about.
  [[nodiscard]] index_t calls() const noexcept { return static_cast<index_t>(lanes.size() + receives.size()) + 4; }

 private:
  template <class T>
  static void add(std::vector<T>& list, T value) {
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  }
  template <class Parcel>
  [[nodiscard]] static std::vector<std::int32_t> without_bytes(const std::vector<Parcel>& parcels) {
    std::vector<std::int32_t> ranks;
    for (const Parcel& parcel : parcels) {
      const auto brings = [&](const Parcel& other) { return other.peer == parcel.peer && other.bytes > 0; };
      if (std::none_of(parcels.begin(), parcels.end(), brings)) add(ranks, parcel.peer);
    }
    return ranks;
  }
};

// What a run binds, and whether all gradients lie where bulk loads can read them.
struct CudaBindings : Bindings {
  bool aligned_gradients = true;
};

[[nodiscard]] inline bool is_bulk_aligned(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % bulk_alignment == 0;
}

// The largest tiles of which every CTA gets eight.
[[nodiscard]] constexpr int tile_log2_for(index_t elements, index_t ctas) noexcept {
  int log2 = smallest_tile_log2;
  while (log2 < largest_tile_log2 && elements >> (log2 + 1) >= 8 * ctas) ++log2;
  return log2;
}

class CudaVariant {
 public:
  // @param given_rendezvous  where nodes are crossed by sends and receives: what the rank sends and receives when
  // @throws Error (Errc::argument) when NCCL, which counts puts and knows no values, could not tell what has landed
  CudaVariant(const Collective& given, std::vector<KernelCode> kernel_code, Plan written, index_t network_inbox,
              std::optional<std::vector<Rendezvous>> given_rendezvous = std::nullopt)
      : collective(given),
        plan(std::move(written)),
        code(std::move(kernel_code)),
        mesh(given.layout.mesh),
        node(mesh.node(plan.rank)),
        network_inbox_start(network_inbox),
        is_two_sided(given_rendezvous.has_value()) {
    if (is_two_sided) {
      for (Rendezvous& each : *given_rendezvous) rendezvous.emplace_back(std::move(each), plan);
    } else {
      check_puts();
      check_landings();
    }
    collective.layout.for_each_piece(plan.rank, [&](const Piece& piece) {
      gradient_start.push_back(piece.start[static_cast<std::size_t>(Buffer::gradients)]);
    });
    add_rendezvous(0);
    for (std::size_t first = 0; first < plan.ops.size();) {
      std::size_t last = first + 1;
      while (last < next_position() && joins(plan.ops[first], plan.ops[last]) && last - first < 250) ++last;
      add_step(first, last);
      add_rendezvous(last);
      first = last;
    }
    place_exits();
    shards_bytes = collective.layout.bytes(Buffer::shards, plan.rank);
    largest_gradient = largest_gradient_bytes(collective.layout);
    collective.layout.group = {};  // need not outlive the constructor
  }

  // Copies the rows of all launches to the device. On the current device.
  void prepare() {
    if (!rows.empty()) {
      check(cudaMalloc(&device_rows, rows.size() * sizeof(CudaRow)), "cudaMalloc");
      check(cudaMemcpy(device_rows, rows.data(), rows.size() * sizeof(CudaRow), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    if (staging_words > 0) check(cudaMalloc(&staging, static_cast<std::size_t>(staging_words) * 8), "cudaMalloc");
  }

  void release() noexcept {
    if (device_rows != nullptr) cudaFree(std::exchange(device_rows, nullptr));
    if (staging != nullptr) cudaFree(std::exchange(staging, nullptr));
  }

  [[nodiscard]] bool is_other_node(index_t rank) const noexcept {
    return mesh.node(Rank{static_cast<std::int32_t>(rank)}) != node;
  }
  // Whether a wait is for what another node puts: NCCL tells of that.
  [[nodiscard]] bool is_landing(const Op& wait) const noexcept {
    const SignalWords words = collective.words();
    return !is_two_sided && words.kind(wait.word()) == WordKind::arrived && is_other_node(words.index(wait.word()));
  }

  Collective collective;
  Plan plan;
  std::vector<KernelCode> code;
  MeshShape mesh;
  index_t node;
  index_t network_inbox_start;
  index_t shards_bytes = 0;
  bool puts_shards = false;
  bool is_two_sided = false;
  std::vector<CudaRendezvous> rendezvous;
  std::vector<index_t> gradient_start;
  index_t largest_gradient = 1;  // bytes
  std::vector<CudaStep> steps;
  std::vector<std::int32_t> first_exits;  // that come before anything
  std::vector<cudaStream_t> lanes;        // by lane; null for the caller's
  std::vector<CudaRow> rows;
  CudaRow* device_rows = nullptr;
  std::uint64_t* staging = nullptr;
  std::int32_t staging_words = 0;

 private:
  [[nodiscard]] bool is_own_word(const Op& op) const noexcept {
    return collective.words().kind(op.word()) == WordKind::event;
  }

  [[nodiscard]] bool is_own(const Op& copy) const noexcept { return copy.peer == plan.rank.value; }

  [[nodiscard]] bool joins(const Op& a, const Op& b) const noexcept {
    if (a.kind != b.kind || a.lane != b.lane) return false;
    if (a.kind == OpKind::wait) return !is_own_word(a) && !is_own_word(b);
    // One launch binds each of its spaces once.
    const auto same = [](Place x, Place y) { return x.space == y.space && x.instance == y.instance; };
    // Between two spaces no copy reads what another one of the launch has written.
    if (a.kind == OpKind::copy) {
      return is_own(a) && is_own(b) && same(a.source, b.source) && same(a.target, b.target) &&
             a.source.space != a.target.space;
    }
    return (a.kind == OpKind::reduce || a.kind == OpKind::cast) && a.kernel == b.kernel && a.peer == b.peer &&
           same(a.source, b.source) && same(a.target, b.target) && same(a.extra, b.extra);
  }

  // What is put raises `arrived` there, and each put by one: NCCL counts puts, and knows no values.
  void check_puts() {
    std::vector<index_t> puts(static_cast<std::size_t>(mesh.ranks()), 0);
    const index_t word = collective.words().word(WordKind::arrived, plan.rank.value);
    for (const Op& op : plan.ops) {
      if (op.kind != OpKind::put) continue;
      const Op::Raise raise = op.raise();
      if (raise.word == word && raise.value == ++puts[static_cast<std::size_t>(op.peer)]) continue;
      tide::raise(Errc::argument, text({"tide::CudaFabric: puts to a rank must count its word up by ones; rank ",
                                        plan.rank.value, " puts to rank ", op.peer, " with ",
                                        collective.words().describe(raise.word), " = ", raise.value, "."}));
    }
    for (const Op& op : plan.ops) {
      if (op.kind != OpKind::put) continue;
      puts_shards = puts_shards || op.source.space == Space::shards;
      if (op.raise().per_run == puts[static_cast<std::size_t>(op.peer)]) continue;
      tide::raise(Errc::argument,
                  text({"tide::CudaFabric: puts to a rank must count its word up by ones; rank ", plan.rank.value,
                        " puts ", puts[static_cast<std::size_t>(op.peer)], " times to rank ", op.peer,
                        ", which counts ", op.raise().per_run, " in a run."}));
    }
  }

  // A run waits for all that is put to it in the run and for nothing else: pipelines share one sequence of puts.
  void check_landings() const {
    const SignalWords words = collective.words();
    const auto refuse = [&](const Op& op, const char* what, index_t value) {
      tide::raise(
          Errc::argument,
          text({"tide::CudaFabric: a run must wait for all that other nodes put in it, and for nothing else; rank ",
                plan.rank.value, what, words.describe(op.raises() ? op.raise().word : op.word()), " = ", value, "."}));
    };
    for (const Op& op : plan.ops) {
      if (op.kind == OpKind::signal && words.kind(op.word()) == WordKind::arrived && is_other_node(op.peer)) {
        refuse(op, " signals without a put ", op.value());
      }
      if (op.kind != OpKind::wait || !is_landing(op)) continue;
      if (op.value() <= 0) refuse(op, " waits for ", op.value());
      const auto ends = [&](const Op& last) {
        return last.kind == OpKind::wait && last.word() == op.word() && last.value() == op.per_run();
      };
      if (std::none_of(plan.ops.begin(), plan.ops.end(), ends)) refuse(op, " never waits for ", op.per_run());
    }
  }

  // Where the ops end that come before the next rendezvous.
  [[nodiscard]] std::size_t next_position() const noexcept {
    return next_rendezvous_ < rendezvous.size() ? rendezvous[next_rendezvous_].position : plan.ops.size();
  }

  // The rendezvous that come when so many ops have come.
  void add_rendezvous(std::size_t position) {
    for (; next_rendezvous_ < rendezvous.size() && rendezvous[next_rendezvous_].position == position;
         ++next_rendezvous_) {
      CudaStep step;
      step.kind = CudaStep::Kind::rendezvous;
      step.first = step.last = next_rendezvous_;
      steps.push_back(std::move(step));
    }
  }

  void add_step(std::size_t first, std::size_t last) {
    const Op& op = plan.ops[first];
    CudaStep step;
    step.lane = op.lane;
    step.first = first;
    step.last = last;
    switch (op.kind) {
      case OpKind::copy:
        if (is_own(op)) {
          add_own_copy(step);
        } else {
          step.kind = CudaStep::Kind::copy;
        }
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
        step.kind = is_two_sided ? CudaStep::Kind::send : CudaStep::Kind::put;
        break;
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
    if (is_other_node(op.peer)) {
      step.kind = is_two_sided ? CudaStep::Kind::send : CudaStep::Kind::signal_node;
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
    const Op& first = plan.ops[step.first];
    const bool cast = first.kind == OpKind::cast;
    const Kernel& kernel = collective.kernels[first.kernel];
    const bool in_switch = kernel.kind == Kernel::Kind::switch_sum;
    const auto in = static_cast<index_t>(size_bytes(kernel.input));
    const auto out = static_cast<index_t>(size_bytes(kernel.output));
    step.kind = cast ? CudaStep::Kind::cast : in_switch ? CudaStep::Kind::switch_sum : CudaStep::Kind::sum;
    step.first_row = rows.size();
    index_t elements = 0;
    for (std::size_t i = step.first; i < step.last; ++i) elements += plan.ops[i].rows * (plan.ops[i].width / in);
    step.tile_log2 = tile_log2_for(elements, cast ? cast_ctas : collective.ctas);
    const index_t spacing = first.extra.space == Space::inbox ? collective.inbox.element_bytes : in;
    const bool table = first.source.space == Space::gradients && collective.gradients == GradientSource::table;
    for (std::size_t i = step.first; i < step.last; ++i) {
      const Op& op = plan.ops[i];
      index_t source = op.source_offset - (table ? gradient_start[op.source.parameter] : 0);
      index_t piece = op.extra_offset;
      if (in_switch) {
        source += in_network_inbox(op.source);
        piece += in_network_inbox(op.extra);
      }
      for (std::uint32_t r = 0; r < op.rows; ++r) {
        CudaRow row{};
        row.source = (source + r * index_t{op.source_pitch}) / in;
        row.target = (op.target_offset + r * index_t{op.target_pitch}) / out;
        row.elements = op.width / in;
        row.parameter = op.source.parameter;
        if (in_switch) row.piece = (piece + r * index_t{op.target_pitch}) / in;
        if (!cast && !in_switch) row.piece = (piece + r * (index_t{op.target_pitch} / 4) * spacing) / in;
        step.bulk = step.bulk && row.source * in % bulk_alignment == 0 && row.piece * in % bulk_alignment == 0 &&
                    row.target * out % bulk_alignment == 0;
        add_row(step, row);
      }
    }
    step.bulk = step.bulk && !cast && !in_switch && has_bulk_sum(kernel.inputs);
  }

  // What the driver would copy inside the GPU. Rows are in bytes.
  void add_own_copy(CudaStep& step) {
    step.kind = CudaStep::Kind::own_copy;
    step.first_row = rows.size();
    index_t bytes = 0;
    index_t count = 0;
    for (std::size_t i = step.first; i < step.last; ++i) {
      const Op& op = plan.ops[i];
      bytes += op.bytes();
      count += op.rows;
      const auto is_aligned = [&op](index_t offset, index_t pitch) {
        return offset % bulk_alignment == 0 && (op.rows == 1 || pitch % bulk_alignment == 0);
      };
      step.bulk = step.bulk && is_aligned(op.source_offset, index_t{op.source_pitch}) &&
                  is_aligned(op.target_offset, index_t{op.target_pitch});
    }
    step.bulk = step.bulk && bytes >= least_bulk_copy_bytes && bytes >= count * least_bulk_row_bytes;
    if (!step.bulk) return;
    step.tile_log2 = tile_log2_for(bytes, bulk_copy_ctas);
    for (std::size_t i = step.first; i < step.last; ++i) {
      const Op& op = plan.ops[i];
      for (std::uint32_t r = 0; r < op.rows; ++r) {
        CudaRow row{};
        row.source = op.source_offset + r * index_t{op.source_pitch};
        row.target = op.target_offset + r * index_t{op.target_pitch};
        row.elements = op.width;
        add_row(step, row);
      }
    }
  }

  void add_row(CudaStep& step, CudaRow row) {
    row.first_tile = step.tiles;
    step.tiles += tiles_of(row.elements, step.tile_log2);
    ++step.row_count;
    rows.push_back(row);
  }

  // A switch reads all arenas at one offset: rows of its sums count from their start.
  [[nodiscard]] index_t in_network_inbox(Place place) const noexcept {
    return network_inbox_start + place.instance * collective.network.inbox_bytes;
  }

  // Behind the last step that comes before it; a put is over with the rendezvous that takes it along.
  void place_exits() {
    for (std::size_t e = 0; e < plan.exits.size(); ++e) {
      const Exit& exit = plan.exits[e];
      index_t position = 0;
      CudaStep* after = nullptr;
      bool has_put = false;
      for (CudaStep& step : steps) {
        if (step.kind == CudaStep::Kind::rendezvous) {
          if (has_put) after = &step;
          has_put = false;
          continue;
        }
        if (step.lane != exit.lane.value || position >= exit.position) continue;
        position += static_cast<index_t>(step.last - step.first);
        after = &step;
        has_put = has_put || (step.kind == CudaStep::Kind::send && plan.ops[step.first].kind == OpKind::put);
      }
      (after != nullptr ? after->exits : first_exits).push_back(static_cast<std::int32_t>(e));
    }
  }

  std::size_t next_rendezvous_ = 0;
};

// A pipeline: its variants, its run number, the events of its exits.
struct CudaProgram {
  static constexpr std::uint64_t max_runs = 64;

  std::vector<std::unique_ptr<CudaVariant>> variants;
  SignalWords words;
  ArenaPlaces places;
  std::string label;
  std::uint64_t next_run = 0;
  std::atomic<std::uint64_t> known_done{0};     // runs before it are done, and their places in the rings used again
  CudaEvent caller_done;                        // what the last run has enqueued on its caller's stream
  std::atomic<std::uint64_t> enqueued{0};       // runs whose last call has been made
  std::vector<CudaEvent> events;                // by lane; of all variants, since a run may wait for the last one's
  std::vector<CudaEvent> sent;                  // by lane: what the next rendezvous has to come behind
  std::vector<std::uint64_t> landed;            // by rank: what the network stream has been told to raise its word to
  std::array<std::vector<CudaEvent>, 3> exits;  // by ExitKind, a ring over runs
  std::array<std::int32_t, 3> counters{-1, -1, -1};
  const void** table = nullptr;       // on the device: a ring of gradient tables
  const void** host_table = nullptr;  // pinned
  index_t table_entries = 0;
};

}  // namespace tide::detail
