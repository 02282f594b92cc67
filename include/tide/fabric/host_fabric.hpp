// SPDX-License-Identifier: Apache-2.0
//
// HostFabric: a rank of a HostCluster: memory is real, lanes are threads, copies are memcpy.
//
// The default where there is no GPU, and the reference for every other fabric.
//
// It has what hardware would need a switch for, as loops: multicast writes, and sums of what lies on all ranks of a
// node (`HostOptions::multicast` takes both away).
//
// Laws: those of Fabric                              (tests/fabric/host_fabric.test.cpp, tests/conformance/fabric.hpp)

#pragma once

#include <tide/fabric/detail/fabric_life.hpp>   // FabricLife
#include <tide/fabric/detail/host_program.hpp>  // HostProgram
#include <tide/fabric/detail/process_port.hpp>  // SharedLanes, StreamMarks
#include <tide/fabric/host_port.hpp>            // HostPort

#include <array>
#include <memory>
#include <vector>

namespace tide {

/// One rank's attachment to a `HostCluster`, which owns it. Used by one host thread at a time.
class HostFabric final : public HostPort {
 public:
  HostFabric(std::shared_ptr<detail::HostState> state, Rank rank);
  ~HostFabric();

  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] MeshShape mesh() const noexcept override { return state_->mesh; }
  [[nodiscard]] std::string name() const override { return "HostFabric"; }
  [[nodiscard]] bool has(Capability capability) const noexcept override {
    return detail::has_capability(state_->options, capability);
  }

  // All of these are `inline` here already: of a virtual function that is not, GCC would emit the class in every unit.
  [[nodiscard]] inline HostStream stream() override;
  inline void init() override;
  inline void close() override;

  /// For a rank that waits for others by means of its own: a failure of the cluster ends such a wait.
  /// @throws Error the cluster's error when it has failed
  inline void raise_if_failed();

  inline index_t reserve(index_t bytes, index_t alignment) override;
  [[nodiscard]] std::byte* arena() const noexcept override { return state_->arenas.at(rank_); }
  inline std::int32_t attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) override;
  inline void launch(std::int32_t program, std::int32_t variant, const Bindings& bindings, StreamRef stream) override;
  [[nodiscard]] inline Event exit_event(std::int32_t program, ExitKind kind) override;
  [[noreturn]] inline void refuse(Errc code, const std::string& text) override;
  inline Event record(StreamRef stream) override;
  inline void wait(StreamRef stream, const Event& event) override;
  inline void zero(StreamRef stream, void* target, index_t bytes) override;
  inline void run(StreamRef stream, std::function<void()> function) override;
  [[nodiscard]] inline bool passed(std::int32_t counter, std::uint64_t value) override;
  inline void synchronize(std::int32_t counter, std::uint64_t value) override;

 private:
  friend class HostReplicas;

  struct Program {
    std::unique_ptr<detail::HostProgram> body{};
    std::vector<std::vector<detail::HostLane*>> lanes{};    // by variant, by lane of its plan; null for the caller's
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
  // Whatever blocks the rank's host thread.
  template <class Call>
  auto while_waiting(bool waits, const Call& call);
  void push(detail::HostLane& lane, detail::HostItem item);
  void push_wait(detail::HostLane& lane, HostFabric& owner, std::atomic<std::uint64_t>& counter, std::uint64_t value);
  void compare();
  void require_open(const char* call);
  void fail_late(const std::string& what);
  [[noreturn]] void raise_failure();
  // Raises what leaves the fabric as it was. Who catches it may destroy what functions on streams refer to: they have
  // been run by then.
  [[noreturn]] void raise_refusal(const detail::Refusal& refusal);
  void finish_streams();
  void await(std::int32_t counter, std::uint64_t value, const char* what);
  void settle();
  // Ends the threads; returns how much of what was sent to other nodes did not get there in time.
  index_t stop() noexcept;

  std::shared_ptr<detail::HostState> state_;
  Rank rank_;
  HostFabric* partner_ = nullptr;  // the other fabric of the same rank, where a HostReplicas gave it two
  detail::FabricLife life_;
  std::vector<Program> programs_;
  detail::SharedLanes<std::unique_ptr<detail::HostLane>> lanes_;
  std::vector<std::unique_ptr<detail::HostLane>> streams_;
  detail::StreamMarks<const detail::HostLane*> marks_;
};

static_assert(Fabric<HostFabric>);

}  // namespace tide

#include <tide/fabric/detail/host_fabric_bodies.hpp>
