#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# train on several NCCL nodes, which support/cluster starts on one machine: the losses have the bits of a training
# without shards.
#
#   bash train_nodes.sh FOLDER_OF_PROGRAMS
#
# labels: nodes
# timeout: 900

source "$(dirname "$0")/../support/program.sh" "$1" train

skip_unless_it_trains_on_a_gpu

read -r _ header library <<<"$(gpus_and_nccl)"
if ((header < 23200 || library < 23200)); then
  echo 'skipped: puts between nodes of one machine need NCCL 2.32'
  exit 77
fi

for mesh in 2x1 2x2 4x2; do
  expect 0 '' --fabric cuda --unsharded --mesh $mesh --steps 10 --losses whole.txt
  for inbox in slots ring; do
    rm -f found.txt
    bash "$tests/support/cluster" $mesh "$program" --fabric cuda --mesh $mesh --inbox $inbox --scribble-gradients \
      --steps 10 --losses found.txt >ranks.txt 2>&1 || fail "exit code $? on $mesh: $(tail -c 600 ranks.txt)"
    cmp -s whole.txt found.txt || fail "other losses on $mesh, $inbox: $(diff whole.txt found.txt | head -c 200)"
  done
done

verdict
