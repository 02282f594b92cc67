// SPDX-License-Identifier: Apache-2.0
//
// The laws of ShardRule (tide/layout/shard_rule.hpp) for one model of it, alone and in what is built on it.

#pragma once

#include <tide/layout/group.hpp>
#include <tide/layout/parameter.hpp>

#include "conformance/writer.hpp"
#include "support/laws.hpp"

namespace tide_test {

/// One number of rows over one number of ranks.
template <class Rule>
void check_shard_rule(tide::index_t rows, tide::index_t ranks) {
  static_assert(tide::ShardRule<Rule>);
  CAPTURE(rows);
  CAPTURE(ranks);
  CHECK(laws::shard_rule<Rule>(rows, ranks));
  std::vector<tide::index_t> begins;
  for (tide::index_t rank = 0; rank <= ranks; ++rank) begins.push_back(Rule::begin(rows, ranks, rank));
  for (tide::index_t rank = ranks; rank >= 0; --rank) {  // a function of its arguments, whatever was asked before
    static_cast<void>(Rule::begin(rows + 1, ranks + 1, rank));
    CHECK(Rule::begin(rows, ranks, rank) == begins[static_cast<std::size_t>(rank)]);
  }
  // The same as a parameter cuts by it: layouts keep their laws, and a gather of it is proved.
  const std::vector<tide::Parameter> parameters = {tide::param<tide::bf16>("w", {rows, 3}, tide::shard_by<Rule>()),
                                                   tide::param<float>("v", {rows}, tide::shard_by<Rule>())};
  const tide::GroupView group{parameters, {}};
  for (const tide::PackingRule packing : {tide::TightPacking::rule, tide::Fsdp2Packing::rule}) {
    CHECK(laws::layout({group, {1, ranks}, packing}));
  }
  if (ranks <= 5) CHECK(first_violation(planned_gather<tide::UnicastTransport>(group, ranks)) == "");
}

/// All rows up to 40 over all numbers of ranks up to 8, and a few large ones.
template <class Rule>
void check_shard_rule() {
  for (tide::index_t rows = 0; rows <= 40; ++rows) {
    for (tide::index_t ranks = 1; ranks <= 8; ++ranks) check_shard_rule<Rule>(rows, ranks);
  }
  for (const tide::index_t rows : {tide::index_t{1000}, tide::index_t{151936}, tide::index_t{1} << 40}) {
    for (const tide::index_t ranks : {3, 64, 72, 1024}) check_shard_rule<Rule>(rows, ranks);
  }
}

}  // namespace tide_test
