// SPDX-License-Identifier: Apache-2.0
//
// The layout of what is left of a group when some of its parameters are frozen.

#pragma once

#include <tide/layout/dynamic_layout.hpp>  // DynamicLayout
#include <tide/layout/shard_layout.hpp>    // ShardLayout

#include <string_view>

namespace tide::detail {

// Whether one of the names is that of the parameter.
template <FixedString... Names>
[[nodiscard]] constexpr bool names_parameter(const Parameter& parameter) {
  return (parameter.name.reads(Names.view()) || ...);
}

template <const auto& G, FixedString... Names>
[[nodiscard]] constexpr bool has_parameters() {
  return (G.view().find(Names.view()).has_value() && ...);
}

// Parameters without the frozen ones; tied names of those that stay.
template <const auto& G, FixedString... Names>
inline constexpr auto trainable_group = [] {
  constexpr std::size_t parameters = [] {
    std::size_t count = 0;
    for (const Parameter& parameter : G.parameters) count += names_parameter<Names...>(parameter) ? 0 : 1;
    return count;
  }();
  const auto stays = [](const Alias& tied) { return !((tied.target == Names.view()) || ...); };
  constexpr std::size_t aliases = [=] {
    std::size_t count = 0;
    for (const Alias& tied : G.aliases) count += stays(tied) ? 1 : 0;
    return count;
  }();
  Group<parameters, aliases> group;
  std::size_t next = 0;
  for (const Parameter& parameter : G.parameters) {
    if (!names_parameter<Names...>(parameter)) group.parameters[next++] = parameter;
  }
  next = 0;
  for (const Alias& tied : G.aliases) {
    if (stays(tied)) group.aliases[next++] = tied;
  }
  return group;
}();

// `Without<L, names>::type`; the layout itself where nothing is frozen by name.
template <class L, FixedString... Names>
struct Without {
  static_assert(sizeof...(Names) == 0, "tide::Part: only a ShardLayout can have parameters frozen by name.");
  using type = L;
};

template <const auto& G, class M, class Pack, class Storage>
struct Without<ShardLayout<G, M, Pack, Storage>> {
  using type = ShardLayout<G, M, Pack, Storage>;
};

template <const auto& G, class M, class Pack, class Storage, FixedString First, FixedString... Rest>
struct Without<ShardLayout<G, M, Pack, Storage>, First, Rest...> {
  static_assert(has_parameters<G, First, Rest...>(), "tide::Part: a frozen name must be a parameter of the group.");
  static constexpr std::size_t left = trainable_group<G, First, Rest...>.parameters.size();
  static_assert(left > 0, "tide::Part: a part whose parameters are all frozen is Frozen<>.");
  using type = ShardLayout<trainable_group<G, First, Rest...>, M, Pack, Storage>;
};

}  // namespace tide::detail
