// SPDX-License-Identifier: Apache-2.0
//
// What the pipelines check before anything is enqueued.

#pragma once

#include <tide/fabric/fabric.hpp>          // FabricPort
#include <tide/layout/dynamic_layout.hpp>  // DynamicLayout
#include <tide/layout/shard_layout.hpp>    // ShardLayout

#include <string>
#include <type_traits>

namespace tide::detail {

// Whether a layout may be used without an inter-node transport, as far as types tell.
template <class Layout>
inline constexpr bool fits_single_node = [] {
  if constexpr (requires { requires Layout::mesh_type::is_static; }) {
    return typename Layout::mesh_type().nodes() == 1;
  } else {
    return true;
  }
}();

// Bytes of a slot where the layout is static, else 0.
template <class Layout>
inline constexpr index_t static_slot_bytes = [] {
  if constexpr (requires { Layout::slot_bytes; }) {
    return Layout::slot_bytes;
  } else {
    return index_t{0};
  }
}();

[[nodiscard]] inline std::string operation_label(const char* operation, const LayoutView& layout, std::string label) {
  if (label.empty()) label = layout.group.parameters.front().name.str();
  return std::string(operation) + " of '" + label + "' (" + std::to_string(layout.group.size()) + " parameters)";
}

inline void require_fabric(const FabricPort& fabric, const LayoutView& layout, Capability capability,
                           std::string_view policy) {
  if (layout.mesh != fabric.mesh()) {
    raise(Errc::mismatch, detail::text({"tide::LayoutView: the mesh of the layout must be that of the fabric; layout ",
                                        layout.mesh.nodes, "x", layout.mesh.ranks_per_node, ", fabric ",
                                        fabric.mesh().nodes, "x", fabric.mesh().ranks_per_node, "."}));
  }
  if (layout.mesh.nodes != 1) raise(Errc::layout, "tide::SingleNode: the mesh must have one node.");
  if (!fabric.has(capability)) {
    raise(Errc::argument, detail::text({"tide::Transport: the fabric must have what the policy needs; ", policy,
                                        " needs multicast, which this ", fabric.name(), " has not."}));
  }
}

// A packed buffer of the caller: of this rank, not null, aligned to every element in it.
inline void require_packed(FabricPort& port, const LayoutView& layout, Buffer buffer, const void* data, Rank rank,
                           const std::string& label) {
  if (rank != port.rank()) {
    port.refuse(Errc::argument, detail::text({"tide::ShardsView: shards must be those of the own rank; ", label,
                                              " on rank ", port.rank().value, " got those of rank ", rank.value, "."}));
  }
  layout.for_each_piece(rank, [&](const Piece& piece) {
    if (piece.elements() == 0) return;
    const std::string at = " parameter '" + layout.group[piece.parameter].name.str() + "' of " + label + " on rank " +
                           std::to_string(rank.value) + ".";
    if (data == nullptr) port.refuse(Errc::argument, detail::text({"tide::ShardsView: shards must not be null;", at}));
    const auto address = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(piece.offset(buffer));
    if (address % static_cast<std::uintptr_t>(piece.size(buffer)) != 0) {
      port.refuse(Errc::argument, detail::text({"tide::ShardsView: shards must be aligned to their elements;", at}));
    }
  });
}

}  // namespace tide::detail
