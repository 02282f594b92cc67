// SPDX-License-Identifier: Apache-2.0
//
// CudaMail: what ranks tell each other beside the plans, through their arenas: that they are closing, and their first
// error. A letter of each rank lies in the arena of every rank; its owner copies it there, the others only read.
//
//   arena of rank 1   | letter of rank 0 | own letter | letter of rank 2 | ...      1024 bytes each
//
// Copies of one stream arrive in order, so the word `is_error` is sent after the text that it speaks of. One copy that
// reads a letter promises no order: who sees the word reads again before it believes the text.

#pragma once

#include <tide/fabric/detail/cuda_check.cuh>   // check, is_busy
#include <tide/fabric/detail/host_state.hpp>   // Failure
#include <tide/fabric/detail/nccl_window.cuh>  // NcclWindow

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace tide::detail {

struct CudaLetter {
  static constexpr std::size_t text_bytes = 1000;

  std::uint64_t is_closing;
  std::uint64_t is_error;
  std::uint64_t code;
  char text[text_bytes];  // ends with a zero
};
static_assert(sizeof(CudaLetter) == 1024);

// The letters of one rank. `ask`, `error` and `all_close` are the watchdog's while it runs, and then the caller's;
// `send_error` is for whoever has failed first.
class CudaMail {
 public:
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
  [[nodiscard]] bool is_open() const noexcept { return seen_ != nullptr; }

  // Sends every rank a letter whose bytes name both of them, on the path of everything else.
  void send_greetings(cudaStream_t stream) {
    for (index_t to = 0; to < ranks_; ++to) {
      greet(own_letter(), own_, to);
      const std::size_t at = static_cast<std::size_t>(own_) * sizeof(CudaLetter);
      std::byte* own = letters(own_) + static_cast<std::size_t>(own_) * sizeof(CudaLetter);
      check(cudaMemcpyAsync(own, &own_letter(), sizeof(CudaLetter), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
      if (to != own_) {
        check(cudaMemcpyAsync(letters(to) + at, own, sizeof(CudaLetter), cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
      }
      check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
  }

  // The first rank whose greeting did not arrive as it was sent; -1 if all did. Takes the letters away.
  // @pre all ranks have sent theirs
  [[nodiscard]] index_t wrong_greeting(cudaStream_t stream) {
    ask(stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    index_t wrong = -1;
    for (index_t r = ranks_; r-- > 0;) {
      CudaLetter expected{};
      greet(expected, r, own_);
      if (r != own_ && std::memcmp(&expected, &seen_[r], sizeof expected) != 0) wrong = r;
    }
    const auto count = static_cast<std::size_t>(ranks_);
    std::memset(seen_, 0, (count + 1) * sizeof(CudaLetter));
    check(cudaMemsetAsync(letters(own_), 0, count * sizeof(CudaLetter), stream), "cudaMemsetAsync");
    return wrong;
  }

  // Tells every other rank of an error. Raises nothing: it is sent because something failed.
  void send_error(Errc code, const std::string& words, cudaStream_t stream) noexcept {
    CudaLetter& letter = own_letter();
    letter.code = static_cast<std::uint64_t>(code);
    const std::size_t length = std::min(words.size(), CudaLetter::text_bytes - 1);
    std::memcpy(letter.text, words.data(), length);
    letter.text[length] = '\0';
    send(offsetof(CudaLetter, code), sizeof(CudaLetter) - offsetof(CudaLetter, code), stream);
    letter.is_error = 1;
    send(offsetof(CudaLetter, is_error), sizeof(letter.is_error), stream);
  }

  // Tells every other rank that nothing more comes from this one.
  void send_closing(cudaStream_t stream) noexcept {
    own_letter().is_closing = 1;
    send(offsetof(CudaLetter, is_closing), sizeof(std::uint64_t), stream);
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

  // Whether every other rank has said that it closes, as of the last `ask`.
  [[nodiscard]] bool all_close() const noexcept {
    for (index_t r = 0; r < ranks_; ++r) {
      if (r != own_ && seen_[r].is_closing == 0) return false;
    }
    return true;
  }

  void release() noexcept {
    if (seen_ != nullptr) cudaFreeHost(std::exchange(seen_, nullptr));
  }

 private:
  static void greet(CudaLetter& letter, index_t from, index_t to) noexcept {
    auto* bytes = reinterpret_cast<unsigned char*>(&letter);
    for (std::size_t i = 0; i < sizeof letter; ++i) {
      bytes[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to));
    }
  }

  // Behind those that are read: what is sent.
  [[nodiscard]] CudaLetter& own_letter() const noexcept { return seen_[ranks_]; }
  [[nodiscard]] std::byte* letters(index_t rank) const noexcept { return window_->peer(rank, own_) + offset_; }

  // From pinned memory into the own arena, and from there to the peers, as everything else goes.
  void send(std::size_t first, std::size_t count, cudaStream_t stream) noexcept {
    const std::size_t at = static_cast<std::size_t>(own_) * sizeof(CudaLetter) + first;
    const auto* from = reinterpret_cast<const std::byte*>(&own_letter()) + first;
    cudaMemcpyAsync(letters(own_) + at, from, count, cudaMemcpyHostToDevice, stream);
    for (index_t k = 1; k < ranks_; ++k) {
      const index_t to = (own_ + k) % ranks_;
      cudaMemcpyAsync(letters(to) + at, letters(own_) + at, count, cudaMemcpyDeviceToDevice, stream);
    }
  }

  const NcclWindow* window_ = nullptr;
  index_t offset_ = 0;
  index_t ranks_ = 0;
  index_t own_ = 0;
  CudaLetter* seen_ = nullptr;
};

}  // namespace tide::detail
