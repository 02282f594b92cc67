// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/core/text.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace {

using tide::detail::text;

TEST_CASE("text: parts of words and numbers stand one after the other") {
  const std::string name = "w";
  CHECK(text({}).empty());
  CHECK(text({"tide::Test: parameter '", name, "' has ", 3, " rows", std::string_view(".")}) ==
        "tide::Test: parameter 'w' has 3 rows.");
}

TEST_CASE("text: numbers are written as they are, of every width and sign") {
  CHECK(text({-1, " ", 0, " ", std::uint8_t{200}, " ", INT64_MIN, " ", INT64_MAX}) ==
        "-1 0 200 -9223372036854775808 9223372036854775807");
}

}  // namespace
