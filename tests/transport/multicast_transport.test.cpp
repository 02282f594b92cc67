// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/transport/multicast_transport.hpp>

#include "conformance/transport.hpp"

using namespace tide;

TEST_CASE("MulticastTransport: keeps the laws of a transport") { tide_test::check_transport<MulticastTransport>(); }

TEST_CASE("MulticastTransport: writes each block once, whatever the number of peers, and copies nothing beside it") {
  for (const index_t ranks : {2, 3, 8}) {
    const auto planned = tide_test::planned_gather<MulticastTransport>(tide_test::awkward_group.view(), ranks);
    for (const Plan& plan : planned.plans) {
      const auto blocks = coalesce(planned.collective.layout.blocks(plan.rank, Buffer::shards, Buffer::slot));
      std::size_t writes = 0;
      for (const Op& op : plan.ops) {
        CHECK(op.kind != OpKind::copy);
        writes += op.kind == OpKind::multicast ? 1U : 0U;
      }
      CHECK(writes == blocks.size());
    }
  }
}

TEST_CASE("MulticastTransport: a rank that is alone copies, since one rank is no multicast team") {
  const auto planned = tide_test::planned_gather<MulticastTransport>(tide_test::awkward_group.view(), 1);
  for (const Op& op : planned.plans[0].ops) CHECK(op.kind == OpKind::copy);
}
