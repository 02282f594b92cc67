// SPDX-License-Identifier: Apache-2.0
//
// What a step asks of hardware grows with peers, not with parameters; the own block is not copied where it need not be;
// a slower path is never taken in silence.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/multicast_transport.hpp>

#include "support/collectives.hpp"
#include "support/raised.hpp"

#include <mutex>

using namespace tide_test;
using tide::DynamicLayout;

namespace {

struct Counts {
  int to_self = 0;
  int to_peers = 0;
};

/// The copies that rank 0 makes in a gather from one source.
Counts copies_of(const DynamicLayout& layout, Source source) {
  Counts counts;
  std::mutex mutex;
  tide::HostOptions options;
  options.hook = [&](const tide::HostHookPoint& point) -> std::optional<std::string> {
    if (point.rank.value != 0 || point.op.kind != tide::OpKind::copy) return std::nullopt;
    const std::lock_guard lock(mutex);
    ++(point.op.peer == 0 ? counts.to_self : counts.to_peers);
    return std::nullopt;
  };
  check_right(gather_on(layout, options, {source}));
  return counts;
}

}  // namespace

TEST_CASE("Performance: the own block is copied only where it comes from packed shards") {
  const DynamicLayout layout(group_of({{12, 3}}, Element::bf16, Element::bf16), {1, 3});
  CHECK(copies_of(layout, Source::shards).to_self == 1);
  CHECK(copies_of(layout, Source::masters).to_self == 0);
  CHECK(copies_of(layout, Source::in_place).to_self == 0);
}

TEST_CASE("Performance: copies grow with peers, not with equal parameters") {
  for (const index_t ranks : {2, 4}) {
    CAPTURE(ranks);
    const std::vector<std::vector<index_t>> few(4, {16, 8});
    const std::vector<std::vector<index_t>> many(256, {16, 8});
    const DynamicLayout small(group_of(few, Element::bf16, Element::bf16), {1, ranks});
    const DynamicLayout large(group_of(many, Element::bf16, Element::bf16), {1, ranks});
    CHECK(copies_of(large, Source::shards).to_peers == copies_of(small, Source::shards).to_peers);
    CHECK(copies_of(large, Source::shards).to_peers == ranks - 1);
  }
}

TEST_CASE("Performance: where multicast is missing, its transport is refused by name and unicast runs") {
  const DynamicLayout layout(group_of({{12, 3}}, Element::bf16, Element::bf16), {1, 2});
  HostRanks ranks;
  ranks.options.multicast = tide::HostMulticast::missing;
  const auto texts = errors_of(ranks, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    tide::AllGather<DynamicLayout, tide::MulticastTransport> gather(fabric, pool, layout);
  });
  check_same_error(texts,
                   {"tide::Transport: the fabric must have what the policy needs; multicast needs multicast, which "
                    "this HostFabric has not."});
  check_right(gather_on(layout, {.multicast = tide::HostMulticast::missing}));
}

TEST_CASE("Performance: progress does not need more than one queue") {
  const DynamicLayout layout(group_of({{40, 3}, {7}}, Element::bf16, Element::bf16), {1, 5});
  check_right(gather_on(layout, {.lanes = tide::HostLanes::merged}));
  check_right(reduce_on(layout, nullptr, {.lanes = tide::HostLanes::merged}));
}
