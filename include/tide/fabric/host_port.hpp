// SPDX-License-Identifier: Apache-2.0
//
// HostPort: a rank of a HostCluster, or of a SimCluster, as programs use it, without what runs behind it.
//
// Pipelines, pools and storage take a HostPort as they take a HostFabric. A file that names only this compiles in half
// the time: it has no threads, queues or arenas in it. The file that makes the cluster includes host_cluster.hpp or
// sim_cluster.hpp.
//
//   void train(tide::HostPort& fabric);                                           // in one file, with the pipelines
//   cluster.run([](tide::HostPort& fabric) { train(fabric); });                   // in another
//
// Laws: those of Fabric                              (tests/fabric/host_port.test.cpp, tests/conformance/fabric.hpp)

#pragma once

#include <tide/fabric/detail/host_kernels.hpp>  // host_kernel
#include <tide/fabric/fabric.hpp>               // FabricPort
#include <tide/fabric/host_stream.hpp>          // HostStream

#include <functional>
#include <utility>

namespace tide {

/// One rank's attachment to a cluster of this process. Used by one host thread at a time.
class HostPort : public FabricPort {
 public:
  using Stream = HostStream;

  /// A new stream of this rank.  @throws Error (Errc::order) after `close`; the fabric's error when it has failed
  [[nodiscard]] virtual HostStream stream() = 0;

  /// Collective: compares what the ranks have reserved and attached, then makes the arenas. Once, before the first
  /// call.
  /// @throws Error (Errc::mismatch) when ranks differ, (Errc::capacity) when there is too little memory,
  ///         (Errc::deadline) when a rank does not come; the same on every rank
  virtual void init() = 0;

  /// Waits for the work of this rank, then ends its threads. May be called again. What hangs in a function of the user
  /// keeps `close` and the destructor waiting: no thread can be ended from outside.
  /// @throws the fabric's error when it has failed; Error (Errc::order) in a function on a stream of this rank
  virtual void close() = 0;

  // What pipelines and streams use.
  template <Kernel::Kind Kind, Element E, Finish End>
  [[nodiscard]] static KernelCode kernel() noexcept {
    return detail::host_kernel<Kind, E, End>();
  }
  /// Enqueues a function of the user; see `HostStream::run`.
  virtual void run(StreamRef stream, std::function<void()> function) = 0;

 protected:
  ~HostPort() = default;
};

inline void HostStream::run(std::function<void()> function) {
  static_cast<HostPort*>(port_)->run(ref(), std::move(function));
}

static_assert(Fabric<HostPort>);

}  // namespace tide
