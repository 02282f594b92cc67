// SPDX-License-Identifier: Apache-2.0
//
// ShardLayout: a group of parameters on a mesh, checked and measured by the compiler.
//
//   using Layout = tide::ShardLayout<llama3_8b::block, tide::Mesh<1, 4>>;
//   static_assert(Layout::slot_bytes == 436'224'000);
//
// Laws: those of LayoutView                          (tests/layout/shard_layout.test.cpp)

#pragma once

#include <tide/core/error.hpp>  // raise
#include <tide/core/text.hpp>   // text
#include <tide/layout/coalesce.hpp>
#include <tide/layout/detail/repetitions.hpp>    // repetition_positions, first_named
#include <tide/layout/detail/static_layout.hpp>  // GroupRules, MeshRules, PolicyRules, TensorOf
#include <tide/layout/fixed_string.hpp>          // FixedString
#include <tide/layout/layout_rules.hpp>          // require
#include <tide/layout/layout_view.hpp>           // LayoutView

namespace tide {

class DynamicLayout;

/// The compile-time door to layouts; `DynamicLayout` is the run-time one. Both give a `LayoutView`.
///
/// @tparam Group    a `constexpr` variable made by `tide::group`, passed by reference
/// @tparam M        a `Mesh`; with `dynamic` sizes the rules that need them are checked in the constructor
/// @tparam Pack     a `Packing`: `TightPacking` or `Fsdp2Packing`
/// @tparam Storage  how parameters lie in a slot
template <const auto& Group, class M, class Pack = TightPacking, class Storage = DenseStorage<>>
class ShardLayout : detail::PolicyRules<Group, M, Pack, Storage>,
                    detail::GroupRules<Group>,
                    detail::MeshRules<Group, M> {
 public:
  using mesh_type = M;
  static constexpr const auto& group = Group;

  /// Bytes of a gather slot: every parameter dense, in its gathered element.
  static constexpr index_t slot_bytes =
      LayoutView{Group.view(), {}, Pack::rule, Storage::alignment}.bytes(Buffer::slot);
  /// Bytes of static gradient storage: every gradient dense, in its gradient element.
  static constexpr index_t gradient_bytes =
      LayoutView{Group.view(), {}, Pack::rule, Storage::alignment}.bytes(Buffer::gradients);

  /// The layout on the static mesh.
  constexpr ShardLayout() requires(M::is_static) = default;

  /// The layout on a mesh given at run time.
  /// @throws Error (Errc::layout) when the group cannot be cut over that many ranks
  constexpr explicit ShardLayout(M mesh) : mesh_(mesh) {
    if constexpr (!M::is_static) require(Group.view(), mesh.ranks());
  }

  /// The layout on the mesh of a fabric.
  /// @throws Error (Errc::mismatch) when a static size differs; Error (Errc::layout) as above
  [[nodiscard]] static constexpr ShardLayout on(MeshShape mesh) {
    return ShardLayout(M(mesh.nodes, mesh.ranks_per_node));
  }

  [[nodiscard]] constexpr MeshShape mesh() const noexcept { return mesh_.shape(); }
  [[nodiscard]] constexpr LayoutView view() const noexcept {
    return {Group.view(), mesh_.shape(), Pack::rule, Storage::alignment};
  }

  /// The position of the parameter called `Text`; a tied name gives the parameter that owns the storage.
  template <FixedString Text>
  [[nodiscard]] static consteval ParameterIndex index() noexcept {
    constexpr auto found = Group.view().find(Text.view());
    constexpr bool is_repeated = !found.has_value() && repetitions<Text> != 0;
    static_assert(!is_repeated, "tide::ShardLayout: a repeated parameter must be asked for with its number.");
    static_assert(found.has_value() || is_repeated, "tide::ShardLayout: the group has no parameter of this name.");
    return found.value_or(ParameterIndex{0});
  }

  /// How many times `repeat` made the parameter that is written `Text` there, "experts.{}.w" say: the numbers are 0 to
  /// that, less 1.
  template <FixedString Text>
  static constexpr index_t repetitions = static_cast<index_t>(detail::repetition_positions<Group, Text>.size());

  /// The position of one of them.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text>
  [[nodiscard]] static constexpr ParameterIndex index(index_t number) {
    static_assert(repetitions<Text> != 0, "tide::ShardLayout: the group repeats no parameter that is written so.");
    const bool exists = number >= 0 && number < repetitions<Text>;
    const index_t found =
        exists ? detail::repetition_positions<Group, Text>[static_cast<std::size_t>(number)] : detail::no_repetition;
    if (found == detail::no_repetition) {
      raise(Errc::argument, detail::text({"tide::ShardLayout: a repetition must be one of the group's; '",
                                          std::string(Text.view()), "' has no number ", number, "."}));
    }
    return ParameterIndex{found};
  }

  /// Where the parameter called `Text` starts in a dense buffer, in bytes: the same on every rank.
  template <FixedString Text, Buffer Which>
  static constexpr index_t dense_start = [] {
    static_assert(is_dense(Which));
    const LayoutView any_mesh{Group.view(), {}, Pack::rule, Storage::alignment};
    return any_mesh.piece(index<Text>(), Rank{0}).start[static_cast<std::size_t>(Which)];
  }();

  /// The same of one that is repeated.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text, Buffer Which>
  [[nodiscard]] static constexpr index_t dense_start_of(index_t number) {
    static_assert(is_dense(Which));
    static_cast<void>(index<Text>(number));
    return detail::repetition_starts<Group, Pack, Storage, Text, Which>[static_cast<std::size_t>(number)];
  }

  /// `TensorView<Element, Extents...>` of the parameter called `Text`, or of each that is written so, in its gathered
  /// element.
  template <FixedString Text>
  using tensor = typename detail::TensorOf<Group, detail::first_named<Group, Text>(), detail::GatheredElement>::type;

  /// The same in its gradient element.
  template <FixedString Text>
  using gradient_tensor =
      typename detail::TensorOf<Group, detail::first_named<Group, Text>(), detail::GradientElement>::type;

 private:
  M mesh_{};
};

}  // namespace tide
