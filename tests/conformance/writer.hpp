// SPDX-License-Identifier: Apache-2.0
//
// What transports and reducers owe for any collective: their plans are proved, are a function of their arguments, and
// hold no op that could be left out.

#pragma once

#include <doctest/doctest.h>
#include <tide/plan/verify.hpp>

#include "support/sanitizer.hpp"
#include "support/small_plans.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tide_test {

/// The worlds that every writer is tried on: one rank, odd numbers, more ranks than rows.
inline constexpr tide::index_t all_writer_worlds[] = {1, 2, 3, 5, 8};
/// Sanitizers leave out the largest: plans of eight ranks are no other code, and take more time than all before.
inline constexpr auto writer_worlds = std::span(all_writer_worlds).first(static_cast<std::size_t>(sized(5, 4)));

inline constexpr auto awkward_group = tide::group(
    tide::param<tide::bf16>("odd", {7, 13}), tide::param<tide::bf16>("one", {1}),
    tide::param<tide::bf16>("none", {0, 4}),
    tide::repeat<3>("e.{}.", tide::param<tide::bf16>("gate", {6, 8}), tide::param<tide::bf16>("down", {8, 6})));
inline constexpr auto empty_group =
    tide::group(tide::param<tide::bf16>("none", {0}), tide::param<tide::bf16>("more", {3, 0}));
inline constexpr auto single_row = tide::group(tide::param<tide::bf16>("row", {1, 40}));

/// The first sentence of a verdict, empty where it holds.
[[nodiscard]] inline std::string first_violation(const Planned& planned) {
  const tide::Verdict verdict = tide::verify(planned.collective, planned.plans);
  return verdict.holds() ? std::string{} : verdict.violations.front().text;
}

/// The first op whose loss nobody would notice, empty where there is none.
[[nodiscard]] inline std::string first_idle_op(const Planned& planned) {
  for (std::size_t rank = 0; rank < planned.plans.size(); ++rank) {
    for (std::size_t seq = 0; seq < planned.plans[rank].ops.size(); ++seq) {
      Planned less = planned;
      less.plans[rank].ops.erase(less.plans[rank].ops.begin() + static_cast<std::ptrdiff_t>(seq));
      // An exit stands after the same ops as before.
      const auto lane = planned.plans[rank].ops[seq].lane;
      tide::index_t before = 0;
      for (std::size_t i = 0; i < seq; ++i) before += planned.plans[rank].ops[i].lane == lane ? 1 : 0;
      for (tide::Exit& exit : less.plans[rank].exits) {
        if (exit.lane.value == lane && exit.position > before) --exit.position;
      }
      if (tide::verify(less.collective, less.plans).holds()) {
        return "rank " + std::to_string(rank) + ", op " + std::to_string(seq) + " (" +
               std::string(name(planned.plans[rank].ops[seq].kind)) + ")";
      }
    }
  }
  return {};
}

// snippet: laws-of-writers
/// The three laws for one collective, made twice by `make`.
template <class Make>
void check_writer(const Make& make) {
  const Planned planned = make();
  CHECK(first_violation(planned) == "");
  CHECK(planned.plans == make().plans);
  CHECK(first_idle_op(planned) == "");
}
// end: laws-of-writers

}  // namespace tide_test
