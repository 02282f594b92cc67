// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>
#include <tide/element/f8.hpp>

#include "support/host_ranks.hpp"
#include "support/raised.hpp"
#include "support/rank_errors.hpp"
#include "support/reduce_rank.hpp"

using namespace tide_test;

namespace {

inline constexpr auto group = tide::group(
    tide::param<tide::bf16>("w", {10, 3}), tide::param<tide::bf16, float>("b", {7}),
    tide::param<tide::bf16>("nothing", {0, 4}), tide::param<tide::bf16>("last", {4, 5}), tide::alias("tied", "w"));

using Layout = tide::ShardLayout<group, tide::Mesh<1, tide::dynamic>>;
using Reduce = ReduceRank<HostRanks, Layout, tide::CopyEngineReducer<>, tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>>;

/// Reduces with missing gradients, from storage and from a table, and with all of them again.
void reduce_without(index_t ranks, const Missing& missing) {
  const Layout layout({1, ranks});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  check_no_error(errors_of(HostRanks{}, ranks, [&](tide::HostFabric& fabric) {
    Reduce reduce(fabric, layout, oracle);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    for (const From from : {From::storage, From::table}) {
      reduce.step(from, 1, stream, missing);
      reduce.step(from, 2, stream);
      reduce.step(from, 3, stream, missing);
      reduce.step(from, 4, stream, missing);
    }
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = reduce.verdict();
  }));
  for (index_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(wrong[static_cast<std::size_t>(rank)] == "");
  }
}

}  // namespace

TEST_CASE("Gradients: a gradient missing on one rank counts as zeros, and the others are as they were") {
  for (const index_t ranks : {1, 2, 3, 5}) {
    for (index_t odd = 0; odd < ranks; ++odd) {
      CAPTURE(ranks);
      CAPTURE(odd);
      reduce_without(ranks, [odd](index_t rank, std::size_t parameter) { return rank == odd && parameter == 0; });
    }
  }
}

TEST_CASE("Gradients: one missing on all ranks, all missing on one, all missing on all") {
  reduce_without(3, [](index_t, std::size_t parameter) { return parameter == 1; });
  reduce_without(3, [](index_t rank, std::size_t) { return rank == 1; });
  reduce_without(3, [](index_t, std::size_t) { return true; });
  reduce_without(4,
                 [](index_t rank, std::size_t parameter) { return (rank + static_cast<index_t>(parameter)) % 2 == 0; });
}

TEST_CASE("Gradients: a reduce of nothing but missing gradients may follow at once, while the last still reads") {
  const Layout layout({1, 3});
  const CollectiveOracle oracle(layout.view());
  std::vector<std::string> wrong(3);
  HostRanks slow;
  slow.options.hook = [](const tide::HostHookPoint& point) -> std::optional<std::string> {
    if (point.op.kind == tide::OpKind::copy && point.run == 0) std::this_thread::sleep_for(3ms);
    return std::nullopt;
  };
  check_no_error(errors_of(slow, 3, [&](tide::HostFabric& fabric) {
    Reduce reduce(fabric, layout, oracle);
    HostRanks::Memory second(fabric,
                             static_cast<std::size_t>(layout.view().bytes(tide::Buffer::output, fabric.rank())));
    Checks<HostRanks> checks;
    fabric.init();
    tide::HostStream stream = fabric.stream();
    HostRanks::write(stream, second.data(), oracle.initial(fabric.rank().value, 1));  // poison between the shards
    const tide::ReduceTicket first = reduce.start(From::storage, 1, stream);
    for (index_t p = 0; p < 4; ++p) reduce.storage().missing(tide::ParameterIndex{p});
    const tide::ShardsView<Layout, tide::Buffer::masters> into(second.data(), layout, fabric.rank());
    const tide::ReduceTicket zeros = reduce.pipeline().enqueue(reduce.storage(), into, stream);
    stream.wait(zeros.shards_ready);
    checks.expect(stream, second.data(),
                  oracle.output(fabric.rank().value, 1, 1, false, [](index_t, std::size_t) { return true; }), "zeros");
    stream.wait(zeros.gradients_free);  // the read below overwrites the gradients
    reduce.read(first, 1, stream);
    fabric.close();
    wrong[static_cast<std::size_t>(fabric.rank().value)] = reduce.verdict() + checks.verdict();
  }));
  for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("Gradients: typed access gives whole gradients in their own element") {
  check_no_error(errors_of(HostRanks{}, 2, [](tide::HostFabric& fabric) {
    tide::Gradients<Layout> gradients(fabric);
    fabric.init();
    const auto w = gradients.get<"w">();
    const auto b = gradients.get<"b">();
    static_assert(std::is_same_v<decltype(w), const tide::TensorView<tide::bf16, 10, 3>>);
    static_assert(std::is_same_v<decltype(b), const tide::TensorView<float, 7>>);
    if (gradients.get<"tied">().data() != w.data() || reinterpret_cast<std::byte*>(w.data()) != gradients.data() ||
        reinterpret_cast<std::byte*>(b.data()) != gradients.at(tide::ParameterIndex{1})) {
      tide::raise(tide::Errc::argument, "wrong place");
    }
    gradients.missing<"b">();
    if (!gradients.is_missing(tide::ParameterIndex{1}) || gradients.is_missing(tide::ParameterIndex{0})) {
      tide::raise(tide::Errc::argument, "wrong parameter");
    }
    gradients.none_missing();
    if (gradients.is_missing(tide::ParameterIndex{1})) tide::raise(tide::Errc::argument, "still missing");
  }));
}

TEST_CASE("GradientTable: pointers by name and by position; a tied name is its target") {
  using Static = tide::ShardLayout<group, tide::Mesh<1, 2>>;
  tide::GradientTable<Static> table;
  tide::bf16 w[30];
  table.set<"tied">(w);
  CHECK(table.pointers() == std::vector<const void*>{w, nullptr, nullptr, nullptr});
  table.missing<"w">();
  CHECK(table.is_missing(tide::ParameterIndex{0}));
  CHECK(table.pointers()[0] != nullptr);
  table.missing<"b">();
  table.set(tide::ParameterIndex{0}, w);
  CHECK(!table.is_missing(tide::ParameterIndex{0}));
  CHECK(table.is_missing(tide::ParameterIndex{1}));
  CHECK(!table.is_missing(tide::ParameterIndex{2}));
}
