// SPDX-License-Identifier: Apache-2.0
//
// Many interleaved gathers and reduces with changing data, sources, gradients, streams and delays, as one suite for
// every fabric; `Ranks` is described in support/host_ranks.hpp.

#pragma once

#include <doctest/doctest.h>
#include <tide/reduce/copy_engine_reducer.hpp>

#include "support/gather_rank.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"
#include "support/seeds.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tide_test::many_steps_suite {

inline constexpr auto one_group = tide::group(
    tide::param<tide::bf16>("w", {37, 6}), tide::param<tide::bf16>("few", {2, 5}), tide::param<tide::bf16>("b", {13}));
inline constexpr auto two_group =
    tide::group(tide::param<tide::bf16>("v", {50, 3}), tide::param<tide::bf16>("none", {0}));

using One = tide::ShardLayout<one_group, tide::Mesh<1, tide::dynamic>>;
using Two = tide::ShardLayout<two_group, tide::Mesh<1, tide::dynamic>>;
using StepPool = tide::SlotPool<tide::Depth<2>, One, Two>;
using Small = tide::Ring<tide::Chunks<2>, tide::Bytes<1024>>;  // for up to 4 ranks
using Add = tide::CopyEngineReducer<tide::Burst, tide::Accumulate>;

/// A gather that is live for a while: every rank decides alike, from the seed.
template <class Ranks, class Gather, class Layout>
struct Live {
  using Stream = typename Ranks::Stream;

  Gather& gather;
  std::optional<tide::Gathered<Layout>> params{};
  Source source{};
  std::uint64_t seed = 0;

  void start(StepPool& pool, Source from, std::uint64_t step, Stream& stream) {
    source = from;
    seed = step;
    params.emplace(gather.start(pool, from, step, stream));
  }

  void end(Stream& stream) {
    if (!params) return;
    gather.read(*params, source, seed, stream);
    params->release(stream);
    params.reset();
  }
};

/// Gathers and reduces of two layouts, two pipelines of each type at least, whose ranks agree on the order of calls and
/// on nothing else.
template <class Transport, class Inbox = Small, class Ranks>
void many_steps(const Ranks& fabrics, index_t ranks, std::uint64_t seed, int steps) {
  using Stream = typename Ranks::Stream;
  const One one_layout({1, ranks});
  const Two two_layout({1, ranks});
  const CollectiveOracle one_oracle(one_layout.view());
  const CollectiveOracle two_oracle(two_layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  check_no_error(errors_of(fabrics, ranks, [&](typename Ranks::Fabric& fabric) {
    StepPool pool(fabric, one_layout, two_layout);
    GatherRank<Ranks, One, Transport> gather(fabric, pool, one_layout, one_oracle, "one");
    GatherRank<Ranks, One, Transport> again(fabric, pool, one_layout, one_oracle, "one again");
    GatherRank<Ranks, Two, Transport> other(fabric, pool, two_layout, two_oracle, "two");
    ReduceRank<Ranks, One, tide::CopyEngineReducer<>, Inbox> reduce(fabric, one_layout, one_oracle, "one");
    ReduceRank<Ranks, One, Add, Inbox> add(fabric, one_layout, one_oracle, "one, added");
    ReduceRank<Ranks, Two, tide::CopyEngineReducer<>, Inbox> sum(fabric, two_layout, two_oracle, "two");
    fabric.init();
    std::vector<Stream> streams{fabric.stream(), fabric.stream(), fabric.stream()};
    poison_slots<Ranks>(pool, streams[0]);
    for (Stream& stream : streams) stream.wait(streams[0].record());
    Live<Ranks, decltype(gather), One> a{gather};
    Live<Ranks, decltype(again), One> b{again};
    Live<Ranks, decltype(other), Two> c{other};
    Random agreed(seed);                                                       // the same on all ranks
    Random own(seed * 100 + static_cast<std::uint64_t>(fabric.rank().value));  // each rank's
    const Missing missing = [&](index_t rank, std::size_t parameter) {
      return mix(seed, static_cast<std::uint64_t>(rank), parameter) % 3 == 0;
    };
    for (int step = 1; step <= steps; ++step) {
      Stream& stream = streams[static_cast<std::size_t>(own.between(0, 2))];
      const Source source = agreed.one_of({Source::shards, Source::masters, Source::in_place});
      const From from = own.one_of({From::storage, From::table});  // ranks may differ in where gradients lie
      const auto data = static_cast<std::uint64_t>(step);
      if (own.once_in(25)) Ranks::occupy(stream, std::chrono::microseconds(own.between(1, 800)));
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

}  // namespace tide_test::many_steps_suite
