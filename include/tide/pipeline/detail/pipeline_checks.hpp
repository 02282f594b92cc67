// SPDX-License-Identifier: Apache-2.0
//
// What the pipelines check before anything is enqueued.

#pragma once

#include <tide/fabric/fabric.hpp>        // FabricPort
#include <tide/layout/shard_layout.hpp>  // ShardLayout
#include <tide/memory/slot_pool.hpp>     // SlotLife

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>

namespace tide::detail {

// Whether a layout may be used without an inter-node transport, as far as types tell.
template <class Layout>
inline constexpr bool fits_single_node = [] {
  if constexpr (requires { Layout::mesh_type::static_nodes; }) {
    return Layout::mesh_type::static_nodes == 1 || Layout::mesh_type::static_nodes == dynamic;
  } else {
    return true;
  }
}();

// Bytes of a slot, of a group that the compiler knows.
template <class Layout>
inline constexpr index_t static_slot_bytes = [] {
  static_assert(
      requires { Layout::slot_bytes; },
      "tide::AllGather: slot_bytes is a constant of groups that the compiler knows; ask the SlotPool for the others.");
  return Layout::slot_bytes;
}();

// What errors call a pipeline: "gather of 'layers.0' (9 parameters)", or "gather of 'q.weight' and 8 more" where the
// user gave no label.
[[nodiscard]] inline std::string operation_label(const char* operation, const LayoutView& layout,
                                                 const std::string& label) {
  const index_t count = layout.group.size();
  if (!label.empty())
    return text({operation, " of '", printable(label), "' (", count, count == 1 ? " parameter)" : " parameters)"});
  const std::string first = text({operation, " of '", printable(layout.group.parameters.front().name.str()), "'"});
  return count == 1 ? first : text({first, " and ", count - 1, " more"});
}

inline void require_capability(const FabricPort& fabric, Capability capability, std::string_view policy) {
  if (fabric.has(capability)) return;
  const std::string why = fabric.lacks(capability);
  raise(Errc::argument, detail::text({"tide::Transport: the fabric must have what the policy needs; ", policy,
                                      " needs ", tide::name(capability), ", which this ", fabric.name(), " has not",
                                      why.empty() ? "" : ": ", why, "."}));
}

inline void require_mesh(const FabricPort& fabric, const LayoutView& layout) {
  if (layout.mesh != fabric.mesh()) {
    raise(Errc::mismatch, detail::text({"tide::LayoutView: the mesh of the layout must be that of the fabric; layout ",
                                        layout.mesh.nodes, "x", layout.mesh.ranks_per_node, ", fabric ",
                                        fabric.mesh().nodes, "x", fabric.mesh().ranks_per_node, "."}));
  }
}

// Whether a fabric crosses nodes as a policy wants to.
template <class Inter>
void require_inter(const FabricPort& fabric, const LayoutView& layout) {
  if (layout.mesh.nodes == 1) return;
  if constexpr (std::is_same_v<Inter, SingleNode>) {
    raise(Errc::layout, "tide::SingleNode: the mesh must have one node; for several name RdmaDoublingTransport<>.");
  } else {
    require_capability(fabric, Inter::capability, Inter::name);
  }
}

// @param bytes  that the pipeline needs of a slot
inline void require_pool(const FabricPort& port, const SlotLife& pool, index_t bytes, const std::string& label) {
  if (&pool.port() != &port) {
    raise(Errc::argument, detail::text({"tide::SlotPool: the pool must be made for the fabric of the pipeline; ", label,
                                        " on rank ", port.rank().value, " got another one's."}));
  }
  if (bytes > pool.slot_bytes()) {
    raise(Errc::capacity, detail::text({"tide::SlotPool: a slot must hold the layout; name the largest in SlotPool. ",
                                        label, " needs ", bytes, " bytes, has ", pool.slot_bytes(), "."}));
  }
}

// Whether a buffer of one layout can be used as one of the other. Groups are the same object, or made of equal parts.
[[nodiscard]] inline bool same_buffers(const LayoutView& one, const LayoutView& two, Buffer buffer, Rank rank) {
  if (one.mesh != two.mesh || one.packing != two.packing || one.storage_alignment != two.storage_alignment)
    return false;
  const auto& ours = one.group.parameters;
  const auto& theirs = two.group.parameters;
  if (ours.size() != theirs.size()) return false;
  if (ours.data() == theirs.data()) return true;
  const auto equal = [](const Parameter& a, const Parameter& b) {
    return a.shape.rank == b.shape.rank && a.shape.extents == b.shape.extents && a.gathered == b.gathered &&
           a.gradient == b.gradient && a.sharding.dimension == b.sharding.dimension;
  };
  if (!std::equal(ours.begin(), ours.end(), theirs.begin(), equal)) return false;
  if (is_dense(buffer)) return true;
  // However they are cut: packed buffers of a rank are alike where its rows are.
  std::array<index_t, buffer_count> end_of_one{};
  std::array<index_t, buffer_count> end_of_two{};
  for (index_t i = 0; i < one.group.size(); ++i) {
    const auto piece_of = [&](const LayoutView& layout, std::array<index_t, buffer_count>& end) {
      return next_piece(layout.group, i, layout.mesh.ranks(), layout.packing, layout.storage_alignment, rank, end);
    };
    const Piece a = piece_of(one, end_of_one);
    const Piece b = piece_of(two, end_of_two);
    if (a.begin != b.begin || a.count != b.count) return false;
  }
  return true;
}

inline void require_layout(FabricPort& port, const LayoutView& layout, const LayoutView& given, Buffer buffer,
                           const std::string& label) {
  if (same_buffers(layout, given, buffer, port.rank())) return;
  port.refuse(Errc::argument,
              detail::text({"tide::LayoutView: a buffer must have the layout of the pipeline; ", label, " on rank ",
                            port.rank().value, " got one of ", given.group.size(), " parameters."}));
}

// Refuses a packed buffer of the caller that is not of this rank and layout, is null, or is below the alignment of its
// elements.
class PackedCheck {
 public:
  PackedCheck(const FabricPort& port, const LayoutView& layout, Buffer buffer) : layout_(layout), buffer_(buffer) {
    layout.for_each_piece(port.rank(), [&](const Piece& piece) {
      if (piece.elements() == 0 || piece.size(buffer) <= alignment_) return;
      alignment_ = piece.size(buffer);
      widest_ = piece.parameter;
    });
  }

  void operator()(FabricPort& port, const LayoutView& given, const void* data, Rank rank,
                  const std::string& label) const {
    if (rank != port.rank()) {
      port.refuse(Errc::argument,
                  detail::text({"tide::ShardsView: shards must be those of the own rank; ", label, " on rank ",
                                port.rank().value, " got those of rank ", rank.value, "."}));
    }
    require_layout(port, layout_, given, buffer_, label);
    if (alignment_ == 0) return;
    if (data == nullptr) {
      port.refuse(Errc::argument, detail::text({"tide::ShardsView: shards must not be null;", where(port, label)}));
    }
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment_) != 0) {
      port.refuse(Errc::argument,
                  detail::text({"tide::ShardsView: shards must be aligned to their elements;", where(port, label)}));
    }
  }

 private:
  [[nodiscard]] std::string where(const FabricPort& port, const std::string& label) const {
    return detail::text({" parameter '", printable(layout_.group[widest_].name.str()), "' of ", label, " on rank ",
                         port.rank().value, "."});
  }

  LayoutView layout_;
  Buffer buffer_;
  index_t alignment_ = 0;  // 0 when this rank owns nothing
  ParameterIndex widest_{};
};

}  // namespace tide::detail
