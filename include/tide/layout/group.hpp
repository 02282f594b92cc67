// SPDX-License-Identifier: Apache-2.0
//
// Group: the parameters that one collective handles together, one FSDP unit of a model, in packing order.
//
//   inline constexpr auto block = tide::group(
//       tide::param<tide::bf16>("attn.weight", {64, 64}),
//       tide::repeat<8>("experts.{}.", tide::param<tide::bf16>("up.weight", {128, 64}),
//                                      tide::param<tide::bf16>("down.weight", {64, 128})),
//       tide::alias("head.weight", "attn.weight"));          // 17 parameters, one tied name
//
// Test: tests/layout/group.test.cpp

#pragma once

#include <tide/core/index.hpp>        // ParameterIndex
#include <tide/layout/parameter.hpp>  // Parameter, Alias

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>

namespace tide {

/// A group as every function of the library takes it, whether it was written in C++ or read from a file.
struct GroupView {
  std::span<const Parameter> parameters;
  std::span<const Alias> aliases = {};

  [[nodiscard]] constexpr index_t size() const noexcept { return static_cast<index_t>(parameters.size()); }
  [[nodiscard]] constexpr const Parameter& operator[](ParameterIndex i) const noexcept {
    return parameters[static_cast<std::size_t>(i.value)];
  }

  /// The parameter of that name; a tied name finds the parameter that owns the storage.
  [[nodiscard]] constexpr std::optional<ParameterIndex> find(std::string_view name) const noexcept {
    for (const Alias& tied : aliases) {
      if (tied.name == name) return find_own(tied.target);
    }
    return find_own(name);
  }

  /// The same, or of those that `repeat` made of what is written so there, "experts.{}.w" say, the first.
  [[nodiscard]] constexpr std::optional<ParameterIndex> find_first(std::string_view text) const noexcept {
    if (const auto found = find(text)) return found;
    for (index_t i = 0; i < size(); ++i) {
      if (parameters[static_cast<std::size_t>(i)].name.is_repetition_of(text)) return ParameterIndex{i};
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] constexpr std::optional<ParameterIndex> find_own(std::string_view name) const noexcept {
    for (index_t i = 0; i < size(); ++i) {
      if (parameters[static_cast<std::size_t>(i)].name.reads(name)) return ParameterIndex{i};
    }
    return std::nullopt;
  }
};

/// A group whose parameters are known at compile time. Passed to templates by reference, so symbols stay short.
template <std::size_t Parameters, std::size_t Aliases>
struct Group {
  std::array<Parameter, Parameters> parameters{};
  std::array<Alias, Aliases> aliases{};

  [[nodiscard]] constexpr GroupView view() const noexcept { return {parameters, aliases}; }
};

/// What `repeat` returns: `Count` copies of some parameters, still to be named.
template <std::size_t Count, std::size_t Each>
struct Repeated {
  std::string_view pattern;
  std::array<Parameter, Each> parameters;
};

/// `Count` copies of `parameters`, in order 0 0 0 1 1 1 2 2 2 ...; "{}" in `pattern` becomes the number.
template <std::size_t Count, class... P>
[[nodiscard]] constexpr Repeated<Count, sizeof...(P)> repeat(std::string_view pattern, P... parameters) noexcept {
  static_assert((std::same_as<P, Parameter> && ...),
                "tide::repeat: the repeated parts must be made by tide::param; tide::alias stands outside.");
  return {pattern, {parameters...}};
}

namespace detail {

template <class T>
struct GroupCount {
  static_assert(std::same_as<T, Parameter>,
                "tide::group: the parts must be made by tide::param, tide::repeat or tide::alias.");
};
template <>
struct GroupCount<Parameter> {
  static constexpr std::size_t parameters = 1, aliases = 0;
};
template <>
struct GroupCount<Alias> {
  static constexpr std::size_t parameters = 0, aliases = 1;
};
template <std::size_t Count, std::size_t Each>
struct GroupCount<Repeated<Count, Each>> {
  static constexpr std::size_t parameters = Count * Each, aliases = 0;
};

template <std::size_t P, std::size_t A>
struct GroupFill {
  Group<P, A> group{};
  std::size_t next_parameter = 0;
  std::size_t next_alias = 0;

  constexpr void add(const Parameter& parameter) { group.parameters[next_parameter++] = parameter; }
  constexpr void add(const Alias& tied) { group.aliases[next_alias++] = tied; }
  template <std::size_t Count, std::size_t Each>
  constexpr void add(const Repeated<Count, Each>& repeated) {
    for (std::size_t i = 0; i < Count; ++i) {
      for (Parameter parameter : repeated.parameters) {
        parameter.name.pattern = repeated.pattern;
        parameter.name.number = static_cast<index_t>(i);
        add(parameter);
      }
    }
  }
};

}  // namespace detail

/// A group of parameters, repetitions and tied names, in packing order (FSDP2's: children before their module).
template <class... Parts>
[[nodiscard]] constexpr auto group(Parts... parts) noexcept {
  detail::GroupFill<(detail::GroupCount<Parts>::parameters + ... + 0), (detail::GroupCount<Parts>::aliases + ... + 0)>
      fill;
  (fill.add(parts), ...);
  return fill.group;
}

}  // namespace tide
