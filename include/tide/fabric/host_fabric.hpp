// SPDX-License-Identifier: Apache-2.0
//
// HostFabric: a rank of a HostCluster: memory is real, lanes are threads, copies are memcpy.
//
// The default where there is no GPU, and the reference for every other fabric.
//
// Laws: those of Fabric                              (tests/fabric/host_fabric.test.cpp, tests/conformance/fabric.hpp)

#pragma once

#include <tide/fabric/detail/host_program.hpp>  // HostProgram
#include <tide/fabric/fabric.hpp>               // FabricPort
#include <tide/fabric/host_stream.hpp>          // HostStream

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace tide {

/// One rank's attachment to a `HostCluster`, which owns it. Used by one host thread at a time.
class HostFabric final : public FabricPort {
 public:
  using Stream = HostStream;

  HostFabric(std::shared_ptr<detail::HostState> state, Rank rank);
  ~HostFabric();

  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] MeshShape mesh() const noexcept override { return state_->mesh; }
  [[nodiscard]] std::string name() const override { return "HostFabric"; }
  [[nodiscard]] bool has(Capability capability) const noexcept override {
    switch (capability) {
      case Capability::multicast:
        return state_->options.multicast == HostMulticast::available;
      case Capability::puts:
      case Capability::send_receive:
        return state_->options.network == HostNetwork::available;
      case Capability::none:
        break;
    }
    return true;
  }

  /// A new stream of this rank.  @throws Error (Errc::order) after `close`; the fabric's error when it has failed
  [[nodiscard]] HostStream stream();

  /// Collective: compares what the ranks have reserved and attached, then makes the arenas. Once, before the first
  /// call.
  /// @throws Error (Errc::mismatch) when ranks differ, (Errc::capacity) when there is too little memory,
  ///         (Errc::deadline) when a rank does not come; the same on every rank
  void init();

  /// Waits for the work of this rank, then ends its threads. May be called again. What hangs in a function of the user
  /// keeps `close` and the destructor waiting: no thread can be ended from outside.
  /// @throws the fabric's error when it has failed; Error (Errc::order) in a function on a stream of this rank
  void close();

  // What pipelines use.
  template <Kernel::Kind Kind, Element E, Finish End>
  [[nodiscard]] static KernelCode kernel() noexcept {
    return detail::host_kernel<Kind, E, End>();
  }
  index_t reserve(index_t bytes, index_t alignment) override;
  [[nodiscard]] std::byte* arena() const noexcept override { return state_->at(rank_).arena.get(); }
  std::int32_t attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) override;
  void launch(std::int32_t program, std::int32_t variant, const Bindings& bindings, StreamRef stream) override;
  [[nodiscard]] Event exit_event(std::int32_t program, ExitKind kind) override;
  [[noreturn]] void refuse(Errc code, const std::string& text) override;
  Event record(StreamRef stream) override;
  void wait(StreamRef stream, const Event& event) override;
  void zero(StreamRef stream, void* target, index_t bytes) override;
  [[nodiscard]] bool passed(std::int32_t counter, std::uint64_t value) override;
  void synchronize(std::int32_t counter, std::uint64_t value) override;

 private:
  friend class HostReplicas;

  struct Program {
    std::unique_ptr<detail::HostProgram> body;
    std::array<std::int32_t, 3> exit_counters{-1, -1, -1};  // by ExitKind
    const detail::HostLane* stream = nullptr;               // of the last run
    std::uint64_t caller_runs = 0;                          // how many there have been on callers' streams
  };

  [[nodiscard]] std::int32_t new_counter();
  [[nodiscard]] std::atomic<std::uint64_t>& counter(std::int32_t index) {
    return state_->at(rank_).counters[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] detail::HostLane& lane(Operation operation, Lane lane);
  [[nodiscard]] detail::HostLane& own_lane(StreamRef stream);
  void push(detail::HostLane& lane, detail::HostItem item);
  void push_wait(detail::HostLane& lane, HostFabric& owner, std::atomic<std::uint64_t>& counter, std::uint64_t value);
  void compare();
  void require_building() const;
  void require_open(const char* call);
  void fail_late(const std::string& what);
  [[noreturn]] void raise_failure();
  void stop() noexcept;

  enum class Phase : std::uint8_t { building, running, closed };

  std::shared_ptr<detail::HostState> state_;
  Rank rank_;
  Phase phase_ = Phase::building;
  std::vector<Program> programs_;
  std::map<std::tuple<Operation, LaneKind, std::int32_t>, std::unique_ptr<detail::HostLane>> lanes_;
  std::vector<std::unique_ptr<detail::HostLane>> streams_;
  std::map<const void*, std::pair<std::int32_t, std::uint64_t>> marks_;  // of a stream: its counter, how often recorded
};

static_assert(Fabric<HostFabric>);

}  // namespace tide

#include <tide/fabric/detail/host_fabric_bodies.hpp>
