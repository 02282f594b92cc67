// SPDX-License-Identifier: Apache-2.0
//
// Fabric: one rank's attachment to the hardware that moves bytes: its arena, its lanes, its events.
//
//   reserve ... reserve | attach ... attach | init |  launch  launch  launch ...  | close
//   the arena grows     | plans are added   | once |  a step allocates nothing    |
//
// Laws, for every fabric                             (tests/conformance/fabric.hpp)
//   symmetric   `init` compares arenas and plans of all ranks; a difference is the same error on every rank
//   in order    launches on one stream, and their events, complete in launch order
//   deadline    every blocking wait ends: with what it waits for, or with an error that names operation, step and peer
//   poisoned    after an error further calls repeat it; the fabric can still be closed and destroyed
//
// Pipelines see a fabric through `FabricPort`, so their types do not depend on it: the same user source runs on
// HostFabric and CudaFabric.

#pragma once

#include <tide/core/error.hpp>           // Errc
#include <tide/core/text.hpp>            // text
#include <tide/plan/collective.hpp>      // Collective
#include <tide/plan/plan.hpp>            // Plan, ExitKind
#include <tide/transport/transport.hpp>  // Capability

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tide {

class FabricPort;

/// A point in the work of one rank: an exit of a launch, or a place on a stream. Copyable; may be asked as long as its
/// fabric lives, after `close` too.
struct Event {
  FabricPort* port = nullptr;
  std::int32_t counter = -1;
  std::uint64_t value = 0;

  /// Whether there is anything to wait for.
  [[nodiscard]] bool valid() const noexcept { return port != nullptr; }
  /// Whether the point has been passed.  @throws Error when the fabric has failed
  [[nodiscard]] bool ready() const;
  /// Blocks the host until the point has been passed.
  /// @throws Error (Errc::deadline) when it has not within the fabric's deadline; the fabric's error when it has failed
  void synchronize() const;
};

/// A stream of some fabric, without its type.
struct StreamRef {
  FabricPort* port = nullptr;
  void* handle = nullptr;
};

/// Stands in a table of gradients for one that is missing: the fabric reads zeros of its own memory instead.
[[nodiscard]] inline const void* missing_gradient() noexcept {
  static constexpr char place = 0;
  return &place;
}

/// What a launch binds the spaces of its plan to: memory of the own rank.
struct Bindings {
  const void* master = nullptr;
  const void* shards = nullptr;
  const void* gradients = nullptr;
  const void* const* gradient_table = nullptr;  ///< one pointer per parameter, copied by `launch`
  void* output = nullptr;
  index_t slot_offset = 0;    ///< bytes from the start of the arena, as the next two
  index_t network_inbox = 0;  ///< the same on every rank
  index_t partials = 0;
  void* packed_shards = nullptr;  ///< room in the arena for shards from elsewhere, of gathers over several nodes
  std::int32_t slot = 0;          ///< for the comparison of calls over ranks
  float scale = 1.0F;
};

/// What a rank is at, beside its calls: "in Pass::last after update", 3. Where a fabric compares the calls of all
/// ranks, it compares this with each.
struct CallNote {
  std::string_view at = {};  ///< of static storage
  std::uint64_t count = 0;

  [[nodiscard]] friend constexpr bool operator==(const CallNote&, const CallNote&) = default;
};

/// Where a pipeline keeps what peers write: offsets in the arena, the same on every rank.
struct ArenaPlaces {
  index_t signals = 0;
  index_t inbox = 0;
  index_t slots = 0;
  index_t network_inbox = 0;  ///< where the fabric writes zeros at `init`, if `NetworkShape::starts_as_zeros`

  [[nodiscard]] friend constexpr bool operator==(const ArenaPlaces&, const ArenaPlaces&) = default;
};

/// A kernel of some fabric, without its type; see `F::kernel` in the concept below.
using KernelCode = void (*)();

/// One way in which a pipeline can run: what it achieves, the plan of this rank, the code of its kernel table.
struct PlanVariant {
  Collective collective;
  Plan plan;
  std::vector<KernelCode> kernels;
  std::string writer{};  ///< names of the policies that wrote the plan; the same on every rank
  /// The plan of any rank, where nodes are crossed by sends and receives (`Capability::send_receive`): a fabric with
  /// such a network has to know what the others send. Empty where they are not. Asked in `attach` only.
  std::function<Plan(Rank)> plan_of{};
};

/// A fabric as pipelines use it. Users call the members of their own fabric instead.
class FabricPort {
 public:
  FabricPort() = default;
  FabricPort(const FabricPort&) = delete;
  FabricPort& operator=(const FabricPort&) = delete;

  [[nodiscard]] virtual Rank rank() const noexcept = 0;
  [[nodiscard]] virtual MeshShape mesh() const noexcept = 0;
  /// Whether the fabric can do what a policy needs.
  [[nodiscard]] virtual bool has(Capability capability) const noexcept = 0;
  /// Why the fabric cannot do what a policy needs, for people to read; empty where there is nothing to add.
  [[nodiscard]] virtual std::string lacks(Capability) const { return {}; }
  /// The fabric's name, for messages.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Sets bytes of the arena aside, at the same offset on every rank, and returns the offset. Before `init`.
  virtual index_t reserve(index_t bytes, index_t alignment) = 0;
  /// The start of the own arena; null before `init`.
  [[nodiscard]] virtual std::byte* arena() const noexcept = 0;

  /// Adds the plans of a pipeline and returns its number. Before `init`, in the same order on every rank. The variants
  /// share words, inbox and run numbers: their handshakes are the same, they differ in the blocks that they move.
  /// @param label  what errors call it: "gather of ..."
  virtual std::int32_t attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) = 0;
  /// Starts a run of a variant; work on `stream` so far comes before it, and so do earlier runs of the program, on
  /// whichever streams they were.
  /// @throws Error (Errc::order) when ranks call different things; (Errc::deadline) when as many runs or entries of the
  ///         stream as there is room for are queued, and none of them ends in time; what another rank has refused this
  ///         call with; the fabric's error when it has failed
  virtual void launch(std::int32_t program, std::int32_t variant, const Bindings& bindings, StreamRef stream) = 0;
  /// The event of an exit of the latest run.
  [[nodiscard]] virtual Event exit_event(std::int32_t program, ExitKind kind) = 0;
  /// Refuses the call that this rank is about to make, with the same error on every rank, and raises it. Where no rank
  /// has begun the call nothing has happened, and the next call may be made; else the fabric has failed. On CPU ranks
  /// it is raised when all that the rank's streams had been given is done, which must not wait for the host.
  [[noreturn]] virtual void refuse(Errc code, const std::string& text) = 0;

  /// What the rank is at, from its next call on until it says so again: of the calls of every pipeline of this fabric.
  /// CudaFabric compares no calls, and so no notes.
  void note(const CallNote& note) noexcept { note_ = note; }

  /// A point after all work on `stream` so far.
  virtual Event record(StreamRef stream) = 0;
  /// Makes later work on `stream` wait for `event`.
  virtual void wait(StreamRef stream, const Event& event) = 0;
  /// Writes zeros, in stream order.
  virtual void zero(StreamRef stream, void* target, index_t bytes) = 0;

  [[nodiscard]] virtual bool passed(std::int32_t counter, std::uint64_t value) = 0;
  virtual void synchronize(std::int32_t counter, std::uint64_t value) = 0;

 protected:
  ~FabricPort() = default;
  [[nodiscard]] const CallNote& noted() const noexcept { return note_; }

 private:
  CallNote note_{};
};

inline bool Event::ready() const { return port == nullptr || port->passed(counter, value); }

inline void Event::synchronize() const {
  if (port != nullptr) port->synchronize(counter, value);
}

/// A rank's attachment: a `FabricPort` with a stream type of its own, made usable by `init` and ended by `close`.
template <class F>
concept Fabric = std::derived_from<F, FabricPort> && requires(F& fabric, typename F::Stream& stream, Event event) {
  { F::template kernel<Kernel::Kind::sum, Element::bf16, Finish::store>() } -> std::same_as<KernelCode>;
  { fabric.stream() } -> std::same_as<typename F::Stream>;
  {fabric.init()};
  {fabric.close()};
  { stream.ref() } -> std::same_as<StreamRef>;
  { stream.record() } -> std::same_as<Event>;
  {stream.wait(event)};
  {stream.synchronize()};
};

}  // namespace tide
