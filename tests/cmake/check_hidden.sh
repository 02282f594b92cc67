#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_hidden.sh OBJECT: kernels and what launches them are not seen outside of a library, so that two libraries that
# were built for different GPUs do not share an instantiation.

set -euo pipefail

symbols=$(readelf -sW "$1" | awk '$4 == "FUNC" && $7 != "UND" {print $5, $6, $8}' | c++filt |
  grep -E 'tide::detail::([a-z_]*(_kernel|launch_[a-z_]+)<|(start|launch)_[a-z_]+\()' || true)
total=$(grep -c . <<<"$symbols")
seen=$(grep -E '^(GLOBAL|WEAK) DEFAULT' <<<"$symbols" || true)
[[ $total -ge 10 ]] || { echo "check_hidden.sh: only $total kernels and launchers in $1" >&2; exit 1; }
[[ -z $seen ]] || { printf 'seen outside of the library:\n%s\n' "$seen" >&2; exit 1; }
echo "$total kernels and launchers, none seen outside"
