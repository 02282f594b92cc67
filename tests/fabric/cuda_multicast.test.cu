// SPDX-License-Identifier: Apache-2.0
//
// Multicast by an NVSwitch, with GPUs, driver, NCCL and switch played on the CPU (support/played_gpus.cuh): which
// machines have it, that init tries it, that plans write to NCCL's address once per block and every byte arrives. That
// real hardware does what is played here, no test of ours has seen.
//
// labels: no_gpu

#include "support/played_gpus.cuh"

#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/all_gather.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/gather_rank.hpp"
#include "support/node_reduces.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace tide_test;

using Layout = tide::DynamicLayout;
using tide::Element;
using tide::detail::MulticastFacts;
using tide::detail::why_no_multicast;

// Odd rows, single elements, nothing at all, other dimensions, many of one shape: flat copies and 2-D ones.
Layout awkward_layout(tide::MeshShape mesh) {
  tide::DynamicGroup group;
  group.add("odd", {7, 13}, Element::bf16, Element::bf16);
  group.add("one", {1}, Element::bf16, Element::bf16);
  group.add("none", {0, 4}, Element::bf16, Element::bf16);
  for (int i = 0; i < 6; ++i) {
    group.add("experts." + std::to_string(i) + ".gate", {24, 40}, Element::bf16, Element::bf16);
    group.add("experts." + std::to_string(i) + ".down", {40, 24}, Element::bf16, Element::bf16);
  }
  group.add("columns", {5, 2 * mesh.ranks()}, Element::bf16, Element::bf16, tide::shard(1));
  group.add("single", {33, 3}, Element::f32, Element::f32);
  group.add("byte", {13, 3}, Element::f8_e4m3, Element::f8_e4m3);
  return {group, mesh};
}
Layout awkward_layout(index_t ranks) { return awkward_layout(tide::MeshShape{1, ranks}); }

PlayedRanks with_switch(index_t ranks) { return PlayedRanks{PlayedMachine(ranks)}; }

// What each rank raised, and in `wrong` what gathers of both sources delivered wrong.
template <class Transport, class Inter = tide::SingleNode>
std::vector<std::string> gather(const PlayedRanks& ranks, tide::MeshShape mesh, std::string& wrong) {
  const Layout layout = awkward_layout(mesh);
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> verdicts(static_cast<std::size_t>(mesh.ranks()));
  const std::vector<std::string> texts = errors_of(ranks, mesh.ranks(), [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<2>, Layout> pool(fabric, layout);
    Guarded<PlayedRanks> guarded(fabric);
    GatherRank<PlayedRanks, Layout, Transport, Inter> rank(fabric, pool, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    guarded.poison_all(pool, stream);
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      rank.step(pool, seed % 2 == 0 ? Source::in_place : Source::shards, seed, stream);
    }
    guarded.check(pool, stream);
    stream.synchronize();
    fabric.close();
    verdicts[static_cast<std::size_t>(fabric.rank().value)] = rank.verdict() + guarded.verdict();
  });
  for (const std::string& verdict : verdicts) wrong += verdict;
  return texts;
}

// What the ranks raise on such a machine: one after the other, each sentence once.
std::string said(const PlayedRanks& ranks, index_t n) {
  std::string all;
  std::string wrong;
  for (const std::string& text : gather<tide::MulticastTransport>(ranks, {1, n}, wrong)) {
    if (all.find(text) == std::string::npos) all += text + "\n";
  }
  CHECK(wrong == "");
  return all;
}

bool holds(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("why_no_multicast: names the first thing that is missing, and nothing where all is there") {
  struct Row {
    MulticastFacts facts;
    std::string words;
  };
  const std::vector<Row> rows = {
      {{true, nullptr, 8, 8, true}, ""},
      {{true, nullptr, 3, 3, true}, ""},
      {{true, "2", 8, 8, true}, ""},
      {{true, "1", 8, 8, std::nullopt}, ""},  // before NCCL 2.29.2 nobody can say
      {{true, "off", 8, 8, true}, ""},        // no number: NCCL takes its default
      {{true, "", 8, 8, true}, ""},
      {{false, nullptr, 8, 8, true}, "CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED is 0"},
      {{false, "0", 2, 1, false}, "CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED is 0"},
      {{true, "0", 8, 8, true}, "NCCL_NVLS_ENABLE=0 switches it off"},
      {{true, "0x0", 8, 8, std::nullopt}, "NCCL_NVLS_ENABLE=0x0 switches it off"},
      {{true, nullptr, 2, 2, true},
       "more than 2 ranks that reach each other's memory, each on a GPU of its own; here "
       "are 2"},
      {{true, nullptr, 1, 1, true}, "here is 1"},
      {{true, nullptr, 8, 4, true}, "spans all 8 ranks that reach each other's memory; a logical node of 4 has none"},
      {{true, nullptr, 8, 8, false}, "NCCL says that this communicator has no multimem"},
  };
  for (const Row& row : rows) {
    const std::string why = why_no_multicast(row.facts);
    CAPTURE(why);
    CAPTURE(row.words);
    CHECK(why.empty() == row.words.empty());
    CHECK(holds(why, row.words));
  }
}

TEST_CASE("CudaFabric: with a switch a gather writes each block once, to NCCL's address, and every byte arrives") {
  for (const index_t n : {3, 4, 5, 8}) {
    CAPTURE(n);
    std::string wrong;
    check_no_error(gather<tide::MulticastTransport>(with_switch(n), {1, n}, wrong));
    CHECK(wrong == "");
    const Layout layout = awkward_layout(n);
    tide::Collective collective;
    collective.layout = layout.view();
    int blocks = static_cast<int>(n * static_cast<index_t>(tide::detail::trial_blocks.size()));
    for (const tide::OwnBlock own : {tide::OwnBlock::multicast, tide::OwnBlock::in_place}) {
      collective.own = own;
      for (index_t r = 0; r < n; ++r) {
        for (const tide::Op& op : tide::MulticastTransport::gather(collective, tide::Rank{r}).ops) {
          blocks += op.kind == tide::OpKind::multicast ? 3 : 0;
        }
      }
    }
    CHECK(played::state.multicast_copies == blocks);
    // Beside them go only the letters of init and close, which are no plan's: as many as without any gather.
    const int copies = played::state.peer_copies;
    check_no_error(errors_of(with_switch(n), n, [](tide::CudaFabric& fabric) {
      fabric.init();
      fabric.close();
    }));
    CHECK(played::state.peer_copies == copies);
    CHECK(played::state.address_questions == 0);
  }
}

TEST_CASE("CudaFabric: nobody asks NCCL for the address unless a plan of some rank needs it") {
  std::string wrong;
  check_no_error(gather<tide::UnicastTransport>(with_switch(4), {1, 4}, wrong));
  CHECK(wrong == "");
  CHECK(played::state.address_questions == 0);
  CHECK(played::state.multicast_copies == 0);
  // One row: rank 0 alone has something to write, and all ask.
  const Layout layout(
      [] {
        tide::DynamicGroup group;
        group.add("row", {1, 5}, Element::bf16, Element::bf16);
        return group;
      }(),
      {1, 4});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> verdicts(4);
  check_no_error(errors_of(with_switch(4), 4, [&](tide::CudaFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
    GatherRank<PlayedRanks, Layout, tide::MulticastTransport> rank(fabric, pool, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    poison_slots<PlayedRanks>(pool, stream);
    rank.step(pool, Source::shards, 1, stream);
    stream.synchronize();
    fabric.close();
    verdicts[static_cast<std::size_t>(fabric.rank().value)] = rank.verdict();
  }));
  for (const std::string& verdict : verdicts) CHECK(verdict == "");
  CHECK(played::state.address_questions == 4);
}

TEST_CASE("CudaFabric: without multicast the policy is refused, and the refusal says why") {
  const std::string rule =
      "tide::Transport: the fabric must have what the policy needs; multicast needs multicast, "
      "which this CudaFabric has not: ";
  CHECK(holds(said(with_switch(2), 2), rule + "it needs more than 2 ranks"));
  CHECK(holds(said(with_switch(1), 1), rule + "it needs more than 2 ranks"));
  PlayedRanks ranks = with_switch(4);
  ranks.options.multicast = tide::CudaMulticast::missing;
  CHECK(holds(said(ranks, 4), rule + "CudaOptions::multicast is missing."));
  for (const int attribute : {0, -1}) {
    ranks = with_switch(4);
    ranks.machine.gpu_has_multicast.assign(4, attribute);
    CHECK(holds(said(ranks, 4), rule + "the GPU or its driver has none"));
  }
  ranks = with_switch(4);
  ranks.machine.environment = "0";
  CHECK(holds(said(ranks, 4), rule + "NCCL_NVLS_ENABLE=0 switches it off."));
  CHECK(played::state.address_questions == 0);
  ranks = with_switch(4);
  ranks.machine.nccl_has_multimem.assign(4, 0);
  if (NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)) {
    CHECK(holds(said(ranks, 4), rule + "NCCL says that this communicator has no multimem;"));
    CHECK(played::state.address_questions == 0);
  }
}

TEST_CASE("CudaFabric: a logical node inside what NCCL's address spans has no multicast") {
  PlayedRanks ranks = with_switch(6);
  ranks.options.nodes = 2;
  std::vector<std::string> lacks(12);
  ranks.run(6, [&](tide::CudaFabric& fabric) {
    const auto at = 2 * static_cast<std::size_t>(fabric.rank().value);
    lacks[at] = fabric.lacks(tide::Capability::multicast);
    lacks[at + 1] = fabric.lacks(tide::Capability::switch_sums);
  });
  for (const std::string& why : lacks) CHECK(holds(why, "NCCL's address spans all 6 ranks"));
}

TEST_CASE("CudaFabric: all ranks get the address or none does, and each says which of them has none") {
  const std::string rule = "tide::CudaFabric: where a policy asks for multicast, every rank must have its address; ";
  const auto check_refused = [&](const PlayedRanks& ranks, const std::string& why) {
    std::string wrong;
    const std::vector<std::string> texts = gather<tide::MulticastTransport>(ranks, {1, 4}, wrong);
    for (std::size_t r = 0; r < texts.size(); ++r) {
      CAPTURE(r);
      CAPTURE(texts[r]);
      CHECK(holds(texts[r],
                  rule + (r == 2 ? "rank 2: " + why : "another rank than " + std::to_string(r) + " says more.")));
    }
    CHECK(played::state.multicast_copies == 0);
  };
  PlayedRanks ranks = with_switch(4);
  ranks.machine.nccl_gives_address[2] = 0;  // as with a fabric manager that is not well
  check_refused(ranks, "nccl");
  CHECK(played::state.address_questions == 4);
  ranks = with_switch(4);
  ranks.emulating = 2;
  check_refused(ranks, "its CudaOptions::multicast is another.");
  CHECK(played::state.address_questions == 0);
}

TEST_CASE("CudaFabric: a switch that loses or changes a byte is found in init, with rank and shape of the write") {
  const std::string rule =
      "tide::CudaFabric: what a rank writes to the multicast address must arrive on every rank of "
      "its node as it was sent; ";
  PlayedRanks ranks = with_switch(5);
  ranks.machine.loses_writes_to = 3;
  std::string text = said(ranks, 5);
  CHECK(holds(text, rule + "rank 3: a copy from rank 0 of the node is not what was sent."));
  CHECK(holds(text, rule + "another rank than 1 says more."));
  for (const tide::detail::TrialBlock& block : tide::detail::trial_blocks) {
    CAPTURE(block.what);
    ranks = with_switch(3);
    ranks.machine.spoils_width = block.width;
    text = said(ranks, 3);
    CAPTURE(text);
    CHECK(holds(text, rule));
    CHECK(holds(text, std::string(": ") + block.what + " from rank 0 of the node is not what was sent."));
  }
}

TEST_CASE("CudaFabric: emulation writes one copy per rank, and asks for no address") {
  PlayedRanks ranks = with_switch(5);
  ranks.options.multicast = tide::CudaMulticast::emulated;
  std::string wrong;
  check_no_error(gather<tide::MulticastTransport>(ranks, {1, 5}, wrong));
  CHECK(wrong == "");
  CHECK(played::state.address_questions == 0);
  CHECK(played::state.multicast_copies == 0);
  CHECK(played::state.peer_copies > 0);
}

TEST_CASE("CudaFabric: says of multicast whether there is any, and whether plans use it") {
  const index_t n = 3;
  const Layout layout = awkward_layout(n);
  const auto described = [&](bool asks) {
    std::vector<std::string> texts(static_cast<std::size_t>(n));
    with_switch(n).run(n, [&](tide::CudaFabric& fabric) {
      tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
      std::optional<tide::AllGather<Layout, tide::MulticastTransport>> gather;
      if (asks) gather.emplace(fabric, pool, layout, "all");
      fabric.init();
      texts[static_cast<std::size_t>(fabric.rank().value)] = describe(fabric);
      fabric.close();
    });
    return texts[0];
  };
  const std::string without = described(false);
  CHECK_MESSAGE(holds(without, "multicast: by the NVSwitch, as NCCL says; no policy here asks for it"), without);
  const std::string with = described(true);
  CHECK_MESSAGE(holds(with, "multicast: by the NVSwitch, one write to NCCL's multicast address; tried in init"), with);
  CHECK_MESSAGE(holds(with, "  to all ranks of the node: "), with);
  CHECK_FALSE(holds(with, "emulated"));
}

// ---- sums, and nodes ------------------------------------------------------------------------------------------------

namespace {

using tide::detail::CudaLaunch;
using tide::detail::CudaRow;

bool adds_wrong = false;

// The kernel of sums in the switch, as a loop; the switch adds the arenas of all ranks of the node.
void add_in_switch(const CudaLaunch& launch, bool accumulates) {
  const auto distance = static_cast<std::size_t>(launch.source - played::multicast_address);
  const auto load = [&](std::int64_t element) {
    float sum = 0;
    for (std::size_t r = 0; r < played::state.arenas.size(); ++r) {
      if (played::team_of(r) != distance / played::multicast_bytes) continue;
      sum += reinterpret_cast<const float*>(played::state.arenas[r] + distance % played::multicast_bytes)[element];
    }
    return sum + (adds_wrong && element == 206 ? 1.0F : 0.0F);
  };
  for (int i = 0; i < launch.row_count; ++i) {
    const CudaRow& row = launch.rows[i];
    for (std::int64_t e = 0; e < row.elements; ++e) {
      float sum = load(row.source + e);
      for (int input = 1; input < launch.inputs; ++input) {
        sum += load(row.piece + (input - 1) * (launch.piece_stride / 4) + e);
      }
      float& out = reinterpret_cast<float*>(launch.target)[row.target + e];
      out = launch.scale * sum + (accumulates ? out : 0.0F);
    }
  }
}

// What trials find when ranks try sums in the switch, each rank for itself.
std::vector<std::string> try_sums(index_t n) {
  std::vector<std::string> texts(static_cast<std::size_t>(n));
  with_switch(n).run(n, [&](tide::CudaFabric& fabric) {
    const Layout layout = awkward_layout(n);
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric, layout);
    const tide::AllGather<Layout, tide::MulticastTransport> gather(fabric, pool, layout);
    const index_t offset = fabric.reserve(tide::detail::MulticastTrial::bytes(n), 256);
    fabric.init();
    tide::detail::MulticastStarts starts;
    starts.set_hardware(played::multicast_address);
    tide::detail::MulticastTrial trial(fabric.arena(), offset, fabric.rank().value, n, nullptr);
    const auto self = static_cast<std::size_t>(fabric.rank().value);
    const auto meet = [&] { static_cast<void>(played::meet(fabric.rank().value, nullptr, [](const auto&) {})); };
    trial.prepare();
    meet();
    texts[self] = trial.wrong_sum(starts, [](const CudaLaunch& launch, int, cudaStream_t) {
      add_in_switch(launch, true);
      return cudaSuccess;
    });
    meet();
    fabric.close();
  });
  return texts;
}

}  // namespace

TEST_CASE("MulticastTrial: a sum in the switch is that of all ranks, or a word of it is named that is not") {
  for (const index_t n : {3, 8}) {
    CAPTURE(n);
    for (const std::string& text : try_sums(n)) CHECK(text == "");
    adds_wrong = true;
    for (const std::string& text : try_sums(n)) CHECK(holds(text, " where the sum of word 206 is "));
    adds_wrong = false;
  }
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 2)

namespace {

// The kernel of sums in a node, of whole numbers, whose sums are exact in every order.
void add_in_node(const CudaLaunch& launch) {
  using tide::bf16;
  for (int i = 0; i < launch.row_count; ++i) {
    const CudaRow& row = launch.rows[i];
    const void* base = launch.table != nullptr ? launch.table[row.parameter] : launch.source;
    const bf16* own = static_cast<const bf16*>(base) + row.source;
    const std::byte* pieces = launch.pieces + row.piece * 2;
    for (std::int64_t e = 0; e < row.elements; ++e) {
      float sum = tide::convert<float>(own[e]);
      for (int piece = 0; piece + 1 < launch.inputs; ++piece) {
        sum += tide::convert<float>(reinterpret_cast<const bf16*>(pieces + piece * launch.piece_stride)[e]);
      }
      reinterpret_cast<float*>(launch.target)[row.target + e] = launch.scale * sum;
    }
  }
}

template <class... T>
bool is_any_of(const void* kernel, T*... kernels) {
  return ((kernel == reinterpret_cast<const void*>(kernels)) || ...);
}

cudaError_t play_sums(const void* kernel, const CudaLaunch& launch) {
  using namespace tide::detail;
  const bool accumulates = is_any_of(kernel, &switch_sum_kernel<true>);
  if (accumulates || is_any_of(kernel, &switch_sum_kernel<false>)) {
    if (launch.node != nullptr || !played::is_multicast(launch.source)) return cudaErrorInvalidValue;
    add_in_switch(launch, accumulates);
    return cudaSuccess;
  }
  if (!is_any_of(kernel, &sum_kernel<tide::bf16, 3, false>, &sum_kernel<tide::bf16, 4, false>)) {
    return cudaErrorInvalidDeviceFunction;
  }
  add_in_node(launch);
  return cudaSuccess;
}

using Puts = tide::RdmaDoublingTransport<tide::Bytes<4096>, tide::PutsInFlight<2>>;
using Few = tide::Ring<tide::Chunks<3>, tide::Bytes<16384>>;

PlayedRanks with_nodes(tide::MeshShape mesh) {
  PlayedRanks ranks = with_switch(mesh.ranks());
  ranks.machine.nccl_teams = static_cast<int>(mesh.nodes);
  ranks.machine.kernel = &play_sums;
  return ranks;
}

// What each rank raised while it reduced some steps; in `wrong` what was wrong in outputs.
template <class Reducer>
std::vector<std::string> reduce(tide::MeshShape mesh, std::string& wrong) {
  const Layout layout(node_group({Element::bf16}, mesh.ranks()), mesh);
  const CollectiveOracle oracle(layout.view(), Values::whole);
  std::vector<std::string> verdicts(static_cast<std::size_t>(mesh.ranks()));
  const std::vector<std::string> texts = errors_of(with_nodes(mesh), mesh.ranks(), [&](tide::CudaFabric& fabric) {
    ReduceRank<PlayedRanks, Layout, Reducer, Few, Puts> rank(fabric, layout, oracle);
    fabric.init();
    tide::CudaStream stream = fabric.stream();
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      rank.step(seed % 2 == 0 ? From::storage : From::table, seed, stream);
    }
    fabric.close();
    verdicts[static_cast<std::size_t>(fabric.rank().value)] = rank.verdict();
  });
  for (const std::string& verdict : verdicts) wrong += verdict;
  return texts;
}

}  // namespace

TEST_CASE("CudaFabric: over nodes each switch spreads what came to its node, and adds what lies in it") {
  for (const tide::MeshShape mesh : {tide::MeshShape{2, 3}, tide::MeshShape{5, 3}, tide::MeshShape{3, 4}}) {
    CAPTURE(mesh.nodes);
    std::string wrong;
    check_no_error(reduce<tide::SwitchReducer<>>(mesh, wrong));
    check_no_error(reduce<tide::SwitchReducer<tide::Burst, tide::Accumulate>>(mesh, wrong));
    CHECK(played::state.address_questions == mesh.ranks());
    check_no_error(gather<tide::MulticastTransport, Puts>(with_nodes(mesh), mesh, wrong));
    CHECK(wrong == "");
  }
}

TEST_CASE("CudaFabric: a switch that adds wrong is found in init") {
  adds_wrong = true;
  std::string wrong;
  const std::vector<std::string> texts = reduce<tide::SwitchReducer<>>({2, 3}, wrong);
  adds_wrong = false;
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(holds(text, "tide::CudaFabric: a switch must add what lies on all ranks of a node; rank "));
    CHECK(holds(text, " where the sum of word "));
  }
}

#endif
