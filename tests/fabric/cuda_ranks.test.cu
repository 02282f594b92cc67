// SPDX-License-Identifier: Apache-2.0
// labels: gpu
// timeout: 300
// ranks: 1 2 3 4 8
// sanitize: 1:memcheck 1:racecheck 2:memcheck
// small: *gathers deliver*,*reduces give*,*reduces of aligned*
//
// The suites on GPUs, each rank in a process of its own, started by support/ranks; with NCCL 2.32 or newer all of them
// on one GPU. Cases come in one order on all ranks.

#include <tide/layout/dynamic_layout.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "conformance/fabric.hpp"
#include "conformance/many_steps.hpp"
#include "support/cuda_process.cuh"
#include "support/gather_rank.hpp"
#include "support/raised.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace {

using namespace tide_test;

using Layout = tide::DynamicLayout;
using tide::Element;

// Odd rows, single elements, nothing at all, other dimensions, several elements, many of one shape.
Layout awkward_layout(index_t ranks) {
  tide::DynamicGroup group;
  group.add("odd", {7, 13}, Element::bf16, Element::bf16);
  group.add("one", {1}, Element::bf16, Element::bf16);
  group.add("none", {0, 4}, Element::bf16, Element::bf16);
  for (int i = 0; i < 6; ++i) {
    group.add("experts." + std::to_string(i) + ".gate", {24, 40}, Element::bf16, Element::bf16);
    group.add("experts." + std::to_string(i) + ".down", {40, 24}, Element::bf16, Element::bf16);
  }
  group.add("columns", {5, 2 * ranks}, Element::bf16, Element::bf16, tide::shard(1));
  group.add("large", {1000, 96}, Element::bf16, Element::bf16);
  group.add("single", {33, 3}, Element::f32, Element::f32);
  group.add("half", {65}, Element::f16, Element::f16);
  return {group, {1, ranks}};
}

// Every row begins at a multiple of 16 bytes, on every rank and in every buffer: sums take bulk loads. Some rows fill
// whole loads, some end in the middle of one, with a rest that no vector holds.
Layout aligned_layout(index_t ranks, Element gradient) {
  tide::DynamicGroup group;
  group.add("w", {ranks * 96, 264}, gradient, gradient);
  group.add("b", {ranks * 4104}, gradient, gradient);
  group.add("short", {ranks * 8}, gradient, gradient);
  return {group, {1, ranks}};
}

tide::CudaOptions emulated() {
  tide::CudaOptions options = CudaProcess{}.options;
  options.multicast = tide::CudaMulticast::emulated;
  return options;
}

// Rows begin at multiples of 16 bytes here too, and there is enough of them: the own block is copied by bulk loads, and
// cast. "columns" is many rows a pitch apart, and of "b" the last rank has a rest that no vector holds.
Layout moved_layout(index_t ranks) {
  tide::DynamicGroup group;
  group.add("w", {ranks * 160, 1032}, Element::bf16, Element::bf16);
  group.add("columns", {40, ranks * 2056}, Element::bf16, Element::bf16, tide::shard(1));
  group.add("half", {ranks * 2064}, Element::f16, Element::f16);
  group.add("single", {ranks * 2056}, Element::f32, Element::f32);
  group.add("b", {ranks * 5008 - 1}, Element::bf16, Element::bf16);
  return {group, {1, ranks}};
}

// Gathers from every source, twice through both slots; words where a byte is wrong, in the slots or behind them.
// Returns what the fabric says of its paths.
template <class Transport>
std::string gathers(const Layout& layout, const CudaProcess& ranks, std::size_t shift = 0) {
  const index_t n = CudaProcess::world();
  const CollectiveOracle oracle(layout.view());
  std::string said;
  std::string wrong;
  check_no_error(errors_of(ranks, n, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout> pool(fabric, layout);
    Guarded<CudaProcess> guarded(fabric);
    GatherRank<CudaProcess, Layout, Transport> gather(fabric, pool, layout, oracle, {}, shift);
    fabric.init();
    said = describe(fabric);
    tide::CudaStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    std::uint64_t seed = 1;
    for (int turn = 0; turn < 2; ++turn) {
      for (const Source source : {Source::shards, Source::masters, Source::in_place}) {
        gather.step(pool, source, seed++, stream);
      }
    }
    guarded.check(pool, stream);
    fabric.close();
    wrong = gather.verdict() + guarded.verdict();
  }));
  CHECK(wrong == "");
  return said;
}

template <class Epilogue, class Inbox>
void reduces(const Layout& layout, bool is_aligned) {
  const index_t n = CudaProcess::world();
  const CollectiveOracle oracle(layout.view());
  CHECK((n < 3 || oracle.order_sensitive(1) > 0));
  const Missing missing = [](index_t rank, std::size_t parameter) {
    return (static_cast<std::size_t>(rank) + parameter) % 3 == 0;
  };
  std::string wrong;
  std::string said;
  check_no_error(errors_of(CudaProcess{}, n, [&](tide::CudaFabric& fabric) {
    ReduceRank<CudaProcess, Layout, tide::CopyEngineReducer<tide::Burst, Epilogue>, Inbox> reduce(fabric, layout,
                                                                                                  oracle);
    fabric.init();
    said = describe(fabric);
    tide::CudaStream stream = fabric.stream();
    std::uint64_t seed = 1;
    for (const From from : {From::storage, From::table, From::storage, From::table}) {
      reduce.scale(0.37F * static_cast<float>(seed));
      reduce.read(reduce.start(from, seed, stream), seed, stream);
      ++seed;
      reduce.step(from, seed, stream, missing);
      ++seed;
    }
    fabric.close();
    wrong = reduce.verdict();
  }));
  CHECK(wrong == "");
  if (is_aligned) CHECK_MESSAGE(said.find(" 0 of them with bulk loads") == std::string::npos, said);
}

// Waits, for a few seconds, until the stream raises what another rank has failed with.
void wait_for_error(tide::CudaStream& stream) {
  for (int i = 0; i < 1000; ++i) {
    stream.synchronize();
    std::this_thread::sleep_for(5ms);
  }
}

// What a call that breaks a rule raises on each rank.
template <class Bad, class Good>
std::vector<std::string> refused(index_t odd, const Bad& bad, const Good& good) {
  const index_t n = CudaProcess::world();
  const fabric_suite::Block layout({1, n});
  const CollectiveOracle oracle(layout.view());
  return errors_of(CudaProcess{}, n, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, fabric_suite::Block> pool(fabric, layout);
    fabric_suite::BlockGather<CudaProcess> gather(fabric, pool, layout, oracle, "the block");
    CudaProcess::Memory memory(fabric, 4096);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<CudaProcess>(pool, stream);
    gather.step(pool, Source::shards, 1, stream);
    stream.synchronize();
    if (fabric.rank().value == odd) {
      bad(fabric, gather, memory, stream);
      return;
    }
    good(gather, stream);
    wait_for_error(stream);
  });
}

}  // namespace

// First of all: what every other case needs.
TEST_CASE("CudaCommunicators: processes meet at NCCL_COMM_ID, each as the rank that it was told") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) CudaProcess::skip("no GPU");
  CudaProcess::skip_unless_ranks_fit(devices);
  const tide::CudaCommunicators& own = CudaProcess::communicators();
  int count = 0;
  int rank = 0;
  CHECK(ncclCommCount(own.gather(), &count) == ncclSuccess);
  CHECK(ncclCommUserRank(own.reduce(), &rank) == ncclSuccess);
  CHECK(count == CudaProcess::world());
  CHECK(rank == CudaProcess::rank());
  CHECK(own.device() == rank % devices);
}

TEST_CASE("CudaFabric: gathers deliver every byte from every source") {
  const Layout awkward = awkward_layout(CudaProcess::world());
  gathers<tide::UnicastTransport>(awkward, {});
  gathers<tide::MulticastTransport>(awkward, {emulated()});
}

TEST_CASE("CudaFabric: gathers deliver every byte of aligned rows, which are copied by bulk loads") {
  const Layout moved = moved_layout(CudaProcess::world());
  const std::string said = gathers<tide::UnicastTransport>(moved, {});
  CHECK_MESSAGE(said.find("inside the GPU: ") != std::string::npos, said);
  CHECK_MESSAGE(said.find("copies by the driver") == std::string::npos, said);
  CHECK_MESSAGE(said.find("  casts into the own slot: ") != std::string::npos, said);
  for (const std::size_t shift : {4, 8, 12}) {
    CAPTURE(shift);
    gathers<tide::UnicastTransport>(moved, {}, shift);
  }
}

// For machines with an NVSwitch that tests may use, and more than two GPUs.
TEST_CASE("CudaFabric: gathers through an NVSwitch deliver every byte from every source") {
  if (std::getenv("TIDE_TEST_MULTICAST") == nullptr) {
    MESSAGE("skipped: wants TIDE_TEST_MULTICAST=1, an NVSwitch and more than two ranks, each on a GPU of its own");
    return;
  }
  gathers<tide::MulticastTransport>(awkward_layout(CudaProcess::world()), {});
}

TEST_CASE("CudaFabric: user memory may lie anywhere that its elements may") {
  for (const std::size_t shift : {4, 8, 12}) {
    CAPTURE(shift);
    gathers<tide::UnicastTransport>(awkward_layout(CudaProcess::world()), {}, shift);
  }
}

TEST_CASE("CudaFabric: reduces give the tree's bits, stored and added, through rings and slots") {
  const Layout awkward = awkward_layout(CudaProcess::world());
  reduces<tide::Store, tide::Ring<tide::Chunks<2>, tide::Bytes<16384>>>(awkward, false);
  reduces<tide::Accumulate, tide::Ring<tide::Chunks<3>, tide::Bytes<(1 << 20)>>>(awkward, false);
  reduces<tide::Store, tide::SlotReuse>(awkward, false);
}

TEST_CASE("CudaFabric: reduces of aligned rows, which take bulk loads, give the tree's bits") {
  using Inbox = tide::Ring<tide::Chunks<2>, tide::Bytes<(1 << 18)>>;
  for (const Element element : {Element::bf16, Element::f16, Element::f32}) {
    CAPTURE(element);
    const Layout layout = aligned_layout(CudaProcess::world(), element);
    reduces<tide::Store, Inbox>(layout, CudaProcess::world() > 1);
    reduces<tide::Accumulate, Inbox>(layout, CudaProcess::world() > 1);
  }
}

TEST_CASE("CudaFabric: a thousand interleaved steps with changing data, two pipelines of a type, slow kernels") {
  using Inbox = tide::Ring<tide::Chunks<2>, tide::Bytes<2048>>;
  const index_t n = CudaProcess::world();
  many_steps_suite::many_steps<tide::UnicastTransport, Inbox>(CudaProcess{}, n, 1, 1000);
  many_steps_suite::many_steps<tide::MulticastTransport, Inbox>(CudaProcess{emulated()}, n, 2, 100);
}

TEST_CASE("CudaFabric: the suite of every fabric") {
  const CudaProcess ranks;
  if (CudaProcess::world() == 2) {
    fabric_suite::before_init(ranks);
    fabric_suite::slow_stream(ranks);
  }
  if (CudaProcess::world() == 3) {
    fabric_suite::in_order(ranks);
    fabric_suite::one_pipeline_on_two_streams(ranks);
    fabric_suite::exits_after_calls(ranks);
    fabric_suite::absent_from_a_call(ranks);
  }
}

TEST_CASE("CudaFabric: what one rank refuses is the same error on all, long before the deadline") {
  const index_t n = CudaProcess::world();
  const auto begun = std::chrono::steady_clock::now();
  for (index_t odd = 0; odd < n; ++odd) {
    CAPTURE(odd);
    const auto good = [](auto& gather, tide::CudaStream& stream) {
      static_cast<void>(gather.pipeline().enqueue(gather.shards(), stream));
    };
    check_same_error(
        refused(
            odd,
            [n](tide::CudaFabric& fabric, auto& gather, CudaProcess::Memory& memory, tide::CudaStream& stream) {
              // A rank whose shards are empty may give any memory, so what is wrong is whose they are.
              const tide::ShardsView<fabric_suite::Block, tide::Buffer::shards> view(
                  memory.data() + (n == 1 ? 1 : 0), gather.pipeline().layout(),
                  tide::Rank{(fabric.rank().value + 1) % n});
              static_cast<void>(gather.pipeline().enqueue(view, stream));
            },
            good),
        {n == 1 ? "shards must be aligned to their elements" : "shards must be those of the own rank",
         "on rank " + std::to_string(odd)});
  }
  check_same_error(refused(
                       0,
                       [](tide::CudaFabric&, auto& gather, CudaProcess::Memory&, tide::CudaStream& stream) {
                         cudaStream_t own = stream.get();
                         REQUIRE(cudaStreamBeginCapture(own, cudaStreamCaptureModeRelaxed) == cudaSuccess);
                         const std::string text =
                             text_of([&] { static_cast<void>(gather.pipeline().enqueue(gather.shards(), stream)); });
                         cudaGraph_t graph = nullptr;
                         cudaStreamEndCapture(own, &graph);
                         if (graph != nullptr) cudaGraphDestroy(graph);
                         tide::raise(tide::Errc::argument, text);
                       },
                       [](auto& gather, tide::CudaStream& stream) {
                         static_cast<void>(gather.pipeline().enqueue(gather.shards(), stream));
                       }),
                   {"a stream must not be capturing", "gather of 'the block' (2 parameters) on rank 0"});
  CHECK(std::chrono::steady_clock::now() - begun < 50s);
}

TEST_CASE("CudaFabric: base addresses 1 to 15 bytes off are taken or refused by name") {
  const index_t n = CudaProcess::world();
  for (std::size_t off = 1; off < 16; ++off) {
    CAPTURE(off);
    const auto call = [off](tide::CudaFabric& fabric, auto& gather, CudaProcess::Memory& memory,
                            tide::CudaStream& stream) {
      const tide::ShardsView<fabric_suite::Block, tide::Buffer::masters> view(
          memory.data() + off, gather.pipeline().layout(), fabric.rank());
      gather.pipeline().enqueue(view, stream).release(stream);
      stream.synchronize();
    };
    const auto none = [](auto&, tide::CudaStream&) {};
    if (off % 4 == 0) {
      const std::vector<std::string> texts = errors_of(CudaProcess{}, n, [&](tide::CudaFabric& fabric) {
        const fabric_suite::Block layout({1, n});
        const CollectiveOracle oracle(layout.view());
        tide::SlotPool<tide::Depth<2>, fabric_suite::Block> pool(fabric, layout);
        fabric_suite::BlockGather<CudaProcess> gather(fabric, pool, layout, oracle, "the block", off);
        fabric.init();
        tide::CudaStream stream = fabric.stream();
        poison_slots<CudaProcess>(pool, stream);
        gather.step(pool, Source::masters, 1, stream);
        fabric.close();
        if (!gather.verdict().empty()) tide::raise(tide::Errc::operation, gather.verdict());
      });
      check_no_error(texts);
    } else if (off < 4) {
      check_same_error(refused(0, call, none), {"shards must be aligned to their elements"});
    }
  }
}

TEST_CASE("CudaFabric: can be closed twice, and answers afterwards") {
  const index_t n = CudaProcess::world();
  const fabric_suite::Block layout({1, n});
  const CollectiveOracle oracle(layout.view());
  std::string wrong;
  check_no_error(errors_of(CudaProcess{}, n, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, fabric_suite::Block> pool(fabric, layout);
    fabric_suite::BlockGather<CudaProcess> gather(fabric, pool, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<CudaProcess>(pool, stream);
    CudaProcess::occupy(stream, 20ms);
    gather.step(pool, Source::shards, 1, stream);
    const tide::Event event = stream.record();
    fabric.close();
    fabric.close();
    wrong = gather.verdict();
    if (!event.ready()) wrong += "an event has not passed";
    event.synchronize();
    for (const std::string& text :
         {text_of([&] { static_cast<void>(gather.pipeline().enqueue(gather.shards(), stream)); }),
          text_of([&] { static_cast<void>(stream.record()); }), text_of([&] { stream.wait(event); })}) {
      if (text.find("cannot follow close") == std::string::npos) wrong += "accepted, or: " + text;
    }
    if (text_of([&] { fabric.init(); }).empty()) wrong += "init was accepted";
    if (text_of([&] { static_cast<void>(fabric.stream()); }).find("after close") == std::string::npos) {
      wrong += "a stream was made";
    }
  }));
  CHECK(wrong == "");
}

TEST_CASE("CudaFabric: a call that fails half-way fails the fabric on all ranks") {
  const index_t n = CudaProcess::world();
  if (n == 1) return;  // nothing is copied
  const Layout layout = awkward_layout(n);
  const CollectiveOracle oracle(layout.view());
  const std::vector<std::string> texts = errors_of(CudaProcess{}, n, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
    GatherRank<CudaProcess, Layout, tide::UnicastTransport> gather(fabric, pool, layout, oracle);
    CudaProcess::Memory short_memory(fabric, 16);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<CudaProcess>(pool, stream);
    gather.step(pool, Source::shards, 1, stream);
    stream.synchronize();
    if (fabric.rank().value == 0) {
      // The driver finds in the middle of the plan that a copy would read beyond what was allocated.
      const tide::ShardsView<Layout, tide::Buffer::shards> view(short_memory.data(), layout, fabric.rank());
      const std::string first = text_of([&] { gather.pipeline().enqueue(view, stream).release(stream); });
      const std::string again = text_of([&] { static_cast<void>(stream.record()); });
      if (first != again) tide::raise(tide::Errc::operation, "not repeated: " + first + ", then " + again);
      tide::raise(tide::Errc::operation, first);
    }
    gather.pipeline().enqueue(gather.shards(), stream).release(stream);
    wait_for_error(stream);
  });
  check_same_error(texts, {"tide::CudaFabric: cudaMemcpy", "failed: invalid argument"});
}

TEST_CASE("CudaFabric: what a rank that has failed still sends is taken for a result by no other") {
  const index_t n = CudaProcess::world();
  if (n == 1) return;  // nobody to send to
  if (n > 4) return;   // more lanes that wait than there are queues: the error could not be told
  const fabric_suite::Block layout({1, n});
  const CollectiveOracle oracle(layout.view());
  const std::vector<std::byte> expected = oracle.slot(1, Source::shards);
  for (int turn = 0; turn < 4; ++turn) {
    CAPTURE(turn);
    std::string wrong;
    std::vector<std::byte> found(expected.size(), poison);  // a stream may write it until the fabric is gone
    const std::vector<std::string> texts = errors_of(CudaProcess{}, n, [&](tide::CudaFabric& fabric) {
      tide::SlotPool<tide::Depth<1>, fabric_suite::Block> pool(fabric, layout);
      fabric_suite::BlockGather<CudaProcess> gather(fabric, pool, layout, oracle);
      fabric.init();
      tide::CudaStream stream = fabric.stream();
      poison_slots<CudaProcess>(pool, stream);
      tide::Gathered<fabric_suite::Block> params = gather.start(pool, Source::shards, 1, stream);
      stream.synchronize();
      if (fabric.rank().value == 0) {
        // The next gather, whose copies wait for slots that the others hold.
        params.release(stream);
        tide::Gathered<fabric_suite::Block> next = gather.start(pool, Source::shards, 2, stream);
        std::this_thread::sleep_for(turn * 25ms);  // a watchdog reads letters every tenth of a second
        static_cast<void>(CudaProcess::everybody(""));
        fabric.refuse(tide::Errc::argument, "tide::Test: a rank refuses.");
      }
      static_cast<void>(CudaProcess::everybody(""));
      CudaProcess::occupy(stream, 20ms);
      CudaProcess::read(stream, params.data(), found);
      const std::string error = text_of([&] { stream.synchronize(); });
      if (error.empty() && found != expected) wrong = "the slot was overwritten, and nobody said so";
      wait_for_error(stream);
    });
    check_same_error(texts, {"tide::Test: a rank refuses."});
    CHECK(wrong == "");
  }
}

TEST_CASE("CudaFabric: says which path each transfer takes, an emulated multicast by its name") {
  const index_t n = CudaProcess::world();
  const fabric_suite::Block layout({1, n});
  for (const bool emulates : {false, true}) {
    std::string said;
    bool has = false;
    check_no_error(errors_of(emulates ? CudaProcess{emulated()} : CudaProcess{}, n, [&](tide::CudaFabric& fabric) {
      tide::SlotPool<tide::Depth<1>, fabric_suite::Block> pool(fabric, layout);
      std::optional<tide::AllGather<fabric_suite::Block, tide::UnicastTransport>> one;
      std::optional<tide::AllGather<fabric_suite::Block, tide::MulticastTransport>> all;
      if (emulates) {
        all.emplace(fabric, pool, layout, "the block");
      } else {
        one.emplace(fabric, pool, layout, "the block");
      }
      fabric_suite::Reduce reduce(fabric, layout, "the block");
      if (text_of([&] { static_cast<void>(describe(fabric)); }).empty()) said = "before init";
      fabric.init();
      said += describe(fabric);
      has = fabric.has(tide::Capability::multicast);
      fabric.close();
    }));
    if (CudaProcess::rank() == 0 && n == 2) std::printf("%s", said.c_str());
    const auto says = [&](const std::string& words) {
      CHECK_MESSAGE(said.find(words) != std::string::npos, said, " [", words, "]");
    };
    says("CudaFabric: rank " + std::to_string(CudaProcess::rank()) + " of " + std::to_string(n) + " on GPU ");
    says("to rank " + std::to_string(n - 1) + ": ");
    says("gather of 'the block' (2 parameters), ");
    says("reduce of 'the block' (2 parameters), from a table:");
    says(emulates ? "multicast: emulated for tests" : has ? "multicast: by the NVSwitch, as" : "multicast: none, ");
    // One rank has nobody to write to, and the last of eight nothing to write.
    if (n > 1 && CudaProcess::rank() == 0) CHECK((said.find("(emulated)") != std::string::npos) == emulates);
  }
}

// The last: a fabric that nobody closes, with a pipeline and memory, until static objects end. The exit code tells.
TEST_CASE("CudaFabric: may be left to the end of the process") {
  const index_t n = CudaProcess::world();
  static const fabric_suite::Block layout({1, n});
  static const CollectiveOracle oracle(layout.view());
  static tide::CudaFabric fabric(CudaProcess::communicators(), CudaProcess{}.options);
  static tide::SlotPool<tide::Depth<1>, fabric_suite::Block> pool(fabric, layout);
  static fabric_suite::BlockGather<CudaProcess> gather(fabric, pool, layout, oracle);
  fabric.init();
  static tide::CudaStream stream = fabric.stream();
  poison_slots<CudaProcess>(pool, stream);
  gather.step(pool, Source::shards, 1, stream);
  stream.synchronize();
  CHECK(gather.verdict() == "");
  static_cast<void>(CudaProcess::everybody(""));  // nobody ends while another is in its gather
}
