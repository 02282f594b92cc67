// SPDX-License-Identifier: Apache-2.0
//
// HostRanks: what the suites need of a fabric, for HostFabric. A suite takes such a type as its parameter `Ranks`, so
// another fabric runs it by a type with the same members:
//
//   Ranks::Fabric, Ranks::Stream          of one rank
//   Ranks::Memory(fabric, bytes, shift)   memory that a user gives the rank, `shift` bytes off 64-byte alignment
//   ranks.run(n, program)                 program(Fabric&) on each of n ranks; throws what the first rank threw
//   Ranks::write(stream, to, bytes)       a copy from the host, in stream order; `bytes` may go at once
//   Ranks::read(stream, from, into)       a copy to the host, in stream order; `into` is valid after synchronize
//   Ranks::occupy(stream, duration)       keeps the stream busy: a slow kernel

#pragma once

#include <tide/fabric/host_cluster.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace tide_test {

using tide::index_t;
using namespace std::chrono_literals;

/// Memory that a user gives a rank of this process.
template <class Fabric>
class UserMemory {
 public:
  UserMemory(Fabric& fabric, std::size_t bytes, std::size_t shift = 0)
      : fabric_(&fabric), bytes_(new (std::align_val_t{64}) std::byte[bytes + shift]), shift_(shift) {}
  UserMemory(const UserMemory&) = delete;
  UserMemory& operator=(const UserMemory&) = delete;
  /// After all work, as a device's memory is freed: a test may end by an exception while there is some.
  /// Others hear of that exception later than this: where they and the work wait for each other, after the deadline.
  ~UserMemory() {
    try {
      fabric_->close();
    } catch (const tide::Error&) {
    }
    ::operator delete[](bytes_, std::align_val_t{64});
  }
  [[nodiscard]] std::byte* data() const { return bytes_ + shift_; }

 private:
  Fabric* fabric_;
  std::byte* bytes_;  // of exactly the size asked for, so that a sanitizer sees one byte too much
  std::size_t shift_;
};

struct HostRanks {
  using Fabric = tide::HostFabric;
  using Stream = tide::HostStream;

  using Memory = UserMemory<Fabric>;

  tide::HostOptions options = {.deadline = 60s};
  index_t ranks_per_node = 0;  ///< 0: all ranks are one node

  template <class Program>
  void run(index_t ranks, const Program& program) const {
    const index_t local = ranks_per_node > 0 ? ranks_per_node : ranks;
    run(tide::MeshShape{ranks / local, local}, program);
  }
  template <class Program>
  void run(tide::MeshShape mesh, const Program& program) const {
    tide::HostCluster cluster(mesh, options);
    cluster.run(program);
  }

  static void write(Stream& stream, std::byte* to, std::vector<std::byte> bytes) {
    if (bytes.empty()) return;
    stream.run([to, bytes = std::move(bytes)] { std::memcpy(to, bytes.data(), bytes.size()); });
  }

  static void read(Stream& stream, const std::byte* from, std::span<std::byte> into) {
    if (into.empty()) return;
    stream.run([from, into] { std::memcpy(into.data(), from, into.size()); });
  }

  static void occupy(Stream& stream, std::chrono::microseconds duration) {
    stream.run([duration] { std::this_thread::sleep_for(duration); });
  }
};

}  // namespace tide_test
