// SPDX-License-Identifier: Apache-2.0
//
// AllReduce against sums along the tree, on every rank, over and over.

#include <doctest/doctest.h>
#include <tide/pipeline/all_reduce.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/reduce/tree.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>

#include "support/delays.hpp"
#include "support/host_ranks.hpp"
#include "support/raised.hpp"
#include "support/sanitizer.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace {

namespace all_reduce_test {

using namespace tide_test;

float value_of(std::uint64_t step, index_t rank, index_t buffer, index_t element) {
  const std::uint64_t bits = mix(step, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(buffer),
                                 static_cast<std::uint64_t>(element));
  return static_cast<float>(static_cast<std::int64_t>(bits % 2001) - 1000) / static_cast<float>(bits / 2001 % 97 + 3);
}

/// Fills, sums and compares three buffers for a number of steps. What a switch sums are whole numbers.
template <class R = tide::CopyEngineReducer<>>
void check_sums(tide::MeshShape mesh, index_t elements, std::uint64_t steps, float scale, tide::HostOptions options) {
  const index_t ranks = mesh.ranks();
  CAPTURE(ranks);
  CAPTURE(mesh.nodes);
  CAPTURE(elements);
  using Rails = tide::RdmaDoublingTransport<tide::Bytes<512>, tide::PutsInFlight<2>>;
  using Small = tide::Ring<tide::Chunks<2>, tide::Bytes<16384>>;
  using Sums = tide::AllReduce<tide::Depth<3>, tide::UnicastTransport, R, Rails, Small>;
  const auto value = [](std::uint64_t step, index_t rank, index_t buffer, index_t element) {
    const float any = value_of(step, rank, buffer, element);
    return tide::CrossesItself<R> ? static_cast<float>(static_cast<int>(any)) : any;
  };
  std::vector<int> wrong(static_cast<std::size_t>(ranks), 0);
  tide::HostCluster cluster(mesh, options);
  cluster.run([&](tide::HostFabric& fabric) {
    Sums sums(fabric, elements, "numbers");
    if (scale != 0) sums.scale(scale);
    fabric.init();
    const float factor = scale != 0 ? scale : 1.0F / static_cast<float>(ranks);
    const index_t own = fabric.rank().value;
    tide::HostStream streams[2] = {fabric.stream(), fabric.stream()};
    for (std::uint64_t step = 0; step < steps; ++step) {
      const auto buffer = static_cast<index_t>(step % 3);
      tide::HostStream& stream = streams[step % 2];
      // A buffer's last reader may have been on the other stream.
      stream.wait(streams[1 - step % 2].record());
      stream.run([=, at = sums.buffer(buffer)] {
        for (index_t e = 0; e < elements; ++e) at[e] = value(step, own, buffer, e);
      });
      stream.wait(sums.enqueue(stream, buffer));
      stream.run([=, at = sums.buffer(buffer), &count = wrong[static_cast<std::size_t>(own)]] {
        for (index_t e = 0; e < elements; ++e) {
          const auto leaf = [&](index_t rank) { return value(step, rank, buffer, e); };
          const auto node = [&](index_t n) {
            return tide::tree_sum(n * mesh.ranks_per_node, (n + 1) * mesh.ranks_per_node, leaf);
          };
          const float expected = tide::tree_sum(0, mesh.nodes, node) * factor;
          count += std::memcmp(&at[e], &expected, sizeof(float)) == 0 ? 0 : 1;
        }
      });
    }
    for (tide::HostStream& stream : streams) stream.synchronize();
    fabric.close();
  });
  for (const int count : wrong) CHECK(count == 0);
}

}  // namespace all_reduce_test

}  // namespace

TEST_CASE("AllReduce: every rank has the tree's sums, whatever the ranks and the length") {
  using all_reduce_test::check_sums;
  for (const tide::index_t ranks : {1, 2, 3, 4, 5, 6, 8, 9}) {
    for (const tide::index_t elements : {1, 2, 64, 1000, 5003}) check_sums({1, ranks}, elements, 4, 0, {});
  }
}

TEST_CASE("AllReduce: over several nodes") {
  using all_reduce_test::check_sums;
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 1}, tide::MeshShape{2, 2}, tide::MeshShape{3, 2},
                                     tide::MeshShape{5, 1}, tide::MeshShape{2, 5}}) {
    for (const tide::index_t elements : {1, 3, 1000}) check_sums(mesh, elements, 5, 0, {});
  }
  check_sums({3, 2}, 517, tide_test::sized(200, 40), 1.0F, {.hook = tide_test::random_delays(6, 40)});
}

TEST_CASE("AllReduce: over several nodes, by their switches") {
  using Switch = tide::SwitchReducer<>;
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 2}, tide::MeshShape{3, 2}, tide::MeshShape{2, 5}}) {
    for (const tide::index_t elements : {1, 3, 1000}) all_reduce_test::check_sums<Switch>(mesh, elements, 5, 0, {});
  }
  all_reduce_test::check_sums<Switch>({3, 2}, 517, tide_test::sized(200, 40), 1.0F,
                                      {.hook = tide_test::random_delays(6, 40)});
}

TEST_CASE("AllReduce: many calls, with delays at every op, and with lanes merged") {
  using all_reduce_test::check_sums;
  check_sums({1, 3}, 517, tide_test::sized(300, 60), 0.25F, {.hook = tide_test::random_delays(5, 40)});
  check_sums({1, 5}, 33, tide_test::sized(200, 40), 1.0F, {.lanes = tide::HostLanes::merged});
}

TEST_CASE("AllReduce: no elements at all") { all_reduce_test::check_sums({1, 3}, 0, 4, 0, {}); }

TEST_CASE("AllReduce: a buffer that there is not is refused, on all ranks, and the others may be summed") {
  constexpr tide::index_t ranks = 3;
  for (const tide::index_t asked : {-1, 2}) {
    CAPTURE(asked);
    std::vector<std::string> texts(ranks);
    std::vector<std::string> read(ranks);
    std::vector<float> sums(ranks);
    tide::HostCluster cluster({1, ranks});
    cluster.run([&](tide::HostFabric& fabric) {
      const auto own = static_cast<std::size_t>(fabric.rank().value);
      tide::AllReduce<tide::Depth<2>> reduce(fabric, 1);
      fabric.init();
      tide::HostStream stream = fabric.stream();
      texts[own] = tide_test::text_of([&] { static_cast<void>(reduce.enqueue(stream, asked)); });
      read[own] = tide_test::text_of([&] { static_cast<void>(reduce.buffer(asked)); });
      reduce.scale(1);
      stream.run([at = reduce.buffer(1)] { *at = 1; });
      stream.wait(reduce.enqueue(stream, 1));
      stream.run([at = reduce.buffer(1), &sum = sums[own]] { sum = *at; });
      stream.synchronize();
      fabric.close();
    });
    const std::string words = "tide::AllReduce: a buffer must be one of the Depth that there are; number " +
                              std::to_string(asked) + " of 2 was asked for.";
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(texts[rank] == words);
      CHECK(read[rank] == words);
      CHECK(sums[rank] == ranks);
    }
  }
}
