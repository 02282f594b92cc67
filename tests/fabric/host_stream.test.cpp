// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include "support/host_ranks.hpp"
#include "support/raised.hpp"
#include "support/rank_errors.hpp"

#include <atomic>
#include <mutex>

using namespace tide_test;

namespace {

/// A cluster of one rank, made usable.
struct OneRank {
  tide::HostCluster cluster;
  tide::HostFabric& fabric = cluster.fabric(tide::Rank{0});
  explicit OneRank(tide::HostOptions options = {}) : cluster({1, 1}, std::move(options)) { fabric.init(); }
};

}  // namespace

TEST_CASE("HostStream: what is enqueued first is done first") {
  OneRank one;
  tide::HostStream stream = one.fabric.stream();
  std::vector<int> order;
  for (int i = 0; i < 2000; ++i) stream.run([&order, i] { order.push_back(i); });
  stream.synchronize();
  REQUIRE(order.size() == 2000);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("HostStream: only synchronize waits") {
  std::atomic<bool> go{false};
  std::atomic<bool> done{false};
  OneRank one;
  tide::HostStream stream = one.fabric.stream();
  stream.run([&] {
    while (!go) std::this_thread::yield();
    done = true;
  });
  const tide::Event event = stream.record();
  tide::HostStream other = one.fabric.stream();
  other.wait(event);
  const tide::Event later = other.record();
  CHECK(!event.ready());
  CHECK(!later.ready());
  CHECK(!done);
  go = true;
  later.synchronize();
  CHECK(done);
  CHECK(event.ready());
}

TEST_CASE("HostStream: streams run at the same time, and meet at events") {
  std::atomic<int> present{0};
  OneRank one;
  std::vector<tide::HostStream> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(one.fabric.stream());
  for (tide::HostStream& stream : streams) {
    stream.run([&] {
      ++present;
      while (present < 6) std::this_thread::yield();
    });
  }
  for (tide::HostStream& stream : streams) stream.synchronize();
  std::vector<int> numbers;  // written by all streams in turn, ordered by events alone
  for (int i = 0; i < 600; ++i) {
    tide::HostStream& stream = streams[static_cast<std::size_t>(i % 6)];
    if (i > 0) stream.wait(streams[static_cast<std::size_t>((i - 1) % 6)].record());
    stream.run([&numbers, i] { numbers.push_back(i); });
  }
  streams[5].synchronize();
  REQUIRE(numbers.size() == 600);
  CHECK(std::is_sorted(numbers.begin(), numbers.end()));
}

TEST_CASE("HostStream: copies of a handle name the same stream") {
  OneRank one;
  tide::HostStream stream = one.fabric.stream();
  tide::HostStream copy = stream;
  int value = 0;
  stream.run([&] { value = 1; });
  copy.run([&] { value *= 10; });
  stream.run([&] { value += 1; });
  copy.synchronize();
  CHECK(value == 11);
}

TEST_CASE("HostStream: a thousand waits are woken, whoever is faster") {
  OneRank one;
  tide::HostStream ping = one.fabric.stream();
  tide::HostStream pong = one.fabric.stream();
  int value = 0;
  for (int i = 0; i < 1000; ++i) {
    ping.run([&] { ++value; });
    pong.wait(ping.record());
    pong.run([&] { ++value; });
    ping.wait(pong.record());
    if (i % 7 == 0) pong.synchronize();
  }
  ping.synchronize();
  CHECK(value == 2000);
}

TEST_CASE("HostStream: a full queue makes the host wait for room") {
  std::atomic<int> done{0};
  OneRank one;
  tide::HostStream stream = one.fabric.stream();
  HostRanks::occupy(stream, 20ms);
  for (int i = 0; i < 3000; ++i) stream.run([&] { ++done; });
  CHECK(done >= 3000 - 512);
  stream.synchronize();
  CHECK(done == 3000);
}

TEST_CASE("HostStream: a queue that stays full is an error at the deadline") {
  std::atomic<bool> go{false};
  OneRank one({.deadline = 50ms});
  tide::HostStream stream = one.fabric.stream();
  stream.run([&] {
    while (!go) std::this_thread::yield();
  });
  const auto fill = [&] {
    for (int i = 0; i < 3000; ++i) stream.run([] {});
  };
  const std::string expected =
      "tide::HostFabric: the deadline of 0.050 s passed: rank 0 waits for room in a queue; no op waits: a function on "
      "a "
      "stream, or an op, takes longer.";
  CHECK(text_of(fill) == expected);
  go = true;
  CHECK(text_of([&] { one.fabric.close(); }) == expected);
}

TEST_CASE("HostStream: a failure of another rank ends the wait for room, whatever is in progress") {
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> enqueued{0};
    std::atomic<bool> told{false};
    std::atomic<bool> told_meanwhile{false};
    const std::vector<std::string> texts = errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
      fabric.init();
      tide::HostStream stream = fabric.stream();
      if (fabric.rank().value == 1) {
        while (enqueued < 512) std::this_thread::yield();
        for (int i = 0; i < round * 2000; ++i) std::this_thread::yield();
        stream.run([] { throw std::runtime_error("gone"); });
        stream.synchronize();
      }
      stream.run([&] {
        const auto late = std::chrono::steady_clock::now() + 50s;  // before the deadline
        while (!told && std::chrono::steady_clock::now() < late) std::this_thread::sleep_for(1ms);
        told_meanwhile = told.load();
      });
      const auto fill = [&] {
        for (;;) {
          ++enqueued;
          stream.run([] {});
        }
      };
      const std::string text = text_of(fill);
      told = true;
      CHECK(text_of([&] { fabric.close(); }) == text);
      throw tide::Error(tide::Errc::operation, text);
    });
    check_same_error(texts, {"tide::HostStream: a function on a stream threw; rank 1, stream 0: gone"});
    CHECK(told_meanwhile);
  }
}

TEST_CASE("HostStream: what a function throws fails the fabric, and later functions do not run") {
  for (const bool standard : {true, false}) {
    OneRank one;
    static_cast<void>(one.fabric.stream());
    tide::HostStream stream = one.fabric.stream();
    std::atomic<bool> ran{false};
    std::atomic<bool> go{false};  // both functions are queued before the first one throws
    stream.run([standard, &go] {
      while (!go) std::this_thread::yield();
      if (standard) throw std::runtime_error("out of luck");
      throw 42;
    });
    stream.run([&] { ran = true; });
    go = true;
    const std::string expected =
        standard
            ? "tide::HostStream: a function on a stream threw; rank 0, stream 1: out of luck"
            : "tide::HostStream: a function on a stream threw; rank 0, stream 1: something that is no std::exception.";
    CHECK(text_of([&] { stream.synchronize(); }) == expected);
    CHECK(text_of([&] { stream.run([] {}); }) == expected);
    CHECK(text_of([&] { one.fabric.close(); }) == expected);
    CHECK(!ran);
  }
}

TEST_CASE("HostStream: a function that never ends is an error at the deadline, not a hang") {
  std::atomic<bool> go{false};
  OneRank one({.deadline = 50ms});
  tide::HostStream stream = one.fabric.stream();
  stream.run([&] {
    while (!go) std::this_thread::yield();
  });
  CHECK(text_of([&] { stream.synchronize(); }) ==
        "tide::HostFabric: the deadline of 0.050 s passed: rank 0 waits for an event; no op waits: a function on a "
        "stream, "
        "or an op, takes longer.");
  go = true;
}

TEST_CASE("HostStream: a function may use what is thread-safe, and is told when it may not close") {
  OneRank one;
  tide::HostStream stream = one.fabric.stream();
  tide::HostStream other = one.fabric.stream();
  std::string text;
  int value = 0;
  stream.run([&] {
    other.run([&] { value = 1; });
    text = text_of([&] { one.fabric.close(); });
  });
  stream.synchronize();
  other.synchronize();
  CHECK(value == 1);
  CHECK(text == "tide::HostFabric: close must not be called by a function on a stream.");
  one.fabric.close();
}

TEST_CASE("HostStream: an event of another rank is refused") {
  HostRanks ranks;
  std::vector<tide::Event> events(2);
  std::atomic<int> recorded{0};
  const auto texts = errors_of(ranks, 2, [&](tide::HostFabric& fabric) {
    fabric.init();
    tide::HostStream stream = fabric.stream();
    events[static_cast<std::size_t>(fabric.rank().value)] = stream.record();
    ++recorded;
    while (recorded < 2) std::this_thread::yield();
    stream.wait(tide::Event{});  // nothing to wait for
    stream.wait(events[static_cast<std::size_t>(1 - fabric.rank().value)]);
  });
  check_same_error(texts, {"tide::Fabric: an event can be waited for on its own rank only."});
}

TEST_CASE("HostStream: a merged rank has one queue, and its streams are that queue") {
  OneRank one({.lanes = tide::HostLanes::merged});
  tide::HostStream stream = one.fabric.stream();
  tide::HostStream other = one.fabric.stream();
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) (i % 2 == 0 ? stream : other).run([&order, i] { order.push_back(i); });
  other.wait(stream.record());
  other.synchronize();
  REQUIRE(order.size() == 100);
  CHECK(std::is_sorted(order.begin(), order.end()));
}
