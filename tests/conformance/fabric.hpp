// SPDX-License-Identifier: Apache-2.0
//
// The laws of Fabric as one suite for every fabric; `Ranks` is described in support/host_ranks.hpp. Its deadline must
// be short where a test waits for it: `impatient`.

#pragma once

#include <doctest/doctest.h>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gather_rank.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"
#include "support/sanitizer.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tide_test::fabric_suite {

using namespace std::chrono_literals;

inline constexpr auto block = tide::group(tide::param<tide::bf16>("w", {10, 3}), tide::param<tide::bf16>("b", {7}));
inline constexpr auto head = tide::group(tide::param<tide::bf16>("head", {9, 3}), tide::param<tide::bf16>("b", {8}));

using Block = tide::ShardLayout<block, tide::Mesh<1, tide::dynamic>>;
using Head = tide::ShardLayout<head, tide::Mesh<1, tide::dynamic>>;
using Inbox = tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>;
using Reduce = tide::ReduceScatter<Block, tide::CopyEngineReducer<>, tide::SingleNode, Inbox>;

template <class Layout>
using Gather = tide::AllGather<Layout, tide::UnicastTransport>;
template <class Ranks>
using BlockGather = GatherRank<Ranks, Block, tide::UnicastTransport>;
template <class Ranks>
using BlockReduce = ReduceRank<Ranks, Block, tide::CopyEngineReducer<>, Inbox>;

[[nodiscard]] inline Block block_on(index_t ranks) { return Block({1, ranks}); }

// Long enough for every rank to come to `init` on a busy machine, and how an error writes it.
inline constexpr std::chrono::milliseconds soon{sized(300, 1500)};
inline const std::string soon_text = sanitized ? "1.500 s" : "0.300 s";

template <class Ranks>
[[nodiscard]] auto& options_of(Ranks& ranks) {
  if constexpr (requires { ranks.options.host; }) {
    return ranks.options.host;  // of a SimFabric
  } else {
    return ranks.options;
  }
}

template <class Ranks>
[[nodiscard]] Ranks impatient(Ranks ranks) {
  options_of(ranks).deadline = soon;
  return ranks;
}

/// The host of a rank does something else for a while.
template <class Fabric>
void let_time_pass(Fabric& fabric, std::chrono::milliseconds duration) {
  if constexpr (requires { fabric.sleep(duration); }) {  // its time is virtual
    fabric.sleep(duration);
  } else {
    std::this_thread::sleep_for(duration);
  }
}

/// In the loop of a host that waits for others by means of its own.
template <class Fabric>
void let_others_go_on(Fabric& fabric) {
  if constexpr (requires { fabric.sleep(1ms); }) {  // its ranks take turns
    fabric.raise_if_failed();
  } else {
    std::this_thread::yield();
  }
}

/// Asks something of the fabric until it raises its error: a rank that does nothing else hears of a failure so.
template <class Fabric>
void listen(Fabric& fabric) {
  auto stream = fabric.stream();
  for (int i = 0; i < 4000; ++i) {
    stream.synchronize();
    let_time_pass(fabric, 5ms);
  }
}

// ---- symmetric ------------------------------------------------------------------------------------------------------

/// Writes the plans of `UnicastTransport` and is another type.
struct OtherTransport : tide::UnicastTransport {
  static constexpr std::string_view name = "other";
};

/// `init` refuses ranks that have constructed different things, with one error for all, whichever rank is the odd one.
template <class Ranks>
void symmetric(const Ranks& ranks) {
  constexpr index_t n = 3;
  const auto expect = [&](const std::string& words, auto construct_and_init) {
    for (index_t odd = 0; odd < n; ++odd) {
      CAPTURE(odd);
      const auto texts =
          errors_of(ranks, n, [&](auto& fabric) { construct_and_init(fabric, fabric.rank().value == odd); });
      check_same_error(texts, {"all ranks must construct the same pipelines in the same order", words});
    }
  };
  expect("how many they have", [](auto& fabric, bool odd) {
    Reduce first(fabric);
    std::optional<Reduce> second;
    if (odd) second.emplace(fabric);
    fabric.init();
  });
  expect("number 0: ", [](auto& fabric, bool odd) {
    tide::SlotPool<tide::Depth<1>, Block, Head> pool(fabric);
    std::optional<Gather<Block>> one;
    std::optional<Gather<Head>> other;
    if (odd) {
      other.emplace(fabric, pool);
    } else {
      one.emplace(fabric, pool);
    }
    fabric.init();
  });
  expect("number 0: ", [](auto& fabric, bool odd) {
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric);
    std::optional<Gather<Block>> gather;
    std::optional<Reduce> reduce;
    if (odd) reduce.emplace(fabric);
    gather.emplace(fabric, pool);
    if (!odd) reduce.emplace(fabric);
    fabric.init();
  });
  // The same collective, written by another policy.
  expect("number 0: ", [](auto& fabric, bool odd) {
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric);
    std::optional<Gather<Block>> one;
    std::optional<tide::AllGather<Block, OtherTransport>> other;
    if (odd) {
      other.emplace(fabric, pool);
    } else {
      one.emplace(fabric, pool);
    }
    fabric.init();
  });
  expect("what they constructed before number 0", [](auto& fabric, bool odd) {
    if (odd) static_cast<void>(fabric.reserve(1, 1));
    Reduce reduce(fabric);
    if (!odd) static_cast<void>(fabric.reserve(1, 1));
    fabric.init();
  });
  // The same sizes, so only the roles differ: a peer would write into storage that it takes for a slot.
  expect("what they constructed before number 0", [](auto& fabric, bool odd) {
    const index_t bytes = Block::slot_bytes;
    if (odd) static_cast<void>(fabric.reserve(bytes, 256));
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric);
    if (!odd) static_cast<void>(fabric.reserve(bytes, 256));
    Gather<Block> gather(fabric, pool);
    fabric.init();
  });
  expect("the size of the arena", [](auto& fabric, bool odd) {
    Reduce reduce(fabric);
    if (odd) static_cast<void>(fabric.reserve(1, 1));
    fabric.init();
  });
}

/// A user's transport whose rank 1 counts another number of signals in a run than the others.
struct MiscountingTransport : tide::UnicastTransport {
  static constexpr std::string_view name = "miscounting";

  [[nodiscard]] static tide::Plan gather(const tide::Collective& collective, tide::Rank rank) {
    tide::Plan plan = tide::UnicastTransport::gather(collective, rank);
    const auto tells = [&](const tide::Op& op) { return op.kind == tide::OpKind::signal && op.peer != rank.value; };
    if (rank.value == 1) ++std::find_if(plan.ops.begin(), plan.ops.end(), tells)->rows;
    return plan;
  }
};

/// `init` refuses plans in which a rank waits for what no other tells it, with one error for all.
template <class Ranks>
void words_that_do_not_fit(const Ranks& ranks) {
  const auto texts = errors_of(ranks, 3, [](auto& fabric) {
    const Block layout = block_on(3);
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric, layout);
    tide::AllGather<Block, MiscountingTransport> gather(fabric, pool, layout, "the block");
    fabric.init();
  });
  check_same_error(texts, {"tide::PlanVariant: ranks must tell each other what they wait for; in gather of 'the block' "
                           "(2 parameters) rank ",
                           " up to 1, 1 in a run, and rank 1 raises ready[1] of rank ", " up to 1, 2 in a run."});
}

/// A rank that does not come to `init` in time is named, and hears of it when it comes.
template <class Ranks>
void late_for_init(const Ranks& ranks) {
  for (index_t odd = 0; odd < 3; ++odd) {
    CAPTURE(odd);
    const auto texts = errors_of(impatient(ranks), 3, [&](auto& fabric) {
      if (fabric.rank().value == odd) let_time_pass(fabric, 2 * soon);
      fabric.init();
    });
    check_same_error(texts,
                     {"init needs all ranks", "did not come within " + soon_text + ": " + std::to_string(odd) + "."});
  }
}

// ---- in order -------------------------------------------------------------------------------------------------------

/// Work on a stream and its events complete in launch order; another stream that waits for an event comes after it.
template <class Ranks>
void in_order(const Ranks& ranks) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(n);
  std::vector<int> out_of_order(n);
  check_no_error(errors_of(ranks, n, [&](auto& fabric) {
    tide::SlotPool<tide::Depth<2>, Block> pool(fabric);
    BlockGather<Ranks> gather(fabric, pool, layout, oracle);
    fabric.init();
    auto one = fabric.stream();
    auto two = fabric.stream();
    poison_slots<Ranks>(pool, one);
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      Ranks::occupy(one, 2ms);
      const tide::Event before = one.record();
      auto params = gather.start(pool, Source::shards, step, one);
      const tide::Event after = one.record();
      gather.read(params, Source::shards, step, two);
      params.release(two);
      const tide::Event last = two.record();
      if (last.ready() && !after.ready()) ++out_of_order[rank];
      if (after.ready() && !before.ready()) ++out_of_order[rank];
      after.synchronize();
      if (!before.ready()) ++out_of_order[rank];
      last.synchronize();
      if (!after.ready()) ++out_of_order[rank];
    }
    fabric.close();
    wrong[rank] = gather.verdict();
  }));
  for (std::size_t rank = 0; rank < n; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[rank] == "");
    CHECK(out_of_order[rank] == 0);
  }
}

/// Runs of one pipeline begin in launch order also when they come from different streams, the first of them busy.
template <class Ranks>
void one_pipeline_on_two_streams(const Ranks& ranks) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(n);
  check_no_error(errors_of(ranks, n, [&](auto& fabric) {
    tide::SlotPool<tide::Depth<2>, Block> pool(fabric);
    BlockGather<Ranks> gather(fabric, pool, layout, oracle);
    BlockReduce<Ranks> reduce(fabric, layout, oracle);
    fabric.init();
    auto busy = fabric.stream();
    auto idle = fabric.stream();
    poison_slots<Ranks>(pool, busy);
    for (std::uint64_t step = 1; step <= 8; ++step) {
      auto& stream = step % 2 == 0 ? idle : busy;
      if ((step + static_cast<std::uint64_t>(fabric.rank().value)) % 3 == 0) Ranks::occupy(busy, 3ms);
      gather.step(pool, step % 3 == 0 ? Source::masters : Source::shards, step, stream);
      reduce.step(From::storage, step, stream);
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = gather.verdict() + reduce.verdict();
  }));
  for (const std::string& text : wrong) CHECK(text == "");
}

inline constexpr auto few = tide::group(tide::param<tide::bf16>("w", {2, 3}), tide::param<tide::bf16>("b", {1}));
inline constexpr auto none = tide::group(tide::param<tide::bf16>("w", {0, 3}));

/// An exit comes after what its stream did before the call, also on a rank that has nothing to do in it: what is used
/// again after the exit was in use until then.
template <class Ranks, const auto& Group, class Inbox>
void exits_after_calls(const Ranks& ranks) {
  using Layout = tide::ShardLayout<Group, tide::Mesh<1, tide::dynamic>>;
  constexpr index_t n = 3;
  const Layout layout({1, n});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(n);
  check_no_error(errors_of(ranks, n, [&](auto& fabric) {
    ReduceRank<Ranks, Layout, tide::CopyEngineReducer<>, Inbox> reduce(fabric, layout, oracle);
    fabric.init();
    auto stream = fabric.stream();
    auto other = fabric.stream();
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    for (std::uint64_t step = 1; step <= 6; ++step) {
      const bool is_free = step % 2 == 0;
      if (step % 4 < 2 || rank == 2) Ranks::occupy(stream, 3ms);
      const tide::Event before = stream.record();
      const tide::ReduceTicket ticket = reduce.start(From::storage, step, stream);
      (is_free ? ticket.gradients_free : ticket.shards_ready).synchronize();
      if (!before.ready()) wrong[rank] += is_free ? "gradients_free is early; " : "shards_ready is early; ";
      reduce.read(ticket, step, other);
    }
    fabric.close();
    wrong[rank] += reduce.verdict();
  }));
  for (std::size_t rank = 0; rank < n; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[rank] == "");
  }
}

template <class Ranks>
void exits_after_calls(const Ranks& ranks) {
  exits_after_calls<Ranks, few, Inbox>(ranks);
  exits_after_calls<Ranks, few, tide::SlotReuse>(ranks);
  exits_after_calls<Ranks, none, Inbox>(ranks);
  exits_after_calls<Ranks, none, tide::SlotReuse>(ranks);
}

// ---- deadline, poisoned ---------------------------------------------------------------------------------------------

/// A rank that never enqueues: every other names it, the operation and the op; all further calls repeat that.
template <class Ranks>
void absent_from_a_call(const Ranks& ranks) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  for (index_t odd = 0; odd < n; ++odd) {
    for (const bool reduces : {false, true}) {
      CAPTURE(odd);
      CAPTURE(reduces);
      const auto texts = errors_of(impatient(ranks), n, [&](auto& fabric) {
        tide::SlotPool<tide::Depth<2>, Block> pool(fabric);
        BlockGather<Ranks> gather(fabric, pool, layout, oracle, "the block");
        BlockReduce<Ranks> reduce(fabric, layout, oracle, "the block");
        fabric.init();
        auto stream = fabric.stream();
        gather.step(pool, Source::shards, 1, stream);
        reduce.step(From::storage, 1, stream);
        stream.synchronize();
        if (fabric.rank().value == odd) return listen(fabric);
        if (reduces) {
          reduce.step(From::storage, 2, stream);
        } else {
          gather.step(pool, Source::shards, 2, stream);
        }
        try {
          stream.synchronize();
        } catch (const tide::Error& first) {
          int repeated = 0;
          const auto repeats = [&](auto call) {
            try {
              call();
            } catch (const tide::Error& error) {
              if (error.what() == std::string(first.what()) && error.code() == first.code()) ++repeated;
            }
          };
          repeats([&] { static_cast<void>(gather.pipeline().enqueue(gather.shards(), stream)); });
          repeats([&] { static_cast<void>(reduce.pipeline().enqueue(reduce.storage(), reduce.output(), stream)); });
          repeats([&] { static_cast<void>(stream.record()); });
          repeats([&] { stream.synchronize(); });
          repeats([&] { Ranks::occupy(stream, 1us); });
          repeats([&] { fabric.init(); });
          repeats([&] { fabric.close(); });
          repeats([&] { fabric.close(); });
          if (repeated != 8) tide::raise(tide::Errc::operation, "a later call did not repeat the error");
          throw;
        }
      });
      const std::string peer = std::to_string(odd);
      check_same_error(texts, {reduces ? "reduce of 'the block' (2 parameters), step 1"
                                       : "gather of 'the block' (2 parameters), step 1",
                               "the deadline of " + soon_text + " passed", ", op ", " waits for rank " + peer + ": "});
    }
  }
}

/// A slow function on a stream of one rank, longer than the deadline: an error for all, and nobody waits for it in
/// vain.
template <class Ranks>
void slow_stream(const Ranks& ranks) {
  const Block layout = block_on(2);
  const CollectiveOracle oracle(layout.view());
  const auto texts = errors_of(impatient(ranks), 2, [&](auto& fabric) {
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric);
    BlockGather<Ranks> gather(fabric, pool, layout, oracle, "the block");
    fabric.init();
    auto stream = fabric.stream();
    if (fabric.rank().value == 1)
      Ranks::occupy(stream, 3 * soon + 1500ms);  // CudaFabric gives late ranks a second to say for whom they wait
    gather.step(pool, Source::shards, 1, stream);
    stream.synchronize();
  });
  check_same_error(texts, {"the deadline of " + soon_text + " passed"});
}

/// More runs than a fabric has room for, behind a slow function: an error of the call that finds none.
template <class Ranks>
void too_many_runs(const Ranks& ranks) {
  const Block layout = block_on(2);
  const CollectiveOracle oracle(layout.view());
  std::vector<int> called(2, 0);
  std::vector<std::optional<tide::Errc>> codes(2);
  const auto texts = errors_of(impatient(ranks), 2, [&](auto& fabric) {
    BlockReduce<Ranks> reduce(fabric, layout, oracle, "the block");
    fabric.init();
    auto stream = fabric.stream();
    Ranks::occupy(stream, 3 * soon);
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    try {
      for (; called[rank] < 1000; ++called[rank]) {
        static_cast<void>(reduce.pipeline().enqueue(reduce.storage(), reduce.output(), stream));
      }
    } catch (const tide::Error& error) {
      codes[rank] = error.code();
      throw;
    }
  });
  check_same_error(texts, {"the deadline of " + soon_text + " passed"});
  CHECK(codes == std::vector<std::optional<tide::Errc>>(2, tide::Errc::deadline));
  CHECK(called == std::vector<int>(2, 64));
}

// ---- close ----------------------------------------------------------------------------------------------------------

/// `close` waits for the work, may be called twice, ends further calls; events still answer.
template <class Ranks>
void closing(const Ranks& ranks) {
  const Block layout = block_on(2);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(2);
  check_no_error(errors_of(ranks, 2, [&](auto& fabric) {
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric);
    BlockGather<Ranks> gather(fabric, pool, layout, oracle);
    BlockReduce<Ranks> reduce(fabric, layout, oracle);
    fabric.init();
    auto stream = fabric.stream();
    poison_slots<Ranks>(pool, stream);
    Ranks::occupy(stream, 20ms);
    gather.step(pool, Source::shards, 1, stream);
    reduce.step(From::storage, 1, stream);
    const tide::Event event = stream.record();
    fabric.close();
    fabric.close();
    std::string& text = wrong[static_cast<std::size_t>(fabric.rank().value)];
    text = gather.verdict() + reduce.verdict();
    if (!event.ready()) text += "an event has not passed";
    event.synchronize();
    const auto refused = [&](const std::string& words, auto call) {
      try {
        call();
        text += "accepted: " + words;
      } catch (const tide::Error& error) {
        if (std::string(error.what()).find(words) == std::string::npos) text += error.what();
        if (error.code() != tide::Errc::order) text += "code";
      }
    };
    refused("cannot follow close", [&] { static_cast<void>(gather.pipeline().enqueue(gather.shards(), stream)); });
    refused("cannot follow close",
            [&] { static_cast<void>(reduce.pipeline().enqueue(reduce.storage(), reduce.output(), stream)); });
    refused("cannot follow close", [&] { static_cast<void>(stream.record()); });
    refused("cannot follow close", [&] { stream.wait(event); });
    refused("cannot follow close", [&] { fabric.init(); });
    refused("after close", [&] { Ranks::occupy(stream, 1us); });
    refused("after close", [&] { static_cast<void>(fabric.stream()); });
    refused("before init", [&] { static_cast<void>(fabric.reserve(8, 8)); });
    refused("before init", [&] { Reduce late(fabric); });
  }));
  for (const std::string& text : wrong) CHECK(text == "");
}

/// Before `init` there is no memory and no call; a fabric that was never used can be closed and destroyed.
template <class Ranks>
void before_init(const Ranks& ranks) {
  std::vector<std::string> wrong(2);
  check_no_error(errors_of(ranks, 2, [&](auto& fabric) {
    std::string& text = wrong[static_cast<std::size_t>(fabric.rank().value)];
    const Block layout = block_on(2);
    tide::SlotPool<tide::Depth<1>, Block> pool(fabric, layout);
    tide::Shards<Block> shards(fabric, layout);
    tide::MasterShards<Block> masters(fabric, layout);
    tide::Gradients<Block> gradients(fabric, layout);
    Gather<Block> gather(fabric, pool, layout);
    Reduce reduce(fabric, layout);
    auto stream = fabric.stream();
    alignas(16) std::byte memory[64] = {};
    const auto refused = [&](const std::string& words, auto call) {
      try {
        call();
        text += "accepted: " + words;
      } catch (const tide::Error& error) {
        if (std::string(error.what()).find(words) == std::string::npos) text += error.what();
        if (error.code() != tide::Errc::order) text += "code";
      }
    };
    refused("before init", [&] { static_cast<void>(shards.data()); });
    refused("before init", [&] { static_cast<void>(gather.enqueue(shards, stream)); });
    refused("before init", [&] { static_cast<void>(reduce.enqueue(gradients, masters, stream)); });
    const tide::ShardsView<Block, tide::Buffer::shards> view(memory, layout, fabric.rank());
    refused("needs init to be called first", [&] { static_cast<void>(gather.enqueue(view, stream)); });
    const tide::ShardsView<Block, tide::Buffer::shards> nothing(nullptr, layout, fabric.rank());
    refused("needs init to be called first", [&] { static_cast<void>(gather.enqueue(nothing, stream)); });
    refused("needs init to be called first", [&] { static_cast<void>(stream.record()); });
    fabric.init();
    refused("init must be called once", [&] { fabric.init(); });
    fabric.close();
  }));
  for (const std::string& text : wrong) CHECK(text == "");
  check_no_error(errors_of(ranks, 2, [](auto& fabric) { fabric.close(); }));
  check_no_error(errors_of(ranks, 2, [](auto& /*fabric*/) {}));
}

}  // namespace tide_test::fabric_suite
