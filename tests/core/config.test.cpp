// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/core/config.hpp>

#include <string_view>

namespace {

#define TIDE_TEST_TEXT_OF(...) #__VA_ARGS__
#define TIDE_TEST_TEXT(macro) TIDE_TEST_TEXT_OF(macro)

// A host compiler sees nothing in the place of the device attributes.
static_assert(std::string_view(TIDE_TEST_TEXT(TIDE_HOST_DEVICE)).empty());

// The tests are compiled with exceptions; tests/package has a program without.
static_assert(TIDE_HAS_EXCEPTIONS == 1);

TIDE_HIDDEN TIDE_HOST_DEVICE constexpr int hidden_function() { return 1; }
static_assert(hidden_function() == 1);

}  // namespace
