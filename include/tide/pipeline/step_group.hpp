// SPDX-License-Identifier: Apache-2.0
//
// ForwardGroup, BackwardGroup, UpdateGroup: what ShardedStep hands out for one group: whole parameters in the forward
// and the backward, shards and reduced gradients for the optimizer.
//
//   auto block = step.forward<"blocks">(stream, i);      // parameters are there for what comes next on `stream`
//   multiply(block.get<"w">(), ...);
//   block.release();                                     // its readers have been enqueued
//
//   auto block = step.backward<"blocks">(stream, i);
//   gradients_of(block.get<"w">(), block.gradient<"w">(), ...);
//   block.reduce();                                      // likewise, and the writers of its gradients
//
// Test: tests/pipeline/sharded_step.test.cpp

#pragma once

#include <tide/pipeline/detail/step_part.hpp>  // StepPart

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace tide {

namespace detail {

// The whole parameters of a group that is gathered. Moves; must be ended before it is destroyed, else the step refuses
// further calls.
template <class StepPart>
class LiveGroup {
 public:
  LiveGroup(StepPart& part, StepCore& core, index_t group, StreamRef stream) noexcept
      : part_(&part), core_(&core), group_(group), stream_(stream) {}
  LiveGroup(LiveGroup&& other) noexcept
      : part_(other.part_), core_(std::exchange(other.core_, nullptr)), group_(other.group_), stream_(other.stream_) {}
  LiveGroup& operator=(LiveGroup&&) = delete;
  ~LiveGroup() {
    if (core_ != nullptr) core_->dropped(group_);
  }

  /// The parameter called `Text`, as of `Gathered`. What is enqueued takes it, not the handle.
  /// @throws Error (Errc::order) when the handle has been ended, so do all functions but `index`
  template <FixedString Text>
  [[nodiscard]] auto get() const {
    return gathered().template get<Text>();
  }
  /// Number `number` of those that are written `Text` in the group, "experts.{}.w" say.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text>
  [[nodiscard]] auto get(index_t number) const {
    return gathered().template get<Text>(number);
  }
  /// The first byte of the parameter at a position of the group.
  /// @throws Error (Errc::argument) when there is no such position
  [[nodiscard]] std::byte* at(ParameterIndex parameter) const { return gathered().at(parameter); }
  /// Which group of its part this is.
  [[nodiscard]] index_t index() const noexcept { return StepPart::part::index(group_); }

 private:
  [[nodiscard]] const auto& gathered() const {
    static_cast<void>(live());
    return part_->gathered(index());
  }

 protected:
  StepPart* part_;
  StepCore* core_;  // null when ended
  index_t group_;
  StreamRef stream_;

  [[nodiscard]] StepCore& live() const {
    if (core_ == nullptr) {
      raise(Errc::order, text({"tide::ShardedStep: a handle must not be used after it is released or reduced; group ",
                               index(), " of '", std::string(StepPart::part::name), "'."}));
    }
    return *core_;
  }
  // The core, for the one call that ends the handle.
  [[nodiscard]] StepCore& end() {
    StepCore& core = live();
    core_ = nullptr;
    return core;
  }
};

// That a name of a part is not one of its frozen ones.
template <class P, FixedString Text>
consteval void require_trainable() {
  constexpr bool here = P::Layout::group.view().find_first(Text.view()).has_value();
  constexpr bool trained = P::Trainable::group.view().find_first(Text.view()).has_value();
  static_assert(!here || trained,
                "tide::ShardedStep: a frozen parameter has no gradient; Frozen of its Part names it.");
}

}  // namespace detail

/// A group in its forward.
template <class StepPart>
class ForwardGroup : public detail::LiveGroup<StepPart> {
 public:
  using detail::LiveGroup<StepPart>::LiveGroup;

  /// Whatever reads the parameters has been enqueued on the stream of the call, or that stream has waited for it.
  void release() { this->end().leave_forward(this->group_, detail::PortStream(this->stream_)); }
};

/// A group in its backward.
template <class StepPart>
class BackwardGroup : public detail::LiveGroup<StepPart> {
  using P = typename StepPart::part;
  using Layout = typename P::Trainable;
  static constexpr bool trains = !P::frozen;
  static constexpr bool has_memory = trains && StepPart::types::buffers > 0;

 public:
  BackwardGroup(StepPart& part, detail::StepCore& core, index_t group, StreamRef stream, detail::GradientMemory& memory,
                index_t buffer) noexcept
      : detail::LiveGroup<StepPart>(part, core, group, stream), memory_(&memory), buffer_(buffer) {}

  /// Where the gradient of the parameter called `Text` belongs. Holds what an earlier group left: overwrite it.
  template <FixedString Text>
  [[nodiscard]] auto gradient() const requires(has_memory) {
    detail::require_trainable<P, Text>();
    return gradients().template get<Text>();
  }
  /// Number `number` of those that are written `Text` in the group, "experts.{}.w" say.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text>
  [[nodiscard]] auto gradient(index_t number) const requires(has_memory) {
    detail::require_trainable<P, Text>();
    return gradients().template get<Text>(number);
  }
  /// The first byte of the gradient of the parameter at a position of the group, as of `at`.
  /// @throws Error (Errc::argument) when there is no such position, or when it is frozen
  [[nodiscard]] std::byte* gradient(ParameterIndex parameter) const requires(has_memory) {
    return gradients().at(trained(parameter));
  }
  /// All gradients of the group. Positions there are those of what trains: frozen parameters have none.
  [[nodiscard]] Gradients<Layout>& gradients() const requires(has_memory) {
    static_cast<void>(this->live());
    return this->part_->reduce->gradients(buffer_);
  }

  /// Declares that a parameter got no gradient on this rank: it counts as zeros. Before `reduce`, so by the host: what
  /// runs on a stream is too late.
  template <FixedString Text>
  void missing() requires(has_memory) {
    detail::require_trainable<P, Text>();
    gradients().template missing<Text>();
  }
  template <FixedString Text>
  void missing(index_t number) requires(has_memory) {
    detail::require_trainable<P, Text>();
    gradients().template missing<Text>(number);
  }
  /// Of the one at a position of the group, as of `at`.
  /// @throws Error (Errc::argument) when there is no such position, or when it is frozen
  void missing(ParameterIndex parameter) requires(has_memory) { gradients().missing(trained(parameter)); }
  /// That none got one.
  void all_missing() requires(has_memory) {
    for (index_t p = 0; p < gradients().layout().view().group.size(); ++p) gradients().missing(ParameterIndex{p});
  }

  /// Whatever reads the parameters and writes the gradients has been enqueued on the stream of the call, or that stream
  /// has waited for it: gives the parameters back and reduces. The gradients may be overwritten after
  /// `gradients_free`; the step does so in later groups, and waits for it.
  ReduceTicket reduce() requires(has_memory) { return run(gradients()); }
  /// The same with gradients that lie elsewhere, until `gradients_free`.
  ReduceTicket reduce(const GradientTable<Layout>& table) requires(trains) { return run(table); }

  /// Of a frozen part: gives the parameters back.
  void release() requires(!trains) { this->end().leave_backward(this->group_, detail::PortStream(this->stream_)); }

 private:
  // The position, among those that train, of a parameter of the group.
  [[nodiscard]] ParameterIndex trained(ParameterIndex parameter) const {
    const LayoutView all = this->part_->weights(this->index()).view().layout().view();
    detail::require_parameter(all, parameter);
    if constexpr (std::is_same_v<typename P::Layout, Layout>) {
      return parameter;
    } else {
      const index_t position = detail::trained_positions<P>[static_cast<std::size_t>(parameter.value)];
      if (position >= 0) return ParameterIndex{position};
      raise(Errc::argument,
            detail::text({"tide::ShardedStep: a frozen parameter has no gradient; '",
                          detail::printable(all.group[parameter].name.str()), "' of '", std::string(P::name), "'."}));
    }
  }

  // Where the reduce is refused, nothing has happened, and the handle goes on.
  template <class Source>
  ReduceTicket run(Source& source) {
    detail::PortStream stream(this->stream_);
    detail::StepCore& core = this->live();
    const ReduceTicket ticket = this->part_->reduce->run(core, this->group_, source, stream.record());
    if (buffer_ >= 0) memory_->give_back(buffer_, ticket.gradients_free);
    this->end().leave_backward(this->group_, stream);
    return ticket;
  }

  detail::GradientMemory* memory_;
  index_t buffer_;
};

/// A group between passes: its shards and, where it trains, its reduced gradients. Cheap to copy, and of use as long as
/// its fabrics: what is enqueued may keep it.
template <class StepPart>
class UpdateGroup {
  using P = typename StepPart::part;
  using Weights = decltype(std::declval<StepPart&>().weights(0).view());
  using Reduced = ShardsView<typename P::Trainable, Buffer::masters>;
  static constexpr bool trains = !P::frozen;

 public:
  /// @throws Error (Errc::order) before `init`
  UpdateGroup(StepPart& part, index_t index)
      : weights_(part.weights(index).view()), reduced_(reduced_of(part, index)), index_(index) {}

  [[nodiscard]] static constexpr std::string_view part() noexcept { return P::name; }
  /// Which group of its part this is.
  [[nodiscard]] index_t index() const noexcept { return index_; }

  /// The own f32 masters.
  [[nodiscard]] Weights masters() const requires(trains) { return weights_; }
  /// The own shards of a frozen part, in the gathered element.
  [[nodiscard]] Weights shards() const requires(!trains) { return weights_; }
  /// The own reduced gradients. Without frozen parameters they lie as the masters do.
  [[nodiscard]] Reduced reduced() const requires(trains) { return reduced_; }

  /// Calls f(const Parameter&, std::span<float> masters, std::span<float> reduced) for each parameter that trains and
  /// that this rank owns rows of; `masters().for_each` has frozen ones, too, and says which rows they are.
  template <class F>
  void for_each(F f) const requires(trains) {
    const auto all = masters();
    const auto some = reduced();
    const LayoutView layout = all.layout().view();
    const LayoutView trained = some.layout().view();
    std::array<index_t, buffer_count> end{};  // of what comes before in the reduced gradients
    ParameterIndex next{0};                   // of those that train
    layout.for_each_piece(all.rank(), [&](const Piece& piece) {
      if (next.value == trained.group.size()) return;
      const Parameter& parameter = trained.group[next];
      if (!layout.group[piece.parameter].name.reads(parameter.name)) return;  // frozen
      const Piece reduced_piece = detail::next_piece(trained.group, next.value++, trained.mesh.ranks(), trained.packing,
                                                     trained.storage_alignment, some.rank(), end);
      if (piece.elements() == 0) return;
      const auto floats = [&](std::byte* data, const Piece& at) {
        return std::span<float>(reinterpret_cast<float*>(data + at.offset(Buffer::masters)),
                                static_cast<std::size_t>(at.elements()));
      };
      f(parameter, floats(all.data(), piece), floats(some.data(), reduced_piece));
    });
  }

 private:
  [[nodiscard]] static auto reduced_of(StepPart& part, index_t index) {
    if constexpr (trains) {
      return part.reduce->reduced(index);
    } else {
      return std::monostate();
    }
  }

  Weights weights_;
  [[no_unique_address]] std::conditional_t<trains, Reduced, std::monostate> reduced_;
  index_t index_;
};

}  // namespace tide
