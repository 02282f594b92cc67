// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/core/error.hpp>

#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

#include "support/raised.hpp"

namespace {

using tide::Errc;

constexpr Errc all_codes[] = {Errc::layout,   Errc::argument, Errc::capacity, Errc::order,
                              Errc::mismatch, Errc::deadline, Errc::operation};

consteval bool names_differ() {
  for (const Errc a : all_codes) {
    for (const Errc b : all_codes) {
      if (tide::name(a).empty() || (a != b && tide::name(a) == tide::name(b))) return false;
    }
  }
  return true;
}
static_assert(names_differ());
static_assert(tide::name(Errc::layout) == "layout" && tide::name(Errc::operation) == "operation");
static_assert(tide::name(static_cast<Errc>(200)) == "unknown");
static_assert(std::is_base_of_v<std::exception, tide::Error>);

TEST_CASE("Error: raise throws the code and the text that it is given") {
  for (const Errc code : all_codes) {
    const auto error = tide_test::raised([&] { tide::raise(code, "tide::Test: a sentence."); });
    REQUIRE(error.has_value());
    CHECK(error->code() == code);
    CHECK(error->what() == std::string("tide::Test: a sentence."));
  }
}

TEST_CASE("Error: a program that catches std::exception gets the text") {
  try {
    tide::raise(Errc::argument, "tide::Test: a sentence.");
  } catch (const std::exception& error) {
    CHECK(std::string_view(error.what()) == "tide::Test: a sentence.");
  }
}

void count_nothing(Errc, const char*) {}

TEST_CASE("Error: a handler is kept and handed back, and where there are exceptions it is not called") {
  CHECK((tide::set_error_handler(&count_nothing) == nullptr));
  CHECK(tide_test::text_of([] { tide::raise(Errc::order, "tide::Test: thrown."); }) == "tide::Test: thrown.");
  CHECK((tide::set_error_handler(nullptr) == &count_nothing));
}

}  // namespace
