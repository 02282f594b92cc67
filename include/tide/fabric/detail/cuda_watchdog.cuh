// SPDX-License-Identifier: Apache-2.0
//
// The watchdog of CudaFabric, and how it ends. A stream wait has no time-out of its own, so a host thread looks after
// the runs: when one is late it reads the words, says which wait is unmet, and releases all waits by writing them far
// ahead.

#pragma once

#include <tide/fabric/cuda_fabric.cuh>

#include <algorithm>
#include <optional>
#include <thread>

namespace tide {

inline bool CudaFabric::done(const Flight& flight) {
  const detail::CudaProgram& program = *programs_[flight.program];
  // A later run may have taken the events of this one, after it was found done.
  if (flight.run < program.known_done.load(std::memory_order_acquire)) return true;
  if (flight.run >= program.enqueued.load(std::memory_order_acquire)) return false;
  for (const auto& ring : program.exits) {
    if (!ring.empty() && detail::is_pending(ring[flight.run % ring.size()].get())) return false;
  }
  return true;
}

inline void CudaFabric::watch() {
  cudaSetDevice(device_);
  bool is_late = false;
  std::optional<Late> own;  // what the other ranks have been told
  for (int turn = 0; !stopping_.load(std::memory_order_acquire); ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (failure_.failed()) {
      if (!has_released_ || turn % 10 == 0) release_when_known();
      continue;
    }
    hear();
    if (mesh_.ranks() > 1 && (turn % 10 == 0 || is_late) && !detail::is_busy(rescue_stream_)) mail_.ask(rescue_stream_);
    if (failure_.failed()) continue;
    Flight oldest;
    {
      const std::lock_guard lock(flights_mutex_);
      while (!flights_.empty() && done(flights_.front())) flights_.pop_front();
      if (!flights_.empty()) oldest = flights_.front();
    }
    const bool flies = oldest.begun != detail::Clock::time_point{};
    if (own && (!flies || own->program != oldest.program || own->run != oldest.run)) {
      own.reset();
      complain({});
    }
    const auto late = detail::Clock::now() - oldest.begun - options_.deadline;
    is_late = flies && late >= Duration(0);
    if (!is_late) continue;
    if (!own) {
      own = diagnose(oldest);
      complain(*own);
    }
    // What no rank of this fabric is to blame for may wait for an event of the other one.
    if (const std::string reason = pair_ && own->peer < 0 ? pair_->complaint_of_other(*this) : ""; !reason.empty()) {
      own->peer = mesh_.ranks();
      own->text = reason;
      complain(*own);
    }
    // Often all ranks are late at once, and each for another: all get a moment to say for whom. Then the lowest speaks,
    // and the others say what it said.
    constexpr auto moment = std::chrono::seconds(1);
    if (late < moment + std::min<index_t>(rank_.value, 8) * std::chrono::milliseconds(60)) continue;
    hear();  // whoever was late first knows more
    const std::string reason = detail::is_busy(rescue_stream_) ? std::string() : mail_.last_reason();
    fail(Errc::deadline, reason.empty() ? own->text : reason);
  }
}

// Tells the others what a run waits for too long; of nothing where none does.
inline void CudaFabric::complain(const Late& late) {
  mail_.send_late(late.peer, late.text, rescue_stream_);
  if (pair_) pair_->complain(*this, late.text);
}

// Takes over the error of a rank that has told of one.
inline void CudaFabric::hear() {
  if (detail::is_busy(rescue_stream_)) return;
  const detail::CudaLetter* letter = mail_.error();
  if (letter == nullptr) return;
  // The copy that brought the flag may have read the text before it came: what is read from now on has all of it.
  mail_.ask(rescue_stream_);
  const auto end = detail::Clock::now() + std::chrono::seconds(1);
  while (detail::is_busy(rescue_stream_)) {
    if (detail::Clock::now() > end) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto code = static_cast<Errc>(std::min(letter->code, static_cast<std::uint64_t>(Errc::operation)));
  fail(code, letter->text, detail::CudaMail::Reach::machine);  // which says that this rank knows, too
}

// The first wait of a run that its word does not meet. The words are read on a stream of their own; where even that is
// stuck (CUDA_DEVICE_MAX_CONNECTIONS=1), the error names the operation and the peers that it waits for.
inline CudaFabric::Late CudaFabric::diagnose(const Flight& flight) {
  const detail::CudaProgram& program = *programs_[flight.program];
  const detail::CudaVariant& variant = *program.variants[static_cast<std::size_t>(flight.variant)];
  const std::string begin = detail::text({"tide::CudaFabric: the deadline of ", detail::seconds_text(options_.deadline),
                                          " passed: ", program.label, ", step ", flight.run, ", rank ", rank_.value});
  if (const auto head = network(variant.collective.operation).head()) {
    std::string ranks;
    for (const int peer : head->peers)
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(nodes_.in_mesh(peer).value);
    const index_t peer = head->peers.size() == 1 ? nodes_.in_mesh(head->peers.front()).value : mesh_.ranks();
    using Kind = detail::CudaNetwork::Kind;
    return {flight.program, flight.run, peer,
            head->kind == Kind::put    ? detail::text({begin, ": a put to rank ", ranks, " is not over."})
            : head->kind == Kind::wait ? detail::text({begin, ": waits for rank ", ranks, " to put what it has to."})
                                       : detail::text({begin, ": a rendezvous with rank ", ranks, " is not over."})};
  }
  // Into pinned memory: a copy to pageable memory would block this thread behind the very wait that it looks into.
  const volatile std::uint64_t* words = seen_words_;
  cudaMemcpyAsync(seen_words_, window_.memory() + program.places.signals,
                  static_cast<std::size_t>(program.words.bytes()), cudaMemcpyDeviceToHost, rescue_stream_);
  const auto end = detail::Clock::now() + std::chrono::seconds(1);
  while (detail::is_busy(rescue_stream_)) {
    if (detail::Clock::now() > end) {
      return {flight.program, flight.run, mesh_.ranks(), begin + ": waits for its peers; the words could not be read."};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::size_t seq = 0; seq < variant.plan.ops.size(); ++seq) {
    const Op& op = variant.plan.ops[seq];
    if (op.kind != OpKind::wait || program.words.kind(op.word()) == WordKind::event) continue;
    if (flight.run == 0 && op.value() <= 0) continue;
    const std::uint64_t expected = epoch(op.value(), op.per_run(), flight.run);
    const std::uint64_t is = words[op.word()];
    if (is >= expected) continue;
    const index_t peer = program.words.index(op.word());
    return {flight.program, flight.run, peer,
            detail::text({begin, ", lane ", variant.plan.lanes[op.lane].name(), ", op ", seq, " (wait) waits for rank ",
                          peer, ": ", program.words.describe(op.word()), " is ", is, ", expected ", expected, "."})};
  }
  return {flight.program, flight.run, -1, begin + ": its own work was not done; every peer has signalled."};
}

// Whether no rank takes for a result what streams send when their waits are over: all have said that they know of the
// error. Who does not answer gets a second: a rank that cannot read its letters for as long is not kept from it. As
// long gets the other fabric of a pair, whose ranks have others to tell.
inline bool CudaFabric::others_know() {
  if (!mail_.is_open()) return true;
  const auto now = detail::Clock::now();
  if (failed_since_ == detail::Clock::time_point{}) failed_since_ = now;
  if (now - failed_since_ > std::chrono::seconds(1)) return true;
  if (detail::is_busy(rescue_stream_)) return false;
  const bool all_know = !pair_ && mail_.all_know();
  mail_.ask(rescue_stream_);
  return all_know;
}

// To be called again and again: a signal of a healthy rank that comes late writes its word, and waits may still be
// enqueued.
inline void CudaFabric::release_when_known() {
  if (has_released_ ? detail::is_busy(rescue_stream_) : !others_know()) return;
  release_waits();
  has_released_ = true;
}

// Whether nothing that has failed waits any more.
inline bool CudaFabric::is_quiet() const {
  if (!watchdog_.joinable()) return true;
  if (!has_released_ || detail::is_busy(rescue_stream_) || is_running()) return false;
  const auto is_left = [](const auto& program) {
    return program->next_run > 0 && detail::is_pending(program->caller_done.get());
  };
  const auto is_open_and_busy = [](const detail::CudaNetwork& each) {
    return each.is_open() && detail::is_busy(each.stream());
  };
  return std::none_of(programs_.begin(), programs_.end(), is_left) &&
         std::none_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return detail::is_busy(lane.second); }) &&
         std::none_of(streams_.begin(), streams_.end(), detail::is_busy) &&
         std::none_of(networks_.begin(), networks_.end(), is_open_and_busy);
}

// Whether to free memory would wait for this one's streams, and keep its watchdog, which could end that, from the
// driver.
inline bool CudaFabric::holds_up_frees() const {
  if (!watchdog_.joinable()) return is_stuck_;
  return failure_.failed() ? !is_quiet() : is_running();
}

// Writes every word far ahead: the comparison of a stream wait is cyclic, so 2^62 beyond is met and 2^64 - 1 is not.
inline void CudaFabric::release_waits() {
  for (const auto& program : programs_) {
    for (index_t word = 0; word < program->words.count(); ++word) {
      constexpr std::uint64_t ahead = (std::uint64_t{1} << 62) + (std::uint64_t{1} << 40);
      cuStreamWriteValue64(rescue_stream_,
                           reinterpret_cast<CUdeviceptr>(window_.memory() + program->places.signals + 8 * word), ahead,
                           0);
    }
  }
}

// Whether a run of this rank is still on its way: its last exits have not been passed. Signals to other nodes, which
// may follow them, are on the network streams.
inline bool CudaFabric::is_running() const {
  for (const auto& program : programs_) {
    if (program->next_run == 0) continue;
    for (const auto& ring : program->exits) {
      if (!ring.empty() && detail::is_pending(ring[(program->next_run - 1) % ring.size()].get())) return true;
    }
  }
  return false;
}

inline void CudaFabric::close() {
  if (phase_ == Phase::running && !failure_.failed()) {
    const detail::DeviceGuard guard(device_);
    const auto idle = [](cudaStream_t stream) { return [stream] { return !detail::is_busy(stream); }; };
#if TIDE_HAS_EXCEPTIONS
    try {
#endif
      poll("its own runs", [this] { return !is_running(); });
      for (const cudaStream_t stream : streams_) poll("the work of a stream", idle(stream));
      for (const auto& entry : lanes_) poll("the work of a lane", idle(entry.second));
      for (const detail::CudaNetwork& each : networks_) {
        if (each.is_open()) poll("what crosses nodes", idle(each.stream()));
      }
      meet_to_close();
#if TIDE_HAS_EXCEPTIONS
    } catch (const Error& error) {
      fail(error.code(), error.what());
      stop();  // what a failed close leaves behind is no use to anyone
      throw;
    }
#endif
  }
  stop();
  if (failure_.failed()) failure_.raise_it();
}

// Nobody gives memory back while a peer may still write to it.
inline void CudaFabric::meet_to_close() {
  stopping_.store(true, std::memory_order_release);
  if (watchdog_.joinable()) watchdog_.join();
  if (failure_.failed()) failure_.raise_it();
  if (mesh_.ranks() > 1) {
    mail_.send_closing(rescue_stream_);
    mail_.ask(rescue_stream_);
    poll("the other ranks to close", [this] { return listen() && mail_.all_close(); });
    if (failure_.failed()) failure_.raise_it();
    part_from_far_ranks();
  }
  closed_by_all_ = true;
  communicators_->close();
}

// Where the watchdog has ended: reads the letters again. Whether those that were asked for are there.
inline bool CudaFabric::listen() {
  if (detail::is_busy(rescue_stream_)) return false;
  hear();
  mail_.ask(rescue_stream_);
  return true;
}

// A put to another machine that is over need not have landed: memory is kept until all have. And a rank that ends its
// process must not do so before what goes to it is over.
inline void CudaFabric::part_from_far_ranks() {
  if (const cudaStream_t letters = mail_.far_stream(); letters != nullptr) {
    mail_.await_far();
    for (detail::CudaNetwork& each : networks_) {
      if (each.is_open()) each.part();
    }
    poll("farewells", [&] {
      const auto busy = [](const detail::CudaNetwork& each) {
        return each.is_open() && detail::is_busy(each.stream());
      };
      static_cast<void>(listen());
      return !detail::is_busy(letters) && std::none_of(networks_.begin(), networks_.end(), busy);
    });
  }
  if (!far_ranks().empty()) static_cast<void>(meet(true));
}

inline void CudaFabric::stop() noexcept {
  if (phase_ == Phase::closed) return;
  stopping_.store(true, std::memory_order_release);
  if (watchdog_.joinable()) watchdog_.join();
  if (pair_) pair_->leave(*this);
  if (phase_ == Phase::running && mesh_.nodes > 1 && !closed_by_all_) communicators_->distrust();
  phase_ = Phase::closed;
  // A driver that is shutting down has taken everything back already.
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess) return;
  cudaSetDevice(device_);
  bool releases = failure_.failed() && window_.memory() != nullptr;
  for (; releases && !has_released_; std::this_thread::sleep_for(std::chrono::milliseconds(1))) release_when_known();
  auto end = detail::Clock::now() + std::chrono::seconds(5);
  int turn = 0;
  const auto busy = [&](cudaStream_t stream) {
    while (stream != nullptr ? detail::is_busy(stream) : is_running()) {
      if (detail::Clock::now() > end) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (releases && ++turn % 100 == 0) release_when_known();
    }
    return false;
  };
  const cudaStream_t letters = mail_.far_stream();
  // Where a rank did not come to init, NCCL's kernel waits for it in vain. Ending communicators would wait for a letter
  // to such a rank.
  if (failure_.failed() && letters == nullptr && detail::is_busy(init_stream_)) {
    communicators_->give_up();
    nccl_multicast_.abandon();
    window_.abandon();
    releases = false;
  }
  bool stuck = busy(init_stream_);
  stuck = busy(nullptr) || stuck;  // runs on streams of the user
  for (const cudaStream_t stream : streams_) stuck = busy(stream) || stuck;
  for (const auto& entry : lanes_) stuck = busy(entry.second) || stuck;
  for (const detail::CudaNetwork& each : networks_) stuck = (each.is_open() && busy(each.stream())) || stuck;
  // Before anything is freed. What has not failed ends, or fails at its deadline.
  while (!stuck && pair_ && pair_->other(*this).holds_up_frees()) {
    if (!pair_->other(*this).failure_.failed()) end = detail::Clock::now() + std::chrono::seconds(5);
    stuck = detail::Clock::now() > end;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (letters != nullptr) {
    const bool unsent = busy(rescue_stream_) || busy(letters);
    stuck = unsent || !closed_by_all_ || stuck;  // puts of others may come yet
  }
  is_stuck_ = stuck;
  if (!stuck) {
    for (detail::CudaNetwork& each : networks_) each.release();
    for (const auto& program : programs_) {
      for (const auto& variant : program->variants) variant->release();
      if (program->table != nullptr) cudaFree(program->table);
      if (program->host_table != nullptr) cudaFreeHost(program->host_table);
    }
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (const auto& entry : lanes_) cudaStreamDestroy(entry.second);
    cudaStreamDestroy(init_stream_);
    cudaStreamDestroy(rescue_stream_);
    cudaFree(meeting_word_);
    cudaFree(zeros_);
    if (seen_words_ != nullptr) cudaFreeHost(seen_words_);
    mail_.release();
    multicast_.release();
    nccl_multicast_.release();
    window_.release();
    // Where a rank may be gone nothing is done that needs all.
    if (node_ != nullptr) closed_by_all_ ? ncclCommDestroy(node_) : ncclCommAbort(node_);
  } else {
    // What a stuck stream still uses is left to the end of the process; NCCL would wait for it.
    multicast_.abandon();
    nccl_multicast_.abandon();
    window_.abandon();
    communicators_->abandon();
  }
  cudaSetDevice(before);
}

}  // namespace tide
