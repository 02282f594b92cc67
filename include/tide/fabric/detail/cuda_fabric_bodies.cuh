// SPDX-License-Identifier: Apache-2.0
//
// The member functions of CudaFabric that build and enqueue.

#pragma once

#include <tide/fabric/cuda_fabric.cuh>
#include <tide/fabric/detail/cuda_range.cuh>  // CudaRange
#include <tide/fabric/detail/variants.hpp>    // require_one_handshake, fingerprint_of

#include <algorithm>
#include <thread>

namespace tide {

inline CudaFabric::CudaFabric(const CudaCommunicators& communicators, CudaOptions options)
    : options_(options),
      communicators_(&communicators),
      gather_(communicators.gather()),
      device_(communicators.device()) {
  detail::require_nccl();
  int rank = 0;
  int ranks = 0;
  detail::check(ncclCommUserRank(gather_, &rank), "ncclCommUserRank");
  detail::check(ncclCommCount(gather_, &ranks), "ncclCommCount");
  rank_ = Rank{rank};
  mesh_ = {1, ranks};
  const detail::DeviceGuard guard(device_);
  int has_words = 0;
  detail::check(cuDeviceGetAttribute(&has_words, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device_),
                "cuDeviceGetAttribute");
  if (has_words == 0) {
    raise(Errc::operation, detail::text({"tide::CudaFabric: a GPU must have 64-bit stream memory operations; GPU ",
                                         device_, " of rank ", rank, " has none."}));
  }
  detail::check(cudaStreamCreateWithFlags(&init_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  detail::check(cudaStreamCreateWithFlags(&rescue_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  detail::check(cudaMalloc(&meeting_word_, sizeof(int)), "cudaMalloc");
}

inline CudaFabric::~CudaFabric() { stop(); }

inline CudaStream CudaFabric::stream() {
  if (phase_ == Phase::closed) raise(Errc::order, "tide::CudaFabric: a stream cannot be made after close.");
  const detail::DeviceGuard guard(device_);
  cudaStream_t made = nullptr;
  detail::check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
  streams_.push_back(made);
  return {*this, made};
}

inline cudaStream_t CudaFabric::lane(Operation operation, Lane lane) {
  cudaStream_t& made = lanes_[{operation, lane.kind, lane.index}];
  if (made == nullptr) {
    // Sums are short: at the highest priority they start at the first boundary of a kernel that fills the GPU.
    int least = 0;
    int greatest = 0;
    detail::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    detail::check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  }
  return made;
}

inline index_t CudaFabric::reserve(index_t bytes, index_t alignment) {
  if (phase_ != Phase::building) {
    raise(Errc::order, "tide::CudaFabric: pipelines, pools and storage must be constructed before init.");
  }
  const index_t offset = align_up(reserved_, alignment);
  reserved_ = offset + bytes;
  return offset;
}

inline std::int32_t CudaFabric::new_counter(std::vector<detail::CudaEvent>& ring, bool of_program) {
  counters_.push_back({&ring, 0, of_program});
  return static_cast<std::int32_t>(counters_.size()) - 1;
}

inline std::int32_t CudaFabric::attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) {
  if (phase_ != Phase::building) {
    raise(Errc::order, "tide::CudaFabric: pipelines, pools and storage must be constructed before init.");
  }
  detail::require_one_handshake(variants, label);
  const std::uint64_t print = detail::fingerprint_of(variants);
  const detail::DeviceGuard guard(device_);
  auto program = std::make_unique<detail::CudaProgram>();
  program->words = variants.front().collective.words();
  program->places = places;
  program->label = std::move(label);
  for (PlanVariant& given : variants) {
    const Operation operation = given.collective.operation;
    auto& made = program->variants.emplace_back(
        std::make_unique<detail::CudaVariant>(given.collective, std::move(given.kernels), std::move(given.plan)));
    for (const Lane& each : made->plan.lanes) {
      made->lanes.push_back(each.kind == LaneKind::caller ? nullptr : lane(operation, each));
    }
    made->prepare();
    for (const Exit& exit : made->plan.exits) {
      auto& ring = program->exits[static_cast<std::size_t>(exit.kind)];
      if (!ring.empty()) continue;
      for (std::uint64_t i = 0; i < detail::CudaProgram::max_runs; ++i) ring.emplace_back();
      program->counters[static_cast<std::size_t>(exit.kind)] = new_counter(ring, true);
    }
    if (made->collective.gradients == GradientSource::table) {
      program->table_entries = static_cast<index_t>(made->gradient_start.size());
    }
  }
  if (program->table_entries > 0) {
    const std::size_t bytes = static_cast<std::size_t>(program->table_entries) * 8 * detail::CudaProgram::max_runs;
    detail::check(cudaMalloc(&program->table, bytes), "cudaMalloc");
    detail::check(cudaMallocHost(&program->host_table, bytes), "cudaMallocHost");
  }
  fingerprints_.push_back(print);
  programs_.push_back(std::move(program));
  return static_cast<std::int32_t>(programs_.size()) - 1;
}

inline void CudaFabric::fail(Errc code, const std::string& text) {
  if (!failure_.set(code, text)) return;
  communicators_->distrust();
  if (mail_.is_open()) mail_.send_error(code, text, rescue_stream_);
}

inline void CudaFabric::refuse(Errc code, const std::string& text) {
  require_running("a call");
  const detail::DeviceGuard guard(device_);
  if (mesh_.ranks() > 1) {
    fail(code, text);
    failure_.raise_it();  // an earlier one of another rank, perhaps
  }
  raise(code, text);
}

// Every rank gets the words of all ranks, and so comes to the same verdict.
inline void CudaFabric::compare_ranks() {
  std::vector<std::uint64_t> own{static_cast<std::uint64_t>(reserved_), fingerprints_.size()};
  std::uint64_t all = 0;
  for (const std::uint64_t print : fingerprints_) all = all * 1099511628211ULL + print;
  own.push_back(all);
  const auto ranks = static_cast<std::size_t>(mesh_.ranks());
  std::vector<std::uint64_t> got(own.size() * ranks);
  std::uint64_t* device = nullptr;
  detail::check(cudaMalloc(&device, got.size() * 8), "cudaMalloc");
  std::uint64_t* mine = device + own.size() * static_cast<std::size_t>(rank_.value);
  detail::check(cudaMemcpyAsync(mine, own.data(), own.size() * 8, cudaMemcpyHostToDevice, init_stream_),
                "cudaMemcpyAsync");
  detail::check(ncclAllGather(mine, device, own.size(), ncclUint64, gather_, init_stream_), "ncclAllGather");
  poll("init", [this] { return !detail::is_busy(init_stream_); });
  detail::check(cudaMemcpy(got.data(), device, got.size() * 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
  detail::check(cudaFree(device), "cudaFree");
  constexpr std::string_view things[] = {"the size of the arena", "how many they have", "what they are"};
  for (std::size_t r = 1; r < ranks; ++r) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (got[r * own.size() + i] == got[i]) continue;
      failure_.set(
          Errc::mismatch,
          detail::text({"tide::CudaFabric: all ranks must construct the same pipelines in the same order; ranks 0 and ",
                        r, " differ in ", things[i], ": ", got[i], " and ", got[r * own.size() + i], "."}));
      failure_.raise_it();
    }
  }
}

// What stands in for gradients that are missing from tables.
inline void CudaFabric::make_zeros() {
  index_t bytes = 1;
  for (const auto& program : programs_) {
    for (const auto& variant : program->variants) {
      if (variant->collective.gradients != GradientSource::table) continue;
      bytes = std::max(bytes, variant->largest_gradient);
    }
  }
  detail::check(cudaMalloc(&zeros_, static_cast<std::size_t>(bytes)), "cudaMalloc");
  detail::check(cudaMemsetAsync(zeros_, 0, static_cast<std::size_t>(bytes), init_stream_), "cudaMemsetAsync");
  detail::check(cudaStreamSynchronize(init_stream_), "cudaStreamSynchronize");
}

// A kernel's first launch loads its code, which blocks the host behind unmet waits: so every kernel is launched here.
inline void CudaFabric::load_kernels() {
  // Bulk loads came with compute capability 9.0; some GPUs since then have too little shared memory for their rings.
  int major = 0;
  int shared_bytes = 0;
  detail::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_), "cudaDeviceGetAttribute");
  detail::check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_),
                "cudaDeviceGetAttribute");
  has_bulk_sums_ = major >= 9 && shared_bytes >= detail::most_bulk_shared_bytes;
  for (const auto& program : programs_) {
    for (const auto& variant : program->variants) {
      for (std::size_t k = 0; k < variant->code.size(); ++k) {
        detail::CudaLaunch nothing;
        nothing.inputs = variant->collective.kernels[k].inputs;
        for (const bool bulk : {false, true}) {
          if (bulk && !has_bulk_sums_) continue;
          nothing.bulk = bulk;
          detail::check(reinterpret_cast<detail::CudaKernel>(variant->code[k])(nothing, 1, init_stream_), "a kernel");
        }
      }
    }
  }
  detail::check(cudaStreamSynchronize(init_stream_), "cudaStreamSynchronize");
}

inline void CudaFabric::init() {
  if (failure_.failed()) failure_.raise_it();
  if (phase_ == Phase::closed) require_running("init");
  if (phase_ != Phase::building) raise(Errc::order, "tide::CudaFabric: init must be called once.");
  const detail::DeviceGuard guard(device_);
  compare_ranks();
  const index_t mail = reserve(detail::CudaMail::bytes(mesh_.ranks()), 256);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  detail::check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  const auto meet_all = [&](int good) {
    int* const word = meeting_word_;
    detail::check(cudaMemcpyAsync(word, &good, sizeof(int), cudaMemcpyHostToDevice, init_stream_), "cudaMemcpyAsync");
    detail::check(ncclAllReduce(word, word, 1, ncclInt, ncclMin, gather_, init_stream_), "ncclAllReduce");
    poll("init", [this] { return !detail::is_busy(init_stream_); });
    detail::check(cudaMemcpy(&good, word, sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return good != 0;
  };
  // Both verdicts are agreed before any rank acts on them.
  if (!meet_all(static_cast<std::size_t>(reserved_) < free_bytes ? 1 : 0)) {
    failure_.set(
        Errc::capacity,
        detail::text({"tide::CudaFabric: the arena must fit into memory; needs ", detail::gibibytes(reserved_),
                      ", has ", detail::gibibytes(static_cast<index_t>(free_bytes)), " on rank ", rank_.value, "."}));
    failure_.raise_it();
  }
  if (!meet_all(window_.allocate(reserved_) ? 1 : 0)) {
    failure_.set(Errc::capacity, detail::text({"tide::CudaFabric: the arena of ", detail::gibibytes(reserved_),
                                               " could not be allocated on every rank."}));
    failure_.raise_it();
  }
  window_.register_memory(gather_, mesh_.ranks(), init_stream_);
  for (index_t r = 0; r < mesh_.ranks(); ++r) {
    if (window_.peer(r, rank_.value) == nullptr) {
      raise(Errc::operation, detail::text({"tide::CudaFabric: all ranks of a node must reach each other; rank ",
                                           rank_.value, " cannot reach rank ", r, "."}));
    }
  }
  mail_.open(window_, mail, mesh_.ranks(), rank_.value, init_stream_);
  check_paths(meet_all);
  for (const auto& program : programs_) {
    detail::check(cudaMemsetAsync(window_.memory() + program->places.signals, 0,
                                  static_cast<std::size_t>(program->words.bytes()), init_stream_),
                  "cudaMemsetAsync");
  }
  index_t most_words = 1;
  for (const auto& program : programs_) most_words = std::max(most_words, program->words.count());
  detail::check(cudaMallocHost(&seen_words_, static_cast<std::size_t>(most_words) * 8), "cudaMallocHost");
  if (options_.missing_gradients) make_zeros();
  load_kernels();
  static_cast<void>(meet_all(1));  // no rank signals before all words are zero
  phase_ = Phase::running;
  watchdog_ = std::thread([this] { watch(); });
}

// The small part of tide_doctor: what every rank sends every other on the path of plans arrives as it was sent.
template <class Meet>
inline void CudaFabric::check_paths(const Meet& meet_all) {
  static_cast<void>(meet_all(1));  // every rank has zeroed its letters
  mail_.send_greetings(init_stream_);
  static_cast<void>(meet_all(1));
  const index_t wrong = mail_.wrong_greeting(init_stream_);
  if (meet_all(wrong < 0 ? 1 : 0)) return;
  failure_.set(Errc::operation,
               wrong < 0
                   ? detail::text({"tide::CudaFabric: what a rank copies to another must arrive as it was sent; it "
                                   "did not on another rank than ",
                                   rank_.value, ". tide_doctor says more."})
                   : detail::text({"tide::CudaFabric: what a rank copies to another must arrive as it was sent; "
                                   "what rank ",
                                   wrong, " sent to rank ", rank_.value, " did not. tide_doctor says more."}));
  failure_.raise_it();
}

inline void CudaFabric::require_running(const char* call) {
  if (failure_.failed()) failure_.raise_it();
  if (phase_ == Phase::running) return;
  raise(Errc::order,
        detail::text({"tide::CudaFabric: ", call,
                      phase_ == Phase::building ? " needs init to be called first." : " cannot follow close."}));
}

inline void CudaFabric::poll(const std::string& what, detail::CudaQueue::Met met) {
  // The watchdog knows which wait of which op is unmet: it gets a moment to say so before this says less.
  const auto moment = watchdog_.joinable() ? Duration(std::chrono::seconds(2)) : Duration(0);
  const auto end = detail::Clock::now() + options_.deadline + moment;
  for (int spins = 0; !met(); ++spins) {
    if (failure_.failed()) failure_.raise_it();
    if (detail::Clock::now() > end) {
      fail(Errc::deadline, detail::text({"tide::CudaFabric: the deadline of ", detail::seconds_text(options_.deadline),
                                         " passed: rank ", rank_.value, " waited for ", what, "."}));
      failure_.raise_it();
    }
    // The first millisecond is worth a busy core, what is longer is not.
    if (spins > 1000) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

inline detail::CudaQueue& CudaFabric::queue_of(cudaStream_t stream) { return queues_[stream]; }

inline std::byte* CudaFabric::locate(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                                     index_t rank, Place place, index_t offset, const Bindings& bindings) const {
  std::byte* arena = window_.peer(rank, rank_.value);
  switch (place.space) {
    case Space::slot:
      return arena + bindings.slot_offset + offset;
    case Space::inbox:
      return arena +
             (variant.collective.inbox.place == InboxPlace::slot ? bindings.slot_offset : program.places.inbox) +
             place.instance * variant.collective.inbox.chunk_bytes() + offset;
    case Space::output:
      return static_cast<std::byte*>(bindings.output) + offset;
    default:
      return nullptr;
  }
}

inline const std::byte* CudaFabric::source(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                                           const Op& op, const Bindings& bindings) const {
  const index_t offset = op.source_offset;
  switch (op.source.space) {
    case Space::master:
      return static_cast<const std::byte*>(bindings.master) + offset;
    case Space::shards:
      return static_cast<const std::byte*>(bindings.shards) + offset;
    case Space::gradients:
      if (bindings.gradient_table == nullptr) return static_cast<const std::byte*>(bindings.gradients) + offset;
      return static_cast<const std::byte*>(bindings.gradient_table[op.source.parameter]) + offset -
             variant.gradient_start[op.source.parameter];
    default:
      return locate(program, variant, rank_.value, op.source, offset, bindings);
  }
}

inline void CudaFabric::copy(const detail::CudaProgram& program, const detail::CudaVariant& variant, const Op& op,
                             index_t to, const Bindings& bindings, cudaStream_t stream) const {
  const std::byte* from = source(program, variant, op, bindings);
  std::byte* target = locate(program, variant, to, op.target, op.target_offset, bindings);
  if (from == target) return;  // an emulated multicast from the own slot covers itself
  if (op.rows == 1) {
    detail::check(cudaMemcpyAsync(target, from, static_cast<std::size_t>(op.width), cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
  } else {
    detail::check(cudaMemcpy2DAsync(target, op.target_pitch, from, op.source_pitch, static_cast<std::size_t>(op.width),
                                    op.rows, cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpy2DAsync");
  }
}

inline void CudaFabric::record_exit(detail::CudaProgram& program, const Exit& exit, std::uint64_t run,
                                    cudaStream_t stream) {
  auto& ring = program.exits[static_cast<std::size_t>(exit.kind)];
  detail::check(cudaEventRecord(ring[run % ring.size()].get(), stream), "cudaEventRecord");
  counters_[static_cast<std::size_t>(program.counters[static_cast<std::size_t>(exit.kind)])].recorded = run + 1;
}

inline void CudaFabric::enqueue(detail::CudaProgram& program, detail::CudaVariant& variant,
                                const detail::CudaStep& step, const detail::CudaBindings& bindings, std::uint64_t run,
                                cudaStream_t stream) {
  const Op& op = variant.plan.ops[step.first];
  const auto word_at = [&](index_t rank, index_t word) {
    return reinterpret_cast<CUdeviceptr>(window_.peer(rank, rank_.value) + program.places.signals + 8 * word);
  };
  const auto epoch = [&](const Op& of) {
    return run * static_cast<std::uint64_t>(of.per_run()) + static_cast<std::uint64_t>(of.value());
  };
  const bool two_calls = step.kind == detail::CudaStep::Kind::signal_peer && step.stages;
  const std::uint64_t calls = step.kind == detail::CudaStep::Kind::multicast ? static_cast<std::uint64_t>(mesh_.ranks())
                              : two_calls                                    ? 2
                                                                             : 1;
  const detail::CudaRange part(detail::name(step.kind), step.first);
  queue_of(stream).admit(stream, calls, [&](detail::CudaQueue::Met met) { poll(program.label, std::move(met)); });
  switch (step.kind) {
    case detail::CudaStep::Kind::copy:
      copy(program, variant, op, op.peer, bindings, stream);
      break;
    case detail::CudaStep::Kind::multicast:
      for (index_t k = 1; k <= mesh_.ranks(); ++k)
        copy(program, variant, op, (rank_.value + k) % mesh_.ranks(), bindings, stream);
      break;
    case detail::CudaStep::Kind::signal_own:
      detail::check(cudaEventRecord(variant.events[static_cast<std::size_t>(step.word)].get(), stream),
                    "cudaEventRecord");
      break;
    case detail::CudaStep::Kind::wait_own:
      detail::check(cudaStreamWaitEvent(stream, variant.events[static_cast<std::size_t>(step.word)].get()),
                    "cudaStreamWaitEvent");
      break;
    case detail::CudaStep::Kind::signal_peer: {
      // From CUDA 13.1 on a stream may not write to a peer's memory: the word is written here and copied there.
      const auto staged = reinterpret_cast<CUdeviceptr>(variant.staging + step.word);
      if (step.stages) detail::check(cuStreamWriteValue64(stream, staged, epoch(op), 0), "cuStreamWriteValue64");
      detail::check(cudaMemcpyAsync(reinterpret_cast<void*>(word_at(op.peer, op.word())),
                                    reinterpret_cast<void*>(staged), 8, cudaMemcpyDeviceToDevice, stream),
                    "cudaMemcpyAsync");
      break;
    }
    case detail::CudaStep::Kind::wait_peers: {
      std::array<CUstreamBatchMemOpParams, 255> waits{};
      unsigned count = 0;
      for (std::size_t i = step.first; i < step.last; ++i) {
        const Op& wait = variant.plan.ops[i];
        if (run == 0 && wait.value() <= 0) continue;
        CUstreamBatchMemOpParams& entry = waits[count++];
        entry.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        entry.waitValue.address = word_at(rank_.value, wait.word());
        entry.waitValue.value64 = epoch(wait);
        entry.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
      }
      if (count > 0) detail::check(cuStreamBatchMemOp(stream, count, waits.data(), 0), "cuStreamBatchMemOp");
      break;
    }
    case detail::CudaStep::Kind::sum:
    case detail::CudaStep::Kind::cast: {
      const bool cast = step.kind == detail::CudaStep::Kind::cast;
      detail::CudaLaunch launch;
      launch.rows = variant.device_rows + step.first_row;
      launch.row_count = step.row_count;
      launch.tiles = step.tiles;
      launch.tile_log2 = step.tile_log2;
      launch.source = static_cast<const std::byte*>(cast ? bindings.master : bindings.gradients);
      launch.target = cast ? window_.memory() + bindings.slot_offset : static_cast<std::byte*>(bindings.output);
      launch.inputs = variant.collective.kernels[op.kernel].inputs;
      launch.position = op.peer;
      launch.scale = bindings.scale;
      launch.residency = residency_;
      if (!cast) {
        launch.pieces = locate(program, variant, rank_.value, {Space::inbox, op.extra.instance, 0}, 0, bindings);
        launch.piece_stride = variant.collective.inbox.piece_bytes();
      }
      launch.bulk = has_bulk_sums_ && !cast && step.aligned_rows && bindings.aligned_gradients &&
                    detail::is_bulk_aligned(launch.target) && detail::is_bulk_aligned(launch.pieces) &&
                    launch.piece_stride % detail::bulk_alignment == 0;
      if (bindings.gradient_table != nullptr) {
        launch.table =
            program.table + static_cast<std::uint64_t>(program.table_entries) * (run % detail::CudaProgram::max_runs);
      }
      const index_t most = cast ? detail::cast_ctas : variant.collective.ctas;
      const int ctas = static_cast<int>(std::max<index_t>(1, std::min<index_t>(step.tiles, most)));
      detail::check(reinterpret_cast<detail::CudaKernel>(variant.code[op.kernel])(launch, ctas, stream), "a kernel");
      break;
    }
  }
}

inline void CudaFabric::launch(std::int32_t index, std::int32_t variant_index, const Bindings& bindings,
                               StreamRef stream) {
  require_running("a call");
  detail::CudaProgram& program = *programs_[static_cast<std::size_t>(index)];
  detail::CudaVariant& variant = *program.variants[static_cast<std::size_t>(variant_index)];
  const auto where = [&] { return detail::text({"; ", program.label, " on rank ", rank_.value, "."}); };
  if (stream.port != this) {
    refuse(Errc::argument, "tide::CudaFabric: the stream must belong to the fabric of the pipeline" + where());
  }
  const detail::DeviceGuard guard(device_);
  const auto caller = static_cast<cudaStream_t>(stream.handle);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  detail::check(cudaStreamIsCapturing(caller, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone) {
    refuse(Errc::argument,
           "tide::CudaFabric: a stream must not be capturing; epochs cannot advance in a replay" + where());
  }
  const void* const* given = bindings.gradient_table;
  if (given != nullptr && zeros_ == nullptr &&
      std::count(given, given + program.table_entries, missing_gradient()) > 0) {
    refuse(Errc::argument,
           "tide::CudaFabric: a gradient that is missing from a table needs "
           "CudaOptions::missing_gradients" +
               where());
  }
#if TIDE_HAS_EXCEPTIONS
  // What was enqueued in part can be neither finished nor taken back.
  try {
    run(program, variant, bindings, caller);
  } catch (const Error& error) {
    fail(error.code(), error.what());
    throw;
  }
#else
  run(program, variant, bindings, caller);
#endif
  const std::lock_guard lock(flights_mutex_);
  flights_.push_back({static_cast<std::size_t>(index), variant_index, program.next_run - 1, detail::Clock::now()});
}

inline void CudaFabric::run(detail::CudaProgram& program, detail::CudaVariant& variant, const Bindings& bindings,
                            cudaStream_t caller) {
  const std::uint64_t run = program.next_run;
  const detail::CudaRange operation(program.label.c_str(), run);
  if (run >= detail::CudaProgram::max_runs) {
    const std::uint64_t oldest = run - detail::CudaProgram::max_runs;
    for (const auto& ring : program.exits) {
      if (ring.empty()) continue;
      const cudaEvent_t event = ring[oldest % ring.size()].get();
      poll(program.label, [event] { return !detail::is_pending(event); });
    }
    program.known_done.store(oldest + 1, std::memory_order_release);  // acquired by done(), before it asks the events
  }
  // Runs come one after the other also when the caller changes streams; the other lanes are the same ones.
  const auto& complete = program.exits[static_cast<std::size_t>(ExitKind::complete)];
  if (run > 0 && caller != program.last_caller && !complete.empty()) {
    detail::check(cudaStreamWaitEvent(caller, complete[(run - 1) % complete.size()].get()), "cudaStreamWaitEvent");
  }
  program.last_caller = caller;
  ++program.next_run;
  detail::CudaBindings bound{bindings, detail::is_bulk_aligned(bindings.gradients)};
  if (bindings.gradient_table != nullptr) {
    const std::size_t entries = static_cast<std::size_t>(program.table_entries);
    const std::size_t at = entries * (run % detail::CudaProgram::max_runs);
    const void** const table = program.host_table + at;
    std::copy_n(bindings.gradient_table, entries, table);
    std::replace(table, table + entries, missing_gradient(), static_cast<const void*>(zeros_));
    bound.gradient_table = table;
    bound.aligned_gradients = std::all_of(table, table + entries, detail::is_bulk_aligned);
    detail::check(cudaMemcpyAsync(program.table + at, table, entries * 8, cudaMemcpyHostToDevice, caller),
                  "cudaMemcpyAsync");
  }
  const auto exits = [&](const std::vector<std::int32_t>& list) {
    for (const std::int32_t e : list) {
      const Exit& exit = variant.plan.exits[static_cast<std::size_t>(e)];
      const cudaStream_t on = variant.lanes[static_cast<std::size_t>(exit.lane.value)];
      record_exit(program, exit, run, on != nullptr ? on : caller);
    }
  };
  exits(variant.first_exits);
  for (const detail::CudaStep& step : variant.steps) {
    const cudaStream_t on = variant.lanes[step.lane];
    enqueue(program, variant, step, bound, run, on != nullptr ? on : caller);
    if (!step.exits.empty()) exits(step.exits);
  }
}

inline Event CudaFabric::exit_event(std::int32_t index, ExitKind kind) {
  const detail::CudaProgram& program = *programs_[static_cast<std::size_t>(index)];
  return {this, program.counters[static_cast<std::size_t>(kind)], program.next_run};
}

inline Event CudaFabric::record(StreamRef stream) {
  require_running("record");
  const detail::DeviceGuard guard(device_);
  const auto on = static_cast<cudaStream_t>(stream.handle);
  auto& mark = marks_[on];
  if (!mark.second) {
    mark.second = std::make_unique<std::vector<detail::CudaEvent>>();
    for (std::uint64_t i = 0; i < detail::CudaProgram::max_runs; ++i) mark.second->emplace_back();
    mark.first = new_counter(*mark.second, false);
  }
  Counter& counter = counters_[static_cast<std::size_t>(mark.first)];
  detail::check(cudaEventRecord((*counter.ring)[counter.recorded % counter.ring->size()].get(), on), "cudaEventRecord");
  ++counter.recorded;
  return {this, mark.first, counter.recorded};
}

inline void CudaFabric::wait(StreamRef stream, const Event& event) {
  require_running("wait");
  if (event.port != this) raise(Errc::argument, "tide::CudaFabric: an event can be waited for on its own rank only.");
  const detail::DeviceGuard guard(device_);
  const Counter& counter = counters_[static_cast<std::size_t>(event.counter)];
  // An event that was recorded again since stands for a later point of the same stream: waiting longer is safe.
  if (counter.known_passed(event.value)) return;
  detail::check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle), counter.event(event.value)),
                "cudaStreamWaitEvent");
}

inline void CudaFabric::zero(StreamRef stream, void* target, index_t bytes) {
  require_running("zero");
  const detail::DeviceGuard guard(device_);
  detail::check(cudaMemsetAsync(target, 0, static_cast<std::size_t>(bytes), static_cast<cudaStream_t>(stream.handle)),
                "cudaMemsetAsync");
}

inline bool CudaFabric::passed(std::int32_t index, std::uint64_t value) {
  if (failure_.failed()) failure_.raise_it();
  const Counter& counter = counters_[static_cast<std::size_t>(index)];
  if (counter.known_passed(value)) return true;
  const cudaError_t status = cudaEventQuery(counter.event(value));
  if (detail::is_not_ready(status)) return false;
  detail::check(status, "cudaEventQuery");
  return true;
}

inline void CudaFabric::synchronize(std::int32_t index, std::uint64_t value) {
  poll("an event", [&] { return passed(index, value); });
}

}  // namespace tide
