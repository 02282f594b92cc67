// SPDX-License-Identifier: Apache-2.0
//
// SimFabric: a rank of a SimCluster: memory is real or only counted, time is virtual.
//
// It is a HostPort: what is written for CPU ranks runs here, and takes the time that it would take on a machine of
// `SimOptions::machine`. Functions on a stream take none; `busy` is how long a kernel takes.
//
// Laws: those of Fabric, and                        (tests/fabric/sim_fabric.test.cpp, tests/conformance/fabric.hpp)
//   one model      a gather or reduce on idle ranks takes what `estimate` says of its plans
//   turns          one rank's host thread runs at a time, until it waits or ends; what it enqueues begins when it waits
//   time           passes only while all of them wait, or ask again; calls of the fabric take none
//   deterministic  what runs, when, and every byte are functions of the programs and `SimOptions`
//   no deadlock    where nothing can go on, the first wait of an op and what would end it are named at once

#pragma once

#include <tide/fabric/detail/fabric_life.hpp>   // FabricLife
#include <tide/fabric/detail/process_port.hpp>  // SharedLanes, StreamMarks
#include <tide/fabric/detail/sim_state.hpp>     // SimState
#include <tide/fabric/host_port.hpp>            // HostPort

#include <deque>
#include <memory>
#include <vector>

namespace tide {

/// One rank's attachment to a `SimCluster`, which owns it. Used by one host thread at a time.
class SimFabric final : public HostPort {
 public:
  SimFabric(std::shared_ptr<detail::SimState> state, Rank rank);

  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] MeshShape mesh() const noexcept override { return state_->mesh; }
  [[nodiscard]] std::string name() const override { return "SimFabric"; }
  [[nodiscard]] bool has(Capability capability) const noexcept override {
    return detail::has_capability(state_->options(), capability);
  }

  /// Seconds of virtual time since the cluster was made.
  [[nodiscard]] double now() const noexcept { return state_->machine().now(); }
  /// What all launches of the cluster cost so far.
  [[nodiscard]] const Tally& tally() const noexcept { return state_->machine().tally(); }

  // All of these are `inline` here already: of a virtual function that is not, GCC would emit the class in every unit.
  [[nodiscard]] inline HostStream stream() override;
  inline void init() override;
  inline void close() override;

  /// Keeps a stream busy, as a kernel of the user would.
  /// @throws Error as `HostStream::run`
  inline void busy(const HostStream& stream, Duration duration);
  /// What the host does beside calling the fabric takes so long: the others go on meanwhile.
  /// @throws Error the cluster's error when it has failed
  inline void sleep(Duration duration);
  /// For a rank that waits for others by means of its own, in its loop: they get their turns.
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
  /// Where it is not passed others get their turns, and time passes where all wait: a loop that asks again ends.
  [[nodiscard]] inline bool passed(std::int32_t counter, std::uint64_t value) override;
  inline void synchronize(std::int32_t counter, std::uint64_t value) override;

 private:
  friend class SimCluster;
  friend class SimReplicas;

  struct Program {
    std::unique_ptr<detail::SimProgram> body{};
    std::vector<std::vector<std::int32_t>> lanes{};  // by variant, by lane of its plan; -1 for the caller's
    std::int32_t stream = -1;                        // of the last run
    std::uint64_t caller_runs = 0;                   // how many there have been on callers' streams
  };

  [[nodiscard]] std::int32_t own_lane(StreamRef stream);
  [[nodiscard]] std::int32_t new_lane() { return static_cast<std::int32_t>(state_->machine().add_lane(host_)); }
  void require_open(const char* call);
  // Raises what leaves the fabric as it was, when functions on streams have been run.
  [[noreturn]] void raise_refusal(const detail::Refusal& refusal);
  void push(std::int32_t lane, detail::SimItem item);
  void init_all();
  void make_ready();

  std::shared_ptr<detail::SimState> state_;
  Rank rank_;
  std::size_t host_;
  detail::FabricLife life_;
  std::deque<Program> programs_;
  detail::SharedLanes<std::int32_t> lanes_;
  std::deque<std::int32_t> streams_;  // lanes; handles of streams point here
  detail::StreamMarks<std::int32_t> marks_;
};

static_assert(Fabric<SimFabric>);

}  // namespace tide

#include <tide/fabric/detail/sim_fabric_bodies.hpp>
