// SPDX-License-Identifier: Apache-2.0
//
// A slot, a gradient and a result are reused only after an event that its last reader has passed; nothing is shared
// between objects of one type; everything can be closed and destroyed, once, twice or never.

#include <doctest/doctest.h>

#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/sharded_step.hpp>

#include "conformance/fabric.hpp"
#include "support/collectives.hpp"
#include "support/delays.hpp"
#include "support/sim_ranks.hpp"

#include <atomic>
#include <memory>

using namespace tide_test;
using tide::DynamicLayout;

namespace {

using Gather = GatherRank<HostRanks, DynamicLayout, tide::UnicastTransport>;
using Inbox = tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>;
using Reduce = ReduceRank<HostRanks, DynamicLayout, tide::CopyEngineReducer<>, Inbox>;
using Pipeline = tide::ReduceScatter<DynamicLayout, tide::CopyEngineReducer<>, tide::SingleNode, Inbox>;

}  // namespace

TEST_CASE("Lifetime: two gradient memories shared by three groups: taking one waits for the reduce that reads it") {
  const DynamicLayout layout(group_of({{40, 3}, {7}}, Element::bf16, Element::bf16), {1, 3});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(3);
  HostRanks slow;
  slow.options.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    const bool reads = point.op.kind == tide::OpKind::copy || point.op.kind == tide::OpKind::reduce;
    if (reads && point.rank.value == 1) std::this_thread::sleep_for(300us);
    return std::nullopt;
  };
  check_no_error(errors_of(slow, 3, [&](tide::HostFabric& fabric) {
    std::vector<Pipeline> groups;
    for (int g = 0; g < 3; ++g) groups.emplace_back(fabric, layout, "group " + std::to_string(g));
    tide::Gradients<DynamicLayout> one(fabric, layout);
    tide::Gradients<DynamicLayout> two(fabric, layout);
    tide::Gradients<DynamicLayout>* const memories[] = {&one, &two};
    const index_t bytes = layout.view().bytes(tide::Buffer::output, fabric.rank());
    std::vector<std::unique_ptr<HostRanks::Memory>> outputs;
    for (int i = 0; i < 18; ++i)
      outputs.push_back(std::make_unique<HostRanks::Memory>(fabric, static_cast<std::size_t>(bytes)));
    Checks<HostRanks> checks;
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::Event free[2];
    for (std::uint64_t i = 0; i < 18; ++i) {
      auto& gradients = *memories[i % 2];
      std::byte* output = outputs[i]->data();
      const auto rank = fabric.rank();
      stream.wait(free[i % 2]);
      HostRanks::write(stream, gradients.data(), oracle.gradients(rank.value, i));
      HostRanks::write(stream, output, oracle.initial(rank.value, i));
      const tide::ShardsView<DynamicLayout, tide::Buffer::masters> shards(output, layout, rank);
      const tide::ReduceTicket ticket = groups[i % 3].enqueue(gradients, shards, stream);
      free[i % 2] = ticket.gradients_free;
    }
    stream.synchronize();
    tide::HostStream last = fabric.stream();
    last.wait(free[0]);
    last.wait(free[1]);
    for (std::uint64_t i = 0; i < 18; ++i) {
      checks.expect(last, outputs[i]->data(), oracle.output(fabric.rank().value, i, 1.0F / 3.0F),
                    "step " + std::to_string(i));
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = checks.verdict();
  }));
  check_right(wrong);
}

TEST_CASE("Lifetime: gradients are overwritten the moment they are free, and sums do not change") {
  const DynamicLayout layout(group_of({{40, 3}, {7}}, Element::bf16, Element::bf16), {1, 3});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(3);
  HostRanks ranks;
  ranks.options.hook = random_delays(6, 8);
  check_no_error(errors_of(ranks, 3, [&](tide::HostFabric& fabric) {
    Reduce reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    tide::HostStream scribble = fabric.stream();
    for (std::uint64_t step = 0; step < 20; ++step) {
      const tide::ReduceTicket ticket = reduce.start(From::storage, step, stream);
      scribble.wait(ticket.gradients_free);
      HostRanks::write(scribble, reduce.storage().data(),
                       Bytes(static_cast<std::size_t>(layout.view().bytes(tide::Buffer::gradients)), poison));
      stream.wait(scribble.record());
      reduce.read(ticket, step, stream);
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = reduce.verdict();
  }));
  check_right(wrong);
}

TEST_CASE("Lifetime: a result read slowly on one stream while the next step runs on another") {
  const DynamicLayout layout(group_of({{40, 3}, {7}}, Element::bf16, Element::bf16), {1, 2});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(2);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    Reduce reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream one = fabric.stream();
    tide::HostStream two = fabric.stream();
    for (std::uint64_t step = 0; step < 20; ++step) {
      const tide::ReduceTicket ticket = reduce.start(From::storage, step, one);
      two.wait(ticket.shards_ready);
      HostRanks::occupy(two, 1ms);
      reduce.read(ticket, step, two);
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = reduce.verdict();
  }));
  check_right(wrong);
}

TEST_CASE("Lifetime: groups of unlike size take turns in one slot") {
  const DynamicLayout small(group_of({{263}}, Element::bf16, Element::bf16), {1, 2});
  const DynamicLayout large(group_of({{933, 2}, {5}}, Element::f32, Element::f32), {1, 2});
  const CollectiveOracle small_oracle(small.view());
  const CollectiveOracle large_oracle(large.view());
  std::vector<std::string> wrong(2);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout, DynamicLayout> pool(fabric, small, large);
    Guarded<HostRanks> guarded(fabric);
    Gather one(fabric, pool, small, small_oracle);
    Gather two(fabric, pool, large, large_oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    for (std::uint64_t step = 0; step < 8; ++step) {
      one.step(pool, Source::shards, step, stream);
      two.step(pool, Source::masters, step, stream);
    }
    guarded.check(pool, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = one.verdict() + two.verdict() + guarded.verdict();
  }));
  check_right(wrong);
}

TEST_CASE("Lifetime: a small cluster and a larger one, in turns: nothing is counted for the process") {
  for (int round = 0; round < 3; ++round) {
    check_right(gather_on(DynamicLayout(group_of({{7, 2}}, Element::bf16, Element::bf16), {1, 2})));
    check_right(gather_on(DynamicLayout(group_of({{7, 2}}, Element::bf16, Element::bf16), {1, 3})));
    check_right(reduce_on(DynamicLayout(group_of({{7, 2}}, Element::bf16, Element::bf16), {1, 2})));
    check_right(reduce_on(DynamicLayout(group_of({{7, 2}}, Element::bf16, Element::bf16), {1, 3})));
  }
}

namespace {

/// Functions on two streams, a call that is refused, and the end of what they refer to.
template <class Ranks>
void refused_when_functions_have_run(bool one_rank) {
  constexpr index_t n = 2;
  const DynamicLayout layout(group_of({{7, 2}}, Element::bf16, Element::bf16), {1, n});
  std::vector<int> left(n, -1);
  std::atomic<bool> is_refused{false};
  const auto texts = errors_of(Ranks{}, n, [&](auto& fabric) {
    tide::SlotPool<tide::Depth<1>, DynamicLayout> pool(fabric, layout);
    tide::AllGather<DynamicLayout, tide::UnicastTransport> gather(fabric, pool, layout);
    tide::Shards<DynamicLayout> shards(fabric, layout);
    fabric.init();
    tide::HostStream one = fabric.stream();
    tide::HostStream two = fabric.stream();
    std::atomic<int> waiting{0};
    const auto enqueue = [&](tide::HostStream& stream) {
      ++waiting;
      Ranks::occupy(stream, 2ms);
      stream.run([&] { --waiting; });
    };
    for (int i = 0; i < 3; ++i) {
      enqueue(one);
      enqueue(two);
    }
    const auto call = [&](void* data) {
      auto params =
          gather.enqueue(tide::ShardsView<DynamicLayout, tide::Buffer::shards>(data, layout, fabric.rank()), one);
      params.release(one);
    };
    if (one_rank && fabric.rank().value == 1) {
      while (!is_refused) fabric_suite::let_others_go_on(fabric);
    }
    try {
      call(one_rank && fabric.rank().value == 1 ? shards.data() : nullptr);
    } catch (const tide::Error&) {
      left[static_cast<std::size_t>(fabric.rank().value)] = waiting;
      is_refused = true;
      throw;
    }
  });
  check_same_error(texts, {"tide::ShardsView: shards must not be null"});
  CHECK(left == std::vector<int>(n, 0));
}

}  // namespace

TEST_CASE("Lifetime: a refused call is raised when functions that were enqueued before have run, on all ranks") {
  for (const bool one_rank : {false, true}) {
    CAPTURE(one_rank);
    refused_when_functions_have_run<HostRanks>(one_rank);
    refused_when_functions_have_run<SimRanks>(one_rank);
  }
}

TEST_CASE("Lifetime: a step is destroyed before the functions run that it was to load and update with") {
  static constexpr auto rows = tide::group(tide::param<tide::bf16>("w", {5, 2}));
  using Model = tide::Parts<tide::Part<"rows", tide::ShardLayout<rows, tide::Mesh<1, 2>>, tide::Repeat<2>>>;
  using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>>;
  std::vector<float> sums(2);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    auto step = std::make_unique<Step>(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    HostRanks::occupy(stream, 5ms);
    const auto rank = static_cast<std::size_t>(fabric.rank().value);
    step->load(stream, [&](auto group) {
      stream.run([group, &sum = sums[rank]] {
        float next = 1;
        for (float& w : group.masters().template get<"w">()) w = next++;
        for (const float w : group.masters().template get<"w">()) sum += w;
      });
    });
    step.reset();
    stream.synchronize();
    fabric.close();
  }));
  CHECK(sums == std::vector<float>{2 * 21, 2 * 10});  // 1 + ... + 6 of three rows, 1 + ... + 4 of two
}

TEST_CASE("Lifetime: pipelines, pools, storage and clusters are destroyed in any order") {
  const DynamicLayout layout(group_of({{7, 2}}, Element::bf16, Element::bf16), {1, 1});
  for (int order = 0; order < 4; ++order) {
    CAPTURE(order);
    auto cluster = std::make_unique<tide::HostCluster>(tide::MeshShape{1, 1});
    tide::HostFabric& fabric = cluster->fabric(tide::Rank{0});
    using Pool = tide::SlotPool<tide::Depth<1>, DynamicLayout>;
    auto pool = std::make_unique<Pool>(fabric, layout);
    auto gather = std::make_unique<tide::AllGather<DynamicLayout, tide::UnicastTransport>>(fabric, *pool, layout);
    auto reduce = std::make_unique<Pipeline>(fabric, layout);
    auto shards = std::make_unique<tide::Shards<DynamicLayout>>(fabric, layout);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    auto params = std::make_unique<tide::Gathered<DynamicLayout>>(gather->enqueue(*shards, stream));
    stream.synchronize();
    if (order == 0) {  // a handle that outlives its pipeline
      gather.reset();
      reduce.reset();
      params->release(stream);
      params.reset();
      pool.reset();
      cluster.reset();
    } else if (order == 1) {  // and is never released
      gather.reset();
      params.reset();
      cluster.reset();
      pool.reset();
    } else if (order == 2) {  // the cluster first
      params->release(stream);
      cluster.reset();
      params.reset();
      shards.reset();
      pool.reset();
      gather.reset();
    } else {  // closed, twice, and then destroyed
      fabric.close();
      fabric.close();
      cluster.reset();
      gather.reset();
      params.reset();
      pool.reset();
    }
    CHECK(cluster == nullptr);
  }
}
