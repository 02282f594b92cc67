# SPDX-License-Identifier: Apache-2.0
#
# What the scripts in tests/programs share. Sourced with the folder of the programs; the script's name is the program's.
#
#   source "$(dirname "$0")/../support/program.sh" "$1"
#   expect 2 "unknown flag" --rank 2
#   verdict

set -uo pipefail
name=$(basename "$0" .sh)
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

# The last command of a script.
verdict() { [[ $failures -eq 0 ]] || exit 1; }
