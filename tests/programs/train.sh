#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# train: its flags, its exit codes, and the bits of its losses: the same over inboxes, delays and meshes, and the same
# as without shards.
#
#   bash train.sh FOLDER_OF_PROGRAMS
#
# timeout: 240

source "$(dirname "$0")/../support/program.sh" "$1"

# same NAME ARGUMENTS...: trains, and compares the losses with those in the file NAME.
same() {
  local name=$1
  shift
  expect 0 '' "$@" --losses found.txt
  cmp -s "$name" found.txt || fail "other losses than $name: train $*: $(diff "$name" found.txt | head -c 200)"
}

# ---- flags and exit codes

expect 0 '' --help
grep -q -- '--net-delay-ms' out.txt || fail 'the usage lacks a flag'
expect 2 'unknown flag' --fast
expect 2 'unknown argument' 1x4
expect 2 '--mesh takes NODESxRANKS' --mesh 4
expect 2 '--mesh takes NODESxRANKS' --mesh 0x4
expect 2 '--mesh takes at most 256 ranks' --mesh 17x17
expect 2 '--replicas takes a whole number' --replicas 0
expect 2 '--replicas takes at most 4 of this mesh' --mesh 8x8 --replicas 5
expect 2 '--steps takes a whole number' --steps 0
expect 2 '--steps needs a value' --steps
expect 2 '--inbox takes one of slots, ring' --inbox heap
expect 2 '--fabric takes one of host, sim, cuda' --fabric tpu
expect 2 '--order is for --fabric sim only' --order 1
expect 2 'is given twice' --seed 1 --seed 2
expect 2 '--deadline-ms takes a whole number' --deadline-ms -5
expect 3 "cannot write '/nowhere/losses.txt': No such file" --steps 1000000 --losses /nowhere/losses.txt  # at once
expect 3 "cannot write '/dev/full': No space left" --steps 2 --losses /dev/full
expect 0 '' --steps 3 --losses -
[[ ! -e - ]] && [[ $(grep -cE '^0x1(\.[0-9a-f]+)?p[+-][0-9]+$' out.txt) -eq 3 && $(wc -l <out.txt) -eq 3 ]] ||
  fail "--losses - does not print the losses, or more than that: $(cat out.txt)"
expect 3 '--fabric cuda needs a build with CUDA' --fabric cuda --steps 2
expect 2 '--net-delay-ms is not for GPUs' --fabric cuda --net-delay-ms 1
expect 2 '--inbox says nothing of --unsharded' --unsharded --inbox ring
expect 3 '0.001 s' --deadline-ms 1 --mesh 1x8 --steps 2000

expect 0 '' --mesh 1x2 --steps 200  # the loss has to fall

# ---- the bits of the losses

for seed in 1 2; do
  expect 0 '' --unsharded --mesh 1x4 --steps 100 --seed $seed --losses whole4.txt
  [[ $(wc -l <whole4.txt) -eq 100 ]] || fail 'not a line for each step'
  grep -qvE '^0x1(\.[0-9a-f]+)?p[+-][0-9]+$' whole4.txt && fail 'a line is no hexadecimal float'
  same whole4.txt --steps 100 --seed $seed
done
same whole4.txt --mesh 1x4 --steps 100 --seed 2 --inbox ring
same whole4.txt --mesh 1x4 --steps 100 --seed 2 --inbox slots --scribble-gradients
for order in 0 1 2; do
  same whole4.txt --mesh 1x4 --steps 100 --seed 2 --fabric sim --order $order --scribble-gradients
done
same whole4.txt --mesh 1x4 --steps 100 --seed 2 --inbox ring --scribble-gradients --net-delay-ms 1

same whole4.txt --mesh 2x2 --steps 100 --seed 2
same whole4.txt --mesh 2x2 --steps 100 --seed 2 --inbox ring --scribble-gradients
same whole4.txt --mesh 4x1 --steps 100 --seed 2 --scribble-gradients
expect 0 '' --unsharded --mesh 2x2 --steps 100 --seed 2 --losses whole2x2.txt
cmp -s whole4.txt whole2x2.txt || fail 'without shards the mesh changes a bit'

for inbox in slots ring; do
  expect 0 '' --unsharded --mesh 3x2 --steps 60 --losses whole3x2.txt
  same whole3x2.txt --mesh 3x2 --steps 60 --inbox $inbox --net-delay-ms 1
done

# Two replicas of two ranks are added along the tree of four ranks, and their averages are exact.
expect 0 '' --unsharded --mesh 1x2 --replicas 2 --steps 100 --seed 2 --losses whole1x2x2.txt
cmp -s whole4.txt whole1x2x2.txt || fail 'without shards replicas change a bit'
expect 0 '' --unsharded --mesh 3x2 --replicas 3 --steps 30 --losses whole3x2x3.txt
for inbox in slots ring; do
  same whole4.txt --mesh 1x2 --replicas 2 --steps 100 --seed 2 --inbox $inbox --scribble-gradients
  same whole3x2x3.txt --mesh 3x2 --replicas 3 --steps 30 --inbox $inbox
done
same whole3x2x3.txt --mesh 3x2 --replicas 3 --steps 30 --fabric sim --order 5

# With slots, gradients never wait for the network.
expect 0 '' --mesh 2x1 --steps 4 --net-delay-ms 50
ahead=$(sed -n 's/^gradients were free \([0-9]*\)\..*/\1/p' out.txt)
[[ ${ahead:-0} -ge 40 ]] || fail "gradients are free no earlier than shards are ready: $(tail -1 out.txt)"
expect 0 '' --fabric sim --mesh 2x1 --steps 4 --net-delay-ms 50
ahead=$(sed -n 's/^gradients were free \([0-9]*\)\..*/\1/p' out.txt)
[[ ${ahead:-0} -ge 50 ]] || fail "in virtual time gradients are free no earlier than shards are ready: $(tail -2 out.txt)"
expect 0 '' --fabric sim --steps 20
cp out.txt once.txt
expect 0 '' --fabric sim --steps 20
cmp -s <(tail -2 once.txt) <(tail -2 out.txt) || fail "virtual time is not the same each time: $(cat once.txt out.txt)"

for ranks in 1 2 3; do
  expect 0 '' --unsharded --mesh 1x$ranks --steps 60 --losses whole$ranks.txt
  same whole$ranks.txt --mesh 1x$ranks --steps 60 --scribble-gradients
done
cmp -s whole1.txt whole2.txt && fail 'one rank and two saw the same samples'

verdict
