// SPDX-License-Identifier: Apache-2.0
//
// What GatherPair and ReducePair have in common: an operation done by tide and by the flat path, on the same ranks and
// in the same memory, timed in turns, every byte of the results compared with the oracle.

#pragma once

#include "memory.hpp"
#include "oracle.hpp"
#include "timing.hpp"

#include <tide/fabric/host_cluster.hpp>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tide_example {

/// A result is wrong: the text says what and where.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PairOptions {
  bool flat = true;  ///< whether the flat path runs, too
  std::uint64_t seed = 1;
  tide::HostOptions host{};
};

/// What comparing results with the oracle has found.
class Findings {
 public:
  /// Adds what one rank has compared; called by ranks at the same time.
  void add(tide::index_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ += bytes;
  }
  /// Adds a wrong byte; the one of the lowest rank is kept.
  void wrong(tide::index_t rank, const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (wrong_rank_ >= 0 && wrong_rank_ <= rank) return;
    wrong_rank_ = rank;
    what_ = what;
  }

  [[nodiscard]] tide::index_t bytes() const noexcept { return bytes_; }
  /// @throws WrongResult when a byte was wrong
  void require_right() const {
    if (wrong_rank_ >= 0) throw WrongResult(what_);
  }

 private:
  std::mutex mutex_;
  tide::index_t bytes_ = 0;
  tide::index_t wrong_rank_ = -1;
  std::string what_;
};

/// Compares the bytes that the library gives a rank's shard with those of the rows that the rank owns.
/// @throws WrongResult
inline void require_size(const tide::Parameter& parameter, tide::index_t rank, const std::vector<oracle::Run>& runs,
                         tide::index_t element_bytes, tide::index_t got) {
  tide::index_t expected = 0;
  for (const oracle::Run& run : runs) expected += run.count * element_bytes;
  if (got == expected) return;
  throw WrongResult("the shard of '" + parameter.name.str() + "' on rank " + std::to_string(rank) + " has " +
                    std::to_string(got) + " bytes, its rows have " + std::to_string(expected));
}

/// Bytes that nothing may write to hold this.
inline constexpr unsigned char untouched = 0xA5;

/// Compares parts of a buffer and at last everything between them, which must be untouched.
class BufferCheck {
 public:
  BufferCheck(Findings& findings, std::string who, tide::index_t rank, const std::byte* buffer, tide::index_t bytes)
      : findings_(findings), who_(std::move(who)), rank_(rank), buffer_(buffer), bytes_(bytes) {}

  /// Compares elements [first, first + count) of a tensor, which lie at `at`, with the values that they must have.
  void compare(const std::byte* at, const std::string& tensor, tide::index_t first, tide::index_t count,
               const oracle::Values& values) {
    const tide::index_t size = values.element_bytes;
    const tide::index_t bytes = count * size;
    const tide::index_t same = oracle::first_difference(at, first, count, values);
    if (same < bytes) report(at + same, "'" + tensor + "', element " + std::to_string(first + same / size));
    seen_.emplace_back(at - buffer_, at - buffer_ + bytes);
    findings_.add(bytes);
  }

  /// Compares the bytes that belong to no tensor.
  void compare_rest() {
    std::sort(seen_.begin(), seen_.end());
    seen_.emplace_back(bytes_, bytes_);
    tide::index_t from = 0;
    for (const auto& [begin, end] : seen_) {
      for (tide::index_t i = from; i < begin; ++i) {
        if (buffer_[i] != std::byte{untouched}) return report(buffer_ + i, "a byte that belongs to no tensor");
      }
      findings_.add(std::max<tide::index_t>(0, begin - from));
      from = std::max(from, end);
    }
  }

 private:
  void report(const std::byte* at, const std::string& where) {
    char byte[8];
    std::snprintf(byte, sizeof byte, "0x%02x", std::to_integer<unsigned>(*at));
    findings_.wrong(rank_, who_ + " is wrong: rank " + std::to_string(rank_) + ", " + where + ": byte " +
                               std::to_string(at - buffer_) + " of " + std::to_string(bytes_) + " is " + byte);
  }

  Findings& findings_;
  std::string who_;
  tide::index_t rank_;
  const std::byte* buffer_;
  tide::index_t bytes_;
  std::vector<std::pair<tide::index_t, tide::index_t>> seen_;
};

}  // namespace tide_example
