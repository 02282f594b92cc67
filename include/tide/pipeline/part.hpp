// SPDX-License-Identifier: Apache-2.0
//
// Part: groups of one layout, as ShardedStep drives them; Parts: a model, in the order of its forward.
//
//   using Model = tide::Parts<tide::Part<"embedding", Embedding, tide::KeepGathered>,
//                             tide::Part<"blocks", Block, tide::Repeat<12>>,
//                             tide::Part<"head", Head, tide::Frozen<"scale">>>;
//
//   group     0           1           2          ...   12           13
//             embedding   blocks, 0   blocks, 1  ...   blocks, 11   head          backward goes the other way
//
// Laws                                               (tests/pipeline/sharded_step.test.cpp)
//   frozen   what is frozen is gathered and never reduced; no gradient of it has memory
//   kept     a kept group is gathered once for a forward and its backward

#pragma once

#include <tide/pipeline/detail/options.hpp>    // tag_or
#include <tide/pipeline/detail/trainable.hpp>  // TrainableOf

#include <array>
#include <string_view>
#include <type_traits>

namespace tide {

/// Of a `Part`: its groups stay gathered from their forward to their backward, each in a slot of its own.
///
/// Choose it for small groups, and for those whose backward soon follows; FSDP2 calls it `reshard_after_forward` false.
struct KeepGathered {};

namespace detail {

// What every Frozen is: the way to tell.
struct FrozenOption {};

}  // namespace detail

/// Of a `Part`: the parameters of these names are gathered and never reduced; without names, all.
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
struct Part {
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

/// A model: all groups, in the order of the forward.
template <class... P>
struct Parts {
  static_assert(sizeof...(P) > 0, "tide::Parts: a model needs at least one Part.");

  static constexpr index_t groups = (index_t{0} + ... + P::repeat);
  /// Groups that stay gathered.
  static constexpr index_t kept = (index_t{0} + ... + (P::kept ? P::repeat : 0));

  static constexpr std::array<std::string_view, sizeof...(P)> names{P::name...};
  static constexpr bool names_differ = [] {
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (names[i] == names[k]) return false;
      }
    }
    return true;
  }();
  static_assert(names_differ, "tide::Parts: the names of the parts must differ.");
};

}  // namespace tide
