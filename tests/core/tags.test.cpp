// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/core/tags.hpp>

#include <type_traits>

namespace {

static_assert(tide::Bytes<64 << 20>::value == 67'108'864);
static_assert(tide::Bytes<(tide::index_t{1} << 40)>::value == 1'099'511'627'776);
static_assert(tide::Chunks<1>::value == 1 && tide::Chunks<255>::value == 255);
static_assert(tide::Depth<2>::value == 2 && tide::Depth<255>::value == 255);
static_assert(tide::Ctas<16>::value == 16);
static_assert(tide::PutsInFlight<2>::value == 2 && tide::PutsInFlight<65535>::value == 65535);
static_assert(tide::Prefetch<0>::value == 0 && tide::Prefetch<254>::value == 254);
static_assert(tide::Repeat<1>::value == 1 && tide::Repeat<80>::value == 80);
static_assert(tide::Buffers<0>::value == 0 && tide::Buffers<255>::value == 255);

// The same number in two roles is two types.
static_assert(!std::is_same_v<tide::Chunks<4>, tide::Depth<4>>);

}  // namespace
