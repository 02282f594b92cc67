// SPDX-License-Identifier: Apache-2.0
//
// The checks behind layout_rules.hpp. Near-linear in the number of parameters, so that a group of 512 is checked in a
// constant expression within the compilers' default limits.

#pragma once

#include <tide/layout/detail/cut.hpp>  // shard_begin
#include <tide/layout/group.hpp>       // GroupView

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tide {

/// A rule that a group can break; `sentence` says it in words.
enum class LayoutRule : std::uint8_t {
  none,
  no_parameters,
  too_many_parameters,
  scalar,
  too_many_dimensions,
  negative_extent,
  unknown_element,
  too_large,
  pattern_without_number,
  duplicate_name,
  unknown_alias,
  sharded_dimension,
  uneven_dimension,
  ragged_ranks,
  ragged_rows,
  broken_rule,
};

/// Which rule is broken, and by which parameter (or alias); -1 where none is to blame.
struct LayoutFault {
  LayoutRule rule = LayoutRule::none;
  ParameterIndex parameter{-1};
  index_t alias = -1;
};

namespace detail {

inline constexpr index_t max_parameters = 65535;
// So few that the bytes of 255 slots, and of thousands of such groups, fit into an index_t.
inline constexpr index_t max_group_elements = (index_t{1} << 44) - 1;

// Elements of a parameter, or -1 where they are too many.
[[nodiscard]] constexpr index_t checked_elements(const Shape& shape) noexcept {
  index_t elements = 1;
  bool empty = false;
  for (int i = 0; i < shape.rank; ++i) {
    empty = empty || shape[i] == 0;
    elements = shape[i] == 0 ? elements : checked_product(elements, shape[i]);
    if (elements < 0 || elements > max_group_elements) return -1;
  }
  return empty ? 0 : elements;
}

[[nodiscard]] constexpr LayoutRule check_parameter(const Parameter& parameter) noexcept {
  const Shape& shape = parameter.shape;
  if (!parameter.name.pattern.empty() && parameter.name.pattern.find("{}") == std::string_view::npos)
    return LayoutRule::pattern_without_number;
  if (shape.rank == 0) return LayoutRule::scalar;
  if (shape.rank > max_dimensions) return LayoutRule::too_many_dimensions;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] < 0) return LayoutRule::negative_extent;
  }
  if (size_bytes(parameter.gathered) == 0 || size_bytes(parameter.gradient) == 0) return LayoutRule::unknown_element;
  const int dimension = parameter.sharding.dimension;
  if (dimension < 0 || dimension >= shape.rank) return LayoutRule::sharded_dimension;
  if (parameter.sharding.kind != Sharding::Kind::ragged) return LayoutRule::none;
  index_t left = shape[dimension];
  for (const index_t count : parameter.sharding.rows_of_rank) {
    if (count < 0 || count > left) return LayoutRule::ragged_rows;
    left -= count;
  }
  return left == 0 ? LayoutRule::none : LayoutRule::ragged_rows;
}

// The names of a group, parameters before aliases, sorted by hash: finding one is a binary search.
class NameTable {
 public:
  constexpr explicit NameTable(const GroupView& group) : group_(group) {
    const index_t count = group.size() + static_cast<index_t>(group.aliases.size());
    entries_.reserve(static_cast<std::size_t>(count));
    for (index_t i = 0; i < count; ++i) entries_.push_back({name(i).hash(), i});
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.hash != b.hash ? a.hash < b.hash : a.position < b.position;
    });
  }

  // The first position whose name an earlier one has; -1 when all differ.
  [[nodiscard]] constexpr index_t first_duplicate() const {
    index_t first = -1;
    for (std::size_t i = 1; i < entries_.size(); ++i) {
      for (std::size_t j = i; j-- > 0 && entries_[j].hash == entries_[i].hash;) {
        if (name(entries_[i].position).reads(name(entries_[j].position))) {
          first = first < 0 ? entries_[i].position : std::min(first, entries_[i].position);
          break;
        }
      }
    }
    return first;
  }

  // Whether a parameter, not an alias, is called `text`.
  [[nodiscard]] constexpr bool has_parameter(std::string_view text) const {
    const std::uint64_t hash = Name{{}, 0, text}.hash();
    auto entry = std::lower_bound(entries_.begin(), entries_.end(), hash,
                                  [](const Entry& a, std::uint64_t wanted) { return a.hash < wanted; });
    for (; entry != entries_.end() && entry->hash == hash; ++entry) {
      if (entry->position < group_.size() && name(entry->position).reads(text)) return true;
    }
    return false;
  }

 private:
  struct Entry {
    std::uint64_t hash;
    index_t position;
  };

  [[nodiscard]] constexpr Name name(index_t position) const {
    if (position < group_.size()) return group_[ParameterIndex{position}].name;
    return {{}, 0, group_.aliases[static_cast<std::size_t>(position - group_.size())].name};
  }

  GroupView group_;
  std::vector<Entry> entries_;
};

[[nodiscard]] constexpr LayoutFault check_group(const GroupView& group) {
  if (group.size() == 0) return {LayoutRule::no_parameters};
  if (group.size() > max_parameters) return {LayoutRule::too_many_parameters};
  index_t total = 0;
  for (index_t i = 0; i < group.size(); ++i) {
    const ParameterIndex index{i};
    if (const LayoutRule rule = check_parameter(group[index]); rule != LayoutRule::none) return {rule, index};
    const index_t elements = checked_elements(group[index].shape);
    if (elements < 0 || total > max_group_elements - elements) return {LayoutRule::too_large, index};
    total += elements;
  }
  const NameTable names(group);
  if (const index_t duplicate = names.first_duplicate(); duplicate >= 0) {
    return duplicate < group.size()
               ? LayoutFault{LayoutRule::duplicate_name, ParameterIndex{duplicate}}
               : LayoutFault{LayoutRule::duplicate_name, ParameterIndex{-1}, duplicate - group.size()};
  }
  for (std::size_t i = 0; i < group.aliases.size(); ++i) {
    if (!names.has_parameter(group.aliases[i].target)) {
      return {LayoutRule::unknown_alias, ParameterIndex{-1}, static_cast<index_t>(i)};
    }
  }
  return {};
}

[[nodiscard]] constexpr LayoutRule check_parameter_cut(const Parameter& parameter, index_t ranks) noexcept {
  const Sharding& sharding = parameter.sharding;
  const index_t rows = parameter.shape[sharding.dimension];
  switch (sharding.kind) {
    case Sharding::Kind::chunked:
      return sharding.dimension > 0 && rows % ranks != 0 ? LayoutRule::uneven_dimension : LayoutRule::none;
    case Sharding::Kind::ragged:
      return static_cast<index_t>(sharding.rows_of_rank.size()) == ranks ? LayoutRule::none : LayoutRule::ragged_ranks;
    case Sharding::Kind::ruled:
      // Not in constant expressions: with -fsanitize=undefined GCC 12 takes no function of a template for non-null.
      if (!std::is_constant_evaluated() && sharding.rule == nullptr) return LayoutRule::broken_rule;
      break;
  }
  index_t previous = 0;
  for (index_t rank = 0; rank <= ranks; ++rank) {
    const index_t begin = shard_begin(parameter, ranks, rank);
    if ((rank == 0 && begin != 0) || begin < previous || begin > rows) return LayoutRule::broken_rule;
    previous = begin;
  }
  return previous == rows ? LayoutRule::none : LayoutRule::broken_rule;
}

[[nodiscard]] constexpr LayoutFault check_cut(const GroupView& group, index_t ranks) {
  for (index_t i = 0; i < group.size(); ++i) {
    const ParameterIndex index{i};
    if (const LayoutRule rule = check_parameter_cut(group[index], ranks); rule != LayoutRule::none)
      return {rule, index};
  }
  return {};
}

}  // namespace detail
}  // namespace tide
