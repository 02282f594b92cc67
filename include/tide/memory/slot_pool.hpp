// SPDX-License-Identifier: Apache-2.0
//
// SlotPool: the slots that gathered parameters live in, shared by all groups of a model, and where gradients wait that
// are reduced with SlotReuse.
//
//   free -> gathering -> full -> free         each edge waits for the last reader;
//   free -> staging -> reducing -> free       the first write after an edge overwrites
//
// Laws                                               (tests/memory/slot_pool.test.cpp)
//   largest     a slot holds the largest group, so every group fits every slot
//   no alias    a slot that somebody holds is never given away; asking for more than there are is an error
//   constant    Depth x slot bytes (and, over nodes, x the bytes beside a slot), known before the run; nothing grows
//               with steps or groups

#pragma once

#include <tide/core/tags.hpp>                // Depth
#include <tide/memory/detail/slot_life.hpp>  // SlotLife
#include <tide/memory/detail/storage.hpp>    // layout_on
#include <tide/reduce/slot_reuse.hpp>        // slot_bytes_with_reuse

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

namespace tide {

namespace detail {

// What a pool sets aside for a group.
struct SlotNeeds {
  index_t slot_bytes = 0;
  SlotNetwork beside{};

  constexpr void add(const SlotNeeds& other) noexcept {
    slot_bytes = std::max(slot_bytes, other.slot_bytes);
    beside.inbox_bytes = std::max(beside.inbox_bytes, other.beside.inbox_bytes);
    beside.shards_bytes = std::max(beside.shards_bytes, other.beside.shards_bytes);
  }
};

// Those of a layout. Programs of one node compile nothing of several.
template <class Layout>
[[nodiscard]] SlotNeeds slot_needs(const Layout& layout) {
  if constexpr (is_on_one_node<Layout>) {
    return {slot_bytes_on_node(layout.view()), {}};
  } else {
    return {slot_bytes_with_reuse(layout.view()), slot_network(layout.view())};
  }
}

// The most that any of several layouts needs.
template <class... Layouts>
[[nodiscard]] SlotNeeds most_needs(const Layouts&... layouts) {
  SlotNeeds most;
  (most.add(slot_needs(layouts)), ...);
  return most;
}

}  // namespace detail

/// A slot that somebody holds. Moves; gives the slot back when destroyed unused: the next holder then waits for what is
/// enqueued on the stream that it was acquired for, so that stream must still be there.
class SlotLease {
 public:
  /// Holds nothing.
  SlotLease() noexcept = default;
  SlotLease(detail::SlotLife& life, SlotIndex slot) noexcept : life_(&life), slot_(slot) {}
  SlotLease(SlotLease&& other) noexcept : life_(std::exchange(other.life_, nullptr)), slot_(other.slot_) {}
  SlotLease& operator=(SlotLease&& other) noexcept {
    std::swap(life_, other.life_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~SlotLease() {
    if (life_ != nullptr) life_->give_back(slot_);
  }

  [[nodiscard]] SlotIndex slot() const noexcept { return slot_; }
  /// Whether this holds a slot of that pool.
  [[nodiscard]] bool is_of(const detail::SlotLife& life) const noexcept { return life_ == &life; }
  /// Hands the duty to release over to the caller.
  SlotIndex take() noexcept {
    life_ = nullptr;
    return slot_;
  }

 private:
  detail::SlotLife* life_ = nullptr;
  SlotIndex slot_{};
};

/// `Count::value` slots of the largest of `Layouts`. Construct before `init`; outlives the pipelines and handles that
/// use it, and stays where it is.
///
/// @tparam Count    `Depth<N>`: groups that may be gathered at once, and one for a reduce with SlotReuse; see
///                  `slots_needed`
/// @tparam Layouts  every layout that will be gathered into the pool
template <class Count, class... Layouts>
class SlotPool {
  static_assert(detail::is_tag<Depth, Count>, "tide::SlotPool: Count must be Depth<N>; layouts come behind it.");
  static_assert(sizeof...(Layouts) > 0, "tide::SlotPool: name at least one layout.");

 public:
  static constexpr index_t depth = Count::value;

  /// @throws Error (Errc::order) after `init`
  explicit SlotPool(FabricPort& fabric) : SlotPool(fabric, detail::layout_on<Layouts>(fabric)...) {}
  explicit SlotPool(FabricPort& fabric, const Layouts&... layouts) : SlotPool(fabric, detail::most_needs(layouts...)) {}

  /// Whether groups of a layout fit.
  template <class Layout>
  static constexpr bool holds = (std::is_same_v<Layout, Layouts> || ...);

  /// Bytes of a slot.
  [[nodiscard]] index_t slot_bytes() const noexcept { return life_.slot_bytes(); }
  /// Bytes of all slots.
  [[nodiscard]] index_t bytes() const noexcept { return depth * slot_bytes(); }
  /// Bytes beside all slots, for what crosses nodes; 0 on one node.
  [[nodiscard]] index_t network_bytes() const noexcept { return depth * life_.beside().bytes(); }

  /// The next free slot; later work on `stream` waits for its last reader.
  /// @throws Error (Errc::capacity) when all slots are held, (Errc::order) when a handle was dropped without release
  template <class Stream>
  [[nodiscard]] SlotLease acquire(Stream& stream) {
    return SlotLease(life_, life_.acquire(stream.ref()));
  }

  [[nodiscard]] detail::SlotLife& life() noexcept { return life_; }

 private:
  SlotPool(FabricPort& fabric, const detail::SlotNeeds& needs) : life_(fabric, depth, needs.slot_bytes, needs.beside) {}

  detail::SlotLife life_;
};

}  // namespace tide
