// SPDX-License-Identifier: Apache-2.0
//
// What typed storage has in common: a range of the arena, and the element types of a layout's buffers.

#pragma once

#include <tide/fabric/fabric.hpp>        // FabricPort
#include <tide/layout/layout_rules.hpp>  // require_parameter
#include <tide/layout/shard_layout.hpp>  // ShardLayout

#include <algorithm>
#include <type_traits>

namespace tide::detail {

// A range of the arena, at the same offset on every rank.
class ArenaStorage {
 public:
  ArenaStorage(FabricPort& port, index_t bytes)
      : port_(&port), offset_(port.reserve(std::max<index_t>(bytes, 1), 256)) {}

  // A range that was reserved before.
  [[nodiscard]] static ArenaStorage at(FabricPort& port, index_t offset) {
    ArenaStorage storage(port);
    storage.offset_ = offset;
    return storage;
  }

  // @throws Error (Errc::order) before init
  [[nodiscard]] std::byte* data() const {
    if (port_->arena() == nullptr) {
      raise(Errc::order, "tide::Fabric: storage in the arena has no memory before init of its fabric.");
    }
    return port_->arena() + offset_;
  }
  [[nodiscard]] FabricPort& port() const noexcept { return *port_; }

 private:
  explicit ArenaStorage(FabricPort& port) : port_(&port) {}

  FabricPort* port_;
  index_t offset_ = 0;
};

// Whether a layout is all in its type.
template <class Layout>
inline constexpr bool is_static_layout = [] {
  if constexpr (requires { Layout::mesh_type::is_static; }) {
    return Layout::mesh_type::is_static;
  } else {
    return false;
  }
}();

// Whether the type of a layout says that its mesh has one node.
template <class Layout>
inline constexpr bool is_on_one_node = [] {
  if constexpr (requires { Layout::mesh_type::static_nodes; }) {
    return Layout::mesh_type::static_nodes == 1;
  } else {
    return false;
  }
}();

// A static layout on the mesh of a fabric; a DynamicLayout cannot be made from a mesh alone.
template <class Layout>
[[nodiscard]] Layout layout_on(const FabricPort& fabric) {
  static_assert(!std::is_same_v<Layout, DynamicLayout>, "tide::DynamicLayout: pass the layout to the constructor.");
  return Layout::on(fabric.mesh());
}

// For typed access to a packed piece.
inline void require_element_aligned(const LayoutView& layout, const Piece& piece, Buffer buffer) {
  if (piece.elements() == 0 || piece.offset(buffer) % piece.size(buffer) == 0) return;
  raise(Errc::layout, detail::text({"tide::ShardsView: a packing that aligns nothing has put the shard across its "
                                    "elements' alignment; take bytes_of. Parameter '",
                                    printable(layout.group[piece.parameter].name.str()), "'."}));
}

// The element of a parameter's shard: f32 in masters, the gathered element in shards.
template <class Layout, Buffer Which, FixedString Text>
using shard_element =
    std::conditional_t<Which == Buffer::masters, f32, typename Layout::template tensor<Text>::element_type>;

}  // namespace tide::detail
