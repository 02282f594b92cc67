// SPDX-License-Identifier: Apache-2.0
// labels: gpu
// timeout: 180
// ranks: 2:TIDE_REPLICAS=2 4:TIDE_REPLICAS=2 6:TIDE_REPLICAS=3 4:TIDE_REPLICAS=4
//
// CudaReplicas: two fabrics for each rank; their streams wait for each other's events, and they fail together. Each
// rank is a process.

#include <tide/fabric/cuda_replicas.cuh>
#include <tide/pipeline/all_reduce.hpp>
#include <tide/reduce/tree.hpp>

#include "support/cuda_process.cuh"
#include "support/raised.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace tide_test;

// With 8 queues what releases waits after an error was seen to be stuck behind them, and the next case with it.
const int queues = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

constexpr index_t elements = 5003;
constexpr std::size_t bytes = elements * sizeof(float);

index_t replicas() { return std::atoll(std::getenv("TIDE_REPLICAS")); }

// The fabrics of this process's rank, two sums that follow each other, and a stream on each fabric.
struct Rank {
  explicit Rank(tide::CudaOptions options = {})
      : both(CudaProcess::communicators(), replicas(), options, options),
        inside(both.fabric(), elements, "inside"),
        across(both.replicas(), elements, "across"),
        one(both.fabric().stream()),
        two(both.replicas().stream()) {
    both.fabric().init();
    both.replicas().init();
  }

  // Averages over the ranks of a replica, and these over replicas.
  void step(const std::vector<std::byte>& given, std::span<std::byte> found) {
    one.wait(copied);
    CudaProcess::write(one, reinterpret_cast<std::byte*>(inside.buffer()), given);
    two.wait(inside.enqueue(one));
    tide::detail::check(cudaMemcpyAsync(across.buffer(), inside.buffer(), bytes, cudaMemcpyDeviceToDevice, two.get()),
                        "cudaMemcpyAsync");
    copied = two.record();
    two.wait(across.enqueue(two));
    CudaProcess::read(two, reinterpret_cast<const std::byte*>(across.buffer()), found);
  }

  tide::CudaReplicas both;
  tide::AllReduce<> inside;
  tide::AllReduce<> across;
  tide::CudaStream one;
  tide::CudaStream two;
  tide::Event copied{};
};

void prepare() {
  CudaProcess::skip_unless_ranks_fit();
  tide::detail::check(cudaSetDevice(CudaProcess::communicators().device()), "cudaSetDevice");
  static_cast<void>(Staging::of_process());
  spin<unsigned long long><<<1, 1>>>(1);  // loads it: a first launch behind a wait would hang the host
  tide::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// Sums of which depend on their order.
float value_of(std::uint64_t step, index_t rank, index_t element) {
  const std::uint64_t bits = mix(step, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(element));
  return static_cast<float>(static_cast<std::int64_t>(bits % 2001) - 1000) / static_cast<float>(bits / 2001 % 97 + 3);
}

std::vector<std::byte> values_of(std::uint64_t step, index_t rank) {
  std::vector<std::byte> values(bytes);
  for (index_t e = 0; e < elements; ++e) {
    const float value = value_of(step, rank, e);
    std::memcpy(values.data() + static_cast<std::size_t>(e) * sizeof(float), &value, sizeof(float));
  }
  return values;
}

float expected(std::uint64_t step, index_t element) {
  const index_t shards = CudaProcess::world() / replicas();
  const auto inside = [&](index_t replica) {
    const auto leaf = [&](index_t rank) { return value_of(step, rank, element); };
    return tide::tree_sum(replica * shards, (replica + 1) * shards, leaf) * (1.0F / static_cast<float>(shards));
  };
  return tide::tree_sum(0, replicas(), inside) * (1.0F / static_cast<float>(replicas()));
}

}  // namespace

TEST_CASE("CudaReplicas: each rank has its place in two meshes, and averages over both follow the tree") {
  prepare();
  const index_t shards = CudaProcess::world() / replicas();
  constexpr std::uint64_t steps = 40;
  std::vector<std::vector<std::byte>> found(steps, std::vector<std::byte>(bytes, std::byte{0xA5}));
  Rank rank;
  CHECK(rank.both.fabric().mesh() == tide::MeshShape{1, shards});
  CHECK(rank.both.replicas().mesh() == tide::MeshShape{1, replicas()});
  CHECK(rank.both.replicas().rank().value * shards + rank.both.fabric().rank().value == CudaProcess::rank());
  for (std::uint64_t step = 0; step < steps; ++step) {
    const std::uint64_t bits = mix(step, static_cast<std::uint64_t>(CudaProcess::rank()));
    if (bits % 4 == 0) CudaProcess::occupy(bits % 8 == 0 ? rank.one : rank.two, 300us);
    rank.step(values_of(step, CudaProcess::rank()), found[step]);
  }
  rank.two.synchronize();
  std::string wrong;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (index_t e = 0; e < elements; ++e) {
      const float sum = expected(step, e);
      const std::byte* const at = found[step].data() + static_cast<std::size_t>(e) * sizeof(float);
      if (std::memcmp(at, &sum, sizeof(float)) == 0 || !wrong.empty()) continue;
      wrong = "step " + std::to_string(step) + ", element " + std::to_string(e);
    }
  }
  CHECK(wrong == "");
  rank.both.fabric().close();
  rank.both.replicas().close();
}

TEST_CASE("CudaReplicas: what cannot be is refused by name") {
  prepare();
  const auto odd = [] { tide::CudaReplicas(CudaProcess::communicators(), CudaProcess::world() + 1); };
  CHECK(text_of(odd).find("tide::CudaReplicas: ranks must divide into replicas of equal size; there are ") == 0);
  Rank rank;
  Rank other;
  const tide::Event foreign = other.one.record();
  CHECK(text_of([&] { rank.one.wait(foreign); }) ==
        "tide::CudaFabric: an event can be waited for on its own rank only.");
  for (Rank* each : {&rank, &other}) {
    each->both.fabric().close();
    each->both.replicas().close();
  }
}

TEST_CASE("CudaReplicas: an error of one fabric is the error of both, on all ranks of all replicas") {
  prepare();
  std::string error;
  std::vector<std::byte> found(bytes);  // a stream may write it until the fabrics are gone
  {
    Rank rank({.deadline = 10s});
    rank.step(values_of(0, CudaProcess::rank()), found);
    rank.two.synchronize();
    // A refusal of one rank, on its fabric over replicas.
    if (CudaProcess::rank() == 0) {
      error = text_of([&] { rank.both.replicas().refuse(tide::Errc::argument, "tide::Test: a rank refuses."); });
    } else {
      error = text_of([&] {
        for (std::uint64_t step = 1;; ++step) {
          rank.step(values_of(step, CudaProcess::rank()), found);
          rank.two.synchronize();
        }
      });
    }
    CHECK(text_of([&] { static_cast<void>(rank.one.record()); }) == error);
    CHECK(text_of([&] { static_cast<void>(rank.two.record()); }) == error);
  }
  for (const std::string& text : CudaProcess::everybody(error)) CHECK(text == "tide::Test: a rank refuses.");
}

TEST_CASE("CudaReplicas: a rank whose process ends is a named error of all others within their deadline") {
  prepare();
  constexpr std::chrono::seconds deadline{2};
  const index_t lost = CudaProcess::world() - 1;
  std::vector<std::byte> found(bytes);  // a stream may write it until the fabrics are gone
  Rank rank({.deadline = deadline});
  for (std::uint64_t step = 0; step < 3; ++step) rank.step(values_of(step, CudaProcess::rank()), found);
  rank.two.synchronize();
  static_cast<void>(CudaProcess::everybody(""));
  if (CudaProcess::rank() == lost) std::_Exit(0);
  const auto begun = std::chrono::steady_clock::now();
  const std::string error = text_of([&] {
    rank.step(values_of(3, CudaProcess::rank()), found);
    rank.two.synchronize();
  });
  const auto took = std::chrono::steady_clock::now() - begun;
  CAPTURE(error);
  CHECK(error.find("tide::CudaFabric: the deadline of 2.000 s passed") == 0);
  CHECK(error.find("step 3") != std::string::npos);
  // The lost rank, as its replica knows it or as its column does.
  const index_t shards = CudaProcess::world() / replicas();
  const bool names_shard = error.find("waits for rank " + std::to_string(lost % shards)) != std::string::npos;
  const bool names_replica = error.find("waits for rank " + std::to_string(lost / shards)) != std::string::npos;
  CHECK((error.find("of 'inside'") != std::string::npos ? names_shard : names_replica));
  CHECK(text_of([&] { static_cast<void>(rank.one.record()); }) == error);
  CHECK(text_of([&] { static_cast<void>(rank.two.record()); }) == error);
  CHECK(took < deadline + 4s);
}
