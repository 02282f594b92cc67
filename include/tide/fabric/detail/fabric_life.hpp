// SPDX-License-Identifier: Apache-2.0
//
// The life of a fabric: it is built, initialized once, used, closed. What comes at the wrong time is refused.

#pragma once

#include <tide/core/error.hpp>             // raise
#include <tide/core/text.hpp>              // text
#include <tide/fabric/detail/failure.hpp>  // Failure

#include <cstdint>

namespace tide::detail {

class FabricLife {
 public:
  explicit FabricLife(const Failure& failure) : failure_(&failure) {}

  void begin() noexcept { phase_ = Phase::running; }
  void end() noexcept { phase_ = Phase::closed; }
  [[nodiscard]] bool running() const noexcept { return phase_ == Phase::running; }
  [[nodiscard]] bool closed() const noexcept { return phase_ == Phase::closed; }

  // For what asks for memory in the arena.
  void require_building() const {
    failure_->raise_if_failed();
    if (phase_ == Phase::building) return;
    raise(Errc::order, "tide::Fabric: pipelines, pools and storage must be constructed before init.");
  }
  void require_new() const {
    failure_->raise_if_failed();
    if (phase_ == Phase::running) raise(Errc::order, "tide::Fabric: init must be called once.");
    if (phase_ == Phase::closed) raise(Errc::order, "tide::Fabric: init cannot follow close.");
  }
  void require_stream() const {
    failure_->raise_if_failed();
    if (closed()) raise(Errc::order, "tide::Fabric: a stream cannot be made after close.");
  }
  [[noreturn]] static void refuse_function() {
    raise(Errc::order, "tide::HostStream: a function cannot be enqueued after close.");
  }
  // After the failure has been looked at: `what` is a call, `record`, `wait`.
  void require_open(const char* what) const {
    if (phase_ == Phase::building) {
      raise(Errc::order, text({"tide::Fabric: ", what, " needs init to be called first."}));
    }
    if (closed()) raise(Errc::order, text({"tide::Fabric: ", what, " cannot follow close."}));
  }

 private:
  enum class Phase : std::uint8_t { building, running, closed };

  const Failure* failure_;
  Phase phase_ = Phase::building;
};

}  // namespace tide::detail
