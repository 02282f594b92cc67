#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/support/cluster without NCCL and without a GPU: what each rank finds in its environment, the exit codes, and
# what it says when it is called wrongly.

support=$(cd "$(dirname "$0")/../support" && pwd)
source "$support/program.sh" "$support" cluster
mkdir stand_in
touch stand_in/libgdrapi.so # nothing here opens it
export TIDE_GDR_STAND_IN=stand_in LD_LIBRARY_PATH=/elsewhere NCCL_NVLS_ENABLE=2 NCCL_GDRCOPY_USE_INTERNAL_DMABUF=1

# Nodes of two ranks: 0 0 1 1 2 2.
expect 0 '' 3x2 bash -c 'echo $TIDE_RANK of $TIDE_WORLD, $TIDE_NODES nodes, $NCCL_HOSTID'
for rank in 0 1 2 3 4 5; do
  echo "[rank $rank] $rank of 6, 3 nodes, tide-node-$((rank / 2))"
done | diff - out.txt || fail "3x2: ranks and nodes"
expect 0 '' 2x3 bash -c 'echo $NCCL_HOSTID'
[[ $(grep -c 'tide-node-0' out.txt) -eq 3 && $(grep -c 'tide-node-1' out.txt) -eq 3 ]] || fail "2x3: $(cat out.txt)"

expect 0 '' 1x1 env
for variable in NCCL_GDRCOPY_ENABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_SYM_GIN_KERNELS_ENABLE=0 NCCL_NVLS_ENABLE=0 \
  NCCL_MULTI_RANK_GPU_ENABLE=1 "LD_LIBRARY_PATH=$work/stand_in:/elsewhere"; do
  grep -qxF "[rank 0] $variable" out.txt || fail "no $variable in the environment of a rank"
done
grep -qE '^\[rank 0\] NCCL_COMM_ID=127\.0\.0\.1:[0-9]+$' out.txt || fail "no NCCL_COMM_ID on this machine"
grep -qE '^\[rank 0\] TIDE_RANKS_DIR=/' out.txt || fail "no TIDE_RANKS_DIR"
! grep -q NCCL_GDRCOPY_USE_INTERNAL_DMABUF out.txt || fail "NCCL would pass the stand-in over"

TIDE_NO_PUTS=1 TIDE_GDR_STAND_IN=nowhere expect 0 '' 2x1 env
for variable in NCCL_GDRCOPY_ENABLE=0 NCCL_RMA_DISABLE=1 LD_LIBRARY_PATH=/elsewhere NCCL_HOSTID=tide-node-1; do
  grep -qxF "[rank 1] $variable" out.txt || fail "without puts: no $variable in the environment of a rank"
done

# Arguments arrive as they are, and exit codes are those of tests/support/ranks.
expect 0 '' 1x1 printf '%s|' 'two words' '$HOME' ''
[[ $(cat out.txt) == '[rank 0] two words|$HOME||' ]] || fail "arguments: $(cat out.txt)"
expect 77 '' 2x1 bash -c 'exit 77'
expect 5 '' 2x2 bash -c 'exit $((TIDE_RANK == 3 ? 5 : 0))'

for wrong in '' 2 x 2x x2 0x2 2x0 -1x2 02x2 2x2x2 2X2 'two x two' 1000x1 true; do
  expect 2 'usage: cluster NODESxRANKS PROGRAM' "$wrong" true
done
expect 2 'usage: cluster NODESxRANKS PROGRAM'
expect 2 'usage: cluster NODESxRANKS PROGRAM' 2x2
expect 0 '' --help
grep -q 'usage: cluster NODESxRANKS PROGRAM' out.txt || fail "--help: $(cat out.txt)"

TIDE_GDR_STAND_IN=nowhere expect 1 "TIDE_GDR_STAND_IN is 'nowhere', and there is no libgdrapi.so in it" 1x1 true
TIDE_GDR_STAND_IN='' CXX=no-compiler expect 1 "no C++ compiler 'no-compiler'" 1x1 true

verdict
