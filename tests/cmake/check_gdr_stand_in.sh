#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_gdr_stand_in.sh LIBRARY: exports what NCCL 2.32 looks up, and needs the driver, not the toolkit's stub of it.
# tests/support/cluster builds the same when nobody names one, and takes it away again.

set -euo pipefail
support=$(cd "$(dirname "$0")/../support" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "check_gdr_stand_in.sh: $*" >&2
  exit 1
}

# Not gdr_pin_buffer_v2 and gdr_get_attribute: NCCL does without where the version is 2.4.
wanted="gdr_close gdr_copy_from_mapping gdr_copy_to_mapping gdr_driver_get_version gdr_get_info gdr_get_info_v2 gdr_map
gdr_open gdr_pin_buffer gdr_runtime_get_version gdr_unmap gdr_unpin_buffer"

check_library() {
  local exported dynamic
  exported=$(nm -D --defined-only "$1" | awk '$3 ~ /gdr/ {print $3}' | sort)
  [[ $exported == "$(tr ' ' '\n' <<<"$wanted")" ]] || fail "$1 exports ${exported//$'\n'/ }"
  dynamic=$(readelf -dW "$1")
  grep -q 'NEEDED.*\[libcuda\.so\.1\]' <<<"$dynamic" || fail "$1 does not need libcuda.so.1"
  ! grep -qE 'R(UN)?PATH.*stubs' <<<"$dynamic" || fail "$1 looks for the driver among the stubs"
}

check_library "$1"

mkdir "$work/tmp"
env -u TIDE_GDR_STAND_IN TMPDIR="$work/tmp" bash "$support/cluster" 1x1 \
  bash -c "cp \"\${LD_LIBRARY_PATH%%:*}/libgdrapi.so\" '$work'"
check_library "$work/libgdrapi.so"
[[ -z $(ls "$work/tmp") ]] || fail "tests/support/cluster left behind: $(ls "$work/tmp")"
