// SPDX-License-Identifier: Apache-2.0
//
// The state machine behind SlotPool: who holds which slot, and after which event the next may write to it.

#pragma once

#include <tide/core/index.hpp>                         // SlotIndex
#include <tide/fabric/fabric.hpp>                      // FabricPort, Event
#include <tide/transport/rdma_doubling_transport.hpp>  // SlotNetwork

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tide::detail {

class SlotLife {
 public:
  static constexpr std::int32_t nobody = -1;
  static constexpr std::int32_t somebody = -2;  // held, but by no pipeline yet

  // @param beside  what each slot has beside it where gathers cross nodes
  SlotLife(FabricPort& port, index_t depth, index_t slot_bytes, SlotNetwork beside = {})
      : port_(&port), slot_bytes_(slot_bytes), beside_(beside), slots_(static_cast<std::size_t>(depth)) {
    offset_ = port.reserve(depth * slot_bytes, 256);
    if (beside_.bytes() > 0) beside_offset_ = port.reserve(depth * beside_.bytes(), 256);
  }
  SlotLife(const SlotLife&) = delete;
  SlotLife& operator=(const SlotLife&) = delete;

  [[nodiscard]] FabricPort& port() const noexcept { return *port_; }
  [[nodiscard]] index_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] index_t offset(SlotIndex slot) const noexcept { return offset_ + slot.value * slot_bytes_; }
  [[nodiscard]] std::byte* data(SlotIndex slot) const noexcept { return port_->arena() + offset(slot); }
  [[nodiscard]] const SlotNetwork& beside() const noexcept { return beside_; }
  // The network inbox that goes with a slot, as an offset in the arena.
  [[nodiscard]] index_t network_inbox(SlotIndex slot) const noexcept {
    return beside_offset_ + slot.value * beside_.bytes();
  }
  // Where a plan packs the own shards when the caller gives none.
  [[nodiscard]] std::byte* packed_shards(SlotIndex slot) const noexcept {
    return port_->arena() + network_inbox(slot) + beside_.inbox_bytes;
  }

  // The free slot that was released first, so that its last reader is likely done.
  // @param done  what will be done to a group in the slot, for the message
  [[nodiscard]] SlotIndex acquire(StreamRef stream, std::string_view done = "gathered") {
    require_sound();
    std::size_t best = slots_.size();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].holder == nobody && (best == slots_.size() || slots_[i].released < slots_[best].released)) best = i;
    }
    if (best == slots_.size()) {
      port_->refuse(Errc::capacity, detail::text({"tide::SlotPool: a slot must be released before another group is ",
                                                  done, "; all ", slots_.size(), " are held."}));
    }
    Slot& slot = slots_[best];
    if (slot.last_reader.valid()) port_->wait(stream, slot.last_reader);
    // Given back unused, and whoever held it may have been writing.
    if (slot.writer.port != nullptr && slot.writer.handle != stream.handle) {
      port_->wait(stream, port_->record(slot.writer));
    }
    slot.writer = stream.port == port_ ? stream : StreamRef{};  // another fabric's is about to be refused
    slot.holder = somebody;
    return SlotIndex{static_cast<index_t>(best)};
  }

  // Refuses a second gather of a pipeline whose handle still lives.
  void require_released(std::int32_t pipeline, const std::string& label) {
    require_sound();
    for (const Slot& slot : slots_) {
      if (slot.holder != pipeline) continue;
      port_->refuse(Errc::order,
                    detail::text({"tide::AllGather: the handle of a gather must be released before the next one; ",
                                  label, " still lives."}));
    }
  }

  void hold(SlotIndex slot, std::int32_t pipeline) noexcept { at(slot).holder = pipeline; }

  // The slot may be written again after `last_reader`.
  void release(SlotIndex slot, Event last_reader) noexcept { at(slot) = {nobody, ++releases_, last_reader, {}}; }
  // Unused: the next holder waits for the stream that the slot was acquired for, as far as that will be by then.
  void give_back(SlotIndex slot) noexcept { at(slot).holder = nobody; }

  // A handle went without saying when its last reader is done: nobody can know when the slot is free.
  void poison(std::shared_ptr<const std::string> label) noexcept {
    if (!poisoned_) poisoned_ = std::move(label);
  }

  void require_sound() {
    if (!poisoned_) return;
    port_->refuse(Errc::order, detail::text({"tide::SlotPool: a handle must be released before it is destroyed; ",
                                             *poisoned_, " was not."}));
  }

 private:
  struct Slot {
    std::int32_t holder = nobody;
    std::uint64_t released = 0;
    Event last_reader{};
    StreamRef writer{};  // of the holder, or of one that gave the slot back
  };

  [[nodiscard]] Slot& at(SlotIndex slot) noexcept { return slots_[static_cast<std::size_t>(slot.value)]; }

  FabricPort* port_;
  index_t slot_bytes_;
  SlotNetwork beside_;
  index_t offset_ = 0;
  index_t beside_offset_ = 0;
  std::vector<Slot> slots_;
  std::uint64_t releases_ = 0;
  std::shared_ptr<const std::string> poisoned_;
};

}  // namespace tide::detail
