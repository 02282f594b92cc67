// SPDX-License-Identifier: Apache-2.0
//
// What the variants of a pipeline have to have in common, so that ranks may run another one in each run: one rank
// gathers in place while another one casts.

#pragma once

#include <tide/core/error.hpp>        // raise
#include <tide/fabric/fabric.hpp>     // PlanVariant
#include <tide/plan/fingerprint.hpp>  // fingerprint

#include <algorithm>
#include <array>
#include <string>
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

// Variants share words and run numbers, so they must tell and await the same.
inline void require_one_handshake(const std::vector<PlanVariant>& variants, const std::string& label) {
  const auto first = handshake(variants.front());
  for (std::size_t v = 1; v < variants.size(); ++v) {
    if (handshake(variants[v]) == first) continue;
    raise(Errc::mismatch, text({"tide::PlanVariant: all variants of a pipeline must signal and wait alike; of ", label,
                                ", variant ", v, " does not as variant 0 does."}));
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
