#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# train: its flags, its exit codes, and the bits of its losses: the same over inboxes, delays and meshes, and the same
# as without shards.
#
#   bash train.sh FOLDER_OF_PROGRAMS
#
# timeout: 240

set -uo pipefail
program=$(realpath "$1")/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

# expect CODE WORDS ARGUMENTS...: the exit code, and words on standard error (none for '').
expect() {
  local code=$1 words=$2 got=0
  shift 2
  "$program" "$@" >out.txt 2>err.txt || got=$?
  [[ $got -eq $code ]] || fail "exit code $got instead of $code: train $*: $(head -c 300 err.txt)"
  if [[ -z $words ]]; then
    [[ ! -s err.txt ]] || fail "words on standard error: train $*: $(head -c 300 err.txt)"
  else
    grep -qF -- "$words" err.txt || fail "no '$words' on standard error: train $*: $(head -c 300 err.txt)"
  fi
}

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
expect 2 '--steps takes a whole number' --steps 0
expect 2 '--steps needs a value' --steps
expect 2 '--inbox takes one of slots, ring' --inbox heap
expect 2 '--fabric takes one of host, cuda' --fabric tpu
expect 2 'is given twice' --seed 1 --seed 2
expect 2 '--deadline-ms takes a whole number' --deadline-ms -5
expect 3 'cannot write' --steps 2 --losses /nowhere/losses.txt
expect 3 '--fabric cuda needs a build with CUDA' --fabric cuda --steps 2
expect 3 '0.001 s' --deadline-ms 1 --mesh 1x8 --steps 2000

# ---- the bits of the losses

for seed in 1 2; do
  expect 0 '' --unsharded --mesh 1x4 --steps 200 --seed $seed --losses whole4.txt
  [[ $(wc -l <whole4.txt) -eq 200 ]] || fail 'not a line for each step'
  grep -qvE '^0x1(\.[0-9a-f]+)?p[+-][0-9]+$' whole4.txt && fail 'a line is no hexadecimal float'
  same whole4.txt --steps 200 --seed $seed
done
same whole4.txt --mesh 1x4 --steps 200 --seed 2 --inbox ring
same whole4.txt --mesh 1x4 --steps 200 --seed 2 --inbox slots --scribble-gradients
same whole4.txt --mesh 1x4 --steps 200 --seed 2 --inbox ring --scribble-gradients --net-delay-ms 1

for ranks in 1 2 3; do
  expect 0 '' --unsharded --mesh 1x$ranks --steps 60 --losses whole$ranks.txt
  same whole$ranks.txt --mesh 1x$ranks --steps 60 --scribble-gradients
done
cmp -s whole1.txt whole2.txt && fail 'one rank and two saw the same samples'

if [[ $failures -gt 0 ]]; then
  printf '%d failed\n' "$failures"
  exit 1
fi
printf 'train: flags, exit codes and losses are right\n'
