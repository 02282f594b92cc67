// SPDX-License-Identifier: Apache-2.0
//
// All parts of a ShardedStep, and what it asserts of its arguments.

#pragma once

#include <tide/pipeline/detail/options.hpp>    // tag_or
#include <tide/pipeline/detail/step_part.hpp>  // StepPart
#include <tide/pipeline/replicated.hpp>        // ReplicasOf

#include <algorithm>
#include <tuple>
#include <utility>

namespace tide::detail {

template <class Model>
inline constexpr bool is_parts = false;
template <class... P>
inline constexpr bool is_parts<Parts<P...>> = true;

template <class T>
inline constexpr bool is_step_option =
    is_tag<Prefetch, T> || is_tag<Depth, T> || is_tag<Buffers, T> || is_replicated<T>;

// Named apart, so that the compiler's note holds both numbers.
template <class Given, class Needed>
struct SlotsOfStep {
  static_assert(Given::value >= Needed::value,
                "tide::ShardedStep: Depth must be at least Prefetch + 1, and 1 more for each group that is kept.");
};
template <class Given, class Needed>
struct SlotsOfStepWithReuse {
  static_assert(
      Given::value >= Needed::value,
      "tide::ShardedStep: with SlotReuse Depth must be at least Prefetch + 2, and 1 more for each group that is kept.");
};

// Asked for in a constructor's parameters, so that it is the first thing the compiler says.
template <class F>
struct FabricOfStep {
  static_assert(
      Fabric<F>,
      "tide::ShardedStep: the first argument must be a Fabric; HostFabric, HostPort, SimFabric or CudaFabric.");
  static constexpr bool checked = true;
};

template <class Model, class Box, class... Options>
struct StepRules {
  static_assert(is_parts<Model>, "tide::ShardedStep: Model must be a tide::Parts.");
  static_assert((is_step_option<Options> && ...),
                "tide::ShardedStep: the options must be Prefetch, Depth, Buffers or Replicated.");
  static_assert(tag_count<Prefetch, Options...> <= 1 && tag_count<Depth, Options...> <= 1 &&
                    tag_count<Buffers, Options...> <= 1 && (0 + ... + (is_replicated<Options> ? 1 : 0)) <= 1,
                "tide::ShardedStep: an option must be given once.");

  using Replicas = typename ReplicasOf<Options...>::type;
  static constexpr bool replicated = Replicas::replicated;
  static constexpr index_t prefetch = tag_or<Prefetch, 1, Options...>;
  static constexpr index_t buffers = tag_or<Buffers, 2, Options...>;

  // Groups that are live at once: those of this turn and the next ones, and those that are kept; never one twice.
  static constexpr index_t needed =
      std::min(slots_needed<Box>(prefetch) + Model::kept, Model::groups + (reuses_slots<Box> ? 1 : 0));
  static constexpr index_t depth = tag_or<Depth, needed, Options...>;
  using Slots = std::conditional_t<reuses_slots<Box>, SlotsOfStepWithReuse<Depth<depth>, Depth<needed>>,
                                   SlotsOfStep<Depth<depth>, Depth<needed>>>;
  static_assert(sizeof(Slots) > 0);

  // Position of the part called `Name`.
  template <FixedString Name>
  [[nodiscard]] static consteval std::size_t part() {
    constexpr auto found = std::find(Model::names.begin(), Model::names.end(), Name.view());
    static_assert(found != Model::names.end(), "tide::ShardedStep: the model has no part of this name.");
    return found != Model::names.end() ? static_cast<std::size_t>(found - Model::names.begin()) : 0;
  }
};

template <class IntraPolicy, class ReducerPolicy, class InterPolicy, class Box, class ReplicaPolicy, index_t Count>
struct StepTypes {
  using Intra = IntraPolicy;
  using Reducer = ReducerPolicy;
  using Inter = InterPolicy;
  using Inbox = Box;
  using Replicas = ReplicaPolicy;
  static constexpr index_t buffers = Count;
};

// Parts in order: constructed first to last.
template <class Types, class... P>
class StepChain {
 public:
  template <class... Arguments>
  explicit StepChain(Arguments&&...) {}
  template <class F>
  void for_each(const F&) {}
  template <class F>
  void with_group(index_t, const F&) {}
};

template <class Types, class First, class... Rest>
class StepChain<Types, First, Rest...> {
 public:
  template <class F, class Pool, class Layouts>
  StepChain(F& fabric, F* replicas, Pool& pool, const Layouts& layouts, StepCore& core, const GradientMemory& memory)
      : head_(fabric, replicas, pool, std::get<std::tuple_size_v<Layouts> - 1 - sizeof...(Rest)>(layouts), core,
              memory),
        tail_(fabric, replicas, pool, layouts, core, memory) {}

  template <std::size_t I>
  [[nodiscard]] auto& get() noexcept {
    if constexpr (I == 0) {
      return head_;
    } else {
      return tail_.template get<I - 1>();
    }
  }
  template <class F>
  void for_each(const F& f) {
    f(head_);
    tail_.for_each(f);
  }
  // f(part, i) for the group of that number in the model.
  template <class F>
  void with_group(index_t number, const F& f) {
    if (First::has(number)) {
      f(head_, First::index(number));
    } else {
      tail_.with_group(number, f);
    }
  }

 private:
  StepPart<First, Types> head_;
  StepChain<Types, Rest...> tail_;
};

template <class Placed, class Types>
class StepPartsOf;
template <class... P, class Types>
class StepPartsOf<PlacedParts<P...>, Types> : public StepChain<Types, P...> {
 public:
  using StepChain<Types, P...>::StepChain;
  using Layouts = std::tuple<typename P::Layout...>;
  template <class Count>
  using Pool = SlotPool<Count, typename P::Layout..., typename P::Trainable...>;
  template <std::size_t I>
  using at = StepPart<std::tuple_element_t<I, std::tuple<P...>>, Types>;

  [[nodiscard]] static Layouts layouts_on(const FabricPort& fabric) {
    return Layouts(layout_on<typename P::Layout>(fabric)...);
  }
  template <class Count, class F>
  [[nodiscard]] static Pool<Count> pool(F& fabric, const Layouts& layouts) {
    return std::apply([&](const auto&... each) { return Pool<Count>(fabric, each..., trainable_of<P>(each)...); },
                      layouts);
  }
  // Bytes of the largest gradients.
  [[nodiscard]] static index_t gradient_bytes(const Layouts& layouts) {
    return std::apply(
        [](const auto&... each) {
          return std::max(
              {index_t{0}, P::frozen ? index_t{0} : trainable_of<P>(each).view().bytes(Buffer::gradients)...});
        },
        layouts);
  }
};

}  // namespace tide::detail
