// SPDX-License-Identifier: Apache-2.0
//
// For tests that break a plan in one way and read what `verify` says: finding ops, dropping and inserting them,
// comparing the first violation.

#pragma once

#include <doctest/doctest.h>

#include <tide/plan/verify.hpp>

#include "support/small_plans.hpp"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>

namespace tide_test::breaking {

using Which = std::function<bool(const tide::Op&)>;

inline Which on_lane(const tide::Plan& plan, tide::LaneKind kind, int index, tide::OpKind op) {
  return [&plan, kind, index, op](const tide::Op& o) {
    return o.kind == op && plan.lanes[o.lane] == tide::Lane{kind, index};
  };
}
inline Which on_caller(tide::OpKind op) {
  return [op](const tide::Op& o) { return o.kind == op && o.lane == 0; };
}
inline Which on_word(const Planned& planned, tide::OpKind op, tide::WordKind word) {
  return [&planned, op, word](const tide::Op& o) {
    return o.kind == op && planned.collective.words().kind(o.word()) == word;
  };
}

/// Where the n-th op of a kind is.
inline std::size_t find(const tide::Plan& plan, const Which& which, int n = 0) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    if (which(plan.ops[i]) && n-- == 0) return i;
  }
  FAIL("the plan has no such op");
  return 0;
}
inline tide::Op& op(tide::Plan& plan, const Which& which, int n = 0) { return plan.ops[find(plan, which, n)]; }

/// Drops an op; exits stay behind the ops that they were behind.
inline void drop(tide::Plan& plan, std::size_t at) {
  const std::uint16_t lane = plan.ops[at].lane;
  const auto before = std::count_if(plan.ops.begin(), plan.ops.begin() + static_cast<std::ptrdiff_t>(at),
                                    [lane](const tide::Op& o) { return o.lane == lane; });
  for (tide::Exit& exit : plan.exits) exit.position -= exit.lane.value == lane && exit.position > before ? 1 : 0;
  plan.ops.erase(plan.ops.begin() + static_cast<std::ptrdiff_t>(at));
}
inline void drop_all(tide::Plan& plan, const Which& which) {
  for (std::size_t i = plan.ops.size(); i-- > 0;) {
    if (which(plan.ops[i])) drop(plan, i);
  }
}
inline void insert(tide::Plan& plan, std::size_t at, const tide::Op& op) {
  plan.ops.insert(plan.ops.begin() + static_cast<std::ptrdiff_t>(at), op);
}

/// Whether a violation says which bytes its ops touch, of which parameter; those of an impossible op may be none.
inline void check_sides(const Planned& planned, const tide::Violation& violation) {
  for (const tide::Side& side : {violation.first, violation.second}) {
    if (!side.is_op() || violation.law == tide::Law::bounds) continue;
    CHECK(side.lane.value == side.op.lane);
    CHECK_FALSE(side.bytes.empty());
    if (!side.op.moves()) {
      CHECK(side.bytes.place.space == tide::Space::signals);
      continue;
    }
    CHECK(side.bytes.place.space != tide::Space::signals);
    CHECK(side.bytes.place.parameter < planned.collective.layout.group.size());
    const tide::ParameterIndex parameter{side.bytes.place.parameter};
    CHECK(violation.text.find("bytes [") != std::string::npos);
    CHECK(violation.text.find("of '" + planned.collective.layout.group[parameter].name.str() + "'") !=
          std::string::npos);
  }
}

/// Whether the first violation is of a law and says these words. The plans were right before `break_them`.
inline void check_broken(Planned planned, const std::function<void(Planned&)>& break_them, tide::Law law,
                         std::initializer_list<const char*> words) {
  REQUIRE(tide::verify(planned.collective, planned.plans).holds());
  break_them(planned);
  const tide::Verdict verdict = tide::verify(planned.collective, planned.plans);
  REQUIRE_FALSE(verdict.holds());
  std::string all;
  for (const tide::Violation& violation : verdict.violations) all += describe(violation) + "\n";
  CAPTURE(all);
  const tide::Violation& first = verdict.violations.front();
  CHECK(name(first.law) == name(law));
  for (const tide::Violation& violation : verdict.violations) check_sides(planned, violation);
  for (const char* word : words) {
    CAPTURE(word);
    CHECK(first.text.find(word) != std::string::npos);
  }
}

}  // namespace tide_test::breaking
