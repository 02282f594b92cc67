// SPDX-License-Identifier: Apache-2.0
//
// The first failure of the ranks that fail together, and what one rank has decided for all.

#pragma once

#include <tide/core/error.hpp>       // Errc, raise
#include <tide/core/index.hpp>       // Rank
#include <tide/core/text.hpp>        // text
#include <tide/fabric/duration.hpp>  // Duration

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace tide::detail {

// The same for all ranks.
class Failure {
 public:
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  // Returns whether this failure is the first.
  bool set(Errc code, std::string text) {
    const std::lock_guard lock(mutex_);
    if (failed()) return false;
    code_ = code;
    text_ = std::move(text);
    failed_.store(true, std::memory_order_release);  // acquired by failed()
    return true;
  }

  // Of a failure: code_ and text_ are written once, before failed_.
  [[nodiscard]] Errc code() const noexcept { return code_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[noreturn]] void raise_it() const { raise(code_, text_); }
  void raise_if_failed() const {
    if (failed()) raise_it();
  }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Errc code_ = Errc::operation;
  std::string text_;
};

// An error, and whose numbers its ranks are, where a rank has several fabrics.
// @param whose  a sentence, empty where a rank has one fabric
[[nodiscard]] inline std::string noted(std::string error, const std::string& whose) {
  if (whose.empty()) return error;
  if (error.empty() || error.back() != '.') error += '.';
  return std::move(error) + " " + whose;
}
[[nodiscard]] inline std::string of_replica(index_t replica) {
  return text({"Ranks are those of replica ", replica, "."});
}
[[nodiscard]] inline std::string of_replicas(index_t shard) {
  return text({"Ranks are the replicas of rank ", shard, "."});
}
[[nodiscard]] inline std::string rank_of_replica(index_t shard, index_t replica) {
  return text({"rank ", shard, " of replica ", replica});
}

// An error that one rank decided on for all.
struct Refusal {
  Errc code = Errc::argument;
  std::string text;
};

// What a call throws, for people to read.
template <class Call>
[[nodiscard]] std::optional<std::string> thrown_by(const Call& call) {
#if TIDE_HAS_EXCEPTIONS
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "something that is no std::exception.";
  }
#else
  call();
#endif
  return std::nullopt;
}

// That a function of the user threw.  @param stream  which of the rank's, in the order in which it made them
[[nodiscard]] inline std::string function_threw(Rank rank, index_t stream, const std::string& what) {
  return text({"tide::HostStream: a function on a stream threw; rank ", rank.value, ", stream ", stream, ": ", what});
}

// Why a host waits, where no op says so.
inline constexpr const char* no_op_waits = "no op waits: a function on a stream, or an op, takes longer";

[[nodiscard]] inline std::string seconds_text(Duration duration) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  const std::string fraction = std::to_string(milliseconds % 1000 + 1000).substr(1);
  return std::to_string(milliseconds / 1000) + "." + fraction + " s";
}

}  // namespace tide::detail
