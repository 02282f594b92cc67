// SPDX-License-Identifier: Apache-2.0
// timeout: 240
//
// Ranks that close, or end, while what they have sent is on its way for an hour: by their deadline, or at once when
// another fails, at whichever moment. A wake that is lost shows as a case that takes the whole deadline.

#include <doctest/doctest.h>
#include <tide/fabric/host_replicas.hpp>
#include <tide/memory/shards.hpp>
#include <tide/pipeline/all_gather.hpp>

#include "conformance/lost_puts.hpp"
#include "support/prompt.hpp"
#include "support/raised.hpp"
#include "support/rank_errors.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace slow_network_test {

using namespace tide_test;
using namespace tide_test::lost_puts;

/// A gather of a rank, all of whose memory is the fabric's: nothing here waits at its end.
struct Gather {
  Gather(tide::HostFabric& fabric, const tide::DynamicLayout& layout)
      : pool(fabric, layout), shards(fabric, layout), gather(fabric, pool, layout, "slow") {}

  void step(tide::HostStream& stream) { gather.enqueue(shards, stream).release(stream); }

  tide::SlotPool<tide::Depth<1>, tide::DynamicLayout> pool;
  tide::Shards<tide::DynamicLayout> shards;
  tide::AllGather<tide::DynamicLayout, tide::UnicastTransport, tide::RdmaDoublingTransport<>> gather;
};

constexpr int rounds = sized(40, 15);

/// The ranks of `slow` have puts that take an hour.
tide::HostOptions slow_puts(const std::function<bool(index_t)>& slow, tide::Duration deadline = patience,
                            tide::HostLanes lanes = tide::HostLanes::separate) {
  tide::HostOptions options{.deadline = deadline, .lanes = lanes};
  options.network_hook = [slow](const tide::HostHookPoint& point) {
    const bool late = point.op.kind == tide::OpKind::put && slow(point.rank.value);
    return tide::HostDelivery{late ? tide::Duration(1h) : tide::Duration(0)};
  };
  return options;
}

bool waits_for_arrival(const tide::HostHookPoint& point) {
  return point.op.kind == tide::OpKind::wait &&
         tide::SignalWords{2}.describe(point.op.word()).find("arrived") == 0;  // of two ranks
}

/// What the ranks raise, each in `program(fabric, stream)` after it has enqueued a gather; then, where a rank throws
/// something else, that.
template <class Program>
std::vector<std::string> errors_of_gather(tide::MeshShape mesh, const tide::HostOptions& options,
                                          const Program& program) {
  const tide::DynamicLayout layout = layout_on(mesh);
  const auto n = static_cast<std::size_t>(mesh.ranks());
  std::vector<std::string> texts(n);
  tide::HostCluster cluster(mesh, options);
  std::vector<std::unique_ptr<Gather>> gathers(n);
  try {
    cluster.run([&](tide::HostFabric& fabric) {
      const auto r = static_cast<std::size_t>(fabric.rank().value);
      texts[r] = text_of([&] {
        gathers[r] = std::make_unique<Gather>(fabric, layout);
        fabric.init();
        tide::HostStream stream = fabric.stream();
        gathers[r]->step(stream);
        program(fabric, stream);
      });
    });
  } catch (const std::runtime_error& error) {
    texts.push_back(error.what());
  }
  return texts;
}

/// Some moment that differs from round to round.
void pass(int round) {
  for (int i = 0; i < round * round * 2; ++i) std::this_thread::yield();
}

TEST_CASE("a network that is slow: close waits for it no longer than the deadline, and says so") {
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    std::atomic<bool> closed{false};
    tide::HostOptions options = slow_puts([](index_t rank) { return rank == 0; }, deadline, lanes);
    // Rank 1, which would wait as long, begins to wait when rank 0 has given up.
    options.hook = [&](const tide::HostHookPoint& point) -> std::optional<std::string> {
      while (point.rank.value == 1 && waits_for_arrival(point) && !closed) std::this_thread::yield();
      return std::nullopt;
    };
    CHECK(is_prompt([&] {
      const std::vector<std::string> texts =
          errors_of_gather({2, 1}, options, [&](tide::HostFabric& fabric, tide::HostStream&) {
            if (fabric.rank().value == 0) {
              const std::string text = text_of([&] { fabric.close(); });
              closed = true;
              CHECK(text_of([&] { fabric.close(); }) == text);  // again
            }
            while (!closed) std::this_thread::yield();
            fabric.close();
          });
      check_same_error(
          texts, {"tide::HostFabric: the deadline of ", " passed: rank 0 waits, to close, for the network, which has ",
                  " of this rank on their way."});
    }));
  }
}

TEST_CASE("a network that is slow: all ranks close, and all raise what the first of them says") {
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    CHECK(is_prompt([&] {
      check_same_error(errors_of_gather({3, 1}, slow_puts([](index_t rank) { return rank != 1; }, deadline, lanes),
                                        [](tide::HostFabric& fabric, tide::HostStream&) { fabric.close(); }),
                       {"tide::HostFabric: the deadline of ", " passed: "});
    }));
  }
}

TEST_CASE("a network that is slow: a failure of another rank ends a close at whichever moment") {
  for (const tide::Duration waits : {patience, tide::Duration::max()}) {
    for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
      CHECK(is_prompt([&] {
        for (int round = 0; round < rounds; ++round) {
          std::atomic<bool> closes{false};
          const std::vector<std::string> texts =
              errors_of_gather({2, 1}, slow_puts([](index_t rank) { return rank == 0; }, waits, lanes),
                               [&](tide::HostFabric& fabric, tide::HostStream&) {
                                 if (fabric.rank().value == 0) {
                                   closes = true;
                                   fabric.close();
                                 }
                                 while (round % 2 == 0 && !closes) std::this_thread::yield();
                                 pass(round);
                                 throw std::runtime_error("gone");
                               });
          CHECK(texts[0] == "tide::HostCluster: rank 1 threw: gone");
          CHECK(texts.back() == "gone");
        }
      }));
    }
  }
}

TEST_CASE("a network that is slow: a function that throws ends a close of all ranks") {
  CHECK(is_prompt([&] {
    for (int round = 0; round < rounds; ++round) {
      const auto program = [&](tide::HostFabric& fabric, tide::HostStream&) {
        if (fabric.rank().value == 2) {
          tide::HostStream other = fabric.stream();
          other.run([&] {
            pass(round);
            throw std::runtime_error("gone");
          });
        }
        fabric.close();
      };
      check_same_error(errors_of_gather({3, 1}, slow_puts([](index_t rank) { return rank == 0; }), program),
                       {"tide::HostStream: a function on a stream threw; rank 2, stream 1: gone"});
    }
  }));
}

/// Closes a fabric wherever its scope ends, as memory does that work still uses.
struct Closer {
  tide::HostFabric& fabric;

  explicit Closer(tide::HostFabric& of) : fabric(of) {}
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;
  ~Closer() {
    static_cast<void>(text_of([this] { fabric.close(); }));
  }
};

TEST_CASE("a network that is slow: an exception that closes a fabric is heard when that has waited for its deadline") {
  CHECK(is_prompt([&] {
    const std::vector<std::string> texts =
        errors_of_gather({2, 1}, slow_puts([](index_t rank) { return rank == 0; }, deadline),
                         [](tide::HostFabric& fabric, tide::HostStream&) {
                           const Closer closer(fabric);
                           if (fabric.rank().value == 1) throw std::runtime_error("gone");
                           fabric.close();
                         });
    CHECK(texts[0].find("tide::HostFabric: the deadline of ") == 0);
    CHECK(texts.back() == "gone");
  }));
}

TEST_CASE("a network that is slow: an op that fails ends a close") {
  CHECK(is_prompt([&] {
    for (int round = 0; round < rounds; ++round) {
      tide::HostOptions options = slow_puts([](index_t rank) { return rank == 0; });
      options.hook = [&](const tide::HostHookPoint& point) -> std::optional<std::string> {
        if (point.rank.value != 1 || !waits_for_arrival(point)) return std::nullopt;
        pass(round);
        return "a test says so";
      };
      check_same_error(
          errors_of_gather({2, 1}, options, [](tide::HostFabric& fabric, tide::HostStream&) { fabric.close(); }),
          {"tide::HostFabric: gather of 'slow' (2 parameters), step 0, rank 1, lane ", "a test says so"});
    }
  }));
}

TEST_CASE("a network that is slow: a cluster that nobody closes is destroyed at once") {
  for (const tide::Duration waits : {patience, tide::Duration::max()}) {
    CHECK(is_prompt([&] {
      for (int round = 0; round < rounds; ++round) {
        check_no_error(errors_of_gather({3, 1}, slow_puts([](index_t) { return true; }, waits),
                                        [&](tide::HostFabric&, tide::HostStream&) { pass(round); }));
      }
    }));
  }
}

TEST_CASE("a network that is slow: a failure of one fabric of a rank ends a close of the other") {
  const tide::DynamicLayout layout = layout_on({2, 1});
  CHECK(is_prompt([&] {
    for (int round = 0; round < rounds; ++round) {
      const bool inside_closes = round % 2 == 0;
      std::vector<std::string> texts(4);
      tide::HostReplicas cluster({2, 1}, {2, 1}, slow_puts([](index_t rank) { return rank == 0; }));
      std::vector<std::unique_ptr<Gather>> gathers(8);
      cluster.run([&](tide::HostFabric& inside, tide::HostFabric& across) {
        const auto place = static_cast<std::size_t>(across.rank().value * 2 + inside.rank().value);
        texts[place] = text_of([&] {
          gathers[2 * place] = std::make_unique<Gather>(inside, layout);
          gathers[2 * place + 1] = std::make_unique<Gather>(across, layout);
          inside.init();
          across.init();
          tide::HostStream one = inside.stream();
          tide::HostStream two = across.stream();
          gathers[2 * place]->step(one);
          gathers[2 * place + 1]->step(two);
          if (place == 3) {
            (inside_closes ? across : inside).stream().run([&] {
              pass(round);
              throw std::runtime_error("gone");
            });
          }
          (inside_closes ? inside : across).close();
        });
      });
      check_same_error(texts, {"tide::HostStream: a function on a stream threw; rank 1, stream 1: gone"});
    }
  }));
}

}  // namespace slow_network_test
