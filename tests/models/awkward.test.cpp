// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/layout/shard_layout.hpp>
#include <tide/models/awkward.hpp>

namespace {

static_assert(tide::models::awkward::model.elements() == 5'094);

using Single = tide::ShardLayout<tide::models::awkward::single, tide::Mesh<1, 8>>;
static_assert(Single().view().bytes(tide::Buffer::shards, tide::Rank{1}) == 0, "one element, eight ranks");

}  // namespace
