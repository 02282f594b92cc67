// SPDX-License-Identifier: Apache-2.0
//
// timeout: 180
//
// A thousand interleaved gathers and reduces with changing data, sources, gradients, streams and delays.

#include <doctest/doctest.h>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/delays.hpp"
#include "support/gather_rank.hpp"
#include "support/host_ranks.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"
#include "support/sanitizer.hpp"
#include "support/seeds.hpp"

#include <optional>

using namespace tide_test;

namespace {

inline constexpr auto one_group = tide::group(
    tide::param<tide::bf16>("w", {37, 6}), tide::param<tide::bf16>("few", {2, 5}), tide::param<tide::bf16>("b", {13}));
inline constexpr auto two_group =
    tide::group(tide::param<tide::bf16>("v", {50, 3}), tide::param<tide::bf16>("none", {0}));

using One = tide::ShardLayout<one_group, tide::Mesh<1, tide::dynamic>>;
using Two = tide::ShardLayout<two_group, tide::Mesh<1, tide::dynamic>>;
using StepPool = tide::SlotPool<tide::Depth<2>, One, Two>;
using Inbox = tide::Ring<tide::Chunks<2>, tide::Bytes<1024>>;
using Add = tide::CopyEngineReducer<tide::Burst, tide::Accumulate>;

/// A gather that is live for a while: every rank decides alike, from the seed.
template <class Gather, class Layout>
struct Live {
  Gather& gather;
  std::optional<tide::Gathered<Layout>> params{};
  Source source{};
  std::uint64_t seed = 0;

  void start(StepPool& pool, Source from, std::uint64_t step, tide::HostStream& stream) {
    source = from;
    seed = step;
    params.emplace(gather.start(pool, from, step, stream));
  }

  void end(tide::HostStream& stream) {
    if (!params) return;
    gather.read(*params, source, seed, stream);
    params->release(stream);
    params.reset();
  }
};

template <class Transport>
void many_steps(index_t ranks, std::uint64_t seed, int steps, tide::HostOptions options) {
  const One one_layout({1, ranks});
  const Two two_layout({1, ranks});
  const CollectiveOracle one_oracle(one_layout.view());
  const CollectiveOracle two_oracle(two_layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  check_no_error(errors_of(HostRanks{options}, ranks, [&](tide::HostFabric& fabric) {
    StepPool pool(fabric, one_layout, two_layout);
    GatherRank<HostRanks, One, Transport> gather(fabric, pool, one_layout, one_oracle, "one");
    GatherRank<HostRanks, One, Transport> again(fabric, pool, one_layout, one_oracle, "one again");
    GatherRank<HostRanks, Two, Transport> other(fabric, pool, two_layout, two_oracle, "two");
    ReduceRank<HostRanks, One, tide::CopyEngineReducer<>, Inbox> reduce(fabric, one_layout, one_oracle, "one");
    ReduceRank<HostRanks, One, Add, Inbox> add(fabric, one_layout, one_oracle, "one, added");
    ReduceRank<HostRanks, Two, tide::CopyEngineReducer<>, Inbox> sum(fabric, two_layout, two_oracle, "two");
    fabric.init();
    std::vector<tide::HostStream> streams{fabric.stream(), fabric.stream(), fabric.stream()};
    poison_slots<HostRanks>(pool, streams[0]);
    for (tide::HostStream& stream : streams) stream.wait(streams[0].record());
    Live<decltype(gather), One> a{gather};
    Live<decltype(again), One> b{again};
    Live<decltype(other), Two> c{other};
    Random agreed(seed);                                                       // the same on all ranks
    Random own(seed * 100 + static_cast<std::uint64_t>(fabric.rank().value));  // each rank's
    const Missing missing = [&](index_t rank, std::size_t parameter) {
      return mix(seed, static_cast<std::uint64_t>(rank), parameter) % 3 == 0;
    };
    for (int step = 1; step <= steps; ++step) {
      tide::HostStream& stream = streams[static_cast<std::size_t>(own.between(0, 2))];
      const Source source = agreed.one_of({Source::shards, Source::masters, Source::in_place});
      const From from = own.one_of({From::storage, From::table});  // ranks may differ in where gradients lie
      const auto data = static_cast<std::uint64_t>(step);
      if (own.once_in(25)) HostRanks::occupy(stream, std::chrono::microseconds(own.between(1, 800)));
      const bool some_missing = agreed.once_in(4);
      const int live = (a.params ? 1 : 0) + (b.params ? 1 : 0) + (c.params ? 1 : 0);
      switch (agreed.between(0, 8)) {
        case 0:
          if (!a.params && live < 2) a.start(pool, source, data, stream);
          break;
        case 1:
          if (!b.params && live < 2) b.start(pool, source, data, stream);
          break;
        case 2:
          if (!c.params && live < 2) c.start(pool, source, data, stream);
          break;
        case 3:
          a.end(stream);
          break;
        case 4:
          b.end(stream);
          break;
        case 5:
          c.end(stream);
          break;
        case 6:
          reduce.step(from, data, stream, some_missing ? missing : nullptr);
          break;
        case 7:
          add.step(from, data, stream, some_missing ? missing : nullptr);
          break;
        default:
          sum.step(from, data, stream, some_missing ? missing : nullptr);
      }
      if (own.once_in(50)) stream.synchronize();
    }
    a.end(streams[0]);
    b.end(streams[1]);
    c.end(streams[2]);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] =
        gather.verdict() + again.verdict() + other.verdict() + reduce.verdict() + add.verdict() + sum.verdict();
  }));
  for (index_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[static_cast<std::size_t>(rank)] == "");
  }
}

}  // namespace

TEST_CASE("Pipelines: a thousand interleaved steps without delays") {
  for (const std::uint64_t seed : seeds(2)) {
    CAPTURE(seed);
    many_steps<tide::UnicastTransport>(3, seed, sized(1000, 200), {});
  }
}

TEST_CASE("Pipelines: a thousand interleaved steps with delays at every op") {
  for (const std::uint64_t seed : seeds(2)) {
    CAPTURE(seed);
    many_steps<tide::MulticastTransport>(3, seed + 10, sized(1000, 100), {.hook = random_delays(seed, 50)});
    many_steps<tide::UnicastTransport>(4, seed + 20, sized(1000, 100), {.hook = random_delays(seed, 100)});
  }
}

TEST_CASE("Pipelines: lanes merged, with delays") {
  many_steps<tide::UnicastTransport>(3, 31, sized(500, 100), {.lanes = tide::HostLanes::merged});
  many_steps<tide::UnicastTransport>(3, 32, sized(500, 100),
                                     {.lanes = tide::HostLanes::merged, .hook = random_delays(32, 50)});
}

TEST_CASE("Pipelines: epochs beyond 31, 32, 53 and 63 bits, and over the end of 64") {
  for (const std::uint64_t first :
       {(std::uint64_t{1} << 31) - 3, (std::uint64_t{1} << 32) - 2, (std::uint64_t{1} << 53) - 3,
        (std::uint64_t{1} << 63) - 3, ~std::uint64_t{0} - 2, ~std::uint64_t{0} / 3 - 1}) {
    CAPTURE(first);
    many_steps<tide::UnicastTransport>(3, 41, 60, {.first_run = first});
    many_steps<tide::MulticastTransport>(2, 42, 60, {.lanes = tide::HostLanes::merged, .first_run = first});
  }
}
