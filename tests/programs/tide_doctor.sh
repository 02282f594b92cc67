#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tide_doctor on CPU ranks: what it prints, its JSON, its exit codes.
#
#   bash tide_doctor.sh FOLDER_OF_PROGRAMS

source "$(dirname "$0")/../support/program.sh" "$1"

expect 0 '' --ranks 3
grep -q 'gather from shards (unicast) *3 ranks *right' out.txt || fail "no gather in: $(cat out.txt)"
grep -q 'reduce-scatter *3 ranks *right' out.txt || fail "no reduce-scatter in: $(cat out.txt)"
expect 0 '' --ranks 1 --json -
python <<'PY'
import json
paths = json.load(open("out.txt"))["paths"]
ran = [path for path in paths if path["state"] == "right"]
assert len(ran) == 6 and all(path["checked_bytes"] > 8_000_000 for path in ran), paths
assert [path for path in paths if path["state"] == "refused" and "no CUDA" in path["why"]], paths
PY
expect 2 'takes a whole number from 1 to 64' --ranks 0
expect 2 "unknown flag '--rank'" --rank 2
expect 2 "one word too many: 'all'" all
expect 3 "cannot write 'missing/x.json'" --ranks 1 --json missing/x.json
[[ ! -s out.txt ]] || fail 'a file that cannot be written is found out at the end'
expect 0 '' --help
verdict
