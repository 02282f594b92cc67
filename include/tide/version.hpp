// SPDX-License-Identifier: Apache-2.0
//
// Which tide this is. CMake reads its project version from this file, so the two cannot differ.
//
// Laws:                                            (tests/version.test.cpp)
//   ordered    a < b  <=>  (a.major, a.minor, a.patch) < (b.major, b.minor, b.patch)
//   one source version == PROJECT_VERSION of the CMake package

#pragma once

#include <compare>  // std::strong_ordering

namespace tide {

/// A version after https://semver.org, ordered by its three numbers.
///
/// While `major` is 0, a new `minor` may break source code and a new `patch` does not.
struct Version {
  int major;
  int minor;
  int patch;

  [[nodiscard]] friend constexpr auto operator<=>(const Version&, const Version&) noexcept = default;
};

/// The version of these headers.
inline constexpr Version version{0, 1, 0};

static_assert(Version{0, 1, 9} < Version{0, 2, 0});

}  // namespace tide
