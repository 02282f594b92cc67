// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/collective.hpp>

#include "support/small_plans.hpp"

using namespace tide;

TEST_CASE("Collective: a space has the bytes of its buffer, and none where the operation does not use it") {
  const auto gather = tide_test::planned_gather(tide_test::mixed_group.view(), 3).collective;
  const auto cast = tide_test::planned_gather(tide_test::mixed_group.view(), 3, OwnBlock::cast).collective;
  const auto reduce = tide_test::planned_reduce(tide_test::mixed_group.view(), 3).collective;
  for (index_t r = 0; r < 3; ++r) {
    const Rank rank{r};
    CHECK(gather.space_bytes(Space::shards, rank) == gather.layout.bytes(Buffer::shards, rank));
    CHECK(gather.space_bytes(Space::master, rank) == 0);
    CHECK(cast.space_bytes(Space::master, rank) == cast.layout.bytes(Buffer::masters, rank));
    CHECK(cast.space_bytes(Space::shards, rank) == 0);
    CHECK(gather.space_bytes(Space::slot, rank) == gather.layout.bytes(Buffer::slot));
    CHECK(gather.space_bytes(Space::output, rank) == 0);
    CHECK(reduce.space_bytes(Space::slot, rank) == 0);
    CHECK(reduce.space_bytes(Space::gradients, rank) == reduce.layout.bytes(Buffer::gradients));
    CHECK(reduce.space_bytes(Space::output, rank) == reduce.layout.bytes(Buffer::output, rank));
    CHECK(reduce.space_bytes(Space::inbox, rank) * reduce.space_instances(Space::inbox) == reduce.inbox.bytes());
    CHECK(reduce.space_bytes(Space::signals, rank) == reduce.words().bytes());
    CHECK(reduce.space_bytes(Space::network_inbox, rank) == 0);
  }
}

TEST_CASE("InboxShape: bytes are chunks x pieces x elements x the widest gradient") {
  constexpr InboxShape shape{3, 7, 128, 4};
  static_assert(shape.piece_bytes() == 512 && shape.chunk_bytes() == 3584 && shape.bytes() == 10752);
  CHECK(shape == InboxShape{3, 7, 128, 4});
}
