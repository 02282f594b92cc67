// SPDX-License-Identifier: Apache-2.0
//
// Replicated: the option of ShardedStep by which a model is sharded inside replicas and averaged over them (HSDP).
//
//              shards of rank 0   1   2   3        a fabric for each replica: gathers and reduce-scatters
//   replica 0                 |a |b |c |d |
//   replica 1                 |a |b |c |d |        a fabric for each column: all-reduces of f32 shards
//
// Law: reduced shard = tree over replicas of (tree over the ranks of a replica, scaled), scaled by 1 / replicas
// (tests/pipeline/replicated.test.cpp).

#pragma once

#include <tide/pipeline/all_reduce.hpp>  // AllReduce

namespace tide {

/// @tparam Intra, R, Inter, Box  of the all-reduce over replicas, as of `AllReduce`
template <class Intra = UnicastTransport, class R = CopyEngineReducer<>, class Inter = SingleNode,
          class Box = Ring<Chunks<4>, Bytes<(index_t{64} << 20)>>>
struct Replicated {
  static constexpr bool replicated = true;
  template <index_t Count>
  using Sums = AllReduce<Depth<Count>, Intra, R, Inter, Box>;
};

namespace detail {

struct NotReplicated {
  static constexpr bool replicated = false;
};

template <class T>
inline constexpr bool is_replicated = false;
template <class Intra, class R, class Inter, class Box>
inline constexpr bool is_replicated<Replicated<Intra, R, Inter, Box>> = true;

template <class... Options>
struct ReplicasOf {
  using type = NotReplicated;
};
template <class First, class... Rest>
struct ReplicasOf<First, Rest...>
    : std::conditional_t<is_replicated<First>, std::type_identity<First>, ReplicasOf<Rest...>> {};

}  // namespace detail

}  // namespace tide
