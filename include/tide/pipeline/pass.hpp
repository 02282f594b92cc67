// SPDX-License-Identifier: Apache-2.0
//
// Pass: what a micro-batch of a training step is for.
//
//   step     | accumulate | accumulate | last | update      three micro-batches, added in fp32
//            | last | update                                one
//
// Test: tests/pipeline/sharded_step.test.cpp

#pragma once

#include <cstdint>

namespace tide {

/// What `ShardedStep::start` begins.
enum class Pass : std::uint8_t {
  last,        ///< forward and backward of the only or the last micro-batch of a step: gradients are complete after it
  accumulate,  ///< forward and backward of a micro-batch that others of the same step follow
  evaluate,    ///< a forward only
};

}  // namespace tide
