// SPDX-License-Identifier: Apache-2.0
//
// Calls that have to end without the help of their deadline: a wake that is lost shows as one that takes all of it.

#pragma once

#include <tide/fabric/duration.hpp>

#include <chrono>

namespace tide_test {

/// A deadline that nothing should need.
inline constexpr tide::Duration patience = std::chrono::seconds(60);

/// Whether `call` ends within `patience`.
template <class Call>
bool is_prompt(const Call& call) {
  const auto begun = std::chrono::steady_clock::now();
  call();
  return std::chrono::steady_clock::now() - begun < patience;
}

}  // namespace tide_test
