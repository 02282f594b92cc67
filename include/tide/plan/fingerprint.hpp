// SPDX-License-Identifier: Apache-2.0
//
// Fingerprint: 64 bits that differ where collectives or plans do. Ranks compare them before the first run, so that a
// rank with another model, mesh or version is told by an error and not by wrong numbers.
//
// Laws                                               (tests/plan/fingerprint.test.cpp)
//   repeatable  equal collectives and plans have equal fingerprints in every process, wherever they lie in memory
//   sensitive   a change of one field, or of the order of ops, changes it; `Collective::ctas` alone does not
//
// How many CTAs a GPU sums with is its own affair: no op, byte or word depends on it, and ranks may differ. Of a
// sharding the cut counts, not the rule or table that made it.
//
// Not a signature: someone who means to can make two plans collide.

#pragma once

#include <tide/plan/collective.hpp>          // Collective
#include <tide/plan/detail/fingerprint.hpp>  // Hash
#include <tide/plan/plan.hpp>                // Plan

#include <cstdint>
#include <span>

namespace tide {

/// Of what has to be achieved: names, shapes, elements, cuts and offsets of all ranks, mesh, inbox and kernels.
/// The same on every rank.
[[nodiscard]] constexpr std::uint64_t fingerprint(const Collective& collective) {
  detail::Hash hash;
  hash.add(collective);
  return hash.value();
}

/// Of one rank's plan.
[[nodiscard]] constexpr std::uint64_t fingerprint(const Plan& plan) {
  detail::Hash hash;
  hash.add(plan);
  return hash.value();
}

/// Of a collective with the plans of all ranks: what ranks compare, each having written all plans or exchanged theirs.
[[nodiscard]] constexpr std::uint64_t fingerprint(const Collective& collective, std::span<const Plan> plans) {
  detail::Hash hash;
  hash.add(collective);
  for (const Plan& plan : plans) hash.add(plan);
  return hash.value();
}

}  // namespace tide
