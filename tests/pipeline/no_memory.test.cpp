// SPDX-License-Identifier: Apache-2.0
// program: own
//
// No memory for the zeros of a missing gradient: the call is refused on all ranks, and nobody waits for it.

#include <doctest/doctest.h>

#include "conformance/fabric.hpp"
#include "support/host_ranks.hpp"
#include "support/raised.hpp"
#include "support/sanitizer.hpp"
#include "support/sim_ranks.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace {

// As many bytes as nothing else here asks for.
constexpr tide::index_t elements = 77777;
constexpr std::size_t refused_bytes = elements * 4;

std::atomic<bool> refuses{false};

}  // namespace

#if defined(__GLIBC__) && !TIDE_TEST_SANITIZED  // a sanitizer has a calloc of its own

extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes) noexcept;
extern "C" void* calloc(std::size_t count, std::size_t bytes) noexcept {
  if (refuses && count * bytes == refused_bytes) return nullptr;
  return __libc_calloc(count, bytes);
}

namespace {

using namespace tide_test;

inline constexpr auto zeros_group = tide::group(tide::param<float>("w", {elements}));
using Layout = tide::ShardLayout<zeros_group, tide::Mesh<1, 2>>;
using Reduce = tide::ReduceScatter<Layout, tide::CopyEngineReducer<>, tide::SingleNode,
                                   tide::Ring<tide::Chunks<2>, tide::Bytes<65536>>>;

/// Rank 0 has a gradient; rank 1 has none, and no memory for zeros.
/// @param begun  whether rank 0 has made the call by then; otherwise it can be made again
template <class Ranks>
void refused_on_all(const Ranks& ranks, bool begun) {
  CAPTURE(begun);
  std::atomic<int> called{0};
  std::vector<std::string> refused(2);
  std::vector<std::string> later(2);
  const auto begin = std::chrono::steady_clock::now();
  refuses = true;
  static_cast<void>(errors_of(ranks, 2, [&](auto& fabric) {
    Reduce reduce(fabric);
    tide::MasterShards<Layout> sums(fabric);
    tide::Gradients<Layout> memory(fabric);
    tide::GradientTable<Layout> table;
    fabric.init();
    auto stream = fabric.stream();
    const bool is_missing = fabric.rank().value == 1;
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    constexpr tide::ParameterIndex w{0};
    const auto call = [&](bool waits) {
      table.set(w, memory.at(w));
      if (is_missing) table.missing(w);
      return text_of([&] {
        const auto exits = reduce.enqueue(table, sums, stream);
        ++called;
        if (waits) exits.shards_ready.synchronize();  // the stream itself need not wait for other ranks
      });
    };
    const auto wait_for = [&](int calls) {
      while (called < calls) fabric_suite::let_others_go_on(fabric);
    };
    if (begun == is_missing) wait_for(1);
    refused[rank] = call(begun);
    if (is_missing) refuses = false;
    if (!begun) ++called;
    if (!begun) wait_for(2);
    later[rank] = call(true);
  }));
  check_same_error(refused, {"tide::GradientTable: there is no memory for the zeros of missing gradients."});
  CHECK(later == (begun ? refused : std::vector<std::string>(2)));
  CHECK(std::chrono::steady_clock::now() - begin < 20s);  // of a deadline of a minute
}

}  // namespace

TEST_CASE("HostFabric: where a rank has no memory for zeros the call is refused on all, and may be made again") {
  refused_on_all(HostRanks{}, false);
}

TEST_CASE("HostFabric: where another rank has begun the call, all fail") { refused_on_all(HostRanks{}, true); }

TEST_CASE("SimFabric: where a rank has no memory for zeros the call is refused on all, and may be made again") {
  refused_on_all(SimRanks{}, false);
}

#else

TEST_CASE("no memory for zeros: not tested, since calloc cannot be made to fail here") {
  MESSAGE("calloc is not ours here");
  CHECK(refused_bytes > 0);
  CHECK(!refuses);
}

#endif
