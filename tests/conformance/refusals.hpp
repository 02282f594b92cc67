// SPDX-License-Identifier: Apache-2.0
//
// What a call refuses: bad input on one rank, whichever, is the same error on all, changes nothing, and the next call
// works. One suite for every fabric; `Ranks` is described in support/host_ranks.hpp.

#pragma once

#include "conformance/fabric.hpp"

#include <atomic>
#include <functional>
#include <optional>

namespace tide_test::fabric_suite {

/// One rank's things for a bad call.
template <class Ranks>
struct Caller {
  using Fabric = typename Ranks::Fabric;
  using Stream = typename Ranks::Stream;
  using Pool = tide::SlotPool<tide::Depth<2>, Block>;

  Fabric& fabric;
  Block layout;
  Pool pool{fabric, layout};
  Pool other_pool{fabric, layout};
  BlockGather<Ranks> gather;
  BlockReduce<Ranks> reduce;
  Gather<Block> second;
  Gather<Block> third;
  typename Ranks::Memory memory{fabric, 4096};
  std::optional<Stream> stream{};

  Caller(Fabric& own, const Block& on, const CollectiveOracle& oracle)
      : fabric(own),
        layout(on),
        gather(own, pool, on, oracle, "the block"),
        reduce(own, on, oracle, "the block"),
        second(own, pool, on, "the second"),
        third(own, pool, on, "the third") {}

  [[nodiscard]] tide::Rank rank() const { return fabric.rank(); }
  [[nodiscard]] auto shards_at(std::byte* data, tide::Rank of) const {
    return tide::ShardsView<Block, tide::Buffer::shards>(data, layout, of);
  }
  [[nodiscard]] auto masters_at(std::byte* data, tide::Rank of) const {
    return tide::ShardsView<Block, tide::Buffer::masters>(data, layout, of);
  }
};

/// `bad` on one rank, then `good` on the others, for each rank in turn: one error of that code, with these words and
/// that rank's number, on all; then a gather and reduces that work.
template <class Ranks>
void refused(const Ranks& ranks, tide::Errc code, const std::vector<std::string>& words,
             const std::function<void(Caller<Ranks>&)>& bad, const std::function<void(Caller<Ranks>&)>& good,
             bool w_stays_missing = false) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  for (index_t odd = 0; odd < n; ++odd) {
    CAPTURE(odd);
    std::vector<std::string> texts(n);
    std::vector<std::string> wrong(n);
    std::atomic<bool> has_refused{false};
    check_no_error(errors_of(ranks, n, [&](auto& fabric) {
      Caller<Ranks> caller(fabric, layout, oracle);
      fabric.init();
      caller.stream.emplace(fabric.stream());
      poison_slots<Ranks>(caller.pool, *caller.stream);
      caller.gather.step(caller.pool, Source::shards, 1, *caller.stream);
      const auto rank = static_cast<std::size_t>(fabric.rank().value);
      const bool is_odd = fabric.rank().value == odd;
      while (!is_odd && !has_refused) let_others_go_on(fabric);
      try {
        (is_odd ? bad : good)(caller);
      } catch (const tide::Error& error) {
        texts[rank] = error.what();
        if (error.code() != code) texts[rank] += " [another code]";
      }
      if (is_odd) has_refused = true;
      caller.gather.step(caller.pool, Source::masters, 2, *caller.stream);
      const Missing missing = [&](index_t r, std::size_t p) { return w_stays_missing && r == odd && p == 0; };
      caller.reduce.read(caller.reduce.start(From::storage, 3, *caller.stream), 3, *caller.stream, missing);
      caller.reduce.step(From::table, 4, *caller.stream);
      fabric.close();
      wrong[rank] = caller.gather.verdict() + caller.reduce.verdict();
    }));
    std::vector<std::string> all = words;
    all.push_back("on rank " + std::to_string(odd));
    check_same_error(texts, all);
    for (const std::string& text : wrong) CHECK(text == "");
  }
}

/// Arguments of a gather.
template <class Ranks>
void bad_gathers(const Ranks& ranks) {
  using C = Caller<Ranks>;
  const auto good = [](C& c) { static_cast<void>(c.gather.pipeline().enqueue(c.gather.shards(), *c.stream)); };
  const auto from = [&](auto make) {
    return [make](C& c) { static_cast<void>(c.gather.pipeline().enqueue(make(c), *c.stream)); };
  };
  const std::string name = "gather of 'the block' (2 parameters)";
  const tide::Errc argument = tide::Errc::argument;
  refused<Ranks>(ranks, argument, {"tide::ShardsView: shards must not be null; parameter 'w'", name},
                 from([](C& c) { return c.shards_at(nullptr, c.rank()); }), good);
  refused<Ranks>(ranks, argument, {"tide::ShardsView: shards must not be null; parameter 'w'", name},
                 from([](C& c) { return c.masters_at(nullptr, c.rank()); }), good);
  refused<Ranks>(ranks, argument, {"tide::ShardsView: shards must be aligned to their elements; parameter 'w'", name},
                 from([](C& c) { return c.shards_at(c.memory.data() + 1, c.rank()); }), good);
  refused<Ranks>(ranks, argument, {"tide::ShardsView: shards must be aligned to their elements; parameter 'w'", name},
                 from([](C& c) { return c.masters_at(c.memory.data() + 2, c.rank()); }), good);
  refused<Ranks>(ranks, argument,
                 {"tide::ShardsView: shards must be those of the own rank; ", name, "got those of rank"},
                 from([](C& c) { return c.shards_at(c.memory.data(), tide::Rank{(c.rank().value + 1) % 3}); }), good);
}

/// Gathers in place.
template <class Ranks>
void bad_gathers_in_place(const Ranks& ranks) {
  using C = Caller<Ranks>;
  const std::string name = "gather of 'the block' (2 parameters)";
  const auto good = [](C& c) {
    static_cast<void>(c.gather.pipeline().own_block(c.pool.acquire(*c.stream)));
    static_cast<void>(c.gather.pipeline().enqueue(tide::in_place, *c.stream));
  };
  refused<Ranks>(
      ranks, tide::Errc::order, {"tide::AllGather: own_block must be called before a gather in place; ", name},
      [](C& c) { static_cast<void>(c.gather.pipeline().enqueue(tide::in_place, *c.stream)); }, good);
  refused<Ranks>(
      ranks, tide::Errc::argument, {"tide::AllGather: the slot must be one that the pool of the pipeline gave", name},
      [](C& c) { static_cast<void>(c.gather.pipeline().own_block(c.other_pool.acquire(*c.stream))); }, good);
  refused<Ranks>(
      ranks, tide::Errc::argument, {"tide::AllGather: the slot must be one that the pool of the pipeline gave", name},
      [](C& c) {
        tide::SlotLease slot = c.pool.acquire(*c.stream);
        const tide::SlotLease taken = std::move(slot);
        static_cast<void>(c.gather.pipeline().own_block(std::move(slot)));
      },
      good);
}

/// Arguments of a reduce.
template <class Ranks>
void bad_reduces(const Ranks& ranks) {
  using C = Caller<Ranks>;
  using tide::ParameterIndex;
  const auto good = [](C& c) {
    static_cast<void>(c.reduce.pipeline().enqueue(c.reduce.storage(), c.reduce.output(), *c.stream));
  };
  const auto into = [&](auto make) {
    return [make](C& c) { static_cast<void>(c.reduce.pipeline().enqueue(c.reduce.storage(), make(c), *c.stream)); };
  };
  const auto table = [&](auto set) {
    return [set](C& c) {
      set(c.reduce.table(), c.memory.data());
      static_cast<void>(c.reduce.pipeline().enqueue(c.reduce.table(), c.reduce.output(), *c.stream));
    };
  };
  const std::string name = "reduce of 'the block' (2 parameters)";
  const tide::Errc argument = tide::Errc::argument;
  refused<Ranks>(ranks, argument, {"tide::ShardsView: shards must not be null; parameter 'w'", name},
                 into([](C& c) { return c.masters_at(nullptr, c.rank()); }), good);
  refused<Ranks>(ranks, argument, {"tide::ShardsView: shards must be aligned to their elements; parameter 'w'", name},
                 into([](C& c) { return c.masters_at(c.memory.data() + 2, c.rank()); }), good);
  refused<Ranks>(ranks, argument, {"tide::ShardsView: shards must be those of the own rank; ", name},
                 into([](C& c) { return c.masters_at(c.memory.data(), tide::Rank{(c.rank().value + 2) % 3}); }), good);
  refused<Ranks>(ranks, argument,
                 {"tide::GradientTable: a gradient must be set or declared missing; parameter 'w'", name},
                 table([](auto& gradients, std::byte* data) { gradients.set(ParameterIndex{1}, data); }), good);
  refused<Ranks>(ranks, argument,
                 {"tide::GradientTable: gradients must be aligned to their elements; parameter 'b'", name},
                 table([](auto& gradients, std::byte* data) {
                   gradients.missing(ParameterIndex{0});
                   gradients.set(ParameterIndex{1}, data + 1);
                 }),
                 good);
  refused<Ranks>(ranks, argument, {"tide::GradientTable: gradients must not overlap; 'b' and parameter 'w'", name},
                 table([](auto& gradients, std::byte* data) {
                   gradients.set(ParameterIndex{0}, data + 12);  // 'b' has 14 bytes
                   gradients.set(ParameterIndex{1}, data);
                 }),
                 good);
}

/// Slots: a second gather while a handle lives, more groups than slots. The handles are as good afterwards as before.
template <class Ranks>
void too_many_handles(const Ranks& ranks) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> twice(n), more(n), wrong(n);
  check_no_error(errors_of(ranks, n, [&](auto& fabric) {
    Caller<Ranks> c(fabric, layout, oracle);
    fabric.init();
    c.stream.emplace(fabric.stream());
    poison_slots<Ranks>(c.pool, *c.stream);
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    auto params = c.gather.start(c.pool, Source::shards, 1, *c.stream);
    try {
      static_cast<void>(c.gather.pipeline().enqueue(c.gather.shards(), *c.stream));
    } catch (const tide::Error& error) {
      twice[rank] = error.what();
    }
    auto other = c.second.enqueue(c.gather.shards(), *c.stream);
    try {
      static_cast<void>(c.third.enqueue(c.gather.shards(), *c.stream));
    } catch (const tide::Error& error) {
      more[rank] = error.what();
    }
    if (params.data() == other.data()) wrong[rank] += "two handles share a slot";
    c.gather.read(params, Source::shards, 1, *c.stream);
    params.release(*c.stream);
    auto last = c.third.enqueue(c.gather.shards(), *c.stream);
    other.release(*c.stream);
    last.release(*c.stream);
    try {
      last.release(*c.stream);
      wrong[rank] += "released twice";
    } catch (const tide::Error& error) {
      if (error.what() != std::string("tide::Gathered: a handle must be released once.")) wrong[rank] += error.what();
    }
    try {
      static_cast<void>(last.data());
      wrong[rank] += "read after release";
    } catch (const tide::Error& error) {
      if (error.what() != std::string("tide::Gathered: a handle must be read before it is released."))
        wrong[rank] += error.what();
    }
    fabric.close();
    wrong[rank] += c.gather.verdict();
  }));
  check_same_error(
      twice, {"tide::AllGather: the handle of a gather must be released before the next one; gather of 'the block'"});
  check_same_error(more, {"tide::SlotPool: a slot must be released before another group is gathered; all 2 are held."});
  for (const std::string& text : wrong) CHECK(text == "");
}

/// A handle that goes without release poisons its pool, whichever rank drops it; other pools are as before.
template <class Ranks>
void dropped_handle(const Ranks& ranks) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  for (index_t odd = 0; odd < n; ++odd) {
    CAPTURE(odd);
    std::vector<std::string> first(n), again(n), wrong(n);
    std::atomic<bool> has_refused{false};
    check_no_error(errors_of(ranks, n, [&](auto& fabric) {
      Caller<Ranks> c(fabric, layout, oracle);
      fabric.init();
      c.stream.emplace(fabric.stream());
      const auto rank = static_cast<std::size_t>(fabric.rank().value);
      {
        auto params = c.gather.start(c.pool, Source::shards, 1, *c.stream);
        auto moved = std::move(params);  // only the last owner counts
        if (fabric.rank().value != odd) moved.release(*c.stream);
      }
      while (fabric.rank().value != odd && !has_refused) let_others_go_on(fabric);
      for (auto* text : {&first[rank], &again[rank]}) {
        try {
          static_cast<void>(c.second.enqueue(c.gather.shards(), *c.stream));
        } catch (const tide::Error& error) {
          *text = error.what();
        }
      }
      has_refused = true;
      c.reduce.step(From::storage, 3, *c.stream);
      fabric.close();
      wrong[rank] = c.reduce.verdict();
    }));
    check_same_error(first,
                     {"tide::SlotPool: a handle must be released before it is destroyed; gather of 'the block'"});
    CHECK(again == first);
    for (const std::string& text : wrong) CHECK(text == "");
  }
}

/// Ranks that call different things, or the same in another order: one error for all, naming both.
template <class Ranks>
void different_calls(const Ranks& ranks) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  for (index_t odd = 0; odd < n; ++odd) {
    for (const bool swapped : {false, true}) {
      CAPTURE(odd);
      CAPTURE(swapped);
      const auto texts = errors_of(ranks, n, [&](auto& fabric) {
        Caller<Ranks> c(fabric, layout, oracle);
        fabric.init();
        c.stream.emplace(fabric.stream());
        auto& stream = *c.stream;
        c.gather.step(c.pool, Source::shards, 1, stream);
        if (fabric.rank().value == odd) {
          c.reduce.step(From::storage, 1, stream);
          if (swapped) c.second.enqueue(c.gather.shards(), stream).release(stream);
        } else {
          c.second.enqueue(c.gather.shards(), stream).release(stream);
          if (swapped) c.reduce.step(From::storage, 1, stream);
        }
        listen(fabric);
      });
      check_same_error(texts, {"all ranks must make the same calls in the same order; call 1 is ",
                               "gather of 'the second'", "reduce of 'the block'", "on rank " + std::to_string(odd)});
    }
  }
}

/// Input that is refused on one rank after another has begun the call fails the fabric, with that sentence on all
/// ranks.
template <class Ranks>
void refused_too_late(const Ranks& ranks) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  for (index_t odd = 0; odd < n; ++odd) {
    CAPTURE(odd);
    std::atomic<int> begun{0};
    std::vector<int> repeated(n, 0);
    const auto texts = errors_of(ranks, n, [&](auto& fabric) {
      Caller<Ranks> c(fabric, layout, oracle);
      fabric.init();
      c.stream.emplace(fabric.stream());
      auto& stream = *c.stream;
      try {
        if (fabric.rank().value == odd) {
          while (begun.load() < n - 1) let_others_go_on(fabric);
          static_cast<void>(c.gather.pipeline().enqueue(c.shards_at(nullptr, c.rank()), stream));
        } else {
          auto params = c.gather.start(c.pool, Source::shards, 1, stream);
          ++begun;
          params.release(stream);
          stream.synchronize();
        }
      } catch (const tide::Error& error) {
        try {
          static_cast<void>(c.reduce.start(From::storage, 1, stream));
        } catch (const tide::Error& next) {
          if (error.what() == std::string(next.what())) ++repeated[static_cast<std::size_t>(c.rank().value)];
        }
        throw;
      }
    });
    check_same_error(texts, {"tide::ShardsView: shards must not be null", "on rank " + std::to_string(odd)});
    CHECK(repeated == std::vector<int>(n, 1));
  }
}

/// The same, raced: whichever way it goes, all ranks say the same.
template <class Ranks>
void refusals_race(const Ranks& ranks, int times) {
  constexpr index_t n = 3;
  const Block layout = block_on(n);
  const CollectiveOracle oracle(layout.view());
  for (int i = 0; i < times; ++i) {
    CAPTURE(i);
    const auto texts = errors_of(ranks, n, [&](auto& fabric) {
      Caller<Ranks> c(fabric, layout, oracle);
      fabric.init();
      c.stream.emplace(fabric.stream());
      auto& stream = *c.stream;
      const auto rank = fabric.rank().value;
      if (rank == i % 3) {
        auto params = c.gather.start(c.pool, Source::shards, 1, stream);
        params.release(stream);
        stream.synchronize();
      } else {  // two ranks refuse, for different reasons
        std::byte* data = rank == (i + 1) % 3 ? nullptr : c.memory.data() + 1;
        static_cast<void>(c.gather.pipeline().enqueue(c.shards_at(data, c.rank()), stream));
      }
    });
    check_same_error(texts, {"tide::ShardsView: shards must"});
  }
}

}  // namespace tide_test::fabric_suite
