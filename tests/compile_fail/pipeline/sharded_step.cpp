// SPDX-License-Identifier: Apache-2.0
#include <tide/fabric/host_port.hpp>
#include <tide/pipeline/sharded_step.hpp>

inline constexpr auto weights = tide::group(tide::param<tide::bf16>("w", {8, 4}), tide::param<tide::bf16>("b", {8}));
using Layout = tide::ShardLayout<weights, tide::Mesh<1, 2>>;
using Model = tide::Parts<tide::Part<"first", Layout, tide::KeepGathered>,
                          tide::Part<"blocks", Layout, tide::Repeat<9>, tide::Frozen<"b">>>;

template <class M, class Box, class... Options>
using StepOf =
    tide::ShardedStep<M, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::SingleNode, Box, Options...>;
using Ring = tide::Ring<tide::Chunks<2>, tide::Bytes<4096>>;

#if TIDE_CASE == 1  // expect: tide::ShardedStep: Model must be a tide::Parts
using Step = StepOf<Layout, Ring>;
#elif TIDE_CASE == 2  // expect: tide::ShardedStep: the options must be Prefetch, Depth, Buffers or Replicated
using Step = StepOf<Model, Ring, tide::Chunks<2>>;
#elif TIDE_CASE == 3  // expect: tide::ShardedStep: an option must be given once
using Step = StepOf<Model, Ring, tide::Prefetch<1>, tide::Prefetch<1>>;
#elif TIDE_CASE == 4
// expect: tide::ShardedStep: Depth must be at least Prefetch + 1, and 1 more for each group that is kept
using Step = StepOf<Model, Ring, tide::Prefetch<1>, tide::Depth<2>>;
#elif TIDE_CASE == 5
// expect: tide::ShardedStep: with SlotReuse Depth must be at least Prefetch + 2, and 1 more for each group that is kept
using Step = StepOf<Model, tide::SlotReuse, tide::Prefetch<1>, tide::Depth<3>>;
#else
using Step = StepOf<Model, tide::SlotReuse, tide::Prefetch<1>, tide::Depth<4>>;
#endif

#if TIDE_CASE == 6  // expect: tide::ShardedStep: the first argument must be a Fabric
void subject(tide::FabricPort& fabric) { Step step(fabric); }
#elif TIDE_CASE == 7   // expect: tide::ShardedStep: the model has no part of this name
auto subject = Step::repeat<"block">;
#elif TIDE_CASE == 8   // expect: tide::ShardedStep: a frozen parameter has no gradient
auto subject(Step& step, tide::HostStream& stream) { return step.backward<"blocks">(stream).gradient<"b">(); }
#elif TIDE_CASE == 9   // expect: tide::ShardedStep: a frozen parameter has no gradient
void subject(Step& step, tide::HostStream& stream) { step.backward<"blocks">(stream).missing<"b">(); }
#elif TIDE_CASE == 10  // expect: tide::ShardedStep: options come behind transport, reducer, inter-node policy and inbox
using Early = tide::ShardedStep<Model, tide::UnicastTransport, tide::CopyEngineReducer<>, tide::Prefetch<2>>;
auto subject = Early::depth;
#elif TIDE_CASE == 11  // expect: tide::ShardedStep: options come behind transport, reducer, inter-node policy and inbox
auto subject = StepOf<Model, tide::Depth<9>>::depth;
#else                  // control: slots enough, a fabric, a name, gradients of what is not frozen
void subject(tide::HostPort& fabric) { Step step(fabric); }
auto number = Step::repeat<"blocks">;
auto gradient(Step& step, tide::HostStream& stream) { return step.backward<"blocks">(stream).gradient<"w">(); }
void missing(Step& step, tide::HostStream& stream) { step.backward<"first">(stream).missing<"b">(); }
#endif
