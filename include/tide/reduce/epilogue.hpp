// SPDX-License-Identifier: Apache-2.0
//
// Epilogue: a policy that says what is done with the scaled sum, in the pass that makes it.
//
// Laws, each operation rounded on its own:           (tests/reduce/epilogue.test.cpp)
//   Store        output[i] = scale * sum[i]
//   Accumulate   output[i] = output[i] + scale * sum[i]

#pragma once

#include <tide/plan/collective.hpp>  // Finish

#include <concepts>

namespace tide {

/// `E::finish`: what the sum kernels do. `Finish::partial` is what they do with sums that are not whole yet.
template <class E>
concept Epilogue = requires {
  { E::finish } -> std::convertible_to<Finish>;
  requires(E::finish != Finish::partial);
};

/// The shard is overwritten: the default.
struct Store {
  static constexpr Finish finish = Finish::store;
};

/// The shard is added to: gradient accumulation over micro-batches, in fp32.
struct Accumulate {
  static constexpr Finish finish = Finish::accumulate;
};

static_assert(Epilogue<Store> && Epilogue<Accumulate>);

}  // namespace tide
