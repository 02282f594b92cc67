// SPDX-License-Identifier: Apache-2.0
//
// HostStream: a queue of a rank's work on a CPU, as a CUDA stream is on a GPU: pipelines enqueue on it, so may the
// user.
//
// Laws                                               (tests/fabric/host_stream.test.cpp)
//   in order      what is enqueued first is done first
//   asynchronous  only `synchronize` waits

#pragma once

#include <tide/fabric/fabric.hpp>  // StreamRef, Event

#include <functional>

namespace tide {

/// A handle of a stream; copies name the same one. Made by the `stream` of a HostPort, which owns it and completes this
/// class.
class HostStream {
 public:
  HostStream(FabricPort& port, void* handle) : port_(&port), handle_(handle) {}

  /// Enqueues a function of the user: what a kernel launch is on a GPU. What it throws fails the fabric. It is not run
  /// when the fabric has failed by then. Calls of the fabric are the host thread's: a function makes none.
  /// @throws Error (Errc::deadline) on all ranks when there is no room in time, (Errc::order) after `close`; the
  ///         fabric's error when it has failed
  inline void run(std::function<void()> function);

  /// A point after everything enqueued so far.
  [[nodiscard]] Event record() { return port_->record(ref()); }

  /// Makes what is enqueued later wait for `event`, without blocking the host.
  void wait(const Event& event) {
    if (event.valid()) port_->wait(ref(), event);
  }

  /// Blocks the host until everything enqueued so far is done.
  /// @throws Error (Errc::deadline) after the fabric's deadline; the fabric's error when it has failed
  void synchronize() { record().synchronize(); }

  [[nodiscard]] StreamRef ref() const noexcept { return {port_, handle_}; }

 private:
  FabricPort* port_;  // a HostPort
  void* handle_;
};

}  // namespace tide
