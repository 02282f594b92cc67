// SPDX-License-Identifier: Apache-2.0
//
// Error: how tide reports what went wrong, with or without exceptions.
//
// Laws
//   one sentence   the text begins with "tide::" and names what is wrong and where
//   agreed         an error that changes control flow is raised with the same text on every rank
//   repeatable     an object that failed raises its error again on every further call, and can be destroyed
//
// Test: tests/core/error.test.cpp; whoever raises an error has the tests of its laws.

#pragma once

#include <tide/core/config.hpp>  // TIDE_HAS_EXCEPTIONS

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tide {

/// What kind of thing went wrong. The text says the rest.
enum class Errc : std::uint8_t {
  layout,     ///< a group, a mesh or a shard rule breaks a rule of layouts
  argument,   ///< a call got an argument that it cannot use; nothing was changed
  capacity,   ///< more is asked for than there is: slots, memory, queue entries
  order,      ///< ranks called operations in different orders, or an object in the wrong state
  mismatch,   ///< ranks disagree about sizes, plans or meshes
  deadline,   ///< a wait did not come true in time
  operation,  ///< an op of a running plan failed
};

/// The field's word for an error code.
[[nodiscard]] constexpr std::string_view name(Errc code) noexcept {
  switch (code) {
    case Errc::layout:
      return "layout";
    case Errc::argument:
      return "argument";
    case Errc::capacity:
      return "capacity";
    case Errc::order:
      return "order";
    case Errc::mismatch:
      return "mismatch";
    case Errc::deadline:
      return "deadline";
    case Errc::operation:
      return "operation";
  }
  return "unknown";
}

/// The one exception type of tide.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& text) : std::runtime_error(text), code_(code) {}

  [[nodiscard]] Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

/// Called with each error where exceptions are disabled; it must not return (the process is aborted if it does).
using ErrorHandler = void (*)(Errc code, const char* text);

namespace detail {

// The only mutable global of the library: a program without exceptions has no other way to hear of an error.
inline std::atomic<ErrorHandler> error_handler{nullptr};

}  // namespace detail

/// Installs the handler that programs without exceptions get their errors from, and returns the one before it.
/// Has no effect on programs with exceptions: there, errors are thrown.
inline ErrorHandler set_error_handler(ErrorHandler handler) noexcept {
  return detail::error_handler.exchange(handler, std::memory_order_acq_rel);
}

/// Reports an error: throws `tide::Error`, or calls the error handler and aborts where exceptions are disabled.
[[noreturn]] inline void raise(Errc code, const std::string& text) {
#if TIDE_HAS_EXCEPTIONS
  throw Error(code, text);
#else
  if (const ErrorHandler handler = detail::error_handler.load(std::memory_order_acquire)) handler(code, text.c_str());
  std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
#endif
}

}  // namespace tide
