// SPDX-License-Identifier: Apache-2.0
//
// ShardedStep: a training step of a sharded model: gathers ahead of the forward, gathers again ahead of the backward,
// reduces while the backward goes on, and says when the optimizer may run.
//
//   using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>>;
//
//   gathers    e 0 1 2 h  . 1 0 e                 one group ahead of compute, as far as slots are free
//   compute      e 0 1 2 h|h 2 1 0 e|             forward, backward: the last groups are gathered once for both
//   reduces                  h 2 1 0 e
//   optimizer                  h 2 1 0 e          as the reduced gradients come
//
// Laws                                               (tests/pipeline/sharded_step.test.cpp)
//   same       masters after a step are those of training without shards that adds gradients along the same tree
//   lifetimes  no parameter, gradient or shard is overwritten before its last reader, whatever is delayed
//   bounded    slots, gradient memories and inboxes are known before the run and do not grow with the groups of a part;
//              a step allocates nothing
//   agreed     what is called out of order, or asks for more slots than there are, is the same error on every rank
//
// Calls are asynchronous: they enqueue, on the streams of the caller and on two of the step's own.

#pragma once

#include <tide/pipeline/detail/step_parts.hpp>  // StepPartsOf, StepRules
#include <tide/pipeline/pass.hpp>               // Pass
#include <tide/pipeline/replicated.hpp>         // Replicated
#include <tide/pipeline/step_group.hpp>         // ForwardGroup, BackwardGroup, UpdateGroup

#include <string_view>
#include <utility>

namespace tide {

/// Construct on every rank, in the same order, before `init` of the fabric; stays where it is. A function that `load`,
/// `save`, `inspect` or `update` calls must not begin another of these, nor a pass: it would not wait for the function.
///
/// @tparam Model    `Parts<...>`
/// @tparam Intra, Inter  how parameters move, as of `AllGather`
/// @tparam R        a Reducer; with `Accumulate` a step may have several micro-batches
/// @tparam Box      an Inbox, `SlotReuse` or `Ring`
/// @tparam Options  each at most once: `Prefetch<N>` (1 if not said), `Depth<N>` slots (as many as are needed),
///                  `Buffers<N>` gradient memories (2), `Replicated<...>` for a second fabric of replicas
template <class Model, class Intra, class R, class Inter = SingleNode, class Box = SlotReuse, class... Options>
class ShardedStep {
  static_assert(
      !(detail::is_step_option<Inter> || detail::is_step_option<Box>),
      "tide::ShardedStep: options come behind transport, reducer, inter-node policy and inbox; name these two, "
      "as in SingleNode, SlotReuse.");

  using Rules = detail::StepRules<Model, Box, Options...>;
  using Types = detail::StepTypes<Intra, R, Inter, Box, typename Rules::Replicas, Rules::buffers>;
  using All = detail::StepPartsOf<typename Model::Placed, Types>;
  using Layouts = typename All::Layouts;
  template <FixedString Name>
  using StepPart = typename All::template at<Rules::template part<Name>()>;

 public:
  /// Groups that are gathered ahead.
  static constexpr index_t prefetch = Rules::prefetch;
  /// Slots.
  static constexpr index_t depth = Rules::depth;
  /// Whether gradients are averaged over replicas, too.
  static constexpr bool replicated = Rules::replicated;
  /// Groups of the model.
  static constexpr index_t groups = Model::groups;
  /// Groups of a part.
  template <FixedString Name>
  static constexpr index_t repeat = StepPart<Name>::part::repeat;
  /// The place of a group in the forward, from 0.
  template <FixedString Name>
  [[nodiscard]] static constexpr index_t place(index_t i = 0) noexcept {
    return StepPart<Name>::part::number(i);
  }

  /// @param layouts  a std::tuple of those of the parts; by default they are made on the mesh of the fabric
  /// @throws Error as `SlotPool`, `AllGather` and `ReduceScatter`
  template <class F>
  explicit ShardedStep(F& fabric) requires(!Rules::replicated) : ShardedStep(fabric, All::layouts_on(fabric)) {}
  template <class F>
  ShardedStep(F& fabric, const Layouts& layouts) requires(!Rules::replicated)
      : ShardedStep(fabric, static_cast<F*>(nullptr), layouts) {}
  /// With a fabric over the ranks that hold the same shards: gradients are averaged over both.
  template <class F>
  ShardedStep(F& fabric, F& replicas) requires(Rules::replicated)
      : ShardedStep(fabric, replicas, All::layouts_on(fabric)) {}
  template <class F>
  ShardedStep(F& fabric, F& replicas, const Layouts& layouts) requires(Rules::replicated)
      : ShardedStep(fabric, &replicas, layouts) {}
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;

  /// Begins a pass over the model and gathers its first groups. Needed for a pass that is not `Pass::last`; else it
  /// only makes gathers begin earlier than with the first `forward`. The pass must be the same on every rank: CPU ranks
  /// compare it.
  /// @throws Error (Errc::order) within a pass; (Errc::argument) for `Pass::accumulate` where `R` only stores
  void start(Pass pass = Pass::last) {
    if (pass == Pass::accumulate && R::finish != Finish::accumulate) {
      core_.port().refuse(Errc::argument,
                          "tide::ShardedStep: Pass::accumulate needs a Reducer that accumulates; "
                          "CopyEngineReducer<Launch, Accumulate>.");
    }
    core_.start(pass);
  }

  /// The whole parameters of the next group of the forward, for what is enqueued on `stream` from now on.
  /// @throws Error (Errc::order) for a group that is not the next; (Errc::capacity) when too few slots are left
  template <FixedString Name, class Stream>
  [[nodiscard]] ForwardGroup<StepPart<Name>> forward(Stream& stream, index_t i = 0) {
    StepPart<Name>& part = this->template part<Name>();
    const index_t group = require_group(part, i);
    core_.enter(false, group, core_.own_stream(stream.ref()));
    return {part, core_, group, stream.ref()};
  }

  /// The same for the next group of the backward, and a place for its gradients.
  template <FixedString Name, class Stream>
  [[nodiscard]] BackwardGroup<StepPart<Name>> backward(Stream& stream, index_t i = 0) {
    StepPart<Name>& part = this->template part<Name>();
    const index_t group = require_group(part, i);
    const detail::PortStream own = core_.own_stream(stream.ref());
    const index_t buffer = StepPart<Name>::part::frozen ? -1 : memory_.next(core_.port());
    core_.enter(true, group, own);
    if constexpr (!StepPart<Name>::part::frozen && Rules::buffers > 0) {
      memory_.take(buffer, own);
      part.reduce->gradients(buffer).none_missing();
    }
    return {part, core_, group, stream.ref(), memory_, buffer};
  }

  /// Calls f(UpdateGroup) for each group that trains, in the order of the backward; what it enqueues on `stream` may
  /// read the reduced gradients and write the masters. On a stream of its own it runs while the backward goes on. The
  /// next gathers wait for it, group by group. Every rank must call it, also one that owns nothing: CPU ranks compare
  /// the number of updates with their next gather.
  /// @throws Error (Errc::order) before a pass with `Pass::last` has ended
  template <class Stream, class F>
  void update(Stream& stream, F f) {
    core_.require_reduced("update");
    visit_reduced(core_.own_stream(stream.ref()), f);
    core_.consume();
  }

  /// The same before an update, to look at the gradients of the whole model: their norm, say.
  template <class Stream, class F>
  void inspect(Stream& stream, F f) {
    core_.require_reduced("inspect");
    visit_reduced(core_.own_stream(stream.ref()), f);
  }

  /// Calls f(UpdateGroup) for each group, frozen ones too; what it enqueues on `stream` may write the shards: initial
  /// values, a checkpoint. The next gathers wait for it.
  /// @throws Error (Errc::order) within a pass
  template <class Stream, class F>
  void load(Stream& stream, F f) {
    core_.require_idle("load");
    visit_all(core_.own_stream(stream.ref()), f);
  }

  /// The same; what it enqueues on `stream` may read the shards: a checkpoint. The next update, load and gather of each
  /// group wait for it.
  /// @throws Error (Errc::order) within a pass
  template <class Stream, class F>
  void save(Stream& stream, F f) {
    core_.require_idle("save");
    visit_all(core_.own_stream(stream.ref()), f);
  }

  /// What the sums over ranks are multiplied with from the next reduce on; 1 / ranks at first. Where there are replicas
  /// their average follows: FSDP2's divide factor f is `scale(replicas / f)`. The same on all ranks; nothing compares
  /// it.
  void scale(float factor) noexcept {
    parts_.for_each([&]<class Part>(Part& part) {
      if constexpr (!Part::part::frozen) part.reduce->scale(factor);
    });
  }

  /// A group's shards, for access that the caller orders.
  /// @throws Error (Errc::order) before `init`
  template <FixedString Name>
  [[nodiscard]] UpdateGroup<StepPart<Name>> group(index_t i = 0) {
    StepPart<Name>& part = this->template part<Name>();
    static_cast<void>(require_group(part, i));
    return {part, i};
  }

  /// Bytes of all slots.
  [[nodiscard]] index_t slot_bytes() const noexcept { return pool_.bytes(); }
  /// Bytes of all gradient memories.
  [[nodiscard]] index_t gradient_bytes() const noexcept { return memory_.bytes; }

 private:
  template <class F, bool = detail::FabricOfStep<F>::checked>
  ShardedStep(F& fabric, F* replicas, const Layouts& layouts)
      : pool_(All::template pool<Depth<depth>>(fabric, layouts)),
        core_(fabric, replicas, fabric.stream().ref(), fabric.stream().ref(), groups, prefetch,
              depth - (reuses_slots<Box> ? 1 : 0)),
        memory_(fabric, Rules::buffers, All::gradient_bytes(layouts)),
        parts_(fabric, replicas, pool_, layouts, core_, memory_) {}

  template <FixedString Name>
  [[nodiscard]] StepPart<Name>& part() noexcept {
    return parts_.template get<Rules::template part<Name>()>();
  }

  // The number of a group in the model.
  template <class Part>
  [[nodiscard]] index_t require_group(const Part&, index_t i) {
    if (i < 0 || i >= Part::part::repeat) core_.refuse_group(Part::part::name, i, Part::part::repeat);
    return Part::part::number(i);
  }

  template <class F>
  void visit_all(detail::PortStream stream, F& f) {
    for (index_t number = 0; number < groups; ++number) {
      parts_.with_group(number, [&](auto& part, index_t i) { visit(part, i, stream, false, f); });
    }
  }

  // In the order of the backward: the first are ready while the last are still computed.
  template <class F>
  void visit_reduced(detail::PortStream stream, F& f) {
    for (index_t number = groups; number-- > 0;) {
      parts_.with_group(number, [&]<class Part>(Part& part, index_t i) {
        if constexpr (!Part::part::frozen) visit(part, i, stream, true, f);
      });
    }
  }

  template <class Part, class F>
  void visit(Part& part, index_t i, detail::PortStream stream, bool reduced, F& f) {
    struct Visit {
      detail::StepCore& core;
      ~Visit() { core.visit(-1); }  // also where `f` throws
    } const ends{core_};
    core_.begin_use(Part::part::number(i), stream, reduced);
    core_.visit(Part::part::number(i));
    f(UpdateGroup<Part>(part, i));
    core_.end_use(Part::part::number(i), stream);
  }

  typename All::template Pool<Depth<depth>> pool_;
  detail::StepCore core_;
  detail::GradientMemory memory_;
  All parts_;
};

}  // namespace tide
