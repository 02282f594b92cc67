// SPDX-License-Identifier: Apache-2.0
#include <tide/version.hpp>

#include <doctest/doctest.h>

#include <string>

static_assert(tide::Version{1, 2, 3} == tide::Version{1, 2, 3});
static_assert(tide::Version{1, 2, 3} < tide::Version{1, 2, 4});
static_assert(tide::Version{1, 2, 3} < tide::Version{1, 3, 0});
static_assert(tide::Version{1, 2, 3} < tide::Version{2, 0, 0});

TEST_CASE("Version: the headers and the CMake package agree") {
  const tide::Version& v = tide::version;
  CHECK(std::to_string(v.major) + '.' + std::to_string(v.minor) + '.' + std::to_string(v.patch) ==
        TIDE_PROJECT_VERSION);
}
