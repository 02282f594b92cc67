// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/plan/op.hpp>
#include <tide/plan/virtual_time.hpp>

#include <string>
#include <vector>

namespace {

using tide::index_t;

// Ranks of which each copies once on each of its lanes, over one link; what began when, in words.
struct Copies {
  explicit Copies(std::size_t lanes, std::uint64_t seed = 0, std::size_t ranks = 1)
      : time(*this, machine, ranks, seed), left(ranks, std::vector<int>(lanes, 1)) {
    copy.width = 100;
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t l = 0; l < lanes; ++l) time.wake(0, r, time.add_lane(r));
    }
  }

  [[nodiscard]] std::string run() {
    while (time.next() != decltype(time)::never) {
      CHECK(time.next() >= last);
      last = time.next();
      time.step();
    }
    return began;
  }

  const tide::Op* head(double, std::uint32_t r, std::uint32_t l) { return left[r][l] > 0 ? &copy : nullptr; }
  static bool reached(std::uint32_t, std::uint32_t, const tide::Op&) { return true; }
  static std::int64_t key(std::uint32_t, std::uint32_t, const tide::Op&) { return 0; }
  double call_seconds(std::uint32_t, std::uint32_t, const tide::Op&) const { return machine.call_seconds; }
  template <class F>
  static void for_each_use(std::uint32_t r, std::uint32_t, const tide::Op& op, const F& f) {
    f(tide::Rank{r}, tide::Resource::egress, op.bytes());
  }
  void begin(double now, double end, std::uint32_t r, std::uint32_t l, const tide::Op&) {
    --left[r][l];
    began += std::to_string(static_cast<int>(now)) + ":" + std::to_string(l) + " ";
    busy += end - now;
  }
  void land(double, int) { ++landed; }

  tide::Machine machine{.link_rate = 100, .call_seconds = 1};
  tide::VirtualTime<Copies, int> time;
  tide::Op copy{};
  std::vector<std::vector<int>> left;
  std::string began;
  double busy = 0;
  double last = 0;
  int landed = 0;
};

}  // namespace

TEST_CASE("VirtualTime: of those that want a resource, what came first gets it, and it is never idle meanwhile") {
  Copies three(3);
  CHECK(three.run() == "1:0 2:1 3:2 ");  // after a call of a second each
  CHECK(three.busy == 3);
}

TEST_CASE("VirtualTime: a seed orders what happens at one time, always alike") {
  std::vector<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::string order = Copies(3, seed).run();
    CHECK(order == Copies(3, seed).run());
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
  }
  CHECK(orders.size() >= 4);  // of 6
}

TEST_CASE("VirtualTime: a lane that awaits a key is woken once, and what lands comes at its time") {
  Copies one(1);
  one.left[0][0] = 0;
  CHECK(one.run() == "");
  one.time.await(0, 0, 7);
  CHECK(one.time.awaits(0, 0));
  one.time.raised(5, 0, 8);
  CHECK(one.time.awaits(0, 0));
  one.left[0][0] = 1;
  one.time.raised(5, 0, 7);
  one.time.raised(5, 0, 7);
  one.time.land(9, 0);
  CHECK(one.run() == "6:0 ");
  CHECK(one.landed == 1);
  CHECK(one.last == 9);
}
