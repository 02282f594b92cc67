// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/layout/fixed_string.hpp>

#include <string_view>

namespace {

template <tide::FixedString Text>
struct Named {
  static constexpr std::string_view text = Text.view();
};

static_assert(Named<"embed.weight">::text == "embed.weight");
static_assert(Named<"">::text.empty());
static_assert(Named<"a\0b">::text == std::string_view("a\0b", 3));

}  // namespace
