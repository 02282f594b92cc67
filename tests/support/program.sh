# SPDX-License-Identifier: Apache-2.0
#
# What the scripts in tests/programs share. Sourced with the folder of the programs; the script's name is the program's,
# unless another follows.
#
#   source "$(dirname "$0")/../support/program.sh" "$1"
#   expect 2 "unknown flag" --rank 2
#   verdict

set -uo pipefail
name=${2:-$(basename "$0" .sh)}
program=$(realpath "$1")/$name
tests=$(realpath "$(dirname "$0")/..")
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
  [[ $got -eq $code ]] || fail "exit code $got instead of $code: $name $*: $(head -c 300 err.txt)"
  if [[ -z $words ]]; then
    [[ ! -s err.txt ]] || fail "words on standard error: $name $*: $(head -c 300 err.txt)"
  else
    grep -qF -- "$words" err.txt || fail "no '$words' on standard error: $name $*: $(head -c 300 err.txt)"
  fi
}

# python ARGUMENTS...: a script from standard input, in which every assertion has to hold.
python() { python3 - "$@" || fail "python check near line ${BASH_LINENO[0]}"; }

# Ends the script of `train` as skipped where that was not built for GPUs, or finds none.
skip_unless_it_trains_on_a_gpu() {
  [[ -x $program ]] || { echo "skipped: no $name was built with cuBLAS"; exit 77; }
  "$program" --fabric cuda --unsharded --mesh 1x1 --steps 1 >out.txt 2>err.txt
  if grep -E 'needs a build with CUDA|no GPU that' err.txt; then
    echo skipped
    exit 77
  fi
}

# What tide_doctor, which is built beside the program, says of this machine's GPUs: a number of GPUs and two versions of
# NCCL as MAJOR*10000+MINOR*100+PATCH, compiled with and loaded; "0 0 0" where there is no GPU.
gpus_and_nccl() {
  "${program%/*}/tide_doctor" --json doctor.json >doctor.txt 2>&1
  python3 - <<'PY' 2>/dev/null || echo "0 0 0"
import json
machine = json.load(open("doctor.json"))["machine"]
code = lambda text: sum(int(part) * unit for part, unit in zip(text.split("."), (10000, 100, 1)))
print(len(machine["gpus"]), code(machine["nccl_header"]), code(machine["nccl_library"]))
PY
}

# The last command of a script.
verdict() { [[ $failures -eq 0 ]] || exit 1; }
