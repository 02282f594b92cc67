// SPDX-License-Identifier: Apache-2.0
//
// timeout: 180
//
// ShardedStep over replicas against training without shards that adds gradients inside replicas, then over them.

#include <doctest/doctest.h>
#include <tide/pipeline/sharded_step.hpp>

#include "support/delays.hpp"
#include "support/rank_errors.hpp"
#include "support/sanitizer.hpp"
#include "support/step_training.hpp"

namespace {

namespace replicated_test {

using namespace tide_test;
using step::check_training;
using step::Recipe;

using Averages = tide::Replicated<tide::UnicastTransport, tide::CopyEngineReducer<>, step::Rails, step::SmallRing>;
using AddingStep = step::Step<tide::SlotReuse, step::Add, Averages, tide::Buffers<1>>;

}  // namespace replicated_test

}  // namespace

TEST_CASE("Replicated: shards are averaged inside replicas, then over them") {
  using namespace replicated_test;
  for (const index_t replicas : {1, 2, 3}) {
    for (const index_t ranks : {1, 2, 3}) {
      check_training<AddingStep>({.ranks = ranks, .replicas = replicas});
    }
  }
  check_training<AddingStep>({.ranks = 2, .replicas = 5, .some_missing = true});
  check_training<AddingStep>({.ranks = 4, .nodes = 2, .replicas = 2, .some_missing = true});
}

TEST_CASE("Replicated: micro-batches are added inside replicas; they meet once in a step") {
  using namespace replicated_test;
  check_training<AddingStep>({.ranks = 2, .replicas = 2, .micro_batches = 3, .some_missing = true});
  check_training<AddingStep>({.ranks = 3, .replicas = 2, .micro_batches = 2, .scribble = true, .evaluate = true});
}

TEST_CASE("Replicated: delays at every op of both fabrics, and lanes merged") {
  using namespace replicated_test;
  const Recipe recipe{
      .ranks = 2, .replicas = 2, .steps = sized(30, 8), .some_missing = true, .scribble = true, .slow_readers = true};
  check_training<AddingStep>(recipe, {.hook = random_delays(5, 30)});
  check_training<AddingStep>(recipe, {.lanes = tide::HostLanes::merged});
  Recipe more = recipe;
  more.micro_batches = 2;
  check_training<AddingStep>(more, {.hook = random_delays(6, 30)});
}

TEST_CASE("Replicated: an op that fails on either fabric is named by all ranks of all replicas") {
  using namespace replicated_test;
  const Recipe recipe{.ranks = 2, .replicas = 2, .steps = 3};
  const step::Oracle oracle = step::oracle_of(recipe);
  for (const char* label : {"gather of 'blocks' (4 parameters)", "reduce of 'blocks' (3 parameters)",
                            "gather of 'blocks' (1 parameter)", "reduce of 'blocks' (1 parameter)"}) {
    CAPTURE(label);
    tide::HostOptions options;
    options.hook = [label](const tide::HostHookPoint& point) -> std::optional<std::string> {
      const bool here = point.label == label && point.rank.value == 1 && point.run == 1 && point.seq == 2;
      return here ? std::optional<std::string>("a test says so") : std::nullopt;
    };
    check_same_error(step::train<AddingStep>(recipe, oracle, options), {label, "step 1, rank 1", "a test says so"});
  }
}
