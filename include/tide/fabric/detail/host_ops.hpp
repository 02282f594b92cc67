// SPDX-License-Identifier: Apache-2.0
//
// What ops do to the memory of the ranks of a process.

#pragma once

#include <tide/fabric/detail/arenas.hpp>        // Arenas
#include <tide/fabric/detail/host_variant.hpp>  // HostRun

#include <cstring>
#include <vector>

namespace tide::detail {

class HostOps {
 public:
  HostOps(const Arenas& arenas, MeshShape mesh, Rank rank, ArenaPlaces places)
      : arenas_(arenas), mesh_(mesh), rank_(rank), places_(places) {}

  // Writes the zeros that a switch adds where nothing is put, and finds the memories that it reads. When there are
  // arenas.
  void prepare_switch(const NetworkShape& network) {
    if (!network.starts_as_zeros()) return;
    std::memset(arenas_.at(rank_) + places_.network_inbox, 0,
                static_cast<std::size_t>(network.inbox_instances * network.inbox_bytes));
    for (index_t local = 0; local < mesh_.ranks_per_node; ++local) {
      node_.push_back(arenas_.at(mesh_.rank(mesh_.node(rank_), local)));
    }
  }

  // What an op writes; of a put its bytes, at once.  @pre op.moves()
  void run(const Op& op, const HostRun& run) const {
    switch (op.kind) {
      case OpKind::copy:
      case OpKind::put:
        return copy(op, Rank{op.peer}, run);
      case OpKind::multicast:
        for (index_t local = 0; local < mesh_.ranks_per_node; ++local) {
          copy(op, mesh_.rank(mesh_.node(rank_), local), run);
        }
        return;
      case OpKind::reduce:
        return reduce(op, run);
      case OpKind::cast:
        return cast(op, run);
      case OpKind::signal:
      case OpKind::wait:
        return;
    }
  }

  // The bytes of a put as they are now, and where they belong.
  struct Parcel {
    std::vector<std::byte> bytes{};
    std::byte* target = nullptr;

    void deliver() const {
      if (!bytes.empty()) std::memcpy(target, bytes.data(), bytes.size());
    }
  };
  [[nodiscard]] Parcel pack(const Op& put, const HostRun& run) const {
    const std::byte* from = source(put, run);
    return {{from, from + put.width}, locate(Rank{put.peer}, put.target, put.target_offset, run)};
  }

 private:
  [[nodiscard]] std::byte* locate(Rank rank, Place place, index_t offset, const HostRun& run) const {
    std::byte* arena = arenas_.at(rank);
    switch (place.space) {
      case Space::slot:
        return arena + run.bindings.slot_offset + offset;
      case Space::inbox:
        return arena + inbox_offset(run) + place.instance * run.variant->inbox.chunk_bytes() + offset;
      case Space::network_inbox:
        return arena + run.bindings.network_inbox + place.instance * run.variant->network.inbox_bytes + offset;
      case Space::partials:
        return arena + run.bindings.partials + place.instance * run.variant->network.partials_bytes + offset;
      case Space::shards:  // which the plan writes where the caller gives none: then they lie in the arena
        return static_cast<std::byte*>(const_cast<void*>(run.bindings.shards)) + offset;
      case Space::output:
        return static_cast<std::byte*>(run.bindings.output) + offset;
      default:
        return nullptr;
    }
  }

  [[nodiscard]] index_t inbox_offset(const HostRun& run) const noexcept {
    return run.variant->inbox.place == InboxPlace::slot ? run.bindings.slot_offset : places_.inbox;
  }

  [[nodiscard]] const std::byte* source(const Op& op, const HostRun& run) const {
    const Bindings& b = run.bindings;
    const index_t offset = op.source_offset;
    switch (op.source.space) {
      case Space::master:
        return static_cast<const std::byte*>(b.master) + offset;
      case Space::shards:
        return static_cast<const std::byte*>(b.shards) + offset;
      case Space::gradients:
        if (b.gradient_table == nullptr) return static_cast<const std::byte*>(b.gradients) + offset;
        return static_cast<const std::byte*>(b.gradient_table[op.source.parameter]) + offset -
               run.variant->gradient_start[op.source.parameter];
      default:
        return locate(rank_, op.source, offset, run);
    }
  }

  void copy(const Op& op, Rank to, const HostRun& run) const {
    const std::byte* from = source(op, run);
    std::byte* target = locate(to, op.target, op.target_offset, run);
    if (from == target) return;  // a multicast from the own slot covers itself
    for (std::uint32_t row = 0; row < op.rows; ++row) {
      std::memcpy(target + row * std::size_t{op.target_pitch}, from + row * std::size_t{op.source_pitch},
                  static_cast<std::size_t>(op.width));
    }
  }

  void cast(const Op& op, const HostRun& run) const {
    const std::byte* from = source(op, run);
    std::byte* to = locate(rank_, op.target, op.target_offset, run);
    for (std::uint32_t row = 0; row < op.rows; ++row) {
      run.variant->kernels[op.kernel].cast(from + row * std::size_t{op.source_pitch},
                                           to + row * std::size_t{op.target_pitch}, op.width / 4);
    }
  }

  void reduce(const Op& op, const HostRun& run) const {
    const HostKernel& kernel = run.variant->kernels[op.kernel];
    if (kernel.switch_sum != nullptr) return reduce_in_switch(op, kernel, run);
    if (kernel.sum == nullptr) return cast(op, run);
    const bool local = op.extra.space == Space::inbox;
    const index_t input_bytes = kernel.input_bytes;
    const index_t element_bytes = local ? run.variant->inbox.element_bytes : input_bytes;
    HostSumRow row{};
    row.own = source(op, run);
    row.pieces = locate(rank_, op.extra, op.extra_offset, run);
    row.piece_stride = local ? run.variant->inbox.piece_bytes() : run.variant->network.piece_bytes;
    row.inputs = kernel.inputs;
    row.position = op.peer;
    row.output = reinterpret_cast<float*>(locate(rank_, op.target, op.target_offset, run));
    row.elements = op.width / input_bytes;
    row.scale = kernel.scaled ? run.bindings.scale : 1.0F;
    for (std::uint32_t r = 0; r < op.rows; ++r) {
      kernel.sum(row);
      row.own += op.source_pitch;
      row.output += op.target_pitch / 4;
      row.pieces += op.target_pitch / 4 * element_bytes;
    }
  }

  void reduce_in_switch(const Op& op, const HostKernel& kernel, const HostRun& run) const {
    const NetworkShape& network = run.variant->network;
    const auto offset = [&](Place place, index_t inside) {
      return run.bindings.network_inbox + place.instance * network.inbox_bytes + inside;
    };
    HostSwitchRow row{};
    row.memories = node_.data();
    row.ranks = static_cast<std::int32_t>(node_.size());
    row.inputs = kernel.inputs;
    row.first = offset(op.source, op.source_offset);
    row.next = offset(op.extra, op.extra_offset);
    row.stride = network.piece_bytes;
    row.output = reinterpret_cast<float*>(locate(rank_, op.target, op.target_offset, run));
    row.elements = op.width / 4;
    row.scale = run.bindings.scale;
    for (std::uint32_t r = 0; r < op.rows; ++r) {
      kernel.switch_sum(row);
      row.first += op.source_pitch;
      row.next += op.target_pitch;
      row.output += op.target_pitch / 4;
    }
  }

  const Arenas& arenas_;
  MeshShape mesh_;
  Rank rank_;
  ArenaPlaces places_;
  std::vector<const std::byte*> node_;  // the arenas of the node's ranks, where a switch adds what lies in them
};

}  // namespace tide::detail
