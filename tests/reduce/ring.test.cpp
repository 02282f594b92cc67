// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/reduce/ring.hpp>

#include "conformance/inbox.hpp"

#include <string>

using namespace tide;

namespace {

inline constexpr auto large = group(param<bf16>("w", {1 << 16, 1 << 10}));
using Budget = Bytes<(1 << 20)>;

constexpr LayoutView on(const GroupView& group, index_t ranks) { return {group, {1, ranks}, TightPacking::rule}; }

// The next longer chunk of whole units would not fit.
constexpr bool longest(index_t ranks) {
  const InboxShape shape = Ring<Chunks<4>, Budget>::shape(on(large.view(), ranks));
  InboxShape longer = shape;
  longer.chunk_elements += Ring<Chunks<4>, Budget>::unit;
  return shape.bytes() <= Budget::value && longer.bytes() > Budget::value;
}

static_assert(longest(2) && longest(3) && longest(8) && longest(64));

}  // namespace

TEST_CASE("Ring: keeps the laws of an inbox") {
  tide_test::check_inbox<Ring<Chunks<4>, Bytes<(64 << 10)>>>(64 << 10);
  tide_test::check_inbox<Ring<Chunks<1>, Bytes<(32 << 10)>>>(32 << 10);
}

TEST_CASE("Ring: memory does not grow with the ranks") {
  for (const index_t ranks : {2, 4, 8, 16, 64}) {
    const index_t bytes = Ring<Chunks<4>, Budget>::shape(on(large.view(), ranks)).bytes();
    CHECK(bytes <= Budget::value);
    CHECK(bytes > Budget::value * 9 / 10);
  }
}

TEST_CASE("Ring: over nodes one budget covers all that waits, and memory does not grow with the nodes") {
  for (const Exchange exchange : {Exchange::doubling, Exchange::direct}) {
    CAPTURE(name(exchange));
    for (const MeshShape mesh : {MeshShape{2, 8}, MeshShape{3, 8}, MeshShape{8, 8}, MeshShape{16, 1}}) {
      CAPTURE(mesh.nodes);
      const LayoutView layout{large.view(), mesh, TightPacking::rule};
      const ReduceMemory memory = Ring<Chunks<4>, Budget>::memory(layout, exchange);
      CHECK(memory.bytes() <= Budget::value);
      CHECK(memory.bytes() > Budget::value * 8 / 10);
      CHECK(memory.network.partials_instances == memory.inbox.chunks);
      CHECK(memory.network.inbox_instances == memory.inbox.chunks);
    }
    const LayoutView one{large.view(), {1, 8}, TightPacking::rule};
    CHECK(Ring<Chunks<4>, Budget>::memory(one, exchange) == ReduceMemory{Ring<Chunks<4>, Budget>::shape(one), {}});
  }
  std::string text;
  try {
    static_cast<void>(
        Ring<Chunks<4>, Bytes<4096>>::memory({large.view(), {4, 8}, TightPacking::rule}, Exchange::doubling));
  } catch (const Error& error) {
    text = error.what();
  }
  CHECK(text.find("tide::Ring: Bytes must hold one unit of 64 elements from each peer in every chunk") == 0);
}

TEST_CASE("Ring: a group that is smaller than the budget takes no more than it needs") {
  const InboxShape shape = Ring<Chunks<4>, Budget>::shape(on(tide_test::single_row.view(), 2));
  CHECK(shape.chunks == 1);
  CHECK(shape.bytes() == 64 * 2);
}

TEST_CASE("Ring: a budget that cannot hold one unit of each peer is refused with the numbers") {
  std::string text;
  try {
    static_cast<void>(Ring<Chunks<4>, Bytes<1000>>::shape(on(large.view(), 8)));
  } catch (const Error& error) {
    text = error.what();
    CHECK(error.code() == Errc::capacity);
  }
  CHECK(text.find("tide::Ring: Bytes must hold one unit of 64 elements from each peer in every chunk") == 0);
  CHECK(text.find("needs 3584 bytes, has 1000.") != std::string::npos);
}
