// SPDX-License-Identifier: Apache-2.0
//
// FlatLayout: one f32 parameter of a length that is known at run time, cut evenly. Unlike DynamicLayout it names its
// element, so that no kernels of others are instantiated.

#pragma once

#include <tide/layout/dynamic_layout.hpp>  // DynamicLayout

#include <utility>

namespace tide::detail {

inline constexpr auto flat_group = tide::group(tide::param<float>("flat", {1}));

class FlatLayout {
 public:
  static constexpr const auto& group = flat_group;  // for its element only

  FlatLayout(index_t elements, MeshShape mesh) : layout_(of(elements), mesh) {}

  [[nodiscard]] MeshShape mesh() const noexcept { return layout_.mesh(); }
  [[nodiscard]] LayoutView view() const noexcept { return layout_.view(); }

 private:
  [[nodiscard]] static DynamicGroup of(index_t elements) {
    DynamicGroup flat;
    flat.add("flat", {elements}, Element::f32, Element::f32);
    return flat;
  }

  DynamicLayout layout_;
};

}  // namespace tide::detail
