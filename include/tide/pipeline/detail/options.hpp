// SPDX-License-Identifier: Apache-2.0
//
// Options: named types in any order, where each kind has a default.

#pragma once

#include <tide/core/tags.hpp>  // is_tag

#include <type_traits>

namespace tide::detail {

// The number of the first `Tag<N>` among the options, or the default.
template <template <index_t> class Tag, index_t Default, class... Options>
inline constexpr index_t tag_or = [] {
  index_t value = Default;
  bool found = false;
  [[maybe_unused]] const auto consider = [&]<class T>(std::type_identity<T>) {
    if constexpr (is_tag<Tag, T>) {
      if (!found) value = T::value;
      found = true;
    }
  };
  (consider(std::type_identity<Options>{}), ...);
  return value;
}();

template <template <index_t> class Tag, class... Options>
inline constexpr int tag_count = (0 + ... + (is_tag<Tag, Options> ? 1 : 0));

}  // namespace tide::detail
