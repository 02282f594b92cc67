// SPDX-License-Identifier: Apache-2.0
#include <tide/layout/dynamic_layout.hpp>
#include <tide/pipeline/part.hpp>

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {8, 4}), tide::param<tide::bf16>("b", {8}));
using Layout = tide::ShardLayout<weights, tide::Mesh<1, 2>>;

#if TIDE_CASE == 1  // expect: tide::Part: the options must be Repeat, KeepGathered or Frozen
auto subject = tide::Part<"blocks", Layout, tide::Depth<2>>::repeat;
#elif TIDE_CASE == 2   // expect: tide::Part: an option must be given once
auto subject = tide::Part<"blocks", Layout, tide::Repeat<2>, tide::Repeat<3>>::repeat;
#elif TIDE_CASE == 3   // expect: tide::Part: a frozen name must be a parameter of the group
auto subject = tide::Part<"blocks", Layout, tide::Frozen<"c">>::repeat;
#elif TIDE_CASE == 4   // expect: tide::Part: a part whose parameters are all frozen is Frozen<>
auto subject = tide::Part<"blocks", Layout, tide::Frozen<"w", "b">>::repeat;
#elif TIDE_CASE == 5   // expect: tide::Part: only a ShardLayout can have parameters frozen by name
auto subject = tide::Part<"blocks", tide::DynamicLayout, tide::Frozen<"w">>::repeat;
#elif TIDE_CASE == 6   // expect: tide::Parts: a model needs at least one Part
auto subject = tide::Parts<>::groups;
#elif TIDE_CASE == 7   // expect: tide::Parts: the names of the parts must differ
auto subject = tide::Parts<tide::Part<"blocks", Layout>, tide::Part<"blocks", Layout>>::groups;
#elif TIDE_CASE == 8   // expect: tide::Parts: a model must be made of Part and Layers
auto subject = tide::Parts<tide::Part<"blocks", Layout>, Layout>::groups;
#elif TIDE_CASE == 9   // expect: tide::Layers: the first argument must be a Repeat
auto subject = tide::Parts<tide::Layers<tide::Depth<2>, tide::Part<"blocks", Layout>>>::groups;
#elif TIDE_CASE == 10  // expect: tide::Layers: a layer needs at least one Part
auto subject = tide::Parts<tide::Layers<tide::Repeat<2>>>::groups;
#elif TIDE_CASE == 11  // expect: tide::Layers: what takes turns must be a Part
auto subject = tide::Parts<tide::Layers<tide::Repeat<2>, Layout>>::groups;
#elif TIDE_CASE == 12  // expect: tide::Layers: a Part that takes turns must not have a Repeat of its own
auto subject = tide::Parts<tide::Layers<tide::Repeat<2>, tide::Part<"blocks", Layout, tide::Repeat<2>>>>::groups;
#elif TIDE_CASE == 13  // expect: tide::Parts: the layouts of all parts must have the same Mesh
using Wide = tide::ShardLayout<weights, tide::Mesh<tide::dynamic, 4>>;
auto subject = tide::Parts<tide::Part<"blocks", Layout>, tide::Part<"head", Wide>>::groups;
#else                  // control: options, a frozen name, unlike names, parts that take turns
auto subject = tide::Parts<tide::Part<"blocks", Layout, tide::Repeat<2>, tide::KeepGathered, tide::Frozen<"b">>,
                           tide::Layers<tide::Repeat<2>, tide::Part<"attention", Layout>, tide::Part<"mlp", Layout>>,
                           tide::Part<"head", tide::DynamicLayout, tide::Frozen<>>>::groups;
#endif
