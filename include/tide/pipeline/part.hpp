// SPDX-License-Identifier: Apache-2.0
//
// Part: groups of one layout, as ShardedStep drives them; Parts: a model, in the order of its forward; Layers: parts
// that take turns.
//
//   using Model = tide::Parts<tide::Part<"embedding", Embedding, tide::KeepGathered>,
//                             tide::Part<"blocks", Block, tide::Repeat<12>>,
//                             tide::Part<"head", Head, tide::Frozen<"scale">>>;
//
//   group     0           1           2          ...   12           13
//             embedding   blocks, 0   blocks, 1  ...   blocks, 11   head          backward goes the other way
//
//   tide::Layers<tide::Repeat<12>, tide::Part<"attention", Attention>, tide::Part<"experts", Experts>>
//
//   group     0             1           2             3          ...   23
//             attention, 0  experts, 0  attention, 1  experts, 1 ...   experts, 11
//
// Laws                                               (tests/pipeline/sharded_step.test.cpp)
//   frozen   what is frozen is gathered and never reduced; no gradient of it has memory
//   kept     a kept group is gathered once for a forward and its backward

#pragma once

#include <tide/pipeline/detail/options.hpp>    // tag_or
#include <tide/pipeline/detail/trainable.hpp>  // TrainableOf

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tide {

/// Of a `Part`: its groups stay gathered from their forward to their backward, each in a slot of its own.
///
/// Choose it for small groups, and for those whose backward soon follows; FSDP2 calls it `reshard_after_forward` false.
struct KeepGathered {};

namespace detail {

// What every Frozen and every Part is: the way to tell. nvcc 13.0 matches no specialisation for a name in a template.
struct FrozenOption {};
struct PartBase {};
template <class T>
inline constexpr bool is_part = std::is_base_of_v<PartBase, T>;

}  // namespace detail

/// Of a `Part`: the parameters of these names are gathered and never reduced; without names, all. "experts.{}.w" names
/// all that `repeat` made of it.
///
/// A part that is frozen as a whole has no masters: its groups are gathered from shards in the gathered element.
template <FixedString... Names>
struct Frozen : detail::FrozenOption {
  /// The layout of what still trains.
  template <class L>
  using trainable = typename decltype(detail::TrainableOf<L>::template without<Names...>())::type;
};

namespace detail {

template <class T>
inline constexpr bool is_frozen = std::is_base_of_v<FrozenOption, T>;

template <class... Options>
struct FrozenOf {
  using type = Frozen<>;
};
template <class First, class... Rest>
struct FrozenOf<First, Rest...> : std::conditional_t<is_frozen<First>, std::type_identity<First>, FrozenOf<Rest...>> {};

}  // namespace detail

/// Groups of one layout that follow each other in a model.
///
/// @tparam Name     what calls and errors name it
/// @tparam L        `ShardLayout` or `DynamicLayout`
/// @tparam Options  each at most once: `Repeat<N>` (1 if not said), `KeepGathered`, `Frozen<...>`
template <FixedString Name, class L, class... Options>
struct Part : detail::PartBase {
  static constexpr bool kept = (std::is_same_v<Options, KeepGathered> || ...);
  static constexpr bool frozen = (std::is_same_v<Options, Frozen<>> || ...);
  static constexpr index_t repeat = detail::tag_or<Repeat, 1, Options...>;

  static_assert(((detail::is_tag<Repeat, Options> || detail::is_frozen<Options> ||
                  std::is_same_v<Options, KeepGathered>)&&...),
                "tide::Part: the options must be Repeat, KeepGathered or Frozen.");
  static_assert(detail::tag_count<Repeat, Options...> <= 1 && (0 + ... + (detail::is_frozen<Options> ? 1 : 0)) <= 1,
                "tide::Part: an option must be given once.");

  using Layout = L;
  /// The layout of what is reduced.
  using Trainable = typename detail::FrozenOf<Options...>::type::template trainable<L>;
  static constexpr std::string_view name = Name.view();
};

/// Layers that are several groups each: the parts take turns.
///
/// Choose it where a layer is too much for one group. Of a step's transfers no compute hides the first gather and the
/// last reduce, so they should be short; slots are as large as the largest group; and what a layer needs late, experts
/// say, is gathered while the rest of it computes.
///
/// @tparam Count  `Repeat<N>`, the number of layers
/// @tparam P      a `Part` for each group of a layer, in the order of the forward
template <class Count, class... P>
struct Layers {
  static_assert(detail::is_tag<Repeat, Count>, "tide::Layers: the first argument must be a Repeat.");
  static_assert(sizeof...(P) > 0, "tide::Layers: a layer needs at least one Part.");
  static_assert((detail::is_part<P> && ...), "tide::Layers: what takes turns must be a Part.");
  static_assert(((P::repeat == 1) && ...), "tide::Layers: a Part that takes turns must not have a Repeat of its own.");

  static constexpr index_t count = detail::tag_or<Repeat, 1, Count>;
};

namespace detail {

// A part of a model: its group i is number first + i * stride in the order of the forward.
template <class P, index_t First, index_t Stride, index_t N>
struct PlacedPart : P {
  static constexpr index_t repeat = N;

  [[nodiscard]] static constexpr index_t number(index_t i) noexcept { return First + i * Stride; }
  // The inverse.  @pre has(number)
  [[nodiscard]] static constexpr index_t index(index_t number) noexcept { return (number - First) / Stride; }
  [[nodiscard]] static constexpr bool has(index_t number) noexcept {
    return number >= First && index(number) < N && (number - First) % Stride == 0;
  }
};

// Whether the sizes of meshes that types say are those of one mesh.
class OneMesh {
 public:
  template <class Layout>
  constexpr void add() {
    if constexpr (requires { typename Layout::mesh_type; }) {
      using M = typename Layout::mesh_type;
      add(nodes_, M::static_nodes);
      add(ranks_, M::static_ranks_per_node);
    }
  }
  [[nodiscard]] constexpr bool holds() const { return holds_; }

 private:
  constexpr void add(index_t& known, index_t size) {
    if (size == dynamic) return;
    holds_ = holds_ && (known == dynamic || known == size);
    known = size;
  }

  index_t nodes_ = dynamic;
  index_t ranks_ = dynamic;
  bool holds_ = true;
};

template <class... P>
struct PlacedParts {
  static constexpr index_t groups = (index_t{0} + ... + P::repeat);
  static constexpr index_t kept = (index_t{0} + ... + (P::kept ? P::repeat : 0));
  static constexpr std::array<std::string_view, sizeof...(P)> names{P::name...};
  static constexpr bool on_one_mesh = [] {
    OneMesh mesh;
    (mesh.add<typename P::Layout>(), ...);
    return mesh.holds();
  }();
};

// Layers beside the parts of one: the parts that follow `Done`.
template <class Done, index_t N, class Turns, class... P>
struct PlaceLayers;
template <class... Done, index_t N, std::size_t... Turn, class... P>
struct PlaceLayers<PlacedParts<Done...>, N, std::index_sequence<Turn...>, P...> {
  static constexpr index_t first = PlacedParts<Done...>::groups;
  using type = PlacedParts<Done..., PlacedPart<P, first + static_cast<index_t>(Turn), sizeof...(P), N>...>;
};

template <class Done, class... P>
struct PlaceParts {
  using type = Done;
};
template <class Done, class First, class... Rest>
struct PlaceParts<Done, First, Rest...> {
  static_assert(is_part<First>, "tide::Parts: a model must be made of Part and Layers.");
  using type = Done;
};
template <class Done, class First, class... Rest>
requires(is_part<First>) struct PlaceParts<Done, First, Rest...>
    : PlaceParts<typename PlaceLayers<Done, First::repeat, std::index_sequence<0>, First>::type, Rest...> {
};
template <class Done, class Count, class... P, class... Rest>
struct PlaceParts<Done, Layers<Count, P...>, Rest...>
    : PlaceParts<typename PlaceLayers<Done, Layers<Count, P...>::count, std::index_sequence_for<P...>, P...>::type,
                 Rest...> {};

}  // namespace detail

/// A model: all groups, in the order of the forward.
///
/// @tparam P  `Part` and `Layers`
template <class... P>
struct Parts {
  static_assert(sizeof...(P) > 0, "tide::Parts: a model needs at least one Part.");

  /// Every part with the numbers of its groups.
  using Placed = typename detail::PlaceParts<detail::PlacedParts<>, P...>::type;

  static constexpr index_t groups = Placed::groups;
  /// Groups that stay gathered.
  static constexpr index_t kept = Placed::kept;

  static constexpr auto names = Placed::names;
  static constexpr bool names_differ = [] {
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (names[i] == names[k]) return false;
      }
    }
    return true;
  }();
  static_assert(names_differ, "tide::Parts: the names of the parts must differ.");
  static_assert(Placed::on_one_mesh, "tide::Parts: the layouts of all parts must have the same Mesh.");
};

}  // namespace tide
