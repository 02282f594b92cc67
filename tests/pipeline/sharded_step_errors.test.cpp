// SPDX-License-Identifier: Apache-2.0
//
// timeout: 240
//
// ShardedStep, when it is used wrongly or when a rank fails: one named error for all ranks, nothing hangs, and what was
// only refused can be done right afterwards.

#include <doctest/doctest.h>
#include <tide/pipeline/sharded_step.hpp>

#include "support/raised.hpp"
#include "support/rank_errors.hpp"
#include "support/sanitizer.hpp"
#include "support/step_training.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

namespace {

namespace step_errors_test {

using namespace tide_test;
using step::Oracle;
using step::Recipe;
using PlainStep = step::Step<tide::SlotReuse>;
using WideStep = step::Step<tide::SlotReuse, step::Add, tide::Prefetch<3>, tide::Depth<9>, tide::Buffers<3>>;

constexpr index_t ranks = 3;

/// Makes a call that all ranks, or only one of them, get wrong; trains afterwards. Returns what each rank was told.
template <class S, class Wrong>
std::vector<std::string> told(index_t who, const Wrong& wrong) {
  const Recipe recipe{.ranks = ranks, .steps = 2};
  const Oracle oracle = step::oracle_of(recipe);
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::string> verdicts(static_cast<std::size_t>(ranks));
  std::atomic<bool> refused{who < 0};
  tide::HostCluster cluster({1, ranks});
  cluster.run([&](tide::HostFabric& fabric) {
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    S sharded(fabric);
    step::StepRank<S, step::Names> own(fabric, sharded, oracle, recipe, fabric.rank().value);
    fabric.init();
    own.load();
    tide::HostStream stream = fabric.stream();
    if (who < 0 || who == fabric.rank().value) {
      texts[rank] = text_of([&] { wrong(sharded, stream); });
      refused = true;
    } else {
      while (!refused) std::this_thread::yield();  // had they begun the call, the fabric would have to fail
      texts[rank] = text_of([&] { sharded.start(); });
    }
    for (int i = 0; i < recipe.steps; ++i) own.train(i);
    own.synchronize();
    verdicts[rank] = own.verdict();
    fabric.close();
  });
  check_no_error(verdicts);
  return texts;
}

template <class S, class Wrong>
void check_refused(const std::vector<std::string>& words, const Wrong& wrong) {
  check_same_error(told<S>(-1, wrong), words);
  for (index_t who = 0; who < ranks; ++who) {
    CAPTURE(who);
    check_same_error(told<S>(who, wrong), words);
  }
}

/// What ranks that train raise.
std::vector<std::string> errors_of_training(const tide::HostOptions& options, int steps) {
  const Recipe recipe{.ranks = ranks, .steps = steps};
  const Oracle oracle = step::oracle_of(recipe);
  return step::train<PlainStep>(recipe, oracle, options);
}

struct Place {
  std::string label;
  index_t seq;
  auto operator<=>(const Place&) const = default;
};

/// Where the ops of the plans of a step are, on one rank.
std::set<Place> ops_of(index_t rank) {
  std::set<Place> ops;
  std::mutex mutex;
  tide::HostOptions options;
  options.hook = [&](const tide::HostHookPoint& point) -> std::optional<std::string> {
    const std::lock_guard lock(mutex);
    if (point.rank.value == rank && point.run == 1) ops.insert({std::string(point.label), point.seq});
    return std::nullopt;
  };
  check_no_error(errors_of_training(options, 3));
  return ops;
}

bool is_at(const tide::HostHookPoint& point, index_t rank, const Place& place) {
  return point.rank.value == rank && point.label == place.label && point.run == 1 && point.seq == place.seq;
}

}  // namespace step_errors_test

}  // namespace

TEST_CASE("ShardedStep: calls out of order are refused on all ranks, and the right ones may follow") {
  using namespace step_errors_test;
  check_refused<PlainStep>(
      {"tide::ShardedStep: groups must be asked for in the order of the model, and backwards; ",
       "forward of group 1 of 'blocks' was called on rank ", " where forward of group 0 of 'embedding' is due."},
      [](auto& step, auto& stream) { static_cast<void>(step.template forward<"blocks">(stream, 1)); });
  check_refused<PlainStep>({"tide::ShardedStep: groups must be asked for", "backward of group 0 of 'head' was called"},
                           [](auto& step, auto& stream) { static_cast<void>(step.template backward<"head">(stream)); });
  check_refused<PlainStep>({"tide::ShardedStep: gradients must be complete before they are used; update was called"},
                           [](auto& step, auto& stream) { step.update(stream, [](auto) {}); });
  check_refused<PlainStep>({"tide::ShardedStep: gradients must be complete before they are used; inspect was called"},
                           [](auto& step, auto& stream) { step.inspect(stream, [](auto) {}); });
  check_refused<PlainStep>(
      {"tide::ShardedStep: a part has groups 0 to Repeat - 1; 'blocks' has 4, number 4 was asked for."},
      [](auto& step, auto& stream) { static_cast<void>(step.template forward<"blocks">(stream, 4)); });
  check_refused<PlainStep>({"tide::ShardedStep: Pass::accumulate needs a Reducer that accumulates; "},
                           [](auto& step, auto&) { step.start(tide::Pass::accumulate); });
}

TEST_CASE("ShardedStep: what load and the others call for a group may not call the step, which would not wait for it") {
  using namespace step_errors_test;
  const std::vector<std::string> words{
      "tide::ShardedStep: a function that load, save, inspect or update calls must not call the step; it was called "
      "for group 0 of 'embedding'."};
  check_refused<PlainStep>(words, [](auto& step, auto& stream) { step.load(stream, [&](auto) { step.start(); }); });
  check_refused<PlainStep>(words, [](auto& step, auto& stream) {
    step.save(stream, [&](auto) { static_cast<void>(step.template forward<"embedding">(stream)); });
  });
  check_refused<PlainStep>(
      words, [](auto& step, auto& stream) { step.save(stream, [&](auto) { step.load(stream, [](auto) {}); }); });
}

TEST_CASE("ShardedStep: within a pass nothing else is done, and handles are ended once") {
  using namespace step_errors_test;
  std::vector<std::vector<std::string>> texts(static_cast<std::size_t>(ranks));
  tide::HostCluster cluster({1, ranks});
  cluster.run([&](tide::HostFabric& fabric) {
    std::vector<std::string>& own = texts[static_cast<std::size_t>(fabric.rank().value)];
    WideStep step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    step.load(stream, [&](auto) {});
    auto embedding = step.forward<"embedding">(stream);
    own.push_back(text_of([&] { step.start(); }));
    own.push_back(text_of([&] { step.load(stream, [](auto) {}); }));
    embedding.release();
    own.push_back(text_of([&] { embedding.release(); }));
    for (index_t i = 0; i < 4; ++i) step.forward<"blocks">(stream, i).release();
    step.forward<"adapter">(stream).release();
    auto head = step.forward<"head">(stream);
    own.push_back(text_of([&] { static_cast<void>(step.backward<"head">(stream)); }));
    head.release();
    auto head_back = step.backward<"head">(stream);
    tide::GradientTable<step::Head> table{step::Head(step::AnyMesh(1, ranks))};
    own.push_back(text_of([&] { head_back.reduce(table); }));  // nothing is set: refused, and the handle goes on
    table.missing<"weight">();
    head_back.reduce(table);
    own.push_back(text_of([&] { head_back.reduce(); }));
    step.backward<"adapter">(stream).release();
    auto last = step.backward<"blocks">(stream, 3);
    last.all_missing();
    auto before = step.backward<"blocks">(stream, 2);
    before.all_missing();
    auto third = step.backward<"blocks">(stream, 1);
    third.all_missing();
    own.push_back(text_of([&] { static_cast<void>(step.backward<"blocks">(stream, 0)); }));
    last.reduce();
    before.reduce();
    third.reduce();
    auto first = step.backward<"blocks">(stream, 0);
    first.all_missing();
    first.reduce();
    auto end = step.backward<"embedding">(stream);
    end.all_missing();
    end.reduce();
    step.update(stream, [&](auto group) {
      stream.run([=] {
        group.for_each([](const tide::Parameter&, std::span<float>, std::span<float> reduced) {
          for (const float value : reduced) {
            if (value != 0) throw std::runtime_error("no gradient, and yet a sum");
          }
        });
      });
    });
    stream.synchronize();
    fabric.close();
  });
  for (const auto& own : texts) CHECK(own == texts[0]);
  const char* expected[] = {
      "tide::ShardedStep: a pass must be ended before another thing is done; start was called where forward of group 0 "
      "of 'blocks' is due.",
      "tide::ShardedStep: a pass must be ended before another thing is done; load was called where forward of group 0 "
      "of "
      "'blocks' is due.",
      "tide::ShardedStep: a handle must not be used after it is released or reduced; group 0 of "
      "'embedding'.",
      "tide::ShardedStep: a group must be released before its backward; group 0 of 'head' was not.",
      "tide::GradientTable: a gradient must be set or declared missing;",
      "tide::ShardedStep: a handle must not be used after it is released or reduced; group 0 of 'head'.",
      "tide::ShardedStep: a group must be reduced before another gets its gradient memory; Buffers is 3."};
  REQUIRE(texts[0].size() == std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    CAPTURE(texts[0][i]);
    CHECK(texts[0][i].find(expected[i]) == 0);
  }
}

TEST_CASE("ShardedStep: a backward of a pass that evaluates is refused, and the pass goes on") {
  using namespace step_errors_test;
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  tide::HostCluster cluster({1, ranks});
  cluster.run([&](tide::HostFabric& fabric) {
    PlainStep step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    step.load(stream, [](auto) {});
    step.start(tide::Pass::evaluate);
    step.forward<"embedding">(stream).release();
    texts[static_cast<std::size_t>(fabric.rank().value)] =
        text_of([&] { static_cast<void>(step.backward<"head">(stream)); });
    for (index_t i = 0; i < PlainStep::repeat<"blocks">; ++i) step.forward<"blocks">(stream, i).release();
    step.forward<"adapter">(stream).release();
    step.forward<"head">(stream).release();
    step.forward<"embedding">(stream).release();
    stream.synchronize();
    fabric.close();
  });
  check_same_error(texts, {"tide::ShardedStep: groups must be asked for in the order of the model, and backwards; "
                           "backward of group 0 of 'head' was called on rank ",
                           " in or after a pass that only evaluates, where forward of group 0 of 'blocks' is due."});
}

TEST_CASE("ShardedStep: more live groups than slots are refused, never given the same memory") {
  using namespace step_errors_test;
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  tide::HostCluster cluster({1, ranks});
  cluster.run([&](tide::HostFabric& fabric) {
    PlainStep step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    step.load(stream, [&](auto) {});
    step.forward<"embedding">(stream).release();
    auto first = step.forward<"blocks">(stream, 0);
    texts[static_cast<std::size_t>(fabric.rank().value)] =
        text_of([&] { static_cast<void>(step.forward<"blocks">(stream, 1)); });
    first.release();
    step.forward<"blocks">(stream, 1).release();
    stream.synchronize();
    fabric.close();
  });
  check_same_error(texts, {"tide::ShardedStep: a group must be released before another is gathered; forward of group 1 "
                           "of 'blocks' needs 4 slots with those that are held, there are 3; the handle of "
                           "group 0 of 'blocks' lives."});
}

TEST_CASE("ShardedStep: a handle that a function on a stream asks too late is an error, not an old gradient") {
  using namespace step_errors_test;
  std::vector<std::string> texts(1);
  tide::HostCluster cluster({1, 1});
  texts[0] = text_of([&] {
    cluster.run([&](tide::HostFabric& fabric) {
      PlainStep step(fabric);
      fabric.init();
      tide::HostStream stream = fabric.stream();
      step.load(stream, [](auto) {});
      step.forward<"embedding">(stream).release();
      for (index_t i = 0; i < PlainStep::repeat<"blocks">; ++i) step.forward<"blocks">(stream, i).release();
      step.forward<"adapter">(stream).release();
      step.forward<"head">(stream).release();
      std::atomic<bool> reduced{false};
      auto head = step.backward<"head">(stream);
      stream.run([&] {
        while (!reduced) std::this_thread::yield();
        head.all_missing();
      });
      head.reduce();
      reduced = true;
      stream.synchronize();
    });
  });
  CHECK(
      texts[0] ==
      "tide::HostStream: a function on a stream threw; rank 0, stream 2: tide::ShardedStep: a handle must not be used "
      "after it is released or reduced; group 0 of 'head'.");
}

TEST_CASE("ShardedStep: ranks that are in unlike passes, or of which one leaves out an update, are told so") {
  using namespace step_errors_test;
  // @param kind  0: the odd rank begins another pass; 1: it leaves out the update
  const auto training = [](tide::HostFabric& fabric, bool odd, int kind) {
    WideStep step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    step.load(stream, [](auto) {});
    const auto pass = [&](tide::Pass which) {
      step.start(which);
      step::with_all_groups<WideStep>(
          step::Names{}, [&]<tide::FixedString Name>(index_t i) { step.forward<Name>(stream, i).release(); });
      step::with_all_groups_backwards<WideStep>(step::Names{}, [&]<tide::FixedString Name>(index_t i) {
        auto group = step.backward<Name>(stream, i);
        if constexpr (requires { group.reduce(); }) {
          group.all_missing();
          group.reduce();
        } else {
          group.release();
        }
      });
    };
    pass(kind == 0 && odd ? tide::Pass::last : tide::Pass::accumulate);
    pass(tide::Pass::last);
    if (kind == 0 || !odd) step.update(stream, [](auto) {});
    pass(tide::Pass::last);
    fabric.close();
  };
  for (const index_t odd : {0, 2}) {
    for (const int kind : {0, 1}) {
      CAPTURE(kind);
      const auto texts = errors_of(
          HostRanks{}, ranks, [&](tide::HostFabric& fabric) { training(fabric, fabric.rank().value == odd, kind); });
      if (kind == 0) {
        check_same_error(texts,
                         {"all ranks must make the same calls in the same order; call ",
                          "in Pass::last after update 0, on rank ", "in Pass::accumulate after update 0, on rank "});
      } else {
        check_same_error(texts, {"all ranks must make the same calls in the same order; call ",
                                 "in Pass::last after update 0, on rank ", "in Pass::last after update 1, on rank "});
      }
    }
  }
}

TEST_CASE("ShardedStep: a stream of another rank is refused on all, in every call that takes one") {
  using namespace step_errors_test;
  constexpr int calls = 3;
  std::vector<std::vector<std::string>> texts(2, std::vector<std::string>(calls));
  std::atomic<const tide::HostStream*> foreign{nullptr};
  std::atomic<int> refused{0};
  std::atomic<int> heard{0};
  tide::HostCluster cluster({1, 2});
  cluster.run([&](tide::HostFabric& fabric) {
    PlainStep step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    const bool odd = fabric.rank().value == 1;
    if (!odd) foreign = &stream;
    while (foreign == nullptr) std::this_thread::yield();
    for (int call = 0; call < calls; ++call) {
      tide::HostStream other = *foreign.load();
      std::string& text = texts[static_cast<std::size_t>(fabric.rank().value)][static_cast<std::size_t>(call)];
      if (odd) {
        text = text_of([&] {
          if (call == 0) step.load(other, [](auto) {});
          if (call == 1) step.save(other, [](auto) {});
          if (call == 2) static_cast<void>(step.forward<"embedding">(other));
        });
        ++refused;
      } else {
        while (refused <= call) std::this_thread::yield();  // had it begun the call, the fabric would have to fail
        text = text_of([&] { step.start(); });
      }
      ++heard;
      while (heard < 2 * (call + 1)) std::this_thread::yield();
    }
    step.forward<"embedding">(stream).release();
    stream.synchronize();
    fabric.close();
  });
  for (std::size_t call = 0; call < calls; ++call) {
    CAPTURE(call);
    check_same_error({texts[0][call], texts[1][call]},
                     {"tide::ShardedStep: a stream must be of the rank's own fabric; the call on rank 1 "});
  }
}

TEST_CASE("ShardedStep: a stream of the rank's replicas is its own") {
  using namespace step_errors_test;
  using Averaged = step::Step<step::SmallRing, tide::CopyEngineReducer<>, tide::Replicated<>>;
  tide::HostReplicas cluster({1, 1}, {1, 2});
  std::atomic<int> done{0};
  cluster.run([&](tide::HostFabric& fabric, tide::HostFabric& replicas) {
    Averaged step(fabric, replicas);
    fabric.init();
    replicas.init();
    tide::HostStream stream = replicas.stream();
    step.load(stream, [](auto) {});
    step.forward<"embedding">(stream).release();
    stream.synchronize();
    fabric.close();
    replicas.close();
    ++done;
  });
  CHECK(done == 2);
}

TEST_CASE("ShardedStep: a handle that is dropped stops the step") {
  using namespace step_errors_test;
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  tide::HostCluster cluster({1, ranks});
  cluster.run([&](tide::HostFabric& fabric) {
    PlainStep step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    { const auto dropped = step.forward<"embedding">(stream); }
    texts[static_cast<std::size_t>(fabric.rank().value)] =
        text_of([&] { static_cast<void>(step.forward<"blocks">(stream)); });
    stream.synchronize();
    fabric.close();
  });
  check_same_error(texts,
                   {"tide::ShardedStep: a group must be released or reduced before its handle is destroyed; group "
                    "0 of 'embedding' was not."});
}

TEST_CASE("ShardedStep: an op of a step that fails, whichever it is, is named by all ranks") {
  using namespace step_errors_test;
  const auto ops = ops_of(1);
  REQUIRE(ops.size() > 60);
  for (const Place& place : ops) {
    if (sanitized && place.seq % 3 != 0) continue;
    CAPTURE(place.label);
    CAPTURE(place.seq);
    tide::HostOptions options;
    options.hook = [place](const tide::HostHookPoint& point) -> std::optional<std::string> {
      return is_at(point, 1, place) ? std::optional<std::string>("a test says so") : std::nullopt;
    };
    check_same_error(errors_of_training(options, 3), {"tide::HostFabric: " + place.label + ", step 1, rank 1, lane ",
                                                      ", op " + std::to_string(place.seq) + " (", "a test says so"});
  }
}

TEST_CASE(
    "ShardedStep: a rank that stops at an op of a step, whichever it is: the right result, or a deadline for all") {
  using namespace step_errors_test;
  constexpr std::chrono::milliseconds soon{sized(1000, 4000)};
  struct Case {
    Place place;
    bool for_ever;
    std::vector<std::string> texts{};
  };
  std::vector<Case> cases;
  for (const Place& place : ops_of(1)) {
    if (sanitized && place.seq % 3 != 0) continue;
    cases.push_back({place, true});
    cases.push_back({place, false});
  }
  const auto run = [&](Case& one) {
    tide::HostOptions options{.deadline = one.for_ever ? soon : std::chrono::seconds(60)};
    options.hook = [&one, soon](const tide::HostHookPoint& point) -> std::optional<std::string> {
      if (is_at(point, 1, one.place)) std::this_thread::sleep_for(one.for_ever ? 2 * soon : soon / 50);
      return std::nullopt;
    };
    one.texts = errors_of_training(options, 3);
  };
  constexpr std::size_t at_once = sanitized ? 8 : 16;  // clusters share nothing, and these do little but wait
  for (std::size_t first = 0; first < cases.size(); first += at_once) {
    std::vector<std::thread> threads;
    for (std::size_t i = first; i < std::min(first + at_once, cases.size()); ++i) {
      threads.emplace_back(run, std::ref(cases[i]));
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const Case& one : cases) {
    CAPTURE(one.place.label);
    CAPTURE(one.place.seq);
    if (one.for_ever) {
      check_same_error(one.texts, {"the deadline of ", " passed", "rank "});
    } else {
      check_no_error(one.texts);
    }
  }
}
