// SPDX-License-Identifier: Apache-2.0
//
// The member functions of CudaFabric that enqueue, and those that fail and wait.

#pragma once

#include <tide/fabric/cuda_fabric.cuh>
#include <tide/fabric/detail/cuda_range.cuh>  // CudaRange

#include <algorithm>
#include <thread>

namespace tide {

// Whether it is the first.
inline bool CudaFabric::fail_alone(Errc code, const std::string& text, detail::CudaMail::Reach reach) {
  if (!failure_.set(code, text)) return false;
  communicators_->distrust();
  if (mail_.is_open()) mail_.send_error(code, text, reach, rescue_stream_);
  return true;
}

inline void CudaFabric::fail_other(Errc code, const std::string& text) {
  if (pair_)
    pair_->tell_other(*this, [&](CudaFabric& other) {
      static_cast<void>(other.fail_alone(code, text, detail::CudaMail::Reach::all));
    });
}

inline void CudaFabric::fail(Errc code, const std::string& text, detail::CudaMail::Reach reach) {
  if (fail_alone(code, text, reach)) fail_other(code, text);
}

inline void CudaFabric::fail_late(Duration deadline, const std::string& what) {
  fail(Errc::deadline, detail::text({"tide::CudaFabric: the deadline of ", detail::seconds_text(deadline),
                                     " passed: rank ", rank_.value, " waited for ", what, "."}));
  raise_failure();
}

inline void CudaFabric::refuse(Errc code, const std::string& text) {
  require_running("a call");
  const detail::DeviceGuard guard(device_);
  if (mesh_.ranks() > 1 || (pair_ && pair_->other(*this).mesh_.ranks() > 1)) {
    fail(code, text);
    raise_failure();  // an earlier one of another rank, perhaps
  }
  raise(code, text);
}

inline void CudaFabric::require_running(const char* call) {
  if (failure_.failed()) raise_failure();
  if (phase_ == Phase::running) return;
  raise(Errc::order,
        detail::text({"tide::CudaFabric: ", call,
                      phase_ == Phase::building ? " needs init to be called first." : " cannot follow close."}));
}

inline void CudaFabric::poll(const std::string& what, detail::CudaQueue::Met met) {
  poll(what, std::move(met), options_.deadline);
}

inline void CudaFabric::poll(const std::string& what, detail::CudaQueue::Met met, Duration deadline) {
  // The watchdog knows which wait of which op is unmet: it gets a moment to say so before this says less.
  const auto moment = watchdog_.joinable() ? Duration(std::chrono::seconds(2)) : Duration(0);
  const auto end = detail::Clock::now() + detail::bounded(deadline) + moment;
  for (int spins = 0; !met(); ++spins) {
    if (failure_.failed()) raise_failure();
    if (detail::Clock::now() > end) fail_late(deadline, what);
    // The first millisecond is worth a busy core, what is longer is not.
    if (spins > 1000) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Raises the error once waits have been let go and streams have run down, so that whoever catches it may free memory:
// cudaFree keeps all threads of the process from the driver until the GPU is idle, the watchdog among them. Where a
// stream is stuck for good it is raised all the same.
inline void CudaFabric::raise_failure() {
  const auto all_quiet = [this] {
    if (!pair_) return is_quiet();
    const CudaFabric& other = pair_->other(*this);
    return is_quiet() && (other.is_quiet() || !other.failure_.failed());
  };
  const auto begun = detail::Clock::now();
  while (!has_run_down_ && !all_quiet() && detail::Clock::now() < begun + std::chrono::seconds(has_released_ ? 2 : 4)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  has_run_down_ = true;
  failure_.raise_it();
}

// Before `calls` more calls on a stream.
inline void CudaFabric::admit(cudaStream_t stream, index_t calls, const std::string& what) {
  queues_[stream].admit(stream, static_cast<std::uint64_t>(calls), polls(what));
}

inline CUdeviceptr CudaFabric::word_at(const detail::CudaProgram& program, index_t rank, index_t word) const {
  return reinterpret_cast<CUdeviceptr>(window_.peer(rank, rank_.value) + program.places.signals + 8 * word);
}

inline std::byte* CudaFabric::locate(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                                     std::byte* arena, Place place, index_t offset, const Bindings& bindings) const {
  switch (place.space) {
    case Space::slot:
      return arena + bindings.slot_offset + offset;
    case Space::inbox:
      return arena +
             (variant.collective.inbox.place == InboxPlace::slot ? bindings.slot_offset : program.places.inbox) +
             place.instance * variant.collective.inbox.chunk_bytes() + offset;
    case Space::network_inbox:
      return arena + bindings.network_inbox + place.instance * variant.collective.network.inbox_bytes + offset;
    case Space::partials:
      return arena + bindings.partials + place.instance * variant.collective.network.partials_bytes + offset;
    case Space::shards:  // which the plan writes where the caller gives none: then they lie in the arena
      return static_cast<std::byte*>(const_cast<void*>(bindings.shards)) + offset;
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
      return locate(program, variant, window_.memory(), op.source, offset, bindings);
  }
}

// @param arena  where it begins: a rank's, or what stands for those of all ranks of the node
inline void CudaFabric::copy(const detail::CudaProgram& program, const detail::CudaVariant& variant, const Op& op,
                             std::byte* arena, const Bindings& bindings, cudaStream_t stream) const {
  const std::byte* from = source(program, variant, op, bindings);
  std::byte* target = locate(program, variant, arena, op.target, op.target_offset, bindings);
  if (from == target) return;  // an emulated multicast from the own slot covers itself
  detail::copy_block(target, op.target_pitch, from, op.source_pitch, op.width, op.rows, stream);
}

inline void CudaFabric::record_exit(detail::CudaProgram& program, const Exit& exit, std::uint64_t run,
                                    cudaStream_t stream) {
  auto& ring = program.exits[static_cast<std::size_t>(exit.kind)];
  detail::check(cudaEventRecord(ring[run % ring.size()].get(), stream), "cudaEventRecord");
  counters_[static_cast<std::size_t>(program.counters[static_cast<std::size_t>(exit.kind)])].recorded = run + 1;
}

// The epoch of a value: words are 64 bits and only grow.
[[nodiscard]] inline std::uint64_t CudaFabric::epoch(index_t value, index_t per_run, std::uint64_t run) noexcept {
  return run * static_cast<std::uint64_t>(per_run) + static_cast<std::uint64_t>(value);
}

inline void CudaFabric::enqueue(detail::CudaProgram& program, detail::CudaVariant& variant,
                                const detail::CudaStep& step, const detail::CudaBindings& bindings, std::uint64_t run,
                                cudaStream_t stream) {
  if (step.kind == detail::CudaStep::Kind::rendezvous) {
    keep_rendezvous(program, variant, variant.rendezvous[step.first], bindings, run, stream);
    return;
  }
  const Op& op = variant.plan.ops[step.first];
  const bool two_calls = step.kind == detail::CudaStep::Kind::signal_peer && step.stages;
  const std::vector<std::byte*>& all = multicast_.writes();
  const detail::CudaRange part(detail::name(step.kind), step.first);
  const bool is_multicast = step.kind == detail::CudaStep::Kind::multicast;
  admit(stream, is_multicast ? static_cast<index_t>(all.size()) : two_calls ? 2 : 1, program.label);
  switch (step.kind) {
    case detail::CudaStep::Kind::copy:
      copy(program, variant, op, window_.peer(op.peer, rank_.value), bindings, stream);
      break;
    case detail::CudaStep::Kind::own_copy:
      if (is_bulk(program, variant, step, bindings)) {
        start_kernel(program, variant, step, bindings, run, stream);
        break;
      }
      for (std::size_t i = step.first; i < step.last; ++i) {
        Op each = variant.plan.ops[i];
        const std::uint32_t rows = each.width < detail::long_row_bytes ? 1 : std::exchange(each.rows, 1);
        for (std::uint32_t r = 0; r < rows; ++r) {
          if (i > step.first || r > 0) admit(stream, 1, program.label);
          copy(program, variant, each, window_.memory(), bindings, stream);
          each.source_offset += each.source_pitch;
          each.target_offset += each.target_pitch;
        }
      }
      break;
    case detail::CudaStep::Kind::multicast:
      for (std::byte* arena : all) copy(program, variant, op, arena, bindings, stream);
      break;
    case detail::CudaStep::Kind::put: {
      detail::CudaNetwork& net = network(variant.collective.operation);
      admit(net.stream(), detail::CudaNetwork::calls_of_put, program.label);
      const std::byte* target = locate(program, variant, window_.memory(), op.target, op.target_offset, bindings);
      net.put(source(program, variant, op, bindings), op.width, communicator_rank(op.peer), target - window_.memory(),
              stream, polls(program.label));
      break;
    }
    case detail::CudaStep::Kind::signal_node: {
      detail::CudaNetwork& net = network(variant.collective.operation);
      admit(net.stream(), detail::CudaNetwork::calls_of_put, program.label);
      net.signal(epoch(op.value(), op.per_run(), run), communicator_rank(op.peer),
                 program.places.signals + 8 * op.word(), stream, polls(program.label));
      break;
    }
    case detail::CudaStep::Kind::send:
      detail::check(cudaEventRecord(program.sent[step.lane].get(), stream), "cudaEventRecord");
      break;
    case detail::CudaStep::Kind::rendezvous:
      break;
    case detail::CudaStep::Kind::signal_own:
      detail::check(cudaEventRecord(program.events[static_cast<std::size_t>(step.word)].get(), stream),
                    "cudaEventRecord");
      break;
    case detail::CudaStep::Kind::wait_own:
      detail::check(cudaStreamWaitEvent(stream, program.events[static_cast<std::size_t>(step.word)].get()),
                    "cudaStreamWaitEvent");
      break;
    case detail::CudaStep::Kind::signal_peer: {
      // From CUDA 13.1 on a stream may not write to a peer's memory: the word is written here and copied there.
      const auto staged = reinterpret_cast<CUdeviceptr>(variant.staging + step.word);
      if (step.stages) {
        detail::check(cuStreamWriteValue64(stream, staged, epoch(op.value(), op.per_run(), run), 0),
                      "cuStreamWriteValue64");
      }
      detail::check(cudaMemcpyAsync(reinterpret_cast<void*>(word_at(program, op.peer, op.word())),
                                    reinterpret_cast<void*>(staged), 8, cudaMemcpyDeviceToDevice, stream),
                    "cudaMemcpyAsync");
      break;
    }
    case detail::CudaStep::Kind::wait_peers:
      wait_for_ranks(program, variant, step, run, stream);
      break;
    case detail::CudaStep::Kind::sum:
    case detail::CudaStep::Kind::switch_sum:
    case detail::CudaStep::Kind::cast:
      start_kernel(program, variant, step, bindings, run, stream);
      break;
  }
}

// Waits for words, as many as follow each other in one call. Words of what other nodes put are raised by the network
// stream: the first wait for a value makes it do so.
inline void CudaFabric::wait_for_ranks(detail::CudaProgram& program, const detail::CudaVariant& variant,
                                       const detail::CudaStep& step, std::uint64_t run, cudaStream_t stream) {
  std::array<CUstreamBatchMemOpParams, 255> waits{};
  unsigned count = 0;
  landings_.clear();
  for (std::size_t i = step.first; i < step.last; ++i) {
    const Op& wait = variant.plan.ops[i];
    if (run == 0 && wait.value() <= 0) continue;
    CUstreamBatchMemOpParams& entry = waits[count++];
    entry.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    entry.waitValue.address = word_at(program, rank_.value, wait.word());
    entry.waitValue.value64 = epoch(wait.value(), wait.per_run(), run);
    entry.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    if (!variant.is_landing(wait)) continue;
    const index_t from = program.words.index(wait.word());
    std::uint64_t& landed = program.landed[static_cast<std::size_t>(from)];
    if (entry.waitValue.value64 <= landed) continue;
    landings_.push_back({communicator_rank(from), static_cast<int>(entry.waitValue.value64 - landed),
                         entry.waitValue.address, entry.waitValue.value64});
    landed = entry.waitValue.value64;
  }
  if (!landings_.empty()) {
    detail::CudaNetwork& net = network(variant.collective.operation);
    admit(net.stream(), static_cast<index_t>(2 * landings_.size()), program.label);
    net.await(landings_, polls(program.label));
  }
  if (count > 0) detail::check(cuStreamBatchMemOp(stream, count, waits.data(), 0), "cuStreamBatchMemOp");
}

// Behind what the lanes that send have done, and before what they do after a put. Receives go to where a put would have
// gone: arenas are alike on all ranks.
inline void CudaFabric::keep_rendezvous(detail::CudaProgram& program, const detail::CudaVariant& variant,
                                        const detail::CudaRendezvous& rendezvous, const Bindings& bindings,
                                        std::uint64_t run, cudaStream_t caller) {
  const detail::CudaRange part("rendezvous", static_cast<std::uint64_t>(rendezvous.phase));
  detail::CudaNetwork& net = network(variant.collective.operation);
  parcels_.clear();
  raises_.clear();
  rendezvous_peers_.clear();
  sent_.clear();
  put_lanes_.clear();
  for (const Rendezvous::Send& send : rendezvous.sends) {
    if (send.bytes == 0) continue;
    parcels_.sends.push_back({source(program, variant, variant.plan.ops[send.op], bindings),
                              static_cast<std::size_t>(send.bytes), communicator_rank(send.peer)});
  }
  for (const Rendezvous::Receive& receive : rendezvous.receives) {
    raises_.push_back(
        {word_at(program, rank_.value, receive.raise.word), epoch(receive.raise.value, receive.raise.per_run, run)});
    if (receive.bytes == 0) continue;
    parcels_.receives.push_back({locate(program, variant, window_.memory(), receive.place, receive.offset, bindings),
                                 static_cast<std::size_t>(receive.bytes), communicator_rank(receive.peer)});
  }
  for (const std::int32_t to : rendezvous.tokens_to) parcels_.sends.push_back(net.token_to(communicator_rank(to)));
  for (const std::int32_t from : rendezvous.tokens_from) {
    parcels_.receives.push_back(net.token_from(communicator_rank(from)));
  }
  for (const std::int32_t peer : rendezvous.peers) rendezvous_peers_.push_back(communicator_rank(peer));
  for (const std::uint16_t lane : rendezvous.lanes) sent_.push_back(program.sent[lane].get());
  for (const std::uint16_t lane : rendezvous.put_lanes) {
    put_lanes_.push_back(variant.lanes[lane] != nullptr ? variant.lanes[lane] : caller);
    admit(put_lanes_.back(), 1, program.label);
  }
  admit(net.stream(), rendezvous.calls(), program.label);
  const ncclResult_t status =
      net.rendezvous(parcels_, rendezvous_peers_, sent_, raises_, put_lanes_, polls(program.label));
  if (status == ncclSuccess) return;
  std::string ranks;
  for (const std::int32_t peer : rendezvous.peers) ranks += (ranks.empty() ? "" : ", ") + std::to_string(peer);
  detail::check(status, detail::text({"a rendezvous with rank ", ranks, " of ", program.label, ", step ", run,
                                      ", on rank ", rank_.value, ","})
                            .c_str());
}

// Bytes from a piece of a sum to the next one.
[[nodiscard]] inline index_t CudaFabric::piece_stride(const Collective& collective, const Op& sum) noexcept {
  return sum.extra.space == Space::inbox ? collective.inbox.piece_bytes() : collective.network.piece_bytes;
}

// Whether a launch may use bulk loads: its rows fit them, and so does all that it is bound to.
inline bool CudaFabric::is_bulk(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                                const detail::CudaStep& step, const detail::CudaBindings& bindings) const {
  if (!has_bulk_loads_ || !step.bulk) return false;
  const Op& op = variant.plan.ops[step.first];
  const bool aligned_source = op.source.space == Space::gradients
                                  ? bindings.aligned_gradients
                                  : detail::is_bulk_aligned(source(program, variant, op, bindings));
  if (!aligned_source || !detail::is_bulk_aligned(locate(program, variant, window_.memory(), op.target, 0, bindings))) {
    return false;
  }
  return step.kind != detail::CudaStep::Kind::sum ||
         (detail::is_bulk_aligned(locate(program, variant, window_.memory(), op.extra, 0, bindings)) &&
          piece_stride(variant.collective, op) % detail::bulk_alignment == 0);
}

inline void CudaFabric::start_kernel(const detail::CudaProgram& program, const detail::CudaVariant& variant,
                                     const detail::CudaStep& step, const detail::CudaBindings& bindings,
                                     std::uint64_t run, cudaStream_t stream) {
  const Op& op = variant.plan.ops[step.first];
  const Collective& collective = variant.collective;
  const bool from_gradients = op.source.space == Space::gradients;
  detail::CudaLaunch launch;
  launch.rows = variant.device_rows + step.first_row;
  launch.row_count = step.row_count;
  launch.tiles = step.tiles;
  launch.tile_log2 = step.tile_log2;
  launch.target = locate(program, variant, window_.memory(), op.target, 0, bindings);
  launch.residency = residency_;
  launch.bulk = is_bulk(program, variant, step, bindings);
  const auto ctas = [&step](index_t most) {
    return static_cast<int>(std::max<index_t>(1, std::min<index_t>(step.tiles, most)));
  };
  if (step.kind == detail::CudaStep::Kind::own_copy) {
    launch.source = source(program, variant, op, bindings) - op.source_offset;
    detail::check(detail::launch_copy(launch, ctas(detail::bulk_copy_ctas), stream), "a kernel");
    return;
  }
  const Kernel& kernel = collective.kernels[op.kernel];
  index_t most = collective.ctas;
  launch.inputs = kernel.inputs;
  launch.scale = kernel.finish == Finish::partial ? 1.0F : bindings.scale;
  switch (step.kind) {
    case detail::CudaStep::Kind::cast:
      launch.source = static_cast<const std::byte*>(bindings.master);
      most = detail::cast_ctas;
      break;
    case detail::CudaStep::Kind::switch_sum:
      multicast_.bind_sum(launch);
      launch.piece_stride = collective.network.piece_bytes;
      break;
    default:
      launch.source = from_gradients ? static_cast<const std::byte*>(bindings.gradients)
                                     : locate(program, variant, window_.memory(), op.source, 0, bindings);
      launch.position = op.peer;
      launch.pieces = locate(program, variant, window_.memory(), op.extra, 0, bindings);
      launch.piece_stride = piece_stride(collective, op);
      if (from_gradients && bindings.gradient_table != nullptr) {
        launch.table =
            program.table + static_cast<std::uint64_t>(program.table_entries) * (run % detail::CudaProgram::max_runs);
      }
  }
  detail::check(reinterpret_cast<detail::CudaKernel>(variant.code[op.kernel])(launch, ctas(most), stream), "a kernel");
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
  {
    const std::lock_guard lock(flights_mutex_);
    flights_.push_back({static_cast<std::size_t>(index), variant_index, program.next_run, detail::Clock::now()});
  }
#if TIDE_HAS_EXCEPTIONS
  // What was enqueued in part can be neither finished nor taken back.
  try {
    run(program, variant, bindings, caller);
  } catch (const Error& error) {
    fail(error.code(), error.what());
    raise_failure();
  }
#else
  run(program, variant, bindings, caller);
#endif
  program.enqueued.store(program.next_run, std::memory_order_release);  // acquired by done(), before it asks the events
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
  if (run > 0) detail::check(cudaStreamWaitEvent(caller, program.caller_done.get()), "cudaStreamWaitEvent");
  ++program.next_run;
  detail::CudaBindings bound{bindings, detail::is_bulk_aligned(bindings.gradients)};
  if (variant.puts_shards && !window_.holds(bindings.shards)) {
    // A put takes what lies in the window.
    bound.shards = bindings.packed_shards;
    admit(caller, 1, program.label);
    detail::check(cudaMemcpyAsync(bindings.packed_shards, bindings.shards,
                                  static_cast<std::size_t>(variant.shards_bytes), cudaMemcpyDeviceToDevice, caller),
                  "cudaMemcpyAsync");
  }
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
  detail::check(cudaEventRecord(program.caller_done.get(), caller), "cudaEventRecord");
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
  const CudaFabric* const owner = pair_ && event.port == &pair_->other(*this) ? &pair_->other(*this) : this;
  if (event.port != owner) raise(Errc::argument, "tide::CudaFabric: an event can be waited for on its own rank only.");
  const detail::DeviceGuard guard(device_);
  const Counter& counter = owner->counters_[static_cast<std::size_t>(event.counter)];
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
  if (failure_.failed()) raise_failure();
  const Counter& counter = counters_[static_cast<std::size_t>(index)];
  if (counter.known_passed(value)) return true;
  const cudaError_t status = cudaEventQuery(counter.event(value));
  if (detail::is_not_ready(status)) return false;
  detail::check(status, "cudaEventQuery");
  if (failure_.failed()) raise_failure();  // whose end of all waits let the event pass, perhaps
  return true;
}

inline void CudaFabric::synchronize(std::int32_t index, std::uint64_t value) {
  poll("an event", [&] { return passed(index, value); });
}

}  // namespace tide
