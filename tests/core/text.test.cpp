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

TEST_CASE("printable: control characters of a name are shown, not obeyed") {
  using tide::detail::printable;
  CHECK(printable("model.layers.0.w") == "model.layers.0.w");
  CHECK(printable("a\x1b[2Jb\n\t\x7f") == "a\\x1b[2Jb\\x0a\\x09\\x7f");
  CHECK(printable(std::string_view("\0z", 2)) == "\\x00z");
  CHECK(printable("\xc3\xbc \xe2\x82\xac") == "\xc3\xbc \xe2\x82\xac");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");
}

}  // namespace
