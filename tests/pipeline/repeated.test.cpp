// SPDX-License-Identifier: Apache-2.0
//
// Parameters that `repeat` made are asked for by what is written there and a number: the same as by the whole name.

#include <doctest/doctest.h>
#include <tide/pipeline/all_gather.hpp>
#include <tide/pipeline/sharded_step.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/transport/unicast_transport.hpp>

#include "support/host_ranks.hpp"
#include "support/raised.hpp"
#include "support/rank_errors.hpp"

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace {

namespace repeated_test {

using namespace tide_test;
using tide::bf16;
using tide::Buffer;
using tide::ParameterIndex;

inline constexpr auto experts =
    tide::group(tide::param<bf16>("router", {6, 3}),
                tide::repeat<3>("experts.{}.", tide::param<bf16>("up", {5, 2}), tide::param<float>("down", {2, 5})),
                tide::repeat<2>("{}", tide::param<bf16>("", {4})),  // called "0" and "1"
                tide::param<bf16>("norm", {7}));

inline constexpr auto tied =
    tide::group(tide::param<bf16>("embed", {6, 3}), tide::repeat<2>("experts.{}.", tide::param<bf16>("w", {4, 2})),
                tide::alias("head", "embed"), tide::alias("shared", "experts.0.w"));
template <tide::FixedString... Names>
inline constexpr auto& left =
    tide::Part<"block", tide::ShardLayout<tied, tide::Mesh<1, 2>>, tide::Frozen<Names...>>::Trainable::group;

using Layout = tide::ShardLayout<experts, tide::Mesh<1, 2>>;
static_assert(Layout::repetitions<"experts.{}.up"> == 3);
static_assert(Layout::repetitions<"{}"> == 2);
static_assert(Layout::repetitions<"experts.{}"> == 0);
static_assert(Layout::repetitions<"experts.0.up"> == 0);
static_assert(Layout::repetitions<"norm"> == 0);
static_assert(Layout::index<"experts.{}.up">(2) == Layout::index<"experts.2.up">());
static_assert(Layout::dense_start_of<"experts.{}.down", Buffer::slot>(1) ==
              Layout::dense_start<"experts.1.down", Buffer::slot>);
static_assert(std::is_same_v<Layout::tensor<"experts.{}.down">, tide::TensorView<float, 2, 5>>);
static_assert(std::is_same_v<Layout::gradient_tensor<"{}">, tide::TensorView<bf16, 4>>);

/// That `by_number(i)` is `by_name<i>()`, for three experts.
template <class A, class B, class C, class N>
void check_same(const A& zero, const B& one, const C& two, const N& by_number) {
  static_assert(std::is_same_v<A, decltype(by_number(0))>);
  CHECK(by_number(0).data() == zero.data());
  CHECK(by_number(1).data() == one.data());
  CHECK(by_number(2).data() == two.data());
  for (const tide::index_t number : {-1, 3}) {
    CHECK(text_of([&] { static_cast<void>(by_number(number)); }) ==
          "tide::ShardLayout: a repetition must be one of the group's; 'experts.{}.down' has no number " +
              std::to_string(number) + ".");
  }
}

}  // namespace repeated_test

}  // namespace

TEST_CASE("repeated parameters: positions and starts, also of numbers that are left out") {
  using namespace repeated_test;
  for (tide::index_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(Layout::index<"experts.{}.up">(i) == ParameterIndex{1 + 2 * i});
    CHECK(Layout::index<"experts.{}.down">(i) == ParameterIndex{2 + 2 * i});
    const tide::Piece piece = Layout{}.view().piece(ParameterIndex{2 + 2 * i}, tide::Rank{1});
    CHECK(Layout::dense_start_of<"experts.{}.down", Buffer::slot>(i) ==
          piece.start[static_cast<std::size_t>(Buffer::slot)]);
    CHECK(Layout::dense_start_of<"experts.{}.down", Buffer::gradients>(i) ==
          piece.start[static_cast<std::size_t>(Buffer::gradients)]);
  }
  CHECK(Layout::index<"{}">(1) == ParameterIndex{8});

  using One = tide::Part<"block", Layout, tide::Frozen<"experts.1.up">>::Trainable;
  CHECK(One::repetitions<"experts.{}.up"> == 3);
  CHECK(One::index<"experts.{}.up">(2) == One::index<"experts.2.up">());
  CHECK(text_of([] { static_cast<void>(One::index<"experts.{}.up">(1)); }) ==
        "tide::ShardLayout: a repetition must be one of the group's; 'experts.{}.up' has no number 1.");
  using All = tide::Part<"block", Layout, tide::Frozen<"experts.{}.up", "norm">>::Trainable;
  CHECK(All::repetitions<"experts.{}.up"> == 0);
  CHECK(All::repetitions<"experts.{}.down"> == 3);
  CHECK(All::group.view().size() == 6);
}

TEST_CASE("repeated parameters: a tied name is frozen with its parameter, and freezes it") {
  using namespace repeated_test;
  CHECK(left<"experts.1.w">.aliases.size() == 2);
  for (const auto& group : {left<"experts.0.w">.view(), left<"shared">.view()}) {
    CHECK(group.size() == 2);
    CHECK(group.find("experts.1.w") == ParameterIndex{1});
    CHECK(group.find("head") == ParameterIndex{0});
    CHECK(!group.find("shared"));
  }
  for (const auto& group : {left<"experts.{}.w">.view(), left<"shared", "experts.1.w">.view()}) {
    CHECK(group.size() == 1);
    CHECK(group.find("head") == ParameterIndex{0});
    CHECK(!group.find("shared"));
  }
  const auto without_head = left<"head">.view();
  CHECK(without_head.size() == 2);
  CHECK(!without_head.find("embed"));
  CHECK(!without_head.find("head"));
  CHECK(without_head.find("shared") == ParameterIndex{0});
}

TEST_CASE("repeated parameters: shards, gradients, tables and own blocks") {
  using namespace repeated_test;
  alignas(16) std::byte memory[1024] = {};
  const tide::ShardsView<Layout, Buffer::masters> masters(memory, Layout{}, tide::Rank{1});
  check_same(masters.get<"experts.0.down">(), masters.get<"experts.1.down">(), masters.get<"experts.2.down">(),
             [&](tide::index_t i) { return masters.get<"experts.{}.down">(i); });
  CHECK(masters.rows<"experts.{}.up">(2) == masters.rows<"experts.2.up">());
  CHECK(masters.get<"experts.{}.up">(1).size() == 4);  // 2 of 5 rows

  std::vector<std::byte> slot(static_cast<std::size_t>(Layout::slot_bytes));
  const tide::OwnBlockView<Layout> own(slot.data(), Layout{}, tide::Rank{1});
  CHECK(own.get<"experts.{}.down">(2).data == own.get<"experts.2.down">().data);
  CHECK(own.get<"experts.{}.down">(2).rows == 1);
  CHECK(own.get<"experts.{}.down">(2).width == 5);
  CHECK(text_of([&] { static_cast<void>(own.rows_of(ParameterIndex{10})); }) ==
        "tide::ParameterIndex: a position must be one of the group's; there is no parameter 10 of 10.");

  tide::GradientTable<Layout> table;
  bf16 up[10];
  table.set<"experts.{}.up">(1, up);
  CHECK(table.pointers()[3] == up);
  table.missing<"experts.{}.down">(2);
  CHECK(table.is_missing(ParameterIndex{6}));
  CHECK(!table.is_missing(ParameterIndex{4}));
}

TEST_CASE("repeated parameters: in a gather and in a step, and missing by number") {
  using namespace repeated_test;
  using Model = tide::Parts<tide::Part<"block", Layout, tide::Frozen<"experts.{}.up">>>;
  using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::SingleNode,
                                 tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>>;
  std::vector<std::vector<float>> sums(2);
  check_no_error(errors_of(HostRanks{}, 2, [&](tide::HostFabric& fabric) {
    tide::SlotPool<tide::Depth<1>, Layout> pool(fabric);
    tide::AllGather<Layout, tide::UnicastTransport> gather(fabric, pool);
    tide::Shards<Layout> shards(fabric);
    tide::Gradients<Layout> gradients(fabric);
    Step step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    auto params = gather.enqueue(shards, stream);
    stream.synchronize();
    const bool checks = fabric.rank().value == 0;  // doctest counts on one thread at a time
    if (checks) {
      check_same(params.get<"experts.0.down">(), params.get<"experts.1.down">(), params.get<"experts.2.down">(),
                 [&](tide::index_t i) { return params.get<"experts.{}.down">(i); });
      check_same(gradients.get<"experts.0.down">(), gradients.get<"experts.1.down">(),
                 gradients.get<"experts.2.down">(),
                 [&](tide::index_t i) { return gradients.get<"experts.{}.down">(i); });
    }
    params.release(stream);

    step.load(stream, [](auto) {});
    auto forward = step.forward<"block">(stream);
    if (checks) {
      check_same(forward.get<"experts.0.down">(), forward.get<"experts.1.down">(), forward.get<"experts.2.down">(),
                 [&](tide::index_t i) { return forward.get<"experts.{}.down">(i); });
    }
    forward.release();
    auto backward = step.backward<"block">(stream);
    if (checks) {
      check_same(backward.gradient<"experts.0.down">(), backward.gradient<"experts.1.down">(),
                 backward.gradient<"experts.2.down">(),
                 [&](tide::index_t i) { return backward.gradient<"experts.{}.down">(i); });
    }
    // Expert i of rank r has the gradient 10 r + i + 1; rank 1 has none of expert 2.
    for (tide::index_t i = 0; i < 3; ++i) {
      if (fabric.rank().value == 1 && i == 2) {
        backward.missing<"experts.{}.down">(i);
        continue;
      }
      stream.run([down = backward.gradient<"experts.{}.down">(i), value = 10 * fabric.rank().value + i + 1] {
        for (float& g : down.elements()) g = static_cast<float>(value);
      });
    }
    backward.missing<"router">();
    backward.missing<"norm">();
    for (tide::index_t i = 0; i < 2; ++i) backward.missing<"{}">(i);
    backward.reduce();
    step.update(stream, [&](auto group) {
      stream.run([group, &own = sums[static_cast<std::size_t>(fabric.rank().value)]] {
        for (tide::index_t i = 0; i < 3; ++i) own.push_back(group.reduced().template get<"experts.{}.down">(i)[0]);
      });
    });
    stream.synchronize();
    fabric.close();
  }));
  const std::vector<float> means{(1 + 11) / 2.0F, (2 + 12) / 2.0F, 3 / 2.0F};
  CHECK(sums == std::vector<std::vector<float>>{means, means});
}

TEST_CASE("parameters by position: those of the group in a step, those that train in its gradients, none beyond") {
  using namespace repeated_test;
  using OneRank = tide::ShardLayout<experts, tide::Mesh<1, 1>>;
  using Model = tide::Parts<tide::Part<"block", OneRank, tide::Frozen<"router", "experts.{}.up">>>;
  using Step = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::SingleNode,
                                 tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>>;
  std::vector<std::string> said;
  std::vector<float> own;
  tide::HostCluster cluster({1, 1});
  cluster.run([&](tide::HostFabric& fabric) {
    Step step(fabric);
    fabric.init();
    tide::HostStream stream = fabric.stream();
    step.load(stream, [&](auto group) {
      stream.run([group] {
        group.masters().for_each([](const tide::Piece& piece, std::span<float> values) {
          for (float& w : values) w = static_cast<float>(piece.parameter.value);
        });
      });
    });
    step.save(stream, [&](auto group) {
      stream.run([group, &own] {
        group.masters().for_each([&](const tide::Piece&, std::span<float> values) { own.push_back(values.back()); });
      });
    });
    auto forward = step.forward<"block">(stream);
    CHECK(forward.at(OneRank::index<"experts.1.down">()) ==
          reinterpret_cast<std::byte*>(forward.get<"experts.1.down">().data()));
    said.push_back(text_of([&] { static_cast<void>(forward.at(ParameterIndex{10})); }));
    forward.release();
    auto backward = step.backward<"block">(stream);
    CHECK(backward.gradient(OneRank::index<"experts.1.down">()) ==
          reinterpret_cast<std::byte*>(backward.gradient<"experts.1.down">().data()));
    backward.missing(OneRank::index<"norm">());
    const tide::Gradients<tide::Part<"block", OneRank, tide::Frozen<"router", "experts.{}.up">>::Trainable>& gradients =
        backward.gradients();
    CHECK(gradients.is_missing(ParameterIndex{5}));
    for (const tide::index_t position : {-1, 0, 3, 10}) {
      said.push_back(text_of([&] { backward.missing(ParameterIndex{position}); }));
    }
    said.push_back(text_of([&] { backward.gradients().missing(ParameterIndex{6}); }));
    backward.all_missing();
    backward.reduce();
    stream.synchronize();
    fabric.close();
  });
  const std::string none = "tide::ParameterIndex: a position must be one of the group's; there is no parameter ";
  const std::string frozen = "tide::ShardedStep: a frozen parameter has no gradient; '";
  CHECK(said == std::vector<std::string>{none + "10 of 10.", none + "-1 of 10.", frozen + "router' of 'block'.",
                                         frozen + "experts.1.up' of 'block'.", none + "10 of 10.", none + "6 of 6."});
  CHECK(own == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}
