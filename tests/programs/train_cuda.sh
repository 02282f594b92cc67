#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# train on GPUs: its refusals, how near its losses are to those of CPU ranks, and their bits: the same over inboxes and
# with scribbles, and the same as without shards. Ranks are processes, and with NCCL 2.32 or newer share GPUs.
#
#   bash train_cuda.sh FOLDER_OF_PROGRAMS
#
# labels: gpu
# timeout: 900

source "$(dirname "$0")/../support/program.sh" "$1" train

skip_unless_it_trains_on_a_gpu

# together RANKS ARGUMENTS...: trains on as many processes; the exit code, and what they printed in ranks.txt.
together() {
  local ranks=$1
  shift
  bash "$tests/support/ranks" "$ranks" "$program" --fabric cuda "$@" >ranks.txt 2>&1
}

# same NAME RANKS ARGUMENTS...: trains, and compares the losses with those in the file NAME.
same() {
  local name=$1
  shift
  rm -f found.txt
  together "$@" --steps 60 --losses found.txt || fail "exit code $?: train $*: $(tail -c 600 ranks.txt)"
  cmp -s "$name" found.txt || fail "other losses than $name: train $*: $(diff "$name" found.txt | head -c 200)"
}

# ---- refusals

expect 2 '--net-delay-ms is not for GPUs' --fabric cuda --net-delay-ms 1
expect 2 '--mesh 17x15 has 255 ranks, GPUs that this process sees: ' --fabric cuda --mesh 17x15
expect 2 '--replicas is 251, GPUs that this process sees: ' --fabric cuda --mesh 1x1 --replicas 251
gpus=$(sed -n 's/.*that this process sees: //p' err.txt)
expect 3 'cannot write' --fabric cuda --unsharded --steps 2 --losses /nowhere/losses.txt
together 2 --mesh 1x4 && fail 'a mesh of 4 ranks on 2'
grep -qF -- '--mesh 1x4 has 4 ranks, TIDE_WORLD is 2' ranks.txt || fail "no mesh in: $(tail -c 600 ranks.txt)"
together 2 --replicas 3 && fail '3 replicas of 2 ranks'
grep -qF -- '--replicas is 3, TIDE_WORLD is 2' ranks.txt || fail "no replicas in: $(tail -c 600 ranks.txt)"

# ---- the losses are those of CPU ranks, but for rounding

for seed in 1 2; do
  expect 0 '' --unsharded --mesh 1x2 --steps 60 --seed $seed --losses host.txt
  expect 0 '' --unsharded --mesh 1x2 --steps 60 --seed $seed --losses gpu.txt --fabric cuda
  python <<'PY'
host, gpu = ([float.fromhex(line) for line in open(name)] for name in ("host.txt", "gpu.txt"))
assert len(host) == len(gpu) == 60
off = [abs(a - b) / a for a, b in zip(host, gpu)]
# Sums in another order are off by 1e-7 in the first step, 1e-4 in the first 20, 4e-3 in all (measured on CPUs).
assert off[0] < 1e-5 and max(off[:20]) < 2e-3 and max(off) < 5e-2, off
PY
done

expect 0 '' --fabric cuda --unsharded --mesh 1x2 --steps 200  # the loss has to fall

# ---- their bits

# runs RANKS MESH: whether so many processes can be ranks of the mesh here; says why not.
read -r gpu_count header library <<<"$(gpus_and_nccl)"
runs() {
  if ((gpu_count < $1 && library < 23200)); then
    echo "left out: $1 ranks on $gpu_count GPUs need NCCL 2.32"
    return 1
  fi
  if [[ $2 != 1x* ]] && ((header < 23102)); then
    echo "left out: mesh $2 needs a build with NCCL 2.31.2"
    return 1
  fi
}

expect 0 '' --fabric cuda --unsharded --mesh 1x2 --steps 60 --losses whole2.txt
expect 0 '' --fabric cuda --unsharded --mesh 1x4 --steps 60 --losses whole4.txt
expect 0 '' --fabric cuda --unsharded --mesh 2x2 --steps 60 --losses whole2x2.txt
cmp -s whole2.txt whole4.txt && fail 'two ranks and four saw the same samples'
cmp -s whole4.txt whole2x2.txt || fail 'without shards the mesh changes a bit'
for inbox in slots ring; do
  runs 2 1x2 && same whole2.txt 2 --mesh 1x2 --inbox $inbox
  runs 4 1x4 && same whole4.txt 4 --mesh 1x4 --inbox $inbox --scribble-gradients
  runs 4 2x2 && same whole4.txt 4 --mesh 2x2 --inbox $inbox  # logical nodes: CudaOptions::nodes
  # Two replicas are added along the tree of all ranks, and their averages are exact.
  runs 4 1x2 && same whole4.txt 4 --mesh 1x2 --replicas 2 --inbox $inbox --scribble-gradients
done
expect 0 '' --fabric cuda --unsharded --mesh 1x2 --replicas 3 --steps 60 --losses whole1x2x3.txt
runs 6 1x2 && same whole1x2x3.txt 6 --mesh 1x2 --replicas 3

# A thread for each GPU.
if grep -q 'cannot reach every other' doctor.txt; then
  echo 'left out: threads of one process, on GPUs that are no peers'
else
  expect 0 '' --fabric cuda --unsharded --mesh "1x$gpus" --steps 60 --losses whole.txt
  expect 0 '' --fabric cuda --steps 60 --losses found.txt
  cmp -s whole.txt found.txt || fail "threads have other losses: $(diff whole.txt found.txt | head -c 200)"
fi

verdict
