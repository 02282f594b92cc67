// SPDX-License-Identifier: Apache-2.0
//
// The network of a rank, stopped: by what has come, by its deadline, by a failure at whichever moment. A wake that is
// lost shows as a stop that takes its whole deadline.

#include <doctest/doctest.h>
#include <tide/fabric/detail/host_wires.hpp>

#include "support/prompt.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace host_wires_test {

using namespace std::chrono_literals;
using tide::Duration;
using tide::index_t;
using tide::detail::HostWires;
using tide_test::is_prompt;
using tide_test::patience;

const auto never = [] { return false; };

void send(HostWires& wires, std::int32_t to, Duration delay, std::function<void()> deliver) {
  REQUIRE(wires.send({nullptr, 0, to}, delay, {}, std::move(deliver)) == HostWires::Sent::on_its_way);
}

TEST_CASE("HostWires: stop waits for what is on its way, in order on each wire") {
  for (int i = 0; i < 200; ++i) {
    HostWires wires;
    std::vector<int> came;  // by one thread, which stop joins
    for (int n = 0; n < 8; ++n) send(wires, 0, n % 2 == 0 ? 300us : 0us, [&came, n] { came.push_back(n); });
    CHECK(is_prompt([&] { CHECK(wires.stop(patience, never) == 0); }));
    CHECK(came == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  }
}

TEST_CASE("HostWires: stop drops what has not come by the deadline, and says how much") {
  for (const Duration deadline : {Duration(0), Duration(5ms)}) {
    for (int i = 0; i < 50; ++i) {
      HostWires wires;
      for (std::int32_t to = 0; to < 3; ++to) send(wires, to, 1h, [] { FAIL_CHECK("it came"); });
      CHECK(is_prompt([&] { CHECK(wires.stop(deadline, never) == 3); }));
      CHECK(is_prompt([&] { CHECK(wires.stop(patience, never) == 0); }));  // again
    }
  }
}

TEST_CASE("HostWires: a failure just after stop has looked wakes it") {
  for (int i = 0; i < 300; ++i) {
    HostWires wires;
    send(wires, 0, 1h, [] { FAIL_CHECK("it came"); });
    std::atomic<bool> failed{false};
    std::atomic<bool> looked{false};
    std::thread other([&] {
      while (!looked) std::this_thread::yield();
      failed = true;
      wires.wake();
    });
    const auto look = [&] {
      const bool seen = failed;
      looked = true;
      // Half of the time the failure is there before the wait begins, and after it has been looked for.
      while (i % 2 == 0 && !failed) std::this_thread::yield();
      return seen;
    };
    CHECK(is_prompt([&] { CHECK(wires.stop(tide::detail::bounded(patience), look) == 1); }));
    other.join();
  }
}

TEST_CASE("HostWires: of many that stop at once, one failure wakes all; others deliver") {
  for (int i = 0; i < 50; ++i) {
    constexpr std::size_t ranks = 6;
    std::deque<HostWires> wires(ranks);
    std::atomic<bool> failed{false};
    std::atomic<int> came{0};
    std::atomic<index_t> left{0};
    for (std::size_t r = 0; r < ranks; ++r) {
      send(wires[r], 0, 0us, [&] { ++came; });
      if (r % 2 == 0) send(wires[r], 1, 1h, [] { FAIL_CHECK("it came"); });
    }
    while (came < static_cast<int>(ranks)) std::this_thread::yield();
    CHECK(is_prompt([&] {
      std::vector<std::thread> threads;
      for (HostWires& one : wires) {
        threads.emplace_back([&] { left += one.stop(patience, [&] { return failed.load(); }); });
      }
      for (int spins = 0; spins < i * 20; ++spins) std::this_thread::yield();
      failed = true;
      for (HostWires& one : wires) one.wake();
      for (std::thread& thread : threads) thread.join();
    }));
    CHECK(left == 3);
  }
}

TEST_CASE("HostWires: a failure while the last message is brought") {
  for (int i = 0; i < 200; ++i) {
    HostWires wires;
    std::atomic<bool> failed{false};
    std::atomic<bool> stops{false};
    send(wires, 0, 0us, [&] {
      while (i % 2 == 0 && !stops) std::this_thread::yield();
      failed = true;
      wires.wake();
    });
    stops = true;
    CHECK(is_prompt([&] { static_cast<void>(wires.stop(patience, [&] { return failed.load(); })); }));
  }
}

TEST_CASE("HostWires: what is sent after a stop, a second stop and the end drop") {
  for (const bool stopped : {false, true}) {
    CHECK(is_prompt([&] {
      HostWires wires;
      if (stopped) CHECK(wires.stop(patience, never) == 0);
      send(wires, 0, 1h, [] { FAIL_CHECK("it came"); });
    }));
  }
}

TEST_CASE("HostWires: the longest delay that there is does not come at once") {
  HostWires wires;
  send(wires, 0, Duration::max(), [] { FAIL_CHECK("it came"); });
  send(wires, 0, Duration::max(), [] { FAIL_CHECK("it came"); });
  CHECK(wires.stop(20ms, never) == 2);
}

}  // namespace host_wires_test
