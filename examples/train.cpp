// SPDX-License-Identifier: Apache-2.0
//
// train: trains a small language model with ShardedStep and writes the global loss of every step, in bits: the same
// whatever the inbox, the delays and, for as many ranks in nodes of power-of-two size, the mesh; and the same as
// without shards. train.cu is the same program with GPUs.

#include "support/train_program.hpp"

int main(int argc, char** argv) {
  using namespace tide_example;
  return run_program(argc, argv, train_usage, [&] {
    return run_train(argc, argv, [](const TrainOptions&) -> Outcome {
      tide::raise(tide::Errc::argument, "--fabric cuda needs a build with CUDA, which this is not");
    });
  });
}
