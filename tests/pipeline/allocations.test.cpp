// SPDX-License-Identifier: Apache-2.0
// program: own
//
// A step allocates nothing: every `operator new` of the process is counted while ranks run steady steps.

#include <doctest/doctest.h>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "conformance/fabric.hpp"
#include "support/host_ranks.hpp"
#include "support/random_group.hpp"
#include "support/sanitizer.hpp"
#include "support/step_training.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

[[maybe_unused]] void* allocate(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Out of line: where GCC 12 sees `free` in an inlined operator delete it takes the operators for mismatched.
[[maybe_unused, gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

}  // namespace

#if !TIDE_TEST_SANITIZED  // a sanitizer has operators of its own, and Clang links no second ones

void* operator new(std::size_t bytes) { return allocate(bytes, 16); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

#endif

using namespace tide_test;

namespace {

/// Ranks that all come to a point before any goes on, without allocating.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}
  void meet() {
    const int round = round_.load();
    if (++present_ == ranks_) {
      present_ = 0;
      ++round_;
    } else {
      while (round_.load() == round) std::this_thread::yield();
    }
  }

 private:
  int ranks_;
  std::atomic<int> present_{0};
  std::atomic<int> round_{0};
};

/// Allocations of 100 steps on all ranks, after a few that may allocate.
template <class Transport, class Layout>
long allocations_of_steps(const Layout& layout, tide::HostOptions options) {
  const auto ranks = static_cast<int>(layout.view().mesh.ranks());
  Meeting meeting(ranks);
  allocations = 0;
  check_no_error(errors_of(HostRanks{options}, ranks, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout> pool(fabric, layout);
    tide::AllGather<Layout, Transport> gather(fabric, pool, layout);
    tide::AllGather<Layout, Transport> other(fabric, pool, layout);
    tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, tide::SingleNode, fabric_suite::Inbox> reduce(fabric,
                                                                                                         layout);
    tide::Shards<Layout> shards(fabric, layout);
    tide::MasterShards<Layout> masters(fabric, layout);
    tide::MasterShards<Layout> sums(fabric, layout);
    tide::Gradients<Layout> gradients(fabric, layout);
    tide::Gradients<Layout> memory(fabric, layout);
    tide::GradientTable<Layout> table(layout);
    fabric.init();
    for (index_t p = 0; p < layout.view().group.size(); ++p) {
      table.set(tide::ParameterIndex{p}, memory.at(tide::ParameterIndex{p}));
    }
    const std::size_t bytes = static_cast<std::size_t>(layout.view().bytes(tide::Buffer::gradients));
    std::memset(gradients.data(), 0, bytes);
    std::memset(memory.data(), 0, bytes);
    std::memset(shards.data(), 0, static_cast<std::size_t>(layout.view().bytes(tide::Buffer::shards, fabric.rank())));
    std::memset(masters.data(), 0, static_cast<std::size_t>(layout.view().bytes(tide::Buffer::masters, fabric.rank())));
    tide::HostStream stream = fabric.stream();
    tide::HostStream second = fabric.stream();
    const auto step = [&] {
      auto a = gather.enqueue(shards, stream);
      auto b = other.enqueue(masters, second);
      second.wait(a.complete());
      a.release(second);
      b.release(stream);
      static_cast<void>(gather.own_block(pool.acquire(stream)));
      gather.enqueue(tide::in_place, stream).release(stream);
      gradients.missing(tide::ParameterIndex{0});
      const tide::ReduceTicket ticket = reduce.enqueue(gradients, sums, stream);
      stream.wait(ticket.gradients_free);
      stream.wait(ticket.shards_ready);
      table.missing(tide::ParameterIndex{0});
      static_cast<void>(reduce.enqueue(table, sums, stream));
      second.synchronize();
      stream.synchronize();
    };
    for (int i = 0; i < 5; ++i) step();
    meeting.meet();
    counting = true;
    meeting.meet();
    for (int i = 0; i < 100; ++i) step();
    meeting.meet();
    counting = false;
    meeting.meet();
    fabric.close();
  }));
  return allocations;
}

/// The same of 30 training steps, with what a trainer calls and nothing that it computes.
template <class Step>
long allocations_of_training(tide::HostOptions options) {
  constexpr int ranks = 3;
  Meeting meeting(ranks);
  allocations = 0;
  check_no_error(errors_of(HostRanks{options}, ranks, [&](tide::HostFabric& fabric) {
    Step training(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    training.load(stream, [&](auto group) {
      if constexpr (requires { group.masters(); }) {
        const auto masters = group.masters();
        std::memset(masters.data(), 0, static_cast<std::size_t>(masters.bytes()));
      } else {
        std::memset(group.shards().data(), 0, static_cast<std::size_t>(group.shards().bytes()));
      }
    });
    const auto step = [&] {
      for (index_t number = 0; number < Step::groups; ++number) {
        step::with_group<Step>(step::Names{}, number, [&]<tide::FixedString Name>(index_t i) {
          training.template forward<Name>(stream, i).release();
        });
      }
      for (index_t number = Step::groups; number-- > 0;) {
        step::with_group<Step>(step::Names{}, number, [&]<tide::FixedString Name>(index_t i) {
          auto group = training.template backward<Name>(stream, i);
          if constexpr (requires { group.reduce(); }) {
            group.all_missing();
            group.reduce();
          } else {
            group.release();
          }
        });
      }
      training.update(stream, [](auto) {});
      stream.synchronize();
    };
    for (int i = 0; i < 5; ++i) step();
    meeting.meet();
    counting = true;
    meeting.meet();
    for (int i = 0; i < 30; ++i) step();
    meeting.meet();
    counting = false;
    meeting.meet();
    fabric.close();
  }));
  return allocations;
}

}  // namespace

TEST_CASE("ShardedStep: a training step allocates nothing") {
  using Slots = step::Step<tide::SlotReuse>;
  using Ring = step::Step<step::SmallRing, step::Add, tide::Prefetch<2>>;
  CHECK(allocations_of_training<Slots>({}) == 0);
  CHECK(allocations_of_training<Ring>({.lanes = tide::HostLanes::merged}) == 0);
}

TEST_CASE("Pipelines: a step allocates nothing, on the calling threads and on the lanes") {
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    CHECK(allocations_of_steps<tide::UnicastTransport>(fabric_suite::block_on(3), {.lanes = lanes}) == 0);
  }
  counting = true;  // the counter counts
  allocations = 0;
  const auto one = std::make_unique<std::string>(100, 'x');
  counting = false;
  if (sanitized) {
    MESSAGE("a sanitizer has operators of its own: allocations are not counted here");
  } else {
    CHECK(allocations >= 2);
  }
}

TEST_CASE("Pipelines: a step of a group read at run time allocates nothing") {
  Random random(4);
  const tide::DynamicLayout layout(random_group(random, 3), {1, 3});
  CHECK(allocations_of_steps<tide::MulticastTransport>(layout, {}) == 0);
}
