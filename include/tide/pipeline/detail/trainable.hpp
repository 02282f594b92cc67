// SPDX-License-Identifier: Apache-2.0
//
// The layout of what is left of a group when some of its parameters are frozen.

#pragma once

#include <tide/layout/shard_layout.hpp>  // ShardLayout

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <type_traits>

namespace tide::detail {

// Which parameters of a group stay: those that none of the names is of. A tied name is of the parameter it is tied to.
template <class Group>
class Stays {
 public:
  constexpr Stays(const Group& group, std::initializer_list<std::string_view> frozen)
      : group_(&group), frozen_(frozen) {}

  [[nodiscard]] constexpr bool operator()(const Parameter& parameter) const {
    bool stays = true;
    for (const std::string_view name : frozen_) {
      stays = stays && !parameter.name.reads(name) && !parameter.name.is_repetition_of(name);
    }
    for (const Alias& tied : group_->aliases) {
      const bool is_named = std::find(frozen_.begin(), frozen_.end(), tied.name) != frozen_.end();
      stays = stays && !(is_named && parameter.name.reads(tied.target));
    }
    return stays;
  }
  // A tied name stays with its parameter.
  [[nodiscard]] constexpr bool operator()(const Alias& tied) const {
    for (const Parameter& parameter : group_->parameters) {
      if (parameter.name.reads(tied.target)) return (*this)(parameter);
    }
    return false;
  }
  // How many do.
  template <class List>
  [[nodiscard]] constexpr std::size_t count(const List& list) const {
    std::size_t n = 0;
    for (const auto& one : list) n += (*this)(one) ? 1 : 0;
    return n;
  }

 private:
  const Group* group_;
  std::initializer_list<std::string_view> frozen_;
};

template <const auto& G, FixedString... Names>
[[nodiscard]] consteval bool has_parameters() {
  return (G.view().find_first(Names.view()).has_value() && ...);
}
template <const auto& G, FixedString... Names>
[[nodiscard]] consteval std::size_t parameters_left() {
  return Stays(G, {Names.view()...}).count(G.parameters);
}
template <const auto& G, FixedString... Names>
[[nodiscard]] consteval std::size_t aliases_left() {
  return Stays(G, {Names.view()...}).count(G.aliases);
}

template <const auto& G, FixedString... Names>
[[nodiscard]] consteval auto make_trainable() {
  Group<parameters_left<G, Names...>(), aliases_left<G, Names...>()> group{};
  const std::initializer_list<std::string_view> names{Names.view()...};
  const Stays stays(G, names);
  std::size_t next = 0;
  for (const Parameter& parameter : G.parameters) {
    if (stays(parameter)) group.parameters[next++] = parameter;
  }
  next = 0;
  for (const Alias& tied : G.aliases) {
    if (stays(tied)) group.aliases[next++] = tied;
  }
  return group;
}

template <const auto& G, FixedString... Names>
inline constexpr auto trainable_group = make_trainable<G, Names...>();

// `TrainableOf<L>::without<names>()` has the layout of what stays as its type. Names are a pack of a function:
// nvcc 13.0 matches no partial specialization with them.
template <class L>
struct TrainableOf {
  template <FixedString... Names>
  [[nodiscard]] static consteval auto without() {
    static_assert(sizeof...(Names) == 0, "tide::Part: only a ShardLayout can have parameters frozen by name.");
    return std::type_identity<L>{};
  }
};

template <const auto& G, class M, class Pack, class Storage>
struct TrainableOf<ShardLayout<G, M, Pack, Storage>> {
  template <FixedString... Names>
  [[nodiscard]] static consteval auto without() {
    if constexpr (sizeof...(Names) == 0) {
      return std::type_identity<ShardLayout<G, M, Pack, Storage>>{};
    } else {
      static_assert(has_parameters<G, Names...>(), "tide::Part: a frozen name must be a parameter of the group.");
      static_assert(parameters_left<G, Names...>() > 0,
                    "tide::Part: a part whose parameters are all frozen is Frozen<>.");
      return std::type_identity<ShardLayout<trainable_group<G, Names...>, M, Pack, Storage>>{};
    }
  }
};

// Of each parameter of a part with frozen ones: its position among those that train, or -1.
template <class P>
inline constexpr auto trained_positions = [] {
  constexpr const auto& all = P::Layout::group;
  constexpr const auto& some = P::Trainable::group;
  std::array<index_t, all.parameters.size()> positions{};
  index_t next = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const bool trains = static_cast<std::size_t>(next) < some.parameters.size() &&
                        all.parameters[i].name.reads(some.parameters[static_cast<std::size_t>(next)].name);
    positions[i] = trains ? next++ : -1;
  }
  return positions;
}();

}  // namespace tide::detail
