// SPDX-License-Identifier: Apache-2.0
//
// CudaMail: what ranks tell each other beside the plans, through their arenas: that they are closing, for whom they
// wait too long, and their first error. A letter of each rank lies in the arena of every rank; its owner copies it
// there, the others only read.
//
//   arena of rank 1   | letter of rank 0 | own letter | letter of rank 2 | ...      1024 bytes each
//
// To ranks on other machines the whole letter is put, in one group, through a communicator that carries nothing else
// and on a stream of its own: a rank that is lost may hold both for ever, and what comes after does not arrive. Where
// there are no puts no letter goes there, and none comes: each machine then has its own deadline and its own error.
//
// Copies of one stream arrive in order, so a word is sent after the text that it speaks of. A put, and a copy that
// reads a letter, promise no order: who sees the word reads again before it believes the text.

#pragma once

#include <tide/fabric/detail/cuda_check.cuh>   // check, is_busy
#include <tide/fabric/detail/host_state.hpp>   // Failure
#include <tide/fabric/detail/nccl_puts.cuh>    // nccl_put_to_each
#include <tide/fabric/detail/nccl_window.cuh>  // NcclWindow

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

struct CudaLetter {
  static constexpr std::size_t text_bytes = 992;

  std::uint64_t is_closing;
  std::uint64_t late_for;  // 1 + the rank; 0 for none, 1 + ranks for one of several
  std::uint64_t is_error;
  std::uint64_t code;
  char text[text_bytes];  // ends with a zero
};
static_assert(sizeof(CudaLetter) == 1024);

// The letters of one rank. `ask`, `error`, `all_know`, `all_close` and what is late are the watchdog's while it runs,
// and then the caller's; `send_error` is for whoever has failed first.
class CudaMail {
 public:
  enum class Reach : std::uint8_t { all, machine };

  [[nodiscard]] static index_t bytes(index_t ranks) noexcept {
    return ranks * static_cast<index_t>(sizeof(CudaLetter));
  }

  // Zeroes the own letters, on `stream`, before any rank sends.  @pre the window is registered
  void open(const NcclWindow& window, index_t offset, index_t ranks, index_t own, cudaStream_t stream) {
    window_ = &window;
    offset_ = offset;
    ranks_ = ranks;
    own_ = own;
    const auto count = static_cast<std::size_t>(ranks);
    check(cudaMallocHost(&seen_, (count + 1) * sizeof(CudaLetter)), "cudaMallocHost");
    std::memset(seen_, 0, (count + 1) * sizeof(CudaLetter));
    check(cudaMemsetAsync(letters(own), 0, count * sizeof(CudaLetter), stream), "cudaMemsetAsync");
  }

  // Makes letters go by puts to ranks whose memory this one does not reach. Collective over the communicator.
  // @param far  those ranks, in the communicator
  void reach_far(NcclWindow& window, ncclComm_t communicator, const std::vector<int>& far) {
    communicator_ = communicator;
    far_window_ = window.register_on(communicator);
    far_ = far;
    check(cudaStreamCreateWithFlags(&far_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&written_, cudaEventDisableTiming), "cudaEventCreate");
  }
  // The stream of what goes to other machines; null where there are none.
  [[nodiscard]] cudaStream_t far_stream() const noexcept { return far_stream_; }

  // No longer, when the window is gone.
  [[nodiscard]] bool is_open() const noexcept { return seen_ != nullptr && window_->memory() != nullptr; }

  // Sends every rank a letter whose bytes name both of them, on the path of everything else.
  void send_greetings(cudaStream_t stream) {
    for (index_t to = 0; to < ranks_; ++to) {
      greet(own_letter(), own_, to);
      const std::size_t at = static_cast<std::size_t>(own_) * sizeof(CudaLetter);
      std::byte* own = letters(own_) + static_cast<std::size_t>(own_) * sizeof(CudaLetter);
      check(cudaMemcpyAsync(own, &own_letter(), sizeof(CudaLetter), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
      if (to != own_ && window_->peer(to, own_) != nullptr) {
        check(cudaMemcpyAsync(letters(to) + at, own, sizeof(CudaLetter), cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
      }
      check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    // Other machines get the last greeting, which all of them know; with each signal that letters have.
    check(send_far(nccl_word_signal, stream), "ncclPutSignal");
    check(send_far(nccl_data_signal, stream), "ncclPutSignal");
    await_far();
  }

  // Waits, on the stream of what goes to other machines, for a greeting or closing letter from each of their ranks.
  void await_far() {
    if (far_.empty()) return;
    check(nccl_wait_for_each(far_, communicator_, far_stream_), "ncclWaitSignal");
  }

  // The first rank whose greeting did not arrive as it was sent; -1 if all did. Takes the letters away.
  // @pre all ranks have sent theirs
  [[nodiscard]] index_t wrong_greeting(cudaStream_t stream) {
    ask(stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    index_t wrong = -1;
    for (index_t r = ranks_; r-- > 0;) {
      CudaLetter expected{};
      greet(expected, r, window_->peer(r, own_) != nullptr ? own_ : ranks_ - 1);
      if (hears(r) && std::memcmp(&expected, &seen_[r], sizeof expected) != 0) wrong = r;
    }
    const auto count = static_cast<std::size_t>(ranks_);
    std::memset(seen_, 0, (count + 1) * sizeof(CudaLetter));
    check(cudaMemsetAsync(letters(own_), 0, count * sizeof(CudaLetter), stream), "cudaMemsetAsync");
    return wrong;
  }

  // Tells other ranks of an error, or that this one knows of it. Raises nothing: it is sent because something failed.
  void send_error(Errc code, const std::string& words, Reach reach, cudaStream_t stream) noexcept {
    const std::lock_guard lock(mutex_);
    CudaLetter& letter = own_letter();
    letter.code = static_cast<std::uint64_t>(code);
    write_text(words);
    send(offsetof(CudaLetter, code), sizeof(CudaLetter) - offsetof(CudaLetter, code), stream);
    letter.is_error = 1;
    send(offsetof(CudaLetter, is_error), sizeof(letter.is_error), stream);
    if (reach == Reach::all) send_far(nccl_word_signal, stream);
  }

  // Tells every other rank for whom this one waits too long: `ranks` where it is one of several, -1 where it does so no
  // more. An error stands.
  void send_late(index_t rank, const std::string& words, cudaStream_t stream) noexcept {
    const std::lock_guard lock(mutex_);
    if (own_letter().is_error != 0) return;
    CudaLetter& letter = own_letter();
    write_text(words);
    send(offsetof(CudaLetter, text), CudaLetter::text_bytes, stream);
    letter.late_for = static_cast<std::uint64_t>(rank + 1);
    send(offsetof(CudaLetter, late_for), sizeof(letter.late_for), stream);
    send_far(nccl_word_signal, stream);
  }

  // What everybody waits for in the end, as of the last `ask`: follows those who wait from the own rank on to one who
  // waits for somebody that does not. Empty where that is the own rank, or where they wait in a circle.
  [[nodiscard]] std::string last_reason() const {
    std::string reason;
    std::uint64_t late_for = own_letter().late_for;
    for (index_t hops = 0; hops < ranks_; ++hops) {
      if (late_for == 0 || late_for > static_cast<std::uint64_t>(ranks_)) return reason;
      const auto next = static_cast<index_t>(late_for) - 1;
      if (next == own_) break;
      const CudaLetter& letter = seen_[next];
      if (letter.late_for == 0) return reason;
      reason.assign(letter.text, std::find(letter.text, letter.text + CudaLetter::text_bytes - 1, '\0'));
      late_for = letter.late_for;
    }
    return {};
  }

  // Tells every other rank that nothing more comes from this one.
  void send_closing(cudaStream_t stream) noexcept {
    const std::lock_guard lock(mutex_);
    own_letter().is_closing = 1;
    send(offsetof(CudaLetter, is_closing), sizeof(std::uint64_t), stream);
    send_far(nccl_data_signal, stream);
  }

  // Begins to read the letters; they are there when the stream is idle.
  void ask(cudaStream_t stream) noexcept {
    cudaMemcpyAsync(seen_, letters(own_), static_cast<std::size_t>(bytes(ranks_)), cudaMemcpyDeviceToHost, stream);
  }

  // The letter of another rank that has failed, as of the last `ask`; null if none has.
  [[nodiscard]] const CudaLetter* error() const noexcept {
    for (index_t r = 0; r < ranks_; ++r) {
      if (r != own_ && seen_[r].is_error != 0) return &seen_[r];
    }
    return nullptr;
  }

  // Whether every other rank has said that it knows of an error, as of the last `ask`. Those on other machines do not.
  [[nodiscard]] bool all_know() const noexcept {
    for (index_t r = 0; r < ranks_; ++r) {
      if (r != own_ && seen_[r].is_error == 0) return false;
    }
    return true;
  }

  // Whether every other rank whose letters come has said that it closes, as of the last `ask`.
  [[nodiscard]] bool all_close() const noexcept {
    for (index_t r = 0; r < ranks_; ++r) {
      if (hears(r) && seen_[r].is_closing == 0) return false;
    }
    return true;
  }

  void release() noexcept {
    if (seen_ != nullptr) cudaFreeHost(std::exchange(seen_, nullptr));
    if (far_stream_ != nullptr) cudaStreamDestroy(std::exchange(far_stream_, nullptr));
    if (written_ != nullptr) cudaEventDestroy(std::exchange(written_, nullptr));
  }

 private:
  static void greet(CudaLetter& letter, index_t from, index_t to) noexcept {
    auto* bytes = reinterpret_cast<unsigned char*>(&letter);
    for (std::size_t i = 0; i < sizeof letter; ++i) {
      bytes[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to));
    }
  }

  // Whether letters of another rank come here.
  [[nodiscard]] bool hears(index_t rank) const noexcept {
    return rank != own_ && (far_stream_ != nullptr || window_->peer(rank, own_) != nullptr);
  }

  void write_text(const std::string& words) noexcept {
    const std::size_t length = std::min(words.size(), CudaLetter::text_bytes - 1);
    std::memcpy(own_letter().text, words.data(), length);
    own_letter().text[length] = '\0';
  }

  // Behind those that are read: what is sent.
  [[nodiscard]] CudaLetter& own_letter() const noexcept { return seen_[ranks_]; }
  [[nodiscard]] std::byte* letters(index_t rank) const noexcept { return window_->peer(rank, own_) + offset_; }

  // From pinned memory into the own arena, and from there to the peers in reach, as everything else goes.
  void send(std::size_t first, std::size_t count, cudaStream_t stream) noexcept {
    const std::size_t at = static_cast<std::size_t>(own_) * sizeof(CudaLetter) + first;
    const auto* from = reinterpret_cast<const std::byte*>(&own_letter()) + first;
    cudaMemcpyAsync(letters(own_) + at, from, count, cudaMemcpyHostToDevice, stream);
    for (index_t k = 1; k < ranks_; ++k) {
      const index_t to = (own_ + k) % ranks_;
      if (window_->peer(to, own_) == nullptr) continue;
      cudaMemcpyAsync(letters(to) + at, letters(own_) + at, count, cudaMemcpyDeviceToDevice, stream);
    }
  }

  // Puts the own letter to every rank on another machine, after what `stream` has written. NCCL counts greetings and
  // closing letters, one of each, which are waited for; nobody waits for the others.
  ncclResult_t send_far(int signal, cudaStream_t stream) noexcept {
    if (far_.empty()) return ncclSuccess;
    const std::size_t at = static_cast<std::size_t>(own_) * sizeof(CudaLetter);
    cudaEventRecord(written_, stream);
    cudaStreamWaitEvent(far_stream_, written_);
    return nccl_put_to_each(far_, letters(own_) + at, sizeof(CudaLetter), far_window_,
                            static_cast<std::size_t>(offset_) + at, signal, communicator_, far_stream_);
  }

  const NcclWindow* window_ = nullptr;
  index_t offset_ = 0;
  index_t ranks_ = 0;
  index_t own_ = 0;
  CudaLetter* seen_ = nullptr;
  std::mutex mutex_;      // of what is sent: by the watchdog, or by whoever has failed
  std::vector<int> far_;  // ranks on other machines, in the communicator
  ncclComm_t communicator_ = nullptr;
  ncclWindow_t far_window_ = nullptr;
  cudaStream_t far_stream_ = nullptr;
  cudaEvent_t written_ = nullptr;
};

}  // namespace tide::detail
