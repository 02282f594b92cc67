// SPDX-License-Identifier: Apache-2.0
//
// Gathered: the handle of a running or finished gather: owns its slot until `release`, gives typed tensors.
//
//   auto params = gather.enqueue(shards, stream);
//   multiply(params.get<"q_proj.weight">(), ...);      // on `stream`, or on another after other.wait(params.complete())
//   params.release(stream);                            // the last reader has been enqueued
//
// Test: tests/pipeline/all_gather.test.cpp

#pragma once

#include <tide/memory/slot_pool.hpp>  // SlotLife

#include <memory>
#include <string>
#include <utility>

namespace tide {

/// A slot full of parameters. Moves; must be released before it is destroyed, else its pool refuses further use.
template <class Layout>
class Gathered {
 public:
  Gathered(detail::SlotLife& life, SlotIndex slot, const Layout& layout, Event complete,
           std::shared_ptr<const std::string> label)
      : life_(&life), slot_(slot), layout_(layout), complete_(complete), label_(std::move(label)) {}
  Gathered(Gathered&& other) noexcept
      : life_(std::exchange(other.life_, nullptr)),
        slot_(other.slot_),
        layout_(other.layout_),
        complete_(other.complete_),
        label_(std::move(other.label_)) {}
  Gathered& operator=(Gathered&&) = delete;
  ~Gathered() {
    if (life_ != nullptr) life_->poison(std::move(label_));
  }

  /// The parameter called `Text` (or tied to one), with static extents. Read it on the stream of the gather, on one
  /// that waited for `complete()`, or on the host after `complete().synchronize()`.
  /// @throws Error (Errc::order) after `release`, here and in `at` and `data`
  template <FixedString Text>
  [[nodiscard]] auto get() const {
    using Tensor = typename Layout::template tensor<Text>;
    return Tensor(
        reinterpret_cast<typename Tensor::element_type*>(data() + Layout::template dense_start<Text, Buffer::slot>));
  }

  /// Number `number` of those that are written `Text` in the group, "experts.{}.w" say.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text>
  [[nodiscard]] auto get(index_t number) const {
    using Tensor = typename Layout::template tensor<Text>;
    return Tensor(reinterpret_cast<typename Tensor::element_type*>(
        data() + Layout::template dense_start_of<Text, Buffer::slot>(number)));
  }

  /// The first byte of a parameter.
  /// @throws Error (Errc::argument) when there is no such position
  [[nodiscard]] std::byte* at(ParameterIndex parameter) const {
    detail::require_parameter(layout_.view(), parameter);
    return data() + layout_.view().piece(parameter, Rank{0}).start[static_cast<std::size_t>(Buffer::slot)];
  }

  /// The start of the slot.
  [[nodiscard]] std::byte* data() const {
    if (life_ == nullptr) raise(Errc::order, "tide::Gathered: a handle must be read before it is released.");
    return life_->data(slot_);
  }
  [[nodiscard]] SlotIndex slot() const noexcept { return slot_; }

  /// When all parameters are there, and the shards that were gathered may be overwritten.
  [[nodiscard]] Event complete() const noexcept { return complete_; }

  /// Gives the slot back: whoever writes to it next, here or on a peer, waits for what is enqueued on `stream` so far.
  template <class Stream>
  void release(Stream& stream) {
    if (life_ == nullptr) raise(Errc::order, "tide::Gathered: a handle must be released once.");
    // A reader on another stream than the gather's has waited for it; a handle that nobody read has not.
    stream.wait(complete_);
    life_->release(slot_, stream.record());
    life_ = nullptr;
  }

 private:
  detail::SlotLife* life_;
  SlotIndex slot_;
  Layout layout_;
  Event complete_;
  std::shared_ptr<const std::string> label_;
};

}  // namespace tide
