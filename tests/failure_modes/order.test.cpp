// SPDX-License-Identifier: Apache-2.0
//
// The order of steps is known from types; every wait is for a 64-bit epoch on a word of one plan and one source; a wait
// acquires, a signal follows its payload. The cases are triggers that have hung other libraries or mixed their data.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>

#include "support/collectives.hpp"
#include "support/delays.hpp"
#include "support/sanitizer.hpp"

#include <atomic>

using namespace tide_test;
using tide::DynamicLayout;

namespace {

using Gather = GatherRank<HostRanks, DynamicLayout, tide::UnicastTransport>;
using OrderReduce = ReduceRank<HostRanks, DynamicLayout, tide::CopyEngineReducer<>,
                               tide::Ring<tide::Chunks<2>, tide::Bytes<(1 << 16)>>>;

DynamicLayout two_parameters(index_t ranks) {
  return {group_of({{10, 3}, {7}}, Element::bf16, Element::bf16), {1, ranks}};
}

}  // namespace

TEST_CASE("Order: one rank has no gradient for A: B is exact, and A is the share of the others") {
  const DynamicLayout layout(group_of({{3}, {5}}, Element::bf16, Element::bf16), {1, 2});
  check_right(reduce_on(layout, [](index_t rank, std::size_t parameter) { return rank == 1 && parameter == 0; }));
}

TEST_CASE("Order: a rank that arrives late at init, or at the first step, is waited for") {
  const DynamicLayout layout = two_parameters(3);
  const CollectiveOracle oracle(layout.view());
  for (index_t late = 0; late < 3; ++late) {
    for (const bool at_init : {true, false}) {
      CAPTURE(late);
      CAPTURE(at_init);
      std::vector<std::string> wrong(3);
      std::atomic<int> left_early{0};
      std::atomic<bool> arrived{false};
      check_no_error(errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
        tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
        Gather gather(fabric, pool, layout, oracle);
        const bool is_late = fabric.rank().value == late;
        if (is_late && at_init) std::this_thread::sleep_for(100ms);
        if (is_late) arrived = true;
        fabric.init();
        if (!arrived) ++left_early;
        tide::HostStream stream = fabric.stream();
        poison_slots<HostRanks>(pool, stream);
        if (is_late && !at_init) std::this_thread::sleep_for(100ms);
        gather.step(pool, Source::shards, 1, stream);
        gather.step(pool, Source::masters, 2, stream);
        fabric.close();
        wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict();
      }));
      check_right(wrong);
      CHECK(left_early == 0);
    }
  }
}

TEST_CASE("Order: a signal of one pipeline releases no wait of another") {
  const DynamicLayout layout = two_parameters(3);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(3);
  std::atomic<bool> hold{true};
  std::atomic<int> released_early{0};
  std::atomic<int> looked{0};
  HostRanks ranks;
  ranks.options.hook = [&](const tide::HostHookPoint& point) -> std::optional<std::string> {
    const bool held = point.rank.value == 1 && point.label.find("'held'") != std::string_view::npos;
    while (held && point.op.kind == tide::OpKind::copy && hold) std::this_thread::yield();
    return std::nullopt;
  };
  check_no_error(errors_of(ranks, 3, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, DynamicLayout> pool(fabric, layout);
    Gather held(fabric, pool, layout, oracle, "held");
    OrderReduce reduce(fabric, layout, oracle, "free");
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream other = fabric.stream();
    poison_slots<HostRanks>(pool, stream);
    auto params = held.start(pool, Source::shards, 1, stream);
    for (std::uint64_t step = 0; step < 5; ++step) reduce.step(From::storage, step, other);
    other.synchronize();
    if (params.complete().ready()) ++released_early;
    std::this_thread::sleep_for(20ms);
    if (params.complete().ready()) ++released_early;
    ++looked;
    while (looked < 3) std::this_thread::yield();  // nobody lets go before all have looked
    hold = false;
    held.read(params, Source::shards, 1, stream);
    params.release(stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = held.verdict() + reduce.verdict();
  }));
  check_right(wrong);
  CHECK(released_early == 0);
}

TEST_CASE("Order: any number of ranks, one of them slow") {
  for (index_t ranks = 1; ranks <= 9; ++ranks) {
    CAPTURE(ranks);
    tide::HostOptions options;
    options.hook = [ranks](const tide::HostHookPoint& point) -> std::optional<std::string> {
      if (point.rank.value == ranks / 2) std::this_thread::sleep_for(100us);
      return std::nullopt;
    };
    check_right(gather_on(two_parameters(ranks), options));
    check_right(reduce_on(two_parameters(ranks), nullptr, options));
  }
}

TEST_CASE("Order: two gathers into one slot, back to back, with a slow reader on each rank in turn") {
  const DynamicLayout layout = two_parameters(3);
  const CollectiveOracle oracle(layout.view());
  for (index_t slow = 0; slow < 3; ++slow) {
    CAPTURE(slow);
    std::vector<std::string> wrong(3);
    check_no_error(errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
      tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
      Gather gather(fabric, pool, layout, oracle);
      fabric.init();
      tide::HostStream stream = fabric.stream();
      tide::HostStream reader = fabric.stream();
      poison_slots<HostRanks>(pool, stream);
      for (std::uint64_t step = 0; step < 6; ++step) {
        auto params = gather.start(pool, step % 2 == 0 ? Source::shards : Source::masters, step, stream);
        reader.wait(params.complete());
        if (fabric.rank().value == slow) HostRanks::occupy(reader, 5ms);
        gather.read(params, step % 2 == 0 ? Source::shards : Source::masters, step, reader);
        params.release(reader);
      }
      fabric.close();
      wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict();
    }));
    check_right(wrong);
  }
}

TEST_CASE("Order: more transfers in flight than any queue holds: a group of 300 parameters") {
  std::vector<std::vector<index_t>> shapes;
  for (index_t i = 0; i < 300; ++i) shapes.push_back({3 + i % 4, 1 + i % 3});  // of unlike size, so that few coalesce
  const DynamicLayout layout(group_of(shapes, Element::bf16, Element::bf16), {1, 3});
  check_right(gather_on(layout));
  check_right(reduce_on(layout));
}

TEST_CASE("Order: more steps enqueued than there may be in flight, without one synchronize") {
  const DynamicLayout layout = two_parameters(2);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(2);
  HostRanks ranks;
  ranks.options.hook = random_delays(9, 30);
  check_no_error(errors_of(ranks, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    Gather gather(fabric, pool, layout, oracle);
    OrderReduce reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream other = fabric.stream();
    poison_slots<HostRanks>(pool, stream);
    if (fabric.rank().value == 0) HostRanks::occupy(stream, 50ms);
    for (std::uint64_t step = 0; step < 200; ++step) {
      gather.step(pool, Source::shards, step, stream);
      reduce.step(From::storage, step, other);
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict() + reduce.verdict();
  }));
  check_right(wrong);
}

TEST_CASE("Order: a signal is never seen before its payload: a MiB, a pattern for each round") {
  const DynamicLayout layout(group_of({{2, 1 << 18}}, Element::bf16, Element::bf16), {1, 2});
  std::vector<index_t> stale(2, 0);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    tide::AllGather<DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout);
    tide::Shards<DynamicLayout> shards(fabric, layout);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    const std::span<std::byte> own = shards.view().bytes_of(tide::ParameterIndex{0});
    for (int round = 1; round <= sized(100, 10); ++round) {
      const auto pattern = std::byte{static_cast<unsigned char>(round % 251)};
      stream.run([=] { std::fill(own.begin(), own.end(), pattern); });
      auto params = gather.enqueue(shards, stream);
      stream.run([&, pattern, at = params.data()] {
        const auto bytes = static_cast<index_t>(own.size()) * 2;
        stale[static_cast<std::size_t>(fabric.rank().value)] += bytes - std::count(at, at + bytes, pattern);
      });
      params.release(stream);
    }
    fabric.close();
  }));
  CHECK(stale[0] == 0);
  CHECK(stale[1] == 0);
}

TEST_CASE("Order: gather and reduce at once on two streams, enqueued in another order on one rank: a diagnosis") {
  const DynamicLayout layout = two_parameters(3);
  const CollectiveOracle oracle(layout.view());
  const auto texts = errors_of(HostRanks{}, 3, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    Gather gather(fabric, pool, layout, oracle, "A");
    OrderReduce reduce(fabric, layout, oracle, "B");
    fabric.init();
    tide::HostStream one = fabric.stream();
    tide::HostStream two = fabric.stream();
    for (std::uint64_t step = 0; step < 3; ++step) {
      gather.step(pool, Source::shards, step, one);
      reduce.step(From::storage, step, two);
    }
    if (fabric.rank().value == 1) {
      reduce.step(From::storage, 4, two);
      gather.step(pool, Source::shards, 4, one);
    } else {
      gather.step(pool, Source::shards, 4, one);
      reduce.step(From::storage, 4, two);
    }
    for (int i = 0; i < 4000; ++i) {
      one.synchronize();
      std::this_thread::sleep_for(1ms);
    }
  });
  check_same_error(
      texts, {"all ranks must make the same calls in the same order; call 6 is ", "gather of 'A'", "reduce of 'B'"});
}

TEST_CASE("Order: epochs that a narrower or signed counter would wrap") {
  for (const std::uint64_t first :
       {(std::uint64_t{1} << 31) - 2, (std::uint64_t{1} << 32) - 2, (std::uint64_t{1} << 63) - 2}) {
    CAPTURE(first);
    check_right(gather_on(two_parameters(3), {.first_run = first},
                          {Source::shards, Source::shards, Source::masters, Source::in_place}));
    check_right(reduce_on(two_parameters(3), nullptr, {.first_run = first}));
  }
}
