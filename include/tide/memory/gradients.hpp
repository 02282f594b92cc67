// SPDX-License-Identifier: Apache-2.0
//
// Gradients: the whole gradients of one group on a rank, what a reduce-scatter reads.
//
//   Gradients<Layout>      all behind one base, as the layout says: blocks coalesce into few copies
//   GradientTable<Layout>  each behind a pointer of its own: at least one copy per parameter and peer, slower
//
// Laws                                               (tests/memory/gradients.test.cpp)
//   missing   a gradient declared missing counts as zeros; the op sequence stays as it is
//   refused   a null pointer that was not declared missing, overlap, and too little alignment, each by name

#pragma once

#include <tide/memory/detail/storage.hpp>  // ArenaStorage

#include <algorithm>
#include <vector>

namespace tide {

/// Gradients in static storage in the arena. Construct before `init`; use after.
template <class Layout>
class Gradients {
 public:
  explicit Gradients(FabricPort& fabric) : Gradients(fabric, detail::layout_on<Layout>(fabric)) {}
  Gradients(FabricPort& fabric, Layout layout)
      : Gradients(detail::ArenaStorage(fabric, layout.view().bytes(Buffer::gradients)), layout) {}
  /// In storage that others use at other times, of at least `bytes(Buffer::gradients)` bytes.
  Gradients(detail::ArenaStorage storage, Layout layout)
      : storage_(storage),
        layout_(std::move(layout)),
        missing_(static_cast<std::size_t>(layout_.view().group.size()), 0) {}

  [[nodiscard]] std::byte* data() const { return storage_.data(); }
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }

  /// The gradient of the parameter called `Text`, with static extents.
  template <FixedString Text>
  [[nodiscard]] auto get() const {
    using Tensor = typename Layout::template gradient_tensor<Text>;
    return Tensor(reinterpret_cast<typename Tensor::element_type*>(
        data() + Layout::template dense_start<Text, Buffer::gradients>));
  }

  /// Number `number` of those that are written `Text` in the group, "experts.{}.w" say; so in all functions below.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text>
  [[nodiscard]] auto get(index_t number) const {
    using Tensor = typename Layout::template gradient_tensor<Text>;
    return Tensor(reinterpret_cast<typename Tensor::element_type*>(
        data() + Layout::template dense_start_of<Text, Buffer::gradients>(number)));
  }

  /// The first byte of a parameter's gradient.
  /// @throws Error (Errc::argument) when there is no such position; `missing` and `is_missing`, too
  [[nodiscard]] std::byte* at(ParameterIndex parameter) const {
    detail::require_parameter(layout_.view(), parameter);
    return data() + layout_.view().piece(parameter, Rank{0}).start[static_cast<std::size_t>(Buffer::gradients)];
  }

  /// Declares that a parameter got no gradient for the next reduce: its storage is zeroed by that call.
  void missing(ParameterIndex parameter) {
    detail::require_parameter(layout_.view(), parameter);
    missing_[static_cast<std::size_t>(parameter.value)] = 1;
  }
  template <FixedString Text>
  void missing() {
    missing(Layout::template index<Text>());
  }
  template <FixedString Text>
  void missing(index_t number) {
    missing(Layout::template index<Text>(number));
  }

  [[nodiscard]] bool is_missing(ParameterIndex parameter) const {
    detail::require_parameter(layout_.view(), parameter);
    return missing_[static_cast<std::size_t>(parameter.value)] != 0;
  }
  /// Forgets what was declared missing; a reduce does so when it has begun.
  void none_missing() noexcept { std::fill(missing_.begin(), missing_.end(), char{0}); }

 private:
  detail::ArenaStorage storage_;
  Layout layout_;
  std::vector<char> missing_;
};

/// Pointers to gradients that lie wherever the user's framework put them.
///
/// Choose it when gradients cannot be placed; `Gradients` needs far fewer copies.
template <class Layout>
class GradientTable {
 public:
  explicit GradientTable(Layout layout) : layout_(std::move(layout)), pointers_(size(), nullptr) {}
  GradientTable() requires(detail::is_static_layout<Layout>) : GradientTable(Layout{}) {}

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }

  /// Where the dense, row-major gradient of a parameter lies until `gradients_free`.
  /// @throws Error (Errc::argument) when there is no such position; `missing` and `is_missing`, too
  void set(ParameterIndex parameter, const void* gradient) {
    detail::require_parameter(layout_.view(), parameter);
    pointers_[static_cast<std::size_t>(parameter.value)] = gradient;
  }
  template <FixedString Text, class L = Layout>  // a DynamicLayout has no such tensors, and may still have a table
  void set(const typename L::template gradient_tensor<Text>::element_type* gradient) {
    set(L::template index<Text>(), gradient);
  }
  /// Number `number` of those that are written `Text` in the group, "experts.{}.w" say.
  /// @throws Error (Errc::argument) when there is no such number
  template <FixedString Text, class L = Layout>
  void set(index_t number, const typename L::template gradient_tensor<Text>::element_type* gradient) {
    set(L::template index<Text>(number), gradient);
  }

  /// Declares that a parameter got no gradient: it counts as zeros until it is set again.
  void missing(ParameterIndex parameter) { set(parameter, missing_gradient()); }
  template <FixedString Text>
  void missing() {
    missing(Layout::template index<Text>());
  }
  template <FixedString Text>
  void missing(index_t number) {
    missing(Layout::template index<Text>(number));
  }

  [[nodiscard]] bool is_missing(ParameterIndex parameter) const {
    detail::require_parameter(layout_.view(), parameter);
    return pointers_[static_cast<std::size_t>(parameter.value)] == missing_gradient();
  }
  [[nodiscard]] const std::vector<const void*>& pointers() const noexcept { return pointers_; }

 private:
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(layout_.view().group.size()); }

  Layout layout_;
  std::vector<const void*> pointers_;
};

}  // namespace tide
