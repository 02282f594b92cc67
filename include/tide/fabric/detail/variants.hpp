// SPDX-License-Identifier: Apache-2.0
//
// What the variants of a pipeline have to have in common, so that ranks may run another one in each run: one rank
// gathers in place while another one casts; and what they send and receive, where that is how nodes are crossed.

#pragma once

#include <tide/core/error.hpp>        // raise
#include <tide/fabric/fabric.hpp>     // PlanVariant
#include <tide/plan/fingerprint.hpp>  // fingerprint
#include <tide/plan/rendezvous.hpp>   // rendezvous

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// What a plan tells other ranks and its own lanes, and waits for of other ranks, in an order that says nothing of
// lanes. Words of lanes count over runs, too, whichever variants those were.
[[nodiscard]] inline std::vector<std::array<index_t, 5>> handshake(const PlanVariant& variant) {
  const SignalWords words = variant.collective.words();
  std::vector<std::array<index_t, 5>> steps;
  for (const Op& op : variant.plan.ops) {
    if (op.raises()) {
      const Op::Raise raised = op.raise();
      steps.push_back({0, op.peer, raised.word, raised.value, raised.per_run});
    } else if (op.kind == OpKind::wait && words.kind(op.word()) != WordKind::event) {
      steps.push_back({1, 0, op.word(), op.value(), op.per_run()});
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

[[noreturn]] inline void refuse_variant(std::size_t variant, const std::string& label) {
  raise(Errc::mismatch, text({"tide::PlanVariant: all variants of a pipeline must signal and wait alike; of ", label,
                              ", variant ", variant, " does not as variant 0 does."}));
}

// Variants share words and run numbers, so they must tell and await the same.
inline void require_one_handshake(const std::vector<PlanVariant>& variants, const std::string& label) {
  const auto first = handshake(variants.front());
  for (std::size_t v = 1; v < variants.size(); ++v) {
    if (handshake(variants[v]) != first) refuse_variant(v, label);
  }
}

// What the rank of the variants sends and receives in each, where nodes are crossed so.
using RendezvousOfVariants = std::vector<std::optional<std::vector<Rendezvous>>>;
[[nodiscard]] inline RendezvousOfVariants rendezvous_of(const std::vector<PlanVariant>& variants) {
  RendezvousOfVariants all;
  for (const PlanVariant& variant : variants) {
    auto& own = all.emplace_back();
    if (!variant.plan_of || variant.collective.layout.mesh.nodes == 1) continue;
    std::vector<Plan> plans;
    for (index_t r = 0; r < variant.collective.ranks(); ++r) plans.push_back(variant.plan_of(Rank{r}));
    own = std::move(rendezvous(variant.collective, plans)[static_cast<std::size_t>(variant.plan.rank.value)]);
  }
  return all;
}

// Whichever variants ranks run, what one of them sends in a phase another one receives.
inline void require_one_rendezvous(const RendezvousOfVariants& all, const std::string& label) {
  // All but where in the plan it happens.
  const auto alike = [](const Rendezvous& a, const Rendezvous& b) {
    const auto same = [](const Rendezvous::Send& x, const Rendezvous::Send& y) {
      return x.peer == y.peer && x.bytes == y.bytes;
    };
    return a.phase == b.phase && a.receives == b.receives &&
           std::equal(a.sends.begin(), a.sends.end(), b.sends.begin(), b.sends.end(), same);
  };
  for (std::size_t v = 1; v < all.size(); ++v) {
    const auto& first = all.front();
    const auto& other = all[v];
    const bool good = first.has_value() == other.has_value() &&
                      (!first || std::equal(first->begin(), first->end(), other->begin(), other->end(), alike));
    if (!good) refuse_variant(v, label);
  }
}

// What all ranks must agree on before they run the variants.
[[nodiscard]] inline std::uint64_t fingerprint_of(const std::vector<PlanVariant>& variants) {
  Hash hash;
  for (const PlanVariant& variant : variants) {
    hash.add(fingerprint(variant.collective));
    hash.add(std::string_view(variant.writer));
  }
  return hash.value();
}

}  // namespace tide::detail
