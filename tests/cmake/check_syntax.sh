#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Stands before a compiler's command line: checks what it would compile and leaves an empty object, for units whose
# only proof is that they compile. No code is generated, which is two thirds of the time that a header takes.

set -euo pipefail

case "$* " in *.gch\ * | *.pch\ *) exec "$@" ;; esac # what the units are given before their first line

"$@" -fsyntax-only
while [[ $# -gt 1 ]]; do
  if [[ $1 == -o ]]; then
    : >"$2"
    exit 0
  fi
  shift
done
echo "check_syntax.sh: the command names no output" >&2
exit 1
