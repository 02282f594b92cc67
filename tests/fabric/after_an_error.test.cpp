// SPDX-License-Identifier: Apache-2.0
//
// Once an error has been raised, the caller's memory is the caller's: nothing of the fabric reads or writes it again.

#include <doctest/doctest.h>

#include "conformance/fabric.hpp"
#include "support/host_ranks.hpp"

#include <cstring>

using namespace tide_test;
using fabric_suite::Block;

namespace {

constexpr index_t ranks = 3;

inline constexpr auto group = tide::group(tide::param<tide::bf16>("w", {3 * 40, 64}));
using Long = tide::ShardLayout<group, tide::Mesh<1, tide::dynamic>>;
using Sum = tide::ReduceScatter<Long, tide::CopyEngineReducer<>, tide::SingleNode,
                                tide::Ring<tide::Chunks<2>, tide::Bytes<2048>>>;
using Gather = tide::AllGather<Long, tide::UnicastTransport>;

/// Slow before every op, and failing before one of rank 2.
tide::HostOptions slow_and_failing(index_t failing_op, tide::HostLanes lanes) {
  tide::HostOptions options{.lanes = lanes};
  options.hook = [failing_op](const tide::HostHookPoint& point) -> std::optional<std::string> {
    std::this_thread::sleep_for(100us);
    if (point.rank.value == 2 && point.seq == failing_op) return "a test says so";
    return std::nullopt;
  };
  return options;
}

}  // namespace

TEST_CASE("HostFabric: after an error no lane writes the output that the caller gave") {
  for (const tide::HostLanes lanes : {tide::HostLanes::separate, tide::HostLanes::merged}) {
    for (index_t op = 0; op < 100; op += 7) {
      CAPTURE(op);
      std::vector<index_t> touched(ranks, 0);
      const auto texts = errors_of(HostRanks{slow_and_failing(op, lanes)}, ranks, [&](tide::HostFabric& fabric) {
        const Long layout({1, ranks});
        Sum sum(fabric, layout);
        tide::Gradients<Long> gradients(fabric, layout);
        fabric.init();
        std::memset(gradients.data(), 0, static_cast<std::size_t>(Long::gradient_bytes));
        tide::HostStream stream = fabric.stream();
        std::vector<float> output(40 * 64, 1.0F);
        const tide::ShardsView<Long, tide::Buffer::masters> shards(output.data(), layout, fabric.rank());
        try {
          for (int i = 0; i < 3; ++i) static_cast<void>(sum.enqueue(gradients, shards, stream));
          const tide::ReduceTicket last = sum.enqueue(gradients, shards, stream);
          last.gradients_free.synchronize();
          fabric_suite::listen(fabric);
        } catch (const tide::Error&) {
          std::fill(output.begin(), output.end(), 2.0F);
          std::this_thread::sleep_for(2ms);
          touched[static_cast<std::size_t>(fabric.rank().value)] =
              static_cast<index_t>(output.size()) - std::count(output.begin(), output.end(), 2.0F);
          throw;
        }
      });
      check_same_error(texts, {"a test says so"});
      CHECK(touched == std::vector<index_t>(ranks, 0));
    }
  }
}

TEST_CASE("HostFabric: after an error no lane reads the shards that the caller gave") {
  for (index_t op = 0; op < 12; ++op) {  // read after they are freed: for AddressSanitizer and ThreadSanitizer
    const auto texts =
        errors_of(HostRanks{slow_and_failing(op, tide::HostLanes::separate)}, ranks, [&](tide::HostFabric& fabric) {
          const Long layout({1, ranks});
          tide::SlotPool<tide::Depth<1>, Long> pool(fabric, layout);
          Gather gather(fabric, pool, layout);
          fabric.init();
          tide::HostStream stream = fabric.stream();
          for (int step = 0; step < 4; ++step) {
            auto memory = std::make_unique<std::vector<tide::bf16>>(40 * 64);
            const tide::ShardsView<Long, tide::Buffer::shards> shards(memory->data(), layout, fabric.rank());
            auto params = gather.enqueue(shards, stream);
            params.release(stream);
            params.complete().synchronize();
          }
          fabric_suite::listen(fabric);
        });
    check_same_error(texts, {"a test says so"});
  }
}
